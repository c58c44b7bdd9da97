"""What a link knows of itself between runs, and what its source's history means for it. Pure: no Spark, clock or I/O.

A link's state says: all versions of the source up to `source_version` are in the target. `diagnose` decides whether that
still means what it meant. It never decides to skip: what it cannot vouch for is a Fault, with the exact range and the
verb that resolves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

ERASED = "geo.erase"
"""Key of the record that the commit of an erasure carries."""


class State(str, Enum):
    """Kafka's fetcher states, per link and topic."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    DELAYED = "DELAYED"
    """A transient fault: tried again by itself."""
    FAILED = "FAILED"
    """Needs a person; the reason names range and verb."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """One row of `system/links`: see schemas.system.LINKS for each field."""

    source: str
    topic: str
    state: State
    reason: str | None
    generation: int
    source_table_id: str
    source_version: int
    target_table_id: str
    target_version: int
    witness: str | None
    checkpoint: str | None
    floors: Mapping[str, int] | None
    sequence: int


class HistoryCommit(Protocol):
    """What `diagnose` reads of a commit (geo.log.tables.Commit has it)."""

    @property
    def version(self) -> int: ...
    @property
    def operation(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, str]: ...
    @property
    def metrics(self) -> Mapping[str, str]: ...
    @property
    def user_metadata(self) -> str | None: ...
    @property
    def timestamp(self) -> str: ...
    @property
    def user(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a link may not go on: what happened, and the first and last version it concerns."""

    what: str
    first: int
    last: int
    lost: Sequence[str] = field(default=())
    """Messages that are no longer in the source, as `origin:ledger:first-last`."""

    def message(self, state: LinkState, target: str) -> str:
        lost = f" No longer in the source: {', '.join(self.lost)}." if self.lost else ""
        versions = f"version {self.first}" if self.first == self.last else f"versions {self.first}-{self.last}"
        return (
            f"{self.what} ({versions} of {state.source}).{lost} {target} holds everything up to version {state.source_version}; "
            f"nothing was skipped. If the source is right as it is now, run: geo reconcile --source {state.source} "
            f"--target {target} --topic {state.topic}"
        )


def diagnose(state: LinkState, source_table_id: str, latest: int, commits: Sequence[HistoryCommit]) -> Fault | None:
    """The first thing in the source since the link's position that it must not read past; None if it may go on.

    `commits` are those after `state.source_version`, newest first, as Delta lists them.
    """
    if source_table_id != state.source_table_id:
        return Fault(
            f"the source was dropped and created again: its table is {source_table_id}, the link read {state.source_table_id}",
            0,
            state.source_version,
        )
    if latest < state.source_version:
        return Fault(
            f"the source ends at version {latest}, the link has read up to {state.source_version}: an older copy was put back",
            latest + 1,
            state.source_version,
        )
    for commit in reversed(commits):
        who = f"by {commit.user or 'someone'} at {commit.timestamp} UTC"
        if commit.operation == "RESTORE":
            back_to = _restored_version(commit)
            undone = f"which undid versions {back_to + 1}-{commit.version - 1}" if back_to is not None else ""
            first = commit.version if back_to is None else back_to + 1
            return Fault(f"a RESTORE {who} in version {commit.version} {undone}".rstrip(), first, commit.version)
        if _rewrites(commit) and not is_erasure(commit):
            return Fault(f"messages were changed: {commit.operation} {who}", commit.version, commit.version)
    return None


def is_erasure(commit: HistoryCommit) -> bool:
    """Whether the commit only emptied messages (`geo erase`): ids and number of the rows are as before."""
    return f'"{ERASED}"' in (commit.user_metadata or "")


def _restored_version(commit: HistoryCommit) -> int | None:
    version = commit.parameters.get("version", "")
    return int(version) if str(version).isdigit() else None


def _rewrites(commit: HistoryCommit) -> bool:
    """Whether a commit replaced or removed messages other than whole expired dates (a DELETE without copied rows)."""

    def count(*names: str) -> int:
        return sum(int(commit.metrics.get(name) or 0) for name in names)

    if commit.operation in ("UPDATE", "MERGE"):
        return count("numUpdatedRows", "numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsCopied") > 0
    if commit.operation == "DELETE":
        return count("numCopiedRows", "numAddedFiles", "numDeletionVectorsAdded") > 0
    overwrites = str(commit.parameters.get("mode", "")).strip('"').lower() == "overwrite"
    return commit.operation in ("TRUNCATE", "REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE AS SELECT") or (
        commit.operation == "WRITE" and overwrites
    )


def start_version(end_offset: Mapping[str, object] | None) -> int | None:
    """First version that a batch after this Delta source offset reads from; None if nothing was read yet.

    An offset names the version to go on in; index -1 (or less) means that nothing of it was read.
    """
    if end_offset is None:
        return None
    return int(str(end_offset["reservoirVersion"]))


def read_version(end_offset: Mapping[str, object] | None) -> int | None:
    """Last version that is read completely up to this Delta source offset."""
    start = start_version(end_offset)
    return None if start is None else start - 1


def backoff_s(attempt: int) -> float:
    """Pause before try number `attempt` (from 1) of a delayed link: 1 s doubling to 60 s, as Pulsar's replicator reads."""
    return min(60.0, 2.0 ** min(attempt - 1, 6))
