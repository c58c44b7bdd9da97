"""The system tables as journals: rows are appended, and of one subject the row with the highest `sequence` counts.

Nothing is overwritten, so writers never wait for each other; every so often the many small files become one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from geo.log.frames import rows_frame
from geo.log.table import Table
from schemas import TableSchema

COMPACT_EVERY = 8
"""Rows of a subject between two compactions. Reading 15 files of a row took 0.25 s more than reading one, a compaction 0.4 s."""


class Journal:
    """One system table of a cluster. It comes into being with the first row appended."""

    def __init__(self, table: Table, schema: TableSchema) -> None:
        self._table, self._schema = table, schema
        self._there = False

    def __str__(self) -> str:
        return str(self._table)

    def exists(self) -> bool:
        """Whether it has come into being. Raises SchemaError if it is not ours or newer than this program."""
        self._there = self._there or self._table.find(self._schema) is not None
        return self._there

    def rows(self) -> DataFrame | None:
        """All rows ever appended, columns as the schema; None if there are none."""
        return self._table.read() if self.exists() else None

    def newest(self, where: str = "true") -> list[Row]:
        """The newest row of each subject, among the rows that fulfil `where` (SQL)."""
        rows = self.rows()
        if rows is None:
            return []
        newest = (
            rows.where(where).groupBy(*self._schema.subject).agg(F.max_by(F.struct(*self._schema.names), "sequence").alias("row"))
        )
        return [row["row"] for row in newest.collect()]

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows, given by column name, in one commit."""
        self._append(rows)

    def append_once(self, rows: Sequence[Mapping[str, Any]], transaction: tuple[str, int], token: str) -> bool:
        """Append rows unless this Delta transaction (application id, number), or a higher number of it, was used before.

        Returns whether they were appended, told from `token`, which this call alone uses, in the newest commits. False can
        also mean that a dozen commits came in the moment between; nobody else has the number then either.
        """
        self._append(rows, token, transaction)
        return any(commit.user_metadata == token for commit in self._table.recent(12))

    def _append(
        self, rows: Sequence[Mapping[str, Any]], token: str | None = None, transaction: tuple[str, int] | None = None
    ) -> None:
        if not self.exists():
            self._table.create(self._schema)
        frame = rows_frame(self._table.spark, self._schema.types, rows).coalesce(1)
        self._table.append(frame, user_metadata=token, transaction=transaction)
        if rows[0]["sequence"] % COMPACT_EVERY == 0:
            self._table.commit(lambda: self._table.delta().optimize().executeCompaction())

    def clean(self, *, dry_run: bool = False) -> int:
        """Remove the rows that newer ones have superseded, and the files of before. Returns how many rows."""
        rows = self.rows()
        if rows is None:
            return 0
        newest = rows.groupBy(*self._schema.subject).agg(F.max("sequence").alias("sequence"))
        same = " AND ".join(f"old.`{name}` <=> new.`{name}`" for name in self._schema.subject)
        superseded = (
            rows.alias("old").join(newest.alias("new"), F.expr(f"{same} AND old.sequence < new.sequence"), "left_semi").count()
        )
        if not dry_run:
            merge = self._table.delta().alias("old").merge(newest.alias("new"), f"{same} AND old.sequence < new.sequence")
            if superseded:
                self._table.commit(lambda: merge.whenMatchedDelete().execute())
            self._table.commit(lambda: self._table.delta().optimize().executeCompaction())
            self._table.commit(lambda: self._table.delta().vacuum())
        return superseded
