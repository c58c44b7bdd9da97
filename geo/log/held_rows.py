"""Numbering where the log is on a local disk: the rows of a batch are held once, by whoever has them, and written by this process.

A task of Spark's holds its partition's rows in a file, or this process a few in memory (geo.log.holding). With what they say the entries
are known, and each of what is held becomes a data file of the log. A row is computed once, so what is written is what was counted.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegerType, LongType, StringType, StructField, StructType

from geo.errors import UsageError
from geo.log.admission import ERROR
from geo.log.holding import (
    FIRST,
    KEY,
    LAST,
    LAST_TEXT,
    OFFSET_PART,
    SAID,
    TEXT_PART,
    Holding,
    Order,
    Part,
    are_apart,
    entries_of,
    heard,
    numbers_of,
)
from geo.log.ledgers import Batch
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, Identity
from geo.log.tagging import Tagging
from geo.log.tallies import REPEATED, Rejected, Tally, Writer, merged
from geo.sql_text import identifier
from geo.tables.delta_state import DeltaState
from geo.tables.native_append import Written, write_files
from geo.times import from_us

_SOME_ROWS = 1_000

_SPARK: Mapping[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.list_(pa.string()): ArrayType(StringType()),
}


class Place:
    """Where a batch is held and written: `folder` is a folder on a local disk for this batch alone, which `held` removes at its end, `table`
    that of the log, whose newest version is `state`."""

    def __init__(self, folder: Path, table: Path, state: DeltaState, held: ExitStack) -> None:
        self.folder, self.table, self.state = folder, table, state
        held.callback(self.clear)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class HeldRows:
    """The rows of a batch, held. `buffers` has those that are not held in a file, by the name of their part's `file`."""

    def __init__(
        self,
        place: Place,
        writer: Writer,
        said: tuple[Sequence[Part], Sequence[Rejected]],
        columns: Sequence[str],
        buffers: Mapping[str, pa.Buffer],
    ) -> None:
        self._place, self._writer, (self._parts, self._rejected) = place, writer, said
        self._columns, self._buffers = columns, buffers

    def tallies(self) -> list[Tally]:
        return merged((Tally(p.key, p.bad, p.is_published, p.rows, p.last_text, p.hash), p.last) for p in self._parts)

    def rejected(self, most: int | None = None) -> Sequence[Rejected]:
        """The new rows that are bad, all or some of them."""
        return self._rejected[:most]

    def entries(self, batch: Batch) -> Written:
        """The new rows as they stand in the log, as files that a commit may add."""
        found = entries_of(self._parts, batch.spans)
        with ThreadPoolExecutor(min(len(found), os.cpu_count() or 1), "geo-write") as pool:
            written = list(pool.map(lambda one: self._write(batch, *one), found.items()))
        files = tuple(file for one in written for file in one.files)
        return Written(files, self._place.state.schema, self._place.state.partition_by)

    def _write(self, batch: Batch, file: str, first: Mapping[int, tuple[int, int]]) -> Written:
        with pa.BufferReader(self._buffers[file]) if file in self._buffers else pa.memory_map(file) as source:
            rows = pa.ipc.open_file(source).read_all()
            ledgers, entries = numbers_of(rows[KEY].combine_chunks(), first)
            time, kinds = from_us(batch.publish_time_us), self._place.state.schema
            same = {
                "origin": pa.scalar(self._writer.cluster, pa.string()),
                "publish_time": pa.scalar(time, pa.timestamp("us", "UTC")),
                "producer": pa.scalar(self._writer.producer, pa.string()),
                "publish_date": pa.scalar(time.date(), pa.date32()),
            }
            columns = {"ledger_id": ledgers, "entry_id": entries, **{n: pa.repeat(v, len(rows)) for n, v in same.items()}}
            columns |= {name: rows[name].cast(kinds.field(name).type) for name in self._columns}
            return write_files(self._place.table, self._place.state, pa.table(columns))


def hold_frame(
    rows: DataFrame, tag: Callable[[DataFrame], DataFrame], identity: Identity, writer: Writer, place: Place
) -> HeldRows:
    """Hold the rows of a DataFrame, in order.

    `tag` gives rows the log's columns, SOURCE, OFFSET, HASH, ERROR and PUBLISHED; those of the log that `rows` do not have are NULL. Raises
    UsageError for which `is_repeated` if two rows are one.
    """
    columns = [name for name in place.state.schema.names if name in rows.columns]
    found = _held(tag(rows), identity, columns, place) if _seem_in_order(rows, identity) else None
    if found is None:
        found = _held(tag(_sorted(rows, identity)), identity, columns, place)
    if found is None:
        raise UsageError(REPEATED)
    return HeldRows(place, writer, found, columns, {})


def hold_spans(
    spark: SparkSession,
    spans: Sequence[Any],
    read: Callable[[Any], Iterator[pa.RecordBatch]],
    tagging: Tagging,
    writer: Writer,
    place: Place,
    *,
    here: bool,
) -> HeldRows:
    """Hold the rows of spans of a source of ours, each in order: by a task each, or all of them `here`, in memory."""
    columns = [name for name in place.state.schema.names if name in tagging.columns]
    folder, parts = str(place.folder), range(1)
    if here:
        sink = pa.BufferOutputStream()
        blocks = (tagging.tagged(block) for span in spans for block in read(span))
        lines = [line for said in Holding("", 0, columns, unique=True).hold(blocks, sink) for line in said.to_pylist()]
        buffers = {"": sink.getvalue()}
    else:
        place.folder.mkdir(parents=True)

        def of_partition(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for block in numbers for number in block["id"].to_pylist()):
                blocks = (tagging.tagged(block) for block in read(spans[number]))
                yield from Holding(f"{folder}/{number:06}-{uuid.uuid4()}.arrow", number, columns, unique=True).hold(blocks)

        numbers = spark.range(0, len(spans), 1, len(spans))
        said = _said({f"{OFFSET_PART}{at}": LongType() for at in parts} | {f"{TEXT_PART}{at}": StringType() for at in parts})
        lines, buffers = numbers.mapInArrow(of_partition, said).toArrow().to_pylist(), {}
    found = heard(lines)
    assert found is not None, "a source of ours is in order"
    return HeldRows(place, writer, found, columns, buffers)


def _held(
    tagged: DataFrame, identity: Identity, columns: Sequence[str], place: Place
) -> tuple[list[Part], list[Rejected]] | None:
    """Hold the rows by the tasks that have them. None, and nothing is held, unless those of each source are in order."""
    place.clear()
    place.folder.mkdir(parents=True)
    parts = range(len(identity.offsets))
    # A hash passes over NULL, so it does not tell it from an empty array by itself.
    more = {KEY: f"xxhash64({SOURCE}, replicate_to IS NULL, replicate_to)"}
    more |= {f"{OFFSET_PART}{at}": f"{OFFSET}.o{at}" for at in parts}
    more |= {f"{TEXT_PART}{at}": f"CAST({OFFSET}.o{at} AS STRING)" for at in parts}
    sent = tagged.selectExpr(
        SOURCE, HASH, ERROR, PUBLISHED, *(f"{sql} AS {name}" for name, sql in more.items()), *map(identifier, columns)
    )
    folder, unique = str(place.folder), identity.unique

    def of_partition(blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        yield from Holding(f"{folder}/{number:06}-{uuid.uuid4()}.arrow", number, columns, unique=unique).hold(blocks)

    said = _said({field.name: field.dataType for field in sent.schema})
    found = heard(sent.mapInArrow(of_partition, said).toArrow().to_pylist())
    return found if found is None or not unique or are_apart(found[0]) else None


def _said(kinds: Mapping[str, DataType]) -> StructType:
    """The columns of what tasks say, of offsets whose parts are of these kinds."""
    fields = [StructField(name, _SPARK[kind]) for name, kind in SAID.items()]
    for name, of in ((FIRST, OFFSET_PART), (LAST, OFFSET_PART), (LAST_TEXT, TEXT_PART)):
        parts = [kind for column, kind in kinds.items() if column.startswith(of)]
        fields += [StructField(f"{name}{at}", kind) for at, kind in enumerate(parts)]
    return StructType(fields)


def _seem_in_order(rows: DataFrame, identity: Identity) -> bool:
    """Whether the first rows are, of a user's DataFrame: to find that out of all of it takes as long as to hold it."""
    if not identity.gapless:
        return True
    named = (f"{sql} AS {OFFSET_PART}{at}" for at, sql in enumerate(identity.offsets))
    first = rows.selectExpr(f"{identity.source} AS {SOURCE}", *named).limit(_SOME_ROWS).toArrow()
    return not len(first) or Order().rises(*(column.combine_chunks() for column in first.columns))


def _sorted(rows: DataFrame, identity: Identity) -> DataFrame:
    """The rows in Spark partitions of which each has a range of offsets, in order. Nothing but what was given is moved."""
    order = [F.expr(sql) for sql in (*([identity.source] if identity.is_scattered else []), *identity.offsets)]
    return rows.repartitionByRange(*order).sortWithinPartitions(*order)
