"""A source of ours and a batch of it: spans that are read in any process, as rows of Arrow or of Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from geo.log.ledgers import SourceEnd

Place = list[Any]
"""The place where reading a source partition goes on, as JSON: of a reader's own making, but that the first is a number, which grows."""

Position = dict[str, Place]
"""Places by source partition."""


class SourceReader(Protocol):
    """Plans batches and reads them."""

    @property
    def blocks(self) -> pa.Schema:
        """The columns of what `read` yields of the batch that was planned last."""

    def place_of(self, source: str, end: SourceEnd) -> Place | None:
        """Tells where a source partition goes on that is published up to `end`; None if the end does not say, or is of another source."""

    def has(self, source: str) -> bool:
        """True if a source partition of that name belongs to this source, whether or not it is there now."""

    def say(self, source: str, place: Place) -> str:
        """A place as people say it."""

    def mark_of(self, place: Place) -> str:
        """Encode what an end keeps beside the offset, so that `place_of` gives the place back."""

    def begin(self, known: Position) -> Position:
        """The position at which to begin; `known` are places that are known, none at the first start."""

    def unread(self, position: Position) -> Collection[str]:
        """Source partitions of which the next batch from there would begin with the first row: whether they ended long ago is asked
        first."""

    def end_here(self) -> None:
        """Read no further than what is there now."""

    def next(self, start: Position) -> Position:
        """The position up to which the next batch is read."""

    def part_of(self, position: Position) -> float | None:
        """Return the part (0 to 1) of all that is to be read that a position has passed.

        None: `end_here` has not said yet what all is.
        """

    def spans(self, start: Position, end: Position) -> list[Any]:
        """Return what is read between two positions, in parts, each in order."""

    def are_few(self, spans: Sequence[Any]) -> bool:
        """True if the process that planned the spans reads them itself."""

    def read(self, span: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a span, in order."""

    def close(self) -> None:
        """Close what it has open in this thread."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source: blocks with these columns at first, of which `source` (string) and `offset` (int64) place a row. `open` makes a
    reader, told how far each source partition is published. `reject_keys`: what source and offset are called in the file of
    rejected rows. `has_gaps`: offsets may have no row, and the first number of a place is the next offset to read. `own`: the columns of the
    topic's own as they were known when it was made, by which rows are rejected; None where they are not."""

    source: str
    offset: str
    blocks: pa.Schema
    reject_keys: tuple[str, str]
    open: Callable[[Mapping[str, SourceEnd]], SourceReader]
    has_gaps: bool = False
    own: frozenset[str] | None = None

    @property
    def columns(self) -> StructType:
        """The columns as Spark's."""
        found: StructType = from_arrow_schema(self.blocks)
        return found


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """The spans that one batch reads, and their reader."""

    source: Source
    reader: SourceReader
    spans: Sequence[Any]

    def frame(self, spark: SparkSession) -> DataFrame:
        """Its rows as a DataFrame."""
        read = self.reader.read
        return self.by_tasks(spark, lambda _, span: read(span), self.source.columns)

    def by_tasks(
        self, spark: SparkSession, of_span: Callable[[int, Any], Iterator[pa.RecordBatch]], columns: StructType | str
    ) -> DataFrame:
        """Apply `of_span` to each span, given with its number, by a task each. It yields blocks with these columns."""
        spans = self.spans

        def of_partition(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for block in numbers for number in block["id"].to_pylist()):
                yield from of_span(number, spans[number])

        return spark.range(0, len(spans), 1, len(spans)).mapInArrow(of_partition, columns)
