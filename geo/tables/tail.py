"""The commits that a table of messages gets, looked for by their names, one after the other: no streaming query, no checkpoint."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.errors import RetryableError
from geo.tables.commits import Commit, Kind
from geo.tables.history import CommitName, Gone, parted, with_gaps
from geo.tables.table import Table

LOOK_INTERVAL_S = 60.0
"""How often the commit that was read last is looked at again while no other one comes: an older copy may have been put back."""

TURN_COMMITS, TURN_BYTES = 500, 256 * 1024**2
"""What is read at once, in whole commits, one at least."""

_PASSED = frozenset({Kind.APPEND, Kind.NEUTRAL, Kind.EXPIRY, Kind.ERASURE})
"""Kinds of commits after which what was read before is as it was, for who acts once on each row."""


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
        """Whether they may have added rows."""
        return any(commit.kind is Kind.APPEND for commit in self.commits)

    @property
    def alters(self) -> bool:
        """Whether they may have added columns."""
        return any(commit.kind is Kind.NEUTRAL for commit in self.commits)


class Tail:
    """What a table gets after the commit `at`. Whole commits, so nobody sees a ledger with a hole in it for a moment."""

    def __init__(self, table: Table, at: CommitName) -> None:
        self._table, self.at = table, at
        self._looked_at = time.monotonic()

    @classmethod
    def at_newest(cls, table: Table) -> Tail:
        """Raises RetryableError if there is no table."""
        seen = table.look()
        if seen is None:
            raise RetryableError(f"{table}: there is no table now.")
        newest = table.commit_at(seen.version)
        return cls(table, CommitName(seen.table_id, seen.version, None if newest is None else newest.commit_id))

    def next(self) -> Turn | None:
        """The next commits; None: none has come. `take` them before the next call.

        Raises RetryableError where the table is not what it was, or rows were changed, removed or put back by somebody else, so
        that what was read before has to be compared.
        """
        if not self._table.has_commit(self.at.version + 1):
            if time.monotonic() - self._looked_at >= LOOK_INTERVAL_S:
                self._look()
            return None
        taken: list[Commit] = []
        size, due, newest = 0, self.at.version, self._some_newer()
        for commit in with_gaps(self._table.commits(due, newest), due, newest):
            if isinstance(commit, Gone):
                if commit.last > self.at.version:
                    raise RetryableError(f"{self._table}: {commit} are gone.")
                continue
            if commit.version == self.at.version:
                self._compare(self.at.table_id, commit.version, commit)
                continue
            if taken and (commit.version != taken[-1].version + 1 or size + commit.bytes > TURN_BYTES):
                break
            if commit.kind not in _PASSED:
                raise RetryableError(f"{self._table}: version {commit.version} is a {commit.operation} {commit.who}.")
            taken.append(commit)
            size += commit.bytes
        return Turn(taken) if taken else None

    def take(self, turn: Turn) -> None:
        """It was read."""
        self.at, self._looked_at = CommitName.of(self.at.table_id, turn.last), time.monotonic()

    def few(self, turn: Turn) -> pa.Table | None:
        """The rows that it added, read without Spark; None if they are many, or Spark is to read them."""
        return self._table.few_added(turn.first, turn.last.version)

    def rows(self, turn: Turn) -> DataFrame:
        """The rows that it added."""
        return self._table.read_added(turn.first, turn.last.version)

    def _some_newer(self) -> int:
        """A version that is there, above the one that was read last; in ever longer steps, since each may be a request."""
        found, step = self.at.version + 1, 1
        while step < TURN_COMMITS and self._table.has_commit(found + step):
            found, step = found + step, step * 2
        return found

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        seen = self._table.look()
        if seen is None:
            raise RetryableError(f"{self._table}: there is no table now.")
        self._compare(seen.table_id, seen.version, self._table.commit_at(self.at.version))
        if seen.version > self.at.version and not self._table.has_commit(self.at.version + 1):
            raise RetryableError(f"{self._table}: {Gone(self.at.version + 1, seen.version - 1)} are gone.")

    def _compare(self, table_id: str, newest: int, there: Commit | None) -> None:
        if (found := parted(self.at, table_id, newest, there)) is not None:
            raise RetryableError(f"{self._table}: it {found.how}.")
