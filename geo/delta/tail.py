"""The commits that a table of messages gets, looked for by their names, one after the other: no streaming query, no checkpoint."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from geo.delta.commits import KEPT, Commit, Kind
from geo.delta.engine import Scan
from geo.delta.engines.spark.scan import filtered, scanned
from geo.delta.frames import read_added
from geo.delta.history import LOOK_BACK, CommitName, Gone, parted, turn_of
from geo.delta.predicate import Predicate
from geo.delta.predicate_arrow import kept
from geo.delta.scan import few_added
from geo.delta.table import Table
from geo.errors import RetryableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FULL_LOOK_S, REMOTE_FULL_LOOK_S = 60.0, 600.0
"""Time between two looks at the whole table while no commit comes: an older copy may have been put back. Elsewhere than on a local disk that is some
jobs of Spark's.
"""

PRESENCE_S, REMOTE_PRESENCE_S = 5.0, 300.0
"""Time, while no commit comes, between two questions whether the one that was read last is still there. Where it was cleaned up others may have come,
and be cleaned up too; an older copy of the log may have been put back.
"""

REMOTE_LOOK_S, NAMELESS_LOOK_S = 1.0, 10.0
"""Least time between two looks for the next commit where a look is a request of Spark's, and where it asks for the table's history."""

FAR_LOOK_S = 0.2
"""So often a store that is far is asked at most, whatever a trigger says: 18,000 requests an hour."""

T = TypeVar("T")

TURN_COMMITS, TURN_BYTES = 500, 256 * 1024**2
"""Commits and bytes that are read at once, in whole commits, one at least: a consumer's function waits for no more of it."""

_PASSED = frozenset({Kind.APPEND, Kind.NEUTRAL, Kind.EXPIRY, Kind.ERASURE})
"""Kinds of commits after which what was read before is as it was, for who acts once on each row."""


def passes(commit: Commit) -> bool:
    """Tells whether what was read before is as it was, after a commit of a table of messages."""
    return commit.kind in _PASSED


def passes_journal(commit: Commit) -> bool:
    """The same of a system table, of which newest rows count alone."""
    return passes(commit) or commit.kind is Kind.RELISTED or commit.has_record(KEPT)


@dataclass(frozen=True, slots=True)
class Turn:
    """Some commits in a row, oldest first."""

    commits: Sequence[Commit]

    @property
    def first(self) -> int:
        return self.commits[0].version

    @property
    def last(self) -> Commit:
        return self.commits[-1]

    @property
    def brings(self) -> bool:
        """True if they may have added rows."""
        return any(commit.kind is Kind.APPEND for commit in self.commits)

    @property
    def alters(self) -> bool:
        """True if they may have added columns."""
        return any(commit.columns is not None for commit in self.commits)


def least_look_s(table: Table) -> float:
    """Least time between two looks for the next commit of a table that exists, where nobody says how often; 0 on a local disk."""
    if table.is_near:
        return 0.0
    return NAMELESS_LOOK_S if table.location is None else REMOTE_LOOK_S


def look_every_s(table: Table, said_s: float) -> float:
    """Time between two looks for the next commit of a table that exists, as a trigger says. Where a look is a request at least FAR_LOOK_S, and
    where it is one of Spark's not less than there."""
    if table.is_near:
        return said_s
    return max(said_s, FAR_LOOK_S if table.log_folder is not None else least_look_s(table))


class Tail:
    """Follows a table after the commit `at`. Whole commits, so nobody sees a ledger with a hole in it for a moment."""

    def __init__(self, table: Table, at: CommitName, passes: Callable[[Commit], bool] = passes) -> None:
        self._table, self.at, self._passes = table, at, passes
        self._looked_at, self._asked_at = time.monotonic(), -math.inf
        self._is_gone = False
        """The commit `at` was cleaned up, and it is the newest."""
        self._recent: deque[Commit] = deque(maxlen=LOOK_BACK)
        """The commits that were read last, the one at `at` included: another one may be one of them once more."""

    @classmethod
    def at_newest(cls, table: Table, passes: Callable[[Commit], bool] = passes) -> Tail:
        """Raises RetryableError if there is no table."""
        seen = table.snapshot()
        if seen is None:
            raise RetryableError(f"{table}: there is no table now.")
        newest = table.commit_at(seen.version)
        return cls(table, CommitName(seen.table_id, seen.version, None if newest is None else newest.commit_id), passes)

    def next(self) -> Turn | None:
        """The next commits; None: none has come. `take` them before the next call.

        Raises RetryableError where the table is not what it was, or rows were changed, removed or put back by somebody else. Then what was read
        before has to be compared.
        """
        if not self._table.has_commit(self.at.version + 1):
            now, is_local = time.monotonic(), self._table.is_near
            if now - self._looked_at >= (FULL_LOOK_S if is_local else REMOTE_FULL_LOOK_S):
                self._look()
            elif not self._is_gone and now - self._asked_at >= (PRESENCE_S if is_local else REMOTE_PRESENCE_S):
                self._asked_at = now
                if not self._table.has_commit(self.at.version):
                    self._look()
            return None
        due, newest = self.at.version, self._some_newer()
        commits = list(self._table.commits(due, newest))
        if commits and commits[0].version == due:
            self._compare(self.at.table_id, due, commits[0])
            self._recent = self._recent or deque([commits[0]], LOOK_BACK)
            del commits[0]
        elif not self._table.is_near and (last := self._table.latest_version()) > newest:
            # Of what is below a cut a halted writer may have put one that does not count.
            commits = list(self._table.commits(due + 1, last))
            if len(commits) != last - due:
                raise RetryableError(f"{self._table}: some of {Gone(due + 1, last)} are gone.")
        if commits and commits[0].version > due + 1:
            raise RetryableError(f"{self._table}: {Gone(due + 1, commits[0].version - 1)} are gone.")
        taken = turn_of(commits, TURN_BYTES)
        recent = deque(self._recent, LOOK_BACK)
        for commit in taken:
            if not self._passes(commit):
                raise RetryableError(f"{self._table}: version {commit.version} is a {commit.what}.")
            if any(commit.repeats(one) for one in recent):
                raise RetryableError(f"{self._table}: version {commit.version} is a commit that landed twice.")
            recent.append(commit)
        return Turn(taken) if taken else None

    def take(self, turn: Turn) -> None:
        """It was read."""
        self._recent.extend(turn.commits)
        self.at, self._looked_at, self._is_gone = CommitName.of(self.at.table_id, turn.last), time.monotonic(), False

    def check(self) -> None:
        """Asks now whether the table is what it was. Raises RetryableError as `next`."""
        self._look()

    def few(self, turn: Turn) -> pa.Table | None:
        """The rows that it added, read without Spark; None if they are many, or Spark is to read them."""
        return few_added(self._table, turn.first, turn.last.version)

    def rows(self, turn: Turn) -> DataFrame:
        """The rows that it added."""
        return read_added(self._table, turn.first, turn.last.version)

    def rows_where(self, turn: Turn, columns: Sequence[str], where: Predicate) -> pa.Table:
        """Reads as `Engine.rows_where` the rows that it added."""
        if (few := self.few(turn)) is not None:
            return kept(where, few.select(columns))
        return filtered(self.rows(turn), where).select(*columns).toArrow()

    def scan(self, turn: Turn, asked: Scan[T]) -> list[T]:
        """Scans as `Engine.scan` the rows that it added, by Spark."""
        return scanned(self.rows(turn), asked)

    def _some_newer(self) -> int:
        """A version that is there, above the one that was read last; in ever longer steps, since each may be a request."""
        found, step = self.at.version + 1, 1
        while step < TURN_COMMITS and self._table.has_commit(found + step):
            found, step = found + step, step * 2
        return found

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        seen = self._table.snapshot()
        if seen is None:
            raise RetryableError(f"{self._table}: there is no table now.")
        there = self._table.commit_at(self.at.version)
        self._compare(seen.table_id, seen.version, there)
        self._is_gone = there is None
        if seen.version > self.at.version and not self._table.has_commit(self.at.version + 1):
            raise RetryableError(f"{self._table}: {Gone(self.at.version + 1, seen.version - 1)} are gone.")

    def _compare(self, table_id: str, newest: int, there: Commit | None) -> None:
        if (found := parted(self.at, table_id, newest, there)) is not None:
            raise RetryableError(f"{self._table}: it {found.how}.")
