"""The `_delta_log` of a table that Spark reads and writes, on a store that lets this process in as well. What its names and its newest
metadata say is asked for here: for a name that is not there Spark makes eight requests, for the rows of a system table twenty.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from geo.delta.arrow_store import AGAIN_S, ArrowStore
from geo.delta.delta_log import newest_metadata, newest_version
from geo.delta.engine import Engine, Seen, UnsupportedError
from geo.delta.store import StorePath
from geo.text import first_line

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_BACK = 10
"""Commits that are read for the metadata of a log without checksums: three requests each."""


class AskedLog(Engine):
    """One `_delta_log`: answers what its names and its newest metadata tell.

    Raises UnsupportedError where Spark is to say, since the store gave no answer, this time or in the last minute, or says that something is
    not there and has shown no commit of the cluster by then: it may be another store than Spark's.
    """

    def __init__(self, folder: StorePath[ArrowStore]) -> None:
        self._folder = folder

    @property
    def answers(self) -> bool:
        """Whether it is to be asked, and what it does not show is not there."""
        return self._folder.store.has_shown_commits and not self._is_silent

    def look(self) -> Seen | None:
        if (newest := self._newest()) is None:
            return None
        metadata = self._ask(lambda folder: newest_metadata(folder, newest, look_back=_LOOK_BACK))
        if metadata is None:
            raise UnsupportedError("its metadata is far back in its log")
        return Seen.of(metadata, newest)

    def newest(self) -> int:
        if (newest := self._newest()) is None:
            raise UnsupportedError("it has no commit")
        return newest

    def has_commit(self, version: int) -> bool:
        """(While a bucket is away none is there; `look` tells.)"""

        def ask(folder: StorePath[ArrowStore]) -> bool | None:
            if folder.has(f"{version:020}.json"):
                return True
            if not folder.store.has_shown_commits and version > 0 and folder.has(f"{version - 1:020}.json"):
                folder.store.has_shown_commits = True
            return None

        return self._ask(ask) is True

    def _newest(self) -> int | None:
        """The newest version, by a list of the folder; None: there is none."""

        def ask(folder: StorePath[ArrowStore]) -> int | None:
            if (found := newest_version(folder)) is None:
                folder.store.refuse_no_bucket(folder.location)
            return found

        return self._ask(ask)

    @property
    def _is_silent(self) -> bool:
        return time.monotonic() < self._folder.store.silent_until.get(str(self._folder), 0.0)

    def _ask(self, ask: Callable[[StorePath[ArrowStore]], T | None]) -> T | None:
        """What the store says; None: that is not there."""
        if self._is_silent:
            raise UnsupportedError("its store gave no answer lately")
        store = self._folder.store
        try:
            found = ask(self._folder)
        except (OSError, pa.ArrowException) as error:
            log.info("%s: Spark is asked for %.0f s: %s", self._folder, AGAIN_S, first_line(error))
            store.silent_until[str(self._folder)] = time.monotonic() + AGAIN_S
            raise UnsupportedError(f"its store gives no answer: {first_line(error)}") from None
        if found is not None:
            store.has_shown_commits = True
        elif not store.has_shown_commits:
            raise UnsupportedError("its store has shown no commit yet")
        return found
