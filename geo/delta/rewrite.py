"""Replaces the rows of a system table by others made from them, in one file."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from geo.delta.change import Change
from geo.delta.delta_state import DeltaState
from geo.delta.scan import files_at
from geo.delta.table import KEPT_RECORD, Table


def replace_rows(table: Table, make: Callable[[DataFrame], DataFrame]) -> None:
    """In one commit, which says so. `make` gives what the rows of a version become; what is appended meanwhile stays, and streams do not see
    it. On a local disk the rows are read and written before the table's lock is taken, unless the table is left to Spark.

    Raises RetryableError as `Table.change_here`.
    """

    def replaced(state: DeltaState) -> Change | None:
        if not (taken := files_at(table, state)):
            return None
        rows = table.read_files((file.path, file.partition) for file in taken)
        written = table.write_files(make(rows).coalesce(1))
        if written is None:
            return None
        return Change(
            state.version, "WRITE", {"mode": "Overwrite", "partitionBy": "[]"}, {}, tuple(taken), written, changes_rows=False
        )

    if table.change_here(replaced, KEPT_RECORD) is None:
        table.overwrite(make(table.read()).coalesce(1))
