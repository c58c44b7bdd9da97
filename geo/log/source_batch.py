"""A batch of a source of ours: spans that are read in any process, as rows of Arrow or of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_SPARK: Sequence[tuple[pa.DataType, DataType]] = (
    (pa.string(), StringType()),
    (pa.int64(), LongType()),
    (pa.binary(), BinaryType()),
    (pa.timestamp("us", "UTC"), TimestampType()),
    (pa.list_(pa.string()), ArrayType(StringType())),
    (pa.map_(pa.string(), pa.string()), MapType(StringType(), StringType())),
)


class SourceReader(Protocol):
    """Plans batches and reads them. Positions are JSON objects of its own."""

    @property
    def blocks(self) -> pa.Schema:
        """The columns of what is read."""

    def begin(self, noted: dict[str, Any] | None = None) -> dict[str, Any]:
        """The position at which to begin; `noted` is one that was."""

    def end_here(self) -> None:
        """Read no further than what is there now."""

    def next(self, start: dict[str, Any]) -> dict[str, Any]:
        """The position up to which the next batch is read."""

    def spans(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """What is read between two positions, in parts, each in order."""

    def are_few(self, spans: Sequence[Any]) -> bool:
        """Whether the process that planned them reads them itself."""

    def read(self, span: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a span, in order."""

    def close(self) -> None:
        """Close what it has open in this thread."""


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """What one batch reads."""

    reader: SourceReader
    spans: Sequence[Any]

    @property
    def is_few(self) -> bool:
        return self.reader.are_few(self.spans)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Its rows as a DataFrame, each span read by a task of its own."""
        spans, read = self.spans, self.reader.read

        def of_partition(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for block in numbers for number in block["id"].to_pylist()):
                yield from read(spans[number])

        return spark.range(0, len(spans), 1, len(spans)).mapInArrow(of_partition, columns_of(self.reader.blocks))


def columns_of(blocks: pa.Schema) -> StructType:
    """Columns of Arrow as Spark's."""
    kinds = dict(_SPARK)
    return StructType([StructField(field.name, kinds[field.type]) for field in blocks])
