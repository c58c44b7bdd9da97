"""The `_delta_log` of a table that Spark reads and writes, on a store that lets this process in as well. What its names and its newest
metadata say is asked for here: for a name that is not there Spark makes eight requests, for the rows of a system table twenty.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from geo.tables.delta_log import newest_metadata, newest_version
from geo.tables.places import RemotePath, is_there
from geo.text import first_line

log = logging.getLogger(__name__)

T = TypeVar("T")

AGAIN_S = 60.0
"""Spark is to say for so long after a store gave no answer: a key was rotated, a store is away."""


class AskedLog:
    """One `_delta_log`. Where the store gives no answer Spark is to say for a while, and the result of each question is None."""

    def __init__(self, folder: RemotePath) -> None:
        self._folder, self._silent_until = folder, -math.inf

    @property
    def is_believed(self) -> bool:
        """Whether what it does not show is not there: it answers, and its store has shown a commit of the cluster. One that has not may
        be another store than Spark's."""
        return time.monotonic() >= self._silent_until and self._folder.store.has_shown_commits

    def has(self, version: int) -> bool | None:
        """Whether a commit is there, by its name; None: Spark is to say."""
        if self._shows(version):
            return True
        if not self.is_believed and version > 0:
            self._shows(version - 1)
        return False if self.is_believed else None

    def newest(self) -> int | None:
        """The newest version, by a list of the folder; None: there is none if it `is_believed`, else Spark is to say."""

        def ask(folder: RemotePath) -> int | None:
            if (found := newest_version(folder)) is None:
                folder.refuse_no_bucket()
            return found

        return self._asked(ask)

    def metadata(self, newest: int) -> dict[str, Any] | None:
        """As `newest_metadata`; None: Spark is to say."""
        return self._asked(lambda folder: newest_metadata(folder, newest))

    def _shows(self, version: int) -> bool:
        return self._asked(lambda folder: is_there(folder, f"{version:020}.json") or None) is True

    def _asked(self, ask: Callable[[RemotePath], T | None]) -> T | None:
        if time.monotonic() < self._silent_until:
            return None
        try:
            found = ask(self._folder)
        except OSError as error:
            log.info("%s: Spark is asked for %.0f s: %s", self._folder, AGAIN_S, first_line(error))
            self._silent_until = time.monotonic() + AGAIN_S
            return None
        if found is not None:
            self._folder.store.has_shown_commits = True
        return found
