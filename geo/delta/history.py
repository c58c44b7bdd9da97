"""The commits of a log since one that somebody remembers: whether it is still the same log, and which are gone. Pure: no Spark,
clock or I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from geo.delta.commits import Commit

LOOK_BACK = 8
"""Commits before the one in hand that are looked at too, to recognise a commit that landed twice. Its writer did not learn that it had landed and
committed the same files again, a few versions later.
"""


@dataclass(frozen=True, slots=True)
class CommitName:
    """A commit of a table, by name and not only by number: in a history that grew again the number has another id."""

    table_id: str
    version: int
    commit_id: str | None
    """None: it was gone already when it was looked for."""

    @classmethod
    def of(cls, table_id: str, commit: Commit) -> CommitName:
        return cls(table_id, commit.version, commit.commit_id)

    def __str__(self) -> str:
        return f"version {self.version}"


@dataclass(frozen=True, slots=True)
class Gone:
    """Commits that are not there any more: the first and the last version."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"commits {self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Parted:
    """The reason why a log is not the one that was remembered, as what one says of it, and the versions it concerns."""

    how: str
    first: int
    last: int
    is_remade: bool = False
    """It is another table than that."""


def parted(remembered: CommitName, table_id: str, newest: int, there: Commit | None) -> Parted | None:
    """Finds where a log's history parts from that in which `remembered` is; None: it does not, as far as can be told.

    `table_id` and `newest` are the log's now, `there` the commit that it now has at the remembered version; None: it is gone.
    """
    version = remembered.version
    if table_id != remembered.table_id:
        return Parted(
            f"was dropped and created again: its table id is {table_id}, it was {remembered.table_id}", 0, version, is_remade=True
        )
    if newest < version:
        return Parted(f"ends at version {newest}, it was at {version}: an older copy was put back", newest + 1, version)
    if there is not None and remembered.commit_id is not None and there.commit_id != remembered.commit_id:
        how = (
            f"has another commit at version {version} than it had ({there.operation} {there.who}): an older copy was put back and "
            "has grown since"
        )
        return Parted(how, version, version)  # where the histories parted nobody knows
    return None


def turn_of(commits: Iterable[Commit], most_bytes: int) -> list[Commit]:
    """The first of the commits, which are in order, up to a gap, and of at most so many bytes: one at least."""
    taken: list[Commit] = []
    size = 0
    for commit in commits:
        if taken and (commit.version != taken[-1].version + 1 or size + commit.bytes > most_bytes):
            break
        taken.append(commit)
        size += commit.bytes
    return taken


def with_gaps(commits: Iterable[Commit], first: int, newest: int) -> Iterator[Commit | Gone]:
    """The commits, which are those of the versions `first` to `newest` that are there, oldest first, with a Gone where some are
    missing."""
    due = first
    for commit in commits:
        if commit.version > due:
            yield Gone(due, commit.version - 1)
        yield commit
        due = commit.version + 1
    if due <= newest:
        yield Gone(due, newest)
