"""The `_delta_log` of a table that Spark reads and writes, on a store that lets this process in as well. What its names and its newest
metadata say is asked for here: for a name that is not there Spark makes eight requests, for the rows of a system table twenty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from geo.delta.arrow_store import ArrowStore
from geo.delta.delta_log import has_commit, newest_version
from geo.delta.delta_state import seen_in
from geo.delta.engine import Engine, Seen, UnsupportedError
from geo.delta.remote import AGAIN_S, Remote
from geo.delta.store import StorePath
from geo.text import first_line

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_BACK = 10
"""Commits that are read for the metadata of a log without checksums: three requests each."""


@dataclass(frozen=True, slots=True)
class AskedLog(Engine):
    """One `_delta_log`, at a place of the store: answers what its names and its newest metadata tell.

    Raises UnsupportedError where Spark is to say, since the store gave no answer, this time or in the last minute, or says that something is
    not there and has shown no commit of the cluster by then: it may be another store than Spark's.
    """

    remote: Remote
    place: str

    @property
    def answers(self) -> bool:
        """Whether it is to be asked, and what it does not show is not there."""
        return self.remote.has_shown_commits and not self.remote.is_silent(self.place)

    def look(self) -> Seen | None:
        def ask(folder: StorePath[ArrowStore]) -> Seen | None:
            if (found := seen_in(folder, look_back=_LOOK_BACK)) is None:
                folder.store.refuse_no_bucket(self.place)
            return found

        return self._ask(ask)

    def newest(self) -> int:
        if (found := self._ask(newest_version)) is None:
            raise UnsupportedError("it has no commit")
        return found

    def has_commit(self, version: int) -> bool:
        """(While a bucket is away none is there; `look` tells.)"""

        def ask(folder: StorePath[ArrowStore]) -> bool | None:
            if has_commit(folder, version):
                return True
            if not self.remote.has_shown_commits and version > 0 and has_commit(folder, version - 1):
                self.remote.has_shown_commits = True
            return None

        return self._ask(ask) is True

    def _ask(self, ask: Callable[[StorePath[ArrowStore]], T | None]) -> T | None:
        """What the store says; None: that is not there."""
        if self.remote.is_silent(self.place):
            raise UnsupportedError("its store gave no answer lately")
        try:
            found = ask(self.remote.at(self.place))
        except (OSError, pa.ArrowException) as error:
            log.info("%s: Spark is asked for %.0f s: %s", self.place, AGAIN_S, first_line(error))
            self.remote.leave(self.place)
            raise UnsupportedError(f"its store gives no answer: {first_line(error)}") from None
        if found is not None:
            self.remote.has_shown_commits = True
        elif not self.remote.has_shown_commits:
            raise UnsupportedError("its store has shown no commit yet")
        return found
