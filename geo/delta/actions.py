"""Derives from the actions of one commit of a Delta table what it does to rows and columns. Pure: no Spark, clock or I/O.

The `operation` that a writer gives itself, and its metrics, are for people: each engine has words of its own. The actions are the
protocol (Delta's PROTOCOL.md, "Actions"), so they say the same whoever wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

_VECTORS = re.compile(r"(^|/)deletion_vector_[0-9a-f-]{36}\.bin$")
"""The name of a file that is a deletion vector, and holds no rows."""

_NO_ROWS = frozenset({"commitInfo", "txn", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar"})
"""Actions that add and take no row by themselves."""


Partition: TypeAlias = tuple[tuple[str, str | None], ...]
"""Columns by which a table is partitioned, with their values as the log has them; ordered by name."""


Touched: TypeAlias = frozenset[Partition] | None
"""The partitions into which rows may have come; None: it may be any."""


class Effect(str, Enum):
    """The effect of a commit on the rows of a table."""

    NONE = "NONE"
    """No row came or went: no file did, or files were replaced by others that hold the same rows."""
    ADDED = "ADDED"
    """Rows came, and none went."""
    REMOVED = "REMOVED"
    """Rows went with whole files, and none came."""
    CHANGED = "CHANGED"
    """Rows went or changed, or came in a way that nobody who follows the commits sees."""
    RELISTED = "RELISTED"
    """Files were listed without a change of data and without others that went. Files that were there before add nothing (row tracking, statistics).
    Of any other file rows came that nobody sees who follows the commits.
    """


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of one commit, as far as they concern rows and columns.

    `rows`, `size`: of the files that came with a change of data; rows None where a file does not count its own, bytes.
    """

    effect: Effect
    paths: tuple[str, ...] = ()
    """Files that came with a change of data, as the log names them."""
    rows: int | None = 0
    size: int = 0
    partitions: frozenset[Partition] = frozenset()
    """Partitions of the files by which rows may have come. These files came with a change of data, or were listed without one while no others went.
    """
    columns: frozenset[str] | None = None
    """The names of all columns, inner ones with a dot, after a commit that describes the table; None of any other commit."""
    why: str = ""
    """Action that shows a changed table, for messages."""


def touched_by(before: Touched, actions: Actions | None) -> Touched:
    """Unites what is touched so far with the partitions of one commit more; None: its actions cannot be read."""
    return None if before is None or actions is None else before | actions.partitions


@dataclass(slots=True)
class _Files:
    """Files that came or went in one commit, and their rows; None where a file does not count them."""

    count: int = 0
    rows: int | None = 0

    def add(self, action: Mapping[str, Any]) -> None:
        counted = _rows_of(action)
        self.count += 1
        self.rows = None if self.rows is None or counted is None else self.rows + counted


def actions_of(actions: Iterable[Mapping[str, Any]]) -> Actions:
    """Sums the actions of one commit, in any order. Raises KeyError, ValueError, TypeError or AttributeError for what is no action of the protocol's
    form.
    """
    came, went, moved_in, moved_out = _Files(), _Files(), _Files(), _Files()
    paths: list[str] = []
    partitions: set[Partition] = set()
    listed: set[Partition] = set()
    size = 0
    columns: frozenset[str] | None = None
    why, has_feed = "", False
    for action in actions:
        for name, fields in action.items():
            if name == "add":
                (came if fields["dataChange"] else moved_in).add(fields)
                of = partitions if fields["dataChange"] else listed
                of.add(tuple(sorted((fields.get("partitionValues") or {}).items())))
                if fields["dataChange"]:
                    paths.append(fields["path"])
                    size += fields["size"]
            elif name == "remove" and not fields["dataChange"] and _VECTORS.search(fields["path"]):
                pass  # DROP FEATURE takes them out by name; the rows they hid went with the commit that added them
            elif name == "remove":
                (went if fields["dataChange"] else moved_out).add(fields)
            elif name == "cdc":
                has_feed = True
            elif name == "metaData":
                columns = column_names(fields)
            elif name not in _NO_ROWS:
                why = why or f"it has an action that this program does not know ({name})"
    if has_feed and (went.count or not came.count):  # else nothing can have been but rows that came
        why = why or "rows were changed one by one (cdc)"
    if came.count and went.count:
        why = why or "files with rows were replaced (add and remove)"
    if (moved_out.count and moved_in.rows != moved_out.rows) and not _is_promised(moved_in, moved_out):
        why = why or "files were replaced by others with another number of rows, though no data was to change"
    effect = _effect(came, went, moved_in, moved_out, why)
    if effect is Effect.RELISTED:
        partitions |= listed
    return Actions(effect, tuple(paths), came.rows, size, frozenset(partitions), columns, why)


def _is_promised(moved_in: _Files, moved_out: _Files) -> bool:
    """Tells whether nothing contradicts that the same rows are in other files now: a writer that counts none has to be believed."""
    return moved_in.count > 0 and None in (moved_in.rows, moved_out.rows)


def _effect(came: _Files, went: _Files, moved_in: _Files, moved_out: _Files, why: str) -> Effect:
    if why:
        return Effect.CHANGED
    if moved_in.count and not moved_out.count:
        return Effect.RELISTED
    if came.count:
        return Effect.ADDED
    return Effect.REMOVED if went.count else Effect.NONE


def _rows_of(action: Mapping[str, Any]) -> int | None:
    """The rows of a file that are not deleted; None where the log does not count them."""
    if not (stats := action.get("stats")):
        return None
    count = json.loads(stats).get("numRecords")
    deleted = (action.get("deletionVector") or {}).get("cardinality", 0)
    return None if count is None else int(count) - int(deleted)


def column_names(metadata: Mapping[str, Any]) -> frozenset[str]:
    """The names of all columns of a table's metadata, those within structs with a dot before them."""
    return frozenset(_names(json.loads(metadata["schemaString"]), ""))


def _names(kind: Any, prefix: str) -> Iterable[str]:
    if not isinstance(kind, Mapping):
        return
    for field in kind.get("fields", ()):
        yield f"{prefix}{field['name']}"
        yield from _names(field["type"], f"{prefix}{field['name']}.")
    for inner in ("elementType", "keyType", "valueType"):
        yield from _names(kind.get(inner), f"{prefix}{inner}.")
