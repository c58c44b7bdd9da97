"""Replaces the rows of a system table by others made from them, in one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from geo.delta.appending import write_frame, write_rows
from geo.delta.change import Change
from geo.delta.delta_state import DeltaState
from geo.delta.frames import read_files
from geo.delta.local_commits import change_here
from geo.delta.scan import few_rows, files_at
from geo.delta.spark_commits import KEPT_RECORD, overwrite
from geo.delta.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def replace_rows(
    table: Table, make: Callable[[DataFrame], DataFrame], make_few: Callable[[pa.Table], pa.Table] | None = None
) -> None:
    """Replace the rows of a table by what `make` makes of them, or `make_few` of few rows without Spark, in one commit and one file.

    What is appended meanwhile stays, and streams do not see the commit, which says what it is (KEPT_RECORD). Either may be called several times,
    each time with the rows of a newer version. On a local disk nobody waits while rows are read and written. Of a table that is left to Spark all
    of it is under the lock.

    Raises RetryableError after COMMIT_ATTEMPTS commits that met another writer's.
    """

    def replaced(state: DeltaState) -> Change | None:
        if not (taken := files_at(table, state)):
            return None
        few = None if make_few is None else few_rows(table, state.version)
        if make_few is not None and few is not None:
            written = write_rows(table, make_few(few))
        else:
            rows = read_files(table, ((file.path, file.partition) for file in taken))
            written = write_frame(table, make(rows).coalesce(1))
        if written is None:
            return None
        return Change(
            state.version,
            "WRITE",
            {"mode": "Overwrite", "partitionBy": json.dumps(list(state.partition_by))},
            {},
            tuple(taken),
            written,
            changes_rows=False,
        )

    if change_here(table, replaced, KEPT_RECORD) is None:
        overwrite(table, make(table.read()).coalesce(1))
