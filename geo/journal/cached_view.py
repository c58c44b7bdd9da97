"""A view of a journal that is kept until something comes into it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from geo.delta.held_files import told_at
from geo.delta.mirror import is_young, may_be_old
from geo.delta.tail import REMOTE_PRESENCE_S
from geo.delta.versions import stamp_at
from geo.journal.journal import Journal

_R = TypeVar("_R")


def fingerprint(journal: Journal) -> tuple[int, Hashable] | None:
    """The newest version of a journal, and what tells that commit's file from one in its place.

    None: it is not there, or on no store that this process writes.
    """
    if not journal.exists() or journal.table.log_folder is None:
        return None
    version = journal.table.latest_version()
    stamp = stamp_at(journal.table, version)
    return None if stamp is None else (version, stamp)


def is_unchanged(journal: Journal, since: tuple[int, Hashable], *, long_ago: bool = True) -> bool:
    """True if nothing has come into a journal since it had that fingerprint. It takes a look at two names, or at one where a look is a request
    unless it was `long_ago`."""
    version, stamp = since
    if journal.table.has_commit(version + 1):
        return False
    return not (long_ago or journal.table.is_near) or stamp_at(journal.table, version) == stamp


class CachedView(Generic[_R]):
    """A value that is read from a journal, and read again only when something has come into it."""

    def __init__(self, journal: Journal, read: Callable[[], _R]) -> None:
        self._journal, self._read = journal, read
        self._known: tuple[tuple[int, Hashable] | None, _R] | None = None
        self.looked_at = self._stamped_at = -math.inf
        """The time when the value was last known to be so (monotonic): a look that failed does not count."""

    def now(self) -> _R:
        if self._known is not None and is_young(self._journal.table, self.looked_at):
            return self._known[1]
        now = told_at()
        long_ago = now - self._stamped_at >= REMOTE_PRESENCE_S
        if (
            self._known is not None
            and self._known[0] is not None
            and is_unchanged(self._journal, self._known[0], long_ago=long_ago)
        ):
            self.looked_at, self._stamped_at = now, now if long_ago else self._stamped_at
            return self._known[1]
        with may_be_old(0.0):  # rows that are older than the fingerprint would stay as long as that does
            stamp = fingerprint(self._journal)
            found = self._read()  # what comes in between is read twice
        self._known, self.looked_at, self._stamped_at = (stamp, found), now, now
        return found
