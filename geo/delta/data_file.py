"""One file of a table, as Delta's log describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from geo.delta.predicate import constant
from geo.delta.store import ReadPath, parquet


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table, and what Delta's log says of it: `num_records`, and `min.COLUMN`, `max.COLUMN`, `null_count.COLUMN` of
    some."""

    path: ReadPath
    statistics: Mapping[str, Any]

    def constant(self, column: str) -> Any:
        """The value that all its rows have; None if that is not known."""
        of_partition = self.statistics.get(f"partition.{column}")
        return constant(self.statistics, column) if of_partition is None else of_partition

    def partition(self, column: str) -> str:
        """The value of a partition column, as Delta's log has it."""
        return str(self.statistics[f"partition.{column}"])

    def nulls(self, column: str) -> int | None:
        """Counts the rows that have NULL in a column, as Delta's log says, or else the file itself at its end; None: neither does."""
        if (told := self.statistics.get(f"null_count.{column}")) is not None:
            return int(told)
        end = parquet(self.path).metadata
        names = [end.schema.column(at).path for at in range(len(end.schema))]
        if column not in names:
            return int(end.num_rows)  # the table got it later
        found = [end.row_group(at).column(names.index(column)).statistics for at in range(end.num_row_groups)]
        if any(statistics is None or not statistics.has_null_count for statistics in found):
            return None
        return int(sum(statistics.null_count for statistics in found))

    def first(self, column: str) -> Any:
        """The value of its first row; None if the file has no such column."""
        row = next(parquet(self.path).iter_batches(1, columns=[column]))
        return row.column(0)[0].as_py() if row.num_columns else None
