"""The rule of a journal: of the rows of one subject the last by the schema's `order` counts. For rows at hand, and for Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geo.journal.rows import Row
from geo.late import F
from geo.schemas import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class NewestRule:
    """The rule for one schema."""

    schema: TableSchema

    def places(self, rows: Sequence[Row]) -> list[int]:
        """The places of those rows that are the last of their subjects."""
        last: dict[tuple[Any, ...], int] = {}
        for at, one in enumerate(rows):
            subject = tuple(_hashable(one[name]) for name in self.schema.subject)
            if subject not in last or self.schema.order_of(one) >= self.schema.order_of(rows[last[subject]]):
                last[subject] = at
        return list(last.values())

    def newest(self, rows: DataFrame) -> DataFrame:
        """Select the last row of each subject. Columns as `rows`."""
        last = F.max_by(F.struct(*self.schema.names), F.struct(*self.schema.order))
        return rows.groupBy(*self.schema.subject).agg(last.alias("row")).select("row.*")

    def whole(self, rows: DataFrame) -> DataFrame:
        """The rows of a table with the columns that it lacks, as NULL."""
        lacking = {c.name: F.lit(None).cast(c.type) for c in self.schema.columns if c.added and c.name not in rows.columns}
        return rows.withColumns(lacking) if lacking else rows


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
