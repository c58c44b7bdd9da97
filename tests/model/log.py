"""A topic's log as the protocols see one: commits that say what they did, and the rows of each version. No Spark, no file.

`tests/model/test_contract.py` holds it to a real table.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from geo.delta.commits import Commit
from geo.delta.history import CommitName
from geo.ids import LedgerId, MessageId
from geo.replication.gaps import Extent

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a log; `payload` is whatever a test puts there."""

    replicate_to: tuple[str, ...] | None = None
    publish_time_us: int = 0
    payload: Any = None


Rows = Mapping[MessageId, Row]


@dataclass(slots=True)
class Log:
    """`versions` are the rows after each commit; `first` is the first commit that was not cleaned up."""

    table_id: str = field(default_factory=lambda: f"table {next(_numbers)}")
    commits: list[Commit] = field(default_factory=list)
    versions: list[Rows] = field(default_factory=list)
    added: list[Rows] = field(default_factory=list)
    first: int = 0

    def __post_init__(self) -> None:
        if not self.commits:
            self._commit("CREATE TABLE", {}, {})

    @property
    def newest(self) -> int:
        return len(self.commits) - 1

    @property
    def rows(self) -> Rows:
        return self.versions[-1]

    @property
    def name(self) -> CommitName:
        """The newest commit, by name."""
        return CommitName.of(self.table_id, self.commits[-1])

    def between(self, first: int, last: int) -> list[Commit]:
        """The commits of these versions that are there, oldest first."""
        return [commit for commit in self.commits[max(0, first) : last + 1] if commit.version >= self.first]

    def at(self, version: int) -> Commit | None:
        return next(iter(self.between(version, version)), None)

    def brought(self, first: int, last: int) -> Rows:
        """The rows that these versions added."""
        return {one: row for rows in self.added[first : last + 1] for one, row in rows.items()}

    # -- what is done to it ------------------------------------------------------------------------------------------

    def append(self, rows: Rows, record: str | None = None) -> None:
        """Without a row there is no commit. A message that is there already is a fault of whoever appends it."""
        if not rows:
            return
        twice = sorted(map(str, rows.keys() & self.rows.keys()))
        assert not twice, f"doubled: {twice}"
        self._commit("WRITE", {**self.rows, **rows}, rows, {"mode": "Append"}, record)

    def restore(self, version: int) -> None:
        self._commit("RESTORE", self.versions[version], {}, {"version": str(version)})

    def compact(self) -> None:
        self._commit("OPTIMIZE", self.rows, {})

    def clean(self, below: int) -> None:
        """Commits go, rows stay."""
        self.first = max(self.first, min(below, self.newest))

    def copy(self) -> Log:
        """What a backup has: the same table."""
        return Log(self.table_id, list(self.commits), list(self.versions), list(self.added), self.first)

    def _commit(
        self,
        operation: str,
        after: Rows,
        added: Rows,
        parameters: Mapping[str, str] | None = None,
        record: str | None = None,
    ) -> None:
        version, metrics = len(self.commits), {"numOutputRows": len(added)}
        self.commits.append(
            Commit(version, f"commit {next(_numbers)}", operation, parameters or {}, metrics, record, version, None)
        )
        self.versions.append(after)
        self.added.append(added)


def extent(entries: Collection[int]) -> Extent:
    """Of a ledger's entries, in any order, of which there is one at least."""
    return Extent(min(entries), max(entries), len(entries), sum(entries), sum(entry * entry for entry in entries))


def extents(rows: Iterable[MessageId]) -> dict[LedgerId, Extent]:
    """One line a ledger, as `missing.extents`."""
    entries: dict[LedgerId, list[int]] = {}
    for one in rows:
        entries.setdefault(LedgerId(one.origin, one.ledger_id), []).append(one.entry_id)
    return {ledger: extent(found) for ledger, found in entries.items()}


def ends(rows: Iterable[MessageId]) -> dict[LedgerId, int]:
    return {ledger: extent.last for ledger, extent in extents(rows).items()}
