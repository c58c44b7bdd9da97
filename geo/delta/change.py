"""Commits without Spark that take files out of a table and put others in their place: expiry, compaction, erasure.

Spark's DELETE, OPTIMIZE and UPDATE read, write and commit in one call, so the table's lock would be held for all of it. Here the
files are found and written first; under the lock the commits since then are looked at, and the change is committed or refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geo.delta.commits import commit_file
from geo.delta.delta_state import DeltaState
from geo.delta.row_files import Added, Written
from geo.delta.store import ReadPath, WritePath
from geo.delta.writer import commit_actions, is_for_spark, may_add
from geo.now import now_us


@dataclass(frozen=True, slots=True)
class DataFileOf:
    """A file of a table at a version. `path` as the log has it."""

    path: str
    partition: Mapping[str, str]
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class Change:
    """Files that a commit takes out of a table, in which it was found at `version`, and those that it puts in.

    `changes_rows`: readers are told; else the same rows are in other files. `closed`: values of the partition column whose files are all taken, so
    that nothing may have come into them since. `feed`: files of the change feed, where the taken and added files do not tell it.
    """

    version: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, int]
    taken: tuple[DataFileOf, ...]
    written: Written | None = None
    feed: tuple[Added, ...] = ()
    changes_rows: bool = True
    closed: frozenset[str] = frozenset()

    @property
    def added(self) -> tuple[Added, ...]:
        return () if self.written is None else self.written.files


def conflict(change: Change, lines: Iterable[str]) -> str | None:
    """Tells why a change may not follow on commits with these lines, which came since its version; None: it may."""
    taken = {file.path for file in change.taken}
    for line in lines:
        for kind, action in json.loads(line).items():
            if kind == "remove" and action["path"] in taken:
                return f"{action['path']} was taken out meanwhile"
            if kind == "add" and action["path"] in taken:
                return f"{action['path']} was added once more"
            if kind == "add" and not change.closed.isdisjoint(action["partitionValues"].values()):
                return f"{action['path']} came meanwhile"
    return None


def conflict_since(folder: ReadPath, change: Change, newest: int) -> str | None:
    """Finds a conflict as `conflict`, in the commits above the change's version, up to the newest."""
    for version in range(change.version + 1, newest + 1):
        try:
            lines = (folder / commit_file(version)).lines()
            if (why := conflict(change, filter(None, lines))) is not None:
                return why
        except FileNotFoundError:
            return f"version {version} was cut off the log meanwhile"
    return None


def may_change(folder: WritePath, now: DeltaState, before: DeltaState, change: Change) -> bool:
    """Tells whether the next commit may make the change here, which was made for the table as it was before."""
    if now.why_not_change is not None or (change.written is not None and not may_add(folder, now, change.written)):
        return False
    return (now.table_id, now.partition_by) == (before.table_id, before.partition_by) and not is_for_spark(folder, now)


def commit_change(folder: WritePath, state: DeltaState, change: Change, user_metadata: str | None) -> bool:
    """Commit the change as the version after `state`: False and errors as `put_commit`."""
    now_ms = now_us() // 1000
    removes = [
        {
            "path": file.path,
            "deletionTimestamp": now_ms,
            "dataChange": change.changes_rows,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition),
            "size": file.size,
            "stats": json.dumps({"numRecords": file.rows}),
        }
        for file in change.taken
    ]
    feed = [
        {"path": file.path, "partitionValues": dict(file.partition), "size": file.size, "dataChange": False}
        for file in change.feed
    ]
    counted = {
        "numRemovedFiles": len(change.taken),
        "numRemovedBytes": sum(file.size for file in change.taken),
        "numAddedFiles": len(change.added),
        "numAddedBytes": sum(file.size for file in change.added),
        **change.metrics,
    }
    told: dict[str, Any] = {
        "operation": change.operation,
        "operationParameters": dict(change.parameters),
        "isBlindAppend": False,
        "operationMetrics": {name: str(count) for name, count in counted.items()},
    }
    actions = [
        *({"remove": one} for one in removes),
        *({"add": {**file.action, "dataChange": change.changes_rows}} for file in change.added),
        *({"cdc": one} for one in feed),
    ]
    return commit_actions(folder, state, told, actions, user_metadata)
