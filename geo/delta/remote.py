"""The object store on which a cluster's tables are, as far as it lets this process in beside Spark."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from geo.delta.arrow_store import ArrowStore
from geo.delta.engine import UnsupportedError
from geo.delta.store import StorePath

AGAIN_S = 60.0
"""A store that did not let this process in, or gave no answer, is left to Spark for so long: it may be away, or a key was rotated."""


class Remote:
    """One cluster's store, once `find` has found it; it finds None where there is none, or none now."""

    def __init__(self, find: Callable[[], ArrowStore | None]) -> None:
        self._find = find
        self._finding, self._find_at = threading.Lock(), -math.inf
        self._found: ArrowStore | None = None
        self.has_shown_commits = False
        """A commit of a table was read from it, so it is the one that Spark writes."""
        self._silent_until: dict[str, float] = {}
        """Monotonic times, by place: it gave no answer there."""

    def at(self, location: str) -> StorePath[ArrowStore]:
        """A file or folder on it. Raises UnsupportedError where there is no such store."""
        with self._finding:
            if self._found is None and time.monotonic() >= self._find_at:
                self._found, self._find_at = self._find(), time.monotonic() + AGAIN_S
            if self._found is None:
                raise UnsupportedError("its store does not let this process in")
            return StorePath(self._found, location)

    def is_silent(self, location: str) -> bool:
        """Whether it gave no answer there lately."""
        return time.monotonic() < self._silent_until.get(location, 0.0)

    def leave(self, location: str) -> None:
        """It gave no answer there."""
        self._silent_until[location] = time.monotonic() + AGAIN_S
