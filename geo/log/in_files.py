"""Numbering without Spark's second and third look at a row, where the log is on a local disk.

Each Spark partition's new rows are held in a file of Arrow's by the task that has them, which says how many there are of each ledger and
in which order. With that the entries are known, and this process writes each held file as a data file of the log. A row is
computed once, so what is written is what was counted.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import xor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from geo.errors import UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.log.runs import FALLS, NEXT, steps_between
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, Identity
from geo.log.tallies import REPEATED, Rejected, Tally, Writer, merged, ordered
from geo.tables.delta_state import DeltaState
from geo.tables.native_append import Written, write_files
from geo.times import from_us

_KEY = "_geo_key"
"""Column of a ledger key as a number: rows of one ledger have the same."""

_OFFSET, _TEXT = "_geo_o", "_geo_t"
"""Columns of the parts of an offset, as they are and as text, each with its number. Flat, since on its way to Python a column with
structure costs microseconds a row."""

_FIRST, _LAST, _LAST_TEXT = "first", "last", "text"
"""The same of what a task says: of the first and of the last row."""

_TOLD = {
    "file": ("STRING", pa.string()),
    "partition": ("INT", pa.int32()),
    "code": ("BIGINT", pa.int64()),
    "source": ("STRING", pa.string()),
    "replicate_to": ("ARRAY<STRING>", pa.list_(pa.string())),
    "bad": ("BOOLEAN", pa.bool_()),
    "is_published": ("BOOLEAN", pa.bool_()),
    "rows": ("BIGINT", pa.int64()),
    "hash": ("BIGINT", pa.int64()),
    "falls": ("BOOLEAN", pa.bool_()),
    "reason": ("STRING", pa.string()),
    "key": ("STRING", pa.string()),
}
"""What a task says: a line a part, a line a rejected row, or one line that its rows are not in order."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one Spark partition that are alike. `code` is its ledger key as a number. The new ones among them are in `file`."""

    file: str
    partition: int
    code: int
    key: LedgerKey
    bad: bool
    is_published: bool
    rows: int
    hash: int
    first: tuple[Any, ...]
    """The offset of the first of them, as `ordered`; of the last."""
    last: tuple[Any, ...]
    last_text: tuple[str, ...]

    @property
    def is_new(self) -> bool:
        """They are to be written."""
        return not self.bad and not self.is_published


class InFiles:
    """Holds the rows when it is made; `release` removes what is held.

    `tagged` has the log's columns, SOURCE, OFFSET, HASH, ERROR and PUBLISHED; those of the log that are not `given` are NULL. `folder` is a
    folder on a local disk for this batch alone, `table` that of the log, whose newest version is `state`. Raises UsageError for which
    `is_repeated` if two rows are one.
    """

    def __init__(
        self,
        tagged: DataFrame,
        given: Collection[str],
        identity: Identity,
        writer: Writer,
        folder: Path,
        table: Path,
        state: DeltaState,
    ) -> None:
        self._identity, self._writer, self._folder, self._table, self._state = identity, writer, folder, table, state
        self._given = [name for name in state.schema.names if name in given]
        self._parts: list[Part] = []
        self._rejected: list[Rejected] = []
        try:
            if not self._hold(tagged):
                by_offset = (SOURCE, OFFSET)
                if not self._hold(tagged.repartitionByRange(*by_offset).sortWithinPartitions(*by_offset)):
                    raise UsageError(REPEATED)
        except BaseException:
            self.release()
            raise

    def _hold(self, rows: DataFrame) -> bool:
        """Hold the rows. False, and nothing is held, unless those of each source are in order."""
        self.release()
        self._folder.mkdir(parents=True)
        parts = range(len(self._identity.offsets))
        # A hash passes over NULL, so it does not tell it from an empty array by itself.
        more = {_KEY: F.xxhash64(SOURCE, F.col("replicate_to").isNull(), "replicate_to")}
        more |= {f"{_OFFSET}{at}": F.col(OFFSET)[f"o{at}"] for at in parts}
        more |= {f"{_TEXT}{at}": self._identity.text[f"o{at}"] for at in parts}
        sent = rows.withColumns(more).select(SOURCE, HASH, ERROR, PUBLISHED, *more, *self._given)
        folder, names, unique = str(self._folder), self._given, self._identity.unique

        def of_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            file = f"{folder}/{context.partitionId():06}-{uuid.uuid4()}.arrow"
            yield from Holding(file, context.partitionId(), names, unique=unique).hold(batches)

        told = [StructField(name, _spark_type(kind)) for name, (kind, _) in _TOLD.items()]
        for name, of in ((_FIRST, _OFFSET), (_LAST, _OFFSET), (_LAST_TEXT, _TEXT)):
            told += [StructField(f"{name}{at}", sent.schema[f"{of}{at}"].dataType) for at in parts]
        lines = sent.mapInArrow(of_partition, StructType(told)).toArrow().to_pylist()
        if any(line["falls"] for line in lines):
            return False
        self._parts = [_part(line, len(parts)) for line in lines if line["reason"] is None]
        self._rejected = [
            Rejected(line["source"], _offset_of(line, _LAST_TEXT, len(parts)), line["reason"], line["key"])
            for line in lines
            if line["reason"] is not None
        ]
        return not self._identity.unique or are_apart(self._parts)

    def tallies(self) -> list[Tally]:
        return merged((Tally(p.key, p.bad, p.is_published, p.rows, p.last_text, p.hash), p.last) for p in self._parts)

    def rejected(self, most: int | None = None) -> list[Rejected]:
        """The new rows that are bad, all or some of them."""
        return self._rejected[:most]

    def entries(self, batch: Batch) -> Written:
        """The new rows as they stand in the log, as files that a commit may add."""
        found = entries_of(self._parts, batch.spans)
        with ThreadPoolExecutor(min(len(found), os.cpu_count() or 1), "geo-write") as pool:
            written = list(pool.map(lambda one: self._write(batch, *one), found.items()))
        files = tuple(file for one in written for file in one.files)
        return Written(files, self._state.schema, self._state.partition_by)

    def _write(self, batch: Batch, file: str, first: Mapping[int, tuple[int, int]]) -> Written:
        with pa.memory_map(file) as source:
            rows = pa.ipc.open_file(source).read_all()
            ledgers, entries = numbers_of(rows[_KEY].combine_chunks(), first)
            time = from_us(batch.publish_time_us)
            same = {
                "origin": pa.scalar(self._writer.cluster, pa.string()),
                "publish_time": pa.scalar(time, pa.timestamp("us", "UTC")),
                "producer": pa.scalar(self._writer.producer, pa.string()),
                "publish_date": pa.scalar(time.date(), pa.date32()),
            }
            columns = {"ledger_id": ledgers, "entry_id": entries, **{n: pa.repeat(v, len(rows)) for n, v in same.items()}}
            columns |= {name: rows[name].cast(self._state.schema.field(name).type) for name in self._given}
            return write_files(self._table, self._state, pa.table(columns))

    def release(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class Holding:
    """What one task does with its partition's rows: the new ones into `file`, and a word about all of them. `columns`: those of the log that
    the rows bring. With `unique`, offsets of a source must rise."""

    def __init__(self, file: str, partition: int, columns: Sequence[str], *, unique: bool) -> None:
        self._file, self._partition, self._columns, self._unique = file, partition, columns, unique
        self._found: dict[tuple[LedgerKey, bool, bool], dict[str, Any]] = {}
        self._last: dict[str, tuple[Any, ...]] = {}
        """The last offset of each source, as `ordered`."""

    def hold(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields what is said, with the columns of _TOLD and of _FIRST, _LAST and _LAST_TEXT."""
        held: pa.RecordBatchFileWriter | None = None
        with pa.OSFile(self._file, "wb") as sink:
            for batch in batches:
                if not len(batch):
                    continue
                taken = pa.schema([batch.schema.field(name) for name in (*self._columns, _KEY)])
                if held is None:
                    held = pa.ipc.new_file(sink, taken)
                offsets = [batch[name] for name in batch.schema.names if name.startswith(_OFFSET)]
                texts = [batch[name] for name in batch.schema.names if name.startswith(_TEXT)]
                self._kinds = offsets, texts
                if self._unique and not self._rises(batch[SOURCE], offsets):
                    yield self._line(falls=True)
                    break
                bad, published = batch[ERROR].is_valid(), batch[PUBLISHED]
                self._count(batch, bad, published)
                new, rows = pc.invert(pc.or_(bad, published)), batch.select(taken.names)
                for first, end in pairwise(_begins([new])):
                    if new[first].as_py():  # a filter would give the fields of a map other names
                        held.write_batch(rows.slice(first, end - first))
                for at in pc.indices_nonzero(pc.and_(bad, pc.invert(published))).to_pylist():
                    key = batch["key"][at].as_py() if "key" in batch.schema.names else None
                    yield self._line(
                        source=batch[SOURCE][at].as_py(), reason=batch[ERROR][at].as_py(), key=key, text=_row(texts, at)
                    )
            else:
                for (key, bad, published), part in self._found.items():
                    yield self._line(
                        file=self._file,
                        partition=self._partition,
                        source=key.source,
                        replicate_to=key.listed,
                        bad=bad,
                        is_published=published,
                        **part,
                    )
            if held is not None:
                held.close()

    def _rises(self, sources: pa.Array, offsets: Sequence[pa.Array]) -> bool:
        """Whether the offsets of each source rise, from where they came before."""
        steps = steps_between([sources, *offsets])
        if pc.any(pc.equal(steps, FALLS)).as_py():
            return False
        begins = [0, *(at + 1 for at in pc.indices_nonzero(pc.not_equal(steps, NEXT)).to_pylist()), len(sources)]
        for first, end in pairwise(begins):
            source = sources[first].as_py()
            before = self._last.get(source)
            if before is not None and before >= ordered(_row(offsets, first)):
                return False
            self._last[source] = ordered(_row(offsets, end - 1))
        return True

    def _count(self, batch: pa.RecordBatch, bad: pa.Array, published: pa.Array) -> None:
        """Add rows that are alike and follow each other to what is known of those like them."""
        keys, hashes = batch[_KEY], batch[HASH].to_pylist()
        offsets, texts = self._kinds
        aims = batch["replicate_to"] if "replicate_to" in batch.schema.names else None
        for first, end in pairwise(_begins([keys, bad, published])):
            key = LedgerKey.of(batch[SOURCE][first].as_py(), None if aims is None else aims[first].as_py())
            kind = (key, bad[first].as_py(), published[first].as_py())
            part = self._found.get(kind)
            if part is None:
                part = self._found[kind] = {"code": keys[first].as_py(), "rows": 0, "hash": 0, _FIRST: _row(offsets, first)}
            part["rows"] += end - first
            part["hash"] = reduce(xor, hashes[first:end], part["hash"])
            part[_LAST], part[_LAST_TEXT] = _row(offsets, end - 1), _row(texts, end - 1)

    def _line(self, **said: Any) -> pa.RecordBatch:
        columns = {name: pa.array([said.get(name)], kind) for name, (_, kind) in _TOLD.items()}
        offsets, texts = self._kinds
        for name, kinds in ((_FIRST, offsets), (_LAST, offsets), (_LAST_TEXT, texts)):
            row = said.get(name) or [None] * len(kinds)
            columns |= {f"{name}{at}": pa.array([value], of.type) for at, (value, of) in enumerate(zip(row, kinds, strict=True))}
        return pa.record_batch(columns)


def are_apart(parts: Sequence[Part]) -> bool:
    """Whether of each source the rows of a Spark partition all lie above those of another one, or below."""
    spans: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for part in parts:
        spans.setdefault((part.key.source, part.partition), []).extend((part.first, part.last))
    by_source: dict[str, list[tuple[tuple[Any, ...], tuple[Any, ...]]]] = {}
    for (source, _), ends in spans.items():
        by_source.setdefault(source, []).append((min(ends), max(ends)))
    return all(before[1] < after[0] for found in by_source.values() for before, after in pairwise(sorted(found)))


def entries_of(parts: Sequence[Part], spans: Sequence[Span]) -> dict[str, dict[int, tuple[int, int]]]:
    """By held file, and in it by the number of a ledger key: its ledger, and the entry of its first row. Raises ValueError for two keys
    with one number."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    of_key = {span.key: span for span in spans}
    following = {span.key: span.first for span in spans}
    for part in sorted((part for part in parts if part.is_new), key=lambda part: (part.first, part.partition)):
        codes = found.setdefault(part.file, {})
        if part.code in codes:
            raise ValueError(f"two ledger keys have the number {part.code}")
        codes[part.code] = of_key[part.key].ledger_id, following[part.key]
        following[part.key] += part.rows
    assert all(following[span.key] == span.last + 1 for span in spans), "as many as were counted"
    return found


def numbers_of(codes: pa.Array, first: Mapping[int, tuple[int, int]]) -> tuple[pa.Array, pa.Array]:
    """Ledger and entry of each row of a held file, which has the numbers of its rows' ledger keys."""
    following = {code: entry for code, (_, entry) in first.items()}
    ledgers, entries = [], []
    for begin, end in pairwise(_begins([codes])):
        code = codes[begin].as_py()
        ledgers.append(pa.repeat(pa.scalar(first[code][0], pa.int64()), end - begin))
        entries.append(pa.array(range(following[code], following[code] + end - begin), pa.int64()))
        following[code] += end - begin
    return pa.concat_arrays(ledgers), pa.concat_arrays(entries)


def _begins(columns: Sequence[pa.Array]) -> list[int]:
    """Where rows begin that have other values than the row before in any of the columns, which have a value everywhere; and their end."""
    count = len(columns[0])
    other = reduce(pc.or_, (pc.not_equal(column.slice(1), column.slice(0, count - 1)) for column in columns))
    return [0, *(at + 1 for at in pc.indices_nonzero(other).to_pylist()), count]


def _row(columns: Sequence[pa.Array], at: int) -> tuple[Any, ...]:
    return tuple(column[at].as_py() for column in columns)


def _offset_of(line: Mapping[str, Any], name: str, parts: int) -> tuple[Any, ...]:
    return tuple(line[f"{name}{at}"] for at in range(parts))


def _part(line: Mapping[str, Any], parts: int) -> Part:
    return Part(
        file=line["file"],
        partition=line["partition"],
        code=line["code"],
        key=LedgerKey.of(line["source"], line["replicate_to"]),
        bad=line["bad"],
        is_published=line["is_published"],
        rows=line["rows"],
        hash=line["hash"],
        first=ordered(_offset_of(line, _FIRST, parts)),
        last=ordered(_offset_of(line, _LAST, parts)),
        last_text=_offset_of(line, _LAST_TEXT, parts),
    )


def _spark_type(ddl: str) -> DataType:
    kind = StructType.fromDDL(f"c {ddl}")
    assert isinstance(kind, StructType)
    return kind["c"].dataType
