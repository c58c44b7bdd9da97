"""What a commit did by its writer's own words, where its actions cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geo.delta.commits import ERASED, EXPIRED, Commit, Kind, of_info
from geo.delta.operations import actions_by_operation

APPEND, NEUTRAL, REWRITE = Kind.APPEND, Kind.NEUTRAL, Kind.REWRITE


def _commit(operation: str, parameters: dict[str, Any] | None = None, record: str | None = None, **metrics: Any) -> Commit:
    info = {"operation": operation, "operationParameters": parameters or {}, "operationMetrics": metrics, "userMetadata": record}
    return of_info(3, info, "id")


@pytest.mark.parametrize(
    ("commit", "kind"),
    [
        (_commit("WRITE", {"mode": "Append"}), APPEND),
        (_commit("WRITE", {"mode": '"Append"'}), APPEND),
        (_commit("WRITE", {"mode": "Overwrite"}), REWRITE),
        (_commit("WRITE"), REWRITE),
        (_commit("STREAMING UPDATE", {"outputMode": "Append"}), APPEND),
        (_commit("STREAMING UPDATE", {"outputMode": "Complete"}), REWRITE),
        (_commit("COPY INTO"), APPEND),
        (_commit("OPTIMIZE"), NEUTRAL),
        (_commit("SET TBLPROPERTIES"), NEUTRAL),
        (_commit("ADD COLUMNS"), NEUTRAL),
        (_commit("VACUUM END"), NEUTRAL),
        (_commit("RESTORE"), Kind.RESTORE),
        (_commit("REPLACE TABLE"), REWRITE),
        (_commit("REORG"), NEUTRAL),
        (_commit("ROW TRACKING BACKFILL"), NEUTRAL),
        (_commit("ADD COLUMN"), NEUTRAL),
        (_commit("RENAME COLUMN"), REWRITE),
        (_commit("UPDATE", numUpdatedRows="3"), REWRITE),
        (_commit("UPDATE", numUpdatedRows="0", numAddedFiles="0"), NEUTRAL),
        (_commit("UPDATE"), REWRITE),
        (_commit("UPDATE", num_updated_rows="3"), REWRITE),
        (_commit("UPDATE", num_updated_rows="0"), NEUTRAL),
        (_commit("MERGE", num_target_rows_inserted=5), REWRITE),
        (_commit("DELETE", num_deleted_rows=2, num_removed_files=1, num_added_files=1), REWRITE),
        (_commit("MERGE", numTargetRowsInserted="0", numTargetRowsUpdated="0"), NEUTRAL),
        (_commit("MERGE", numTargetRowsInserted="1"), REWRITE),
        (_commit("DELETE", numRemovedFiles="2"), REWRITE),
        (_commit("DELETE", numRemovedFiles="0", numDeletedRows="0"), NEUTRAL),
        (_commit("DELETE", None, json.dumps({EXPIRED: 1}), numRemovedFiles="2"), Kind.EXPIRY),
        (_commit("DELETE", None, json.dumps({EXPIRED: 1}), numRemovedFiles="2", numCopiedRows="1"), REWRITE),
        (_commit("DELETE", None, json.dumps({ERASED: 1}), numRemovedFiles="2"), REWRITE),
        (_commit("UPDATE", None, json.dumps({ERASED: 1}), numUpdatedRows="2"), Kind.ERASURE),
        (_commit("WRITE", {"mode": "Overwrite"}, json.dumps({EXPIRED: 1})), REWRITE),
    ],
)  # fmt: skip
def test_an_operation_that_is_not_known_is_not_passed_over(commit: Commit, kind: Kind) -> None:
    assert commit.kind is kind


@pytest.mark.parametrize(
    ("metrics", "rows"), [({"numOutputRows": 4}, 4), ({"num_added_rows": 3}, 3), ({"numOutputRows": 0}, 0), ({}, None)]
)
def test_rows_that_an_append_does_not_count_are_not_known(metrics: dict[str, int], rows: int | None) -> None:
    assert actions_by_operation("WRITE", {"mode": "Append"}, metrics).rows == rows
