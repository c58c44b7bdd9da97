"""Judges a commit by the name of its operation and its metrics, where its actions cannot be read (a catalog that hides its log).
Pure: no Spark, clock or I/O.

A name that is not known here changes rows: nothing is passed over by it.
"""

from __future__ import annotations

from collections.abc import Mapping

from geo.delta.actions import Actions, Effect

_APPENDS = {"WRITE": "mode", "STREAMING UPDATE": "outputMode"}
"""Operations that append if this parameter says so."""

_ADDS = frozenset({"COPY INTO", "CREATE TABLE AS SELECT"})

_ALTERS = frozenset(
    {
        "ADD COLUMN", "ADD COLUMNS", "ADD CONSTRAINT", "CHANGE COLUMN", "CHANGE COLUMNS", "CREATE TABLE", "DROP CONSTRAINT",
        "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPDATE FIELD METADATA", "UPDATE TABLE METADATA",
    }
)  # fmt: skip
"""Operations that describe the table: columns may have come."""

_NEUTRAL = frozenset(
    {
        "ADD FEATURE", "ANALYZE", "CLUSTER BY", "COMPUTE STATS", "DOMAIN METADATA CLEANUP", "DROP FEATURE", "OPTIMIZE", "OPTIMIZE CHECKPOINT",
        "REORG", "ROW TRACKING BACKFILL", "UPGRADE PROTOCOL", "VACUUM END", "VACUUM START",
    }
)  # fmt: skip

_EFFECTS = {
    "UPDATE": ("numUpdatedRows", "num_updated_rows", "numAddedFiles", "num_added_files", "numDeletionVectorsAdded"),
    "MERGE": (
        "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsCopied", "num_target_rows_inserted",
        "num_target_rows_updated", "num_target_rows_deleted", "num_target_rows_copied",
    ),
    "DELETE": (
        "numDeletedRows", "num_deleted_rows", "numRemovedFiles", "num_removed_files", "numCopiedRows", "num_copied_rows",
        "numAddedFiles", "num_added_files", "numDeletionVectorsAdded",
    ),
}  # fmt: skip
"""Operations that may have found nothing to do, and the metrics that tell, in the words of each engine."""

_REWRITTEN = ("numCopiedRows", "num_copied_rows", "numAddedFiles", "num_added_files", "numDeletionVectorsAdded")
"""Metrics of a DELETE that took more apart than whole files."""

_ROWS, _BYTES = ("numOutputRows", "num_added_rows"), ("numOutputBytes",)


def actions_by_operation(operation: str, parameters: Mapping[str, str], metrics: Mapping[str, int]) -> Actions:
    """Actions of a commit, as far as its writer's own words tell. `rows` None where they do not count."""
    if operation in _APPENDS:
        mode = parameters.get(_APPENDS[operation], "").strip('"').lower()
        return _added(metrics) if mode == "append" else _changed(operation)
    if operation in _ADDS:
        return _added(metrics)
    if operation in _EFFECTS:
        if metrics and not _some(metrics, _EFFECTS[operation]):
            return Actions(Effect.NONE)
        is_whole = operation == "DELETE" and not _some(metrics, _REWRITTEN)
        return Actions(Effect.REMOVED, why=operation) if is_whole else _changed(operation)
    if operation in _ALTERS:
        return Actions(Effect.NONE, columns=frozenset())  # some may have come; which ones no name of an operation tells
    return Actions(Effect.NONE) if operation in _NEUTRAL else _changed(operation)


def _added(metrics: Mapping[str, int]) -> Actions:
    rows = next((metrics[name] for name in _ROWS if name in metrics), None)
    size = next((metrics[name] for name in _BYTES if name in metrics), 0)
    return Actions(Effect.ADDED, rows=rows, size=size)


def _changed(operation: str) -> Actions:
    return Actions(Effect.CHANGED, rows=None, why=operation)


def _some(metrics: Mapping[str, int], names: tuple[str, ...]) -> bool:
    return any(metrics.get(name, 0) for name in names)
