"""Which rows of a batch are new, how many there are of each ledger, and the entries they get in offset order.

`OnDriver` does it for a few rows of a bytes topic, where Spark's jobs are most of the time (a batch of 200 rows 0.9 s instead of
0.5 s), `OnSpark` for any number: without a shuffle or a sort where each Spark partition has rows in order, as one range of a Kafka
partition, one part of a file, or a sorted DataFrame. A test holds them equal.

Spark may compute a DataFrame again, though it was cached, and get other rows (a lost executor; a source that changed
meanwhile). So what is written is held against what was counted in the very plan that writes it, which fails if they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from geo.errors import UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import Batch, LedgerKey
from geo.log.runs import BEGINS, FALLS, NEXT, OTHER_ROWS, Run, numbered, step
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, Identity
from geo.log.topic_log import user_columns
from geo.tables.small_batch import fetch_if_small
from geo.times import from_us

_TEXT = "_geo_offset_text"
_IDS = "_geo_ids"
_REPEATED = "GEO_REPEATED_ORDER"
_IS_NEW = f"{ERROR} IS NULL AND NOT {PUBLISHED}"
_TAKEN = (SOURCE, OFFSET, _TEXT, HASH, ERROR, PUBLISHED, "replicate_to", "event_time", "key", "payload", "properties")
_ORDER = (SOURCE, "replicate_to", OFFSET)


@dataclass(frozen=True, slots=True)
class Tally:
    """Rows of a batch with the same ledger key, and the same answers to whether they are bad and whether they are published.

    `last` is the greatest offset of all rows of their source that give the second answer as they do. `hash` is the XOR of their hashes.
    """

    key: LedgerKey
    bad: bool
    is_published: bool
    rows: int
    last: tuple[str, ...]
    hash: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not published. `offset` is its place in its source, as text."""

    source: str
    offset: tuple[str, ...]
    reason: str
    key: str | None


@dataclass(frozen=True, slots=True)
class Writer:
    """What every row of a batch has in common: where and by whom it is written, and the log's columns."""

    cluster: str
    producer: str
    columns: StructType


def numbering(
    tagged: DataFrame, identity: Identity, writer: Writer, held: list[DataFrame], *, was_few: bool | None
) -> OnSpark | OnDriver:
    """`tagged` has the log's columns, SOURCE, OFFSET, HASH, ERROR and PUBLISHED. `was_few`: whether the batch before was of
    few rows, so that this one may be, and need not be held to be looked at. What is to be unpersisted afterwards is added to `held`."""
    if not was_few:
        held.append(tagged.persist())
    if was_few is not False and not user_columns(writer.columns):
        head = fetch_if_small(tagged.withColumn(_TEXT, identity.text), _TAKEN)
        if head is not None:
            with suppress(OverflowError, UnicodeDecodeError):  # a date beyond 9999, text that is not UTF-8
                return OnDriver(head, identity, writer)
    if not held:
        held.append(tagged.persist())
    return OnSpark(tagged, identity, writer, held)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one Spark partition that are alike; where it does not matter in which one they are, of all of them."""

    partition: int
    place: int
    """Of its first row, among all rows."""
    key: LedgerKey
    bad: bool
    is_published: bool
    rows: int
    first: tuple[Any, ...]
    """Their least offset."""
    last: tuple[Any, ...]
    last_text: tuple[str, ...]
    hash: int
    is_run: bool
    """They follow each other there, and rise if offsets are unique."""
    falls: bool
    """One of them has an offset that is not above that of the row before."""

    @property
    def is_new(self) -> bool:
        """They are to be written."""
        return not self.bad and not self.is_published


class OnSpark:
    """In the Spark partitions in which the rows come, if they come in order there; if not, after a sort into ranges.

    `held` are the DataFrames that are to be unpersisted afterwards.
    """

    def __init__(self, tagged: DataFrame, identity: Identity, writer: Writer, held: list[DataFrame]) -> None:
        self._tagged, self._identity, self._writer, self._held = tagged, identity, writer, held
        self._parts: list[Part] = []

    def tallies(self) -> list[Tally]:
        self._parts = self._count(self._tagged, by_partition=not self._identity.is_scattered)
        return _merged((Tally(p.key, p.bad, p.is_published, p.rows, p.last_text, p.hash), _ordered(p.last)) for p in self._parts)

    def rejected(self, most: int | None = None) -> list[Rejected]:
        """The new rows that are bad, all or some of them."""
        text = self._identity.text.alias(_TEXT)
        bad = self._tagged.where(F.col(ERROR).isNotNull() & ~F.col(PUBLISHED)).select(SOURCE, text, ERROR, "key")
        rows = (bad if most is None else bad.limit(most)).collect()
        return [Rejected(row[SOURCE], tuple(row[_TEXT]), row[ERROR], row["key"]) for row in rows]

    def entries(self, batch: Batch) -> DataFrame:
        """The new rows as they stand in the log. This, or evaluating what it returns, raises an error for which `is_repeated` if two rows
        are one, and one for which `is_other_rows` unless they are, ledger by ledger, those that were counted: as many, with the same
        last offsets."""
        rows = self._tagged.where(_IS_NEW)
        runs = None if self._identity.is_scattered else runs_of(self._counted_again(), batch, unique=self._identity.unique)
        if runs is None:
            rows = rows.repartitionByRange(*_ORDER).sortWithinPartitions(*_ORDER).persist()
            self._held.append(rows)
            parts = self._count(rows)
            if any(part.falls for part in parts):
                raise UsageError(_REPEATED)
            if _planned(parts) != _planned(self._parts):
                raise UsageError(OTHER_ROWS)
            runs = runs_of(parts, batch, unique=self._identity.unique)
            assert runs is not None, "they are sorted"
        publish_time = F.timestamp_micros(F.lit(batch.publish_time_us))
        filled = {
            "origin": F.lit(self._writer.cluster),
            "ledger_id": F.col(_IDS)["ledger_id"],
            "entry_id": F.col(_IDS)["entry_id"],
            "publish_time": publish_time,
            "producer": F.lit(self._writer.producer),
            "marker": F.lit(None).cast("string"),
            "publish_date": F.to_date(publish_time),
        }
        with_ids = rows.withColumn(_IDS, numbered(F.col(OFFSET), runs))
        return with_ids.select(*(filled.get(c, F.col(c)).alias(c) for c in self._writer.columns.names))

    def _counted_again(self) -> list[Part]:
        """The parts, counted anew if Spark was told meanwhile to forget what it has cached: then the rows may lie elsewhere."""
        if self._tagged.storageLevel != StorageLevel.NONE:
            return self._parts
        parts = self._count(self._tagged.persist())
        if _planned(parts) != _planned(self._parts):
            raise UsageError(OTHER_ROWS)
        return parts

    def _count(self, rows: DataFrame, *, by_partition: bool = True) -> list[Part]:
        # A hash passes over NULL, so it does not tell it from an empty array by itself.
        key = F.when(F.expr(_IS_NEW), F.xxhash64(SOURCE, F.col("replicate_to").isNull(), "replicate_to"))
        found = (
            rows.select(
                SOURCE,
                "replicate_to",
                F.col(ERROR).isNotNull().alias("bad"),
                PUBLISHED,
                OFFSET,
                HASH,
                (F.spark_partition_id() if by_partition else F.lit(-1)).alias("partition"),
                F.monotonically_increasing_id().alias("place"),
                (step(key, F.col(OFFSET), unique=self._identity.unique) if by_partition else F.lit(NEXT)).alias("step"),
            )
            .groupBy("partition", SOURCE, "replicate_to", "bad", PUBLISHED)
            .agg(
                F.min("place").alias("place"),
                F.count("*").alias("rows"),
                F.min(OFFSET).alias("first"),
                F.max(OFFSET).alias("last"),
                self._identity.last_text.alias("last_text"),
                F.bit_xor(HASH).alias("hash"),
                F.count_if(F.col("step") == BEGINS).alias("begins"),
                F.bool_or(F.col("step") == FALLS).alias("falls"),
            )
        )
        return [
            Part(
                r["partition"],
                r["place"],
                LedgerKey.of(r[SOURCE], r["replicate_to"]),
                r["bad"],
                r[PUBLISHED],
                r["rows"],
                tuple(r["first"].values()),
                tuple(r["last"].values()),
                tuple(r["last_text"].values()),
                r["hash"],
                r["begins"] == 1 and not r["falls"],
                r["falls"],
            )
            for r in found.toArrow().to_pylist()
        ]


def _merged(tallies: Iterable[tuple[Tally, tuple[Any, ...]]]) -> list[Tally]:
    """Tallies of parts, each with its last offset by which to sort, as tallies of all."""
    counts: dict[tuple[LedgerKey, bool, bool], tuple[int, int]] = {}
    last: dict[tuple[str, bool], tuple[tuple[Any, ...], tuple[str, ...]]] = {}
    for tally, offset in tallies:
        kind = (tally.key, tally.bad, tally.is_published)
        rows, found = counts.get(kind, (0, 0))
        counts[kind] = rows + tally.rows, found ^ tally.hash
        side = (tally.key.source, tally.is_published)
        if side not in last or offset > last[side][0]:
            last[side] = offset, tally.last
    return [
        Tally(key, bad, is_published, rows, last[key.source, is_published][1], found)
        for (key, bad, is_published), (rows, found) in counts.items()
    ]


def _planned(parts: Iterable[Part]) -> dict[LedgerKey, tuple[int, int, tuple[Any, ...]]]:
    """What of them is written: how many rows of each ledger, their hash and their last offset."""
    found: dict[LedgerKey, tuple[int, int, tuple[Any, ...]]] = {}
    for part in parts:
        if part.is_new:
            rows, hashed, last = found.get(part.key, (0, 0, part.last))
            found[part.key] = rows + part.rows, hashed ^ part.hash, max(last, part.last, key=_ordered)
    return found


def runs_of(parts: Iterable[Part], batch: Batch, *, unique: bool) -> dict[int, list[Run]] | None:
    """The entries of the new rows, Spark partition by Spark partition. None unless the rows of each ledger come in runs of which each
    lies above the one before. Pure."""
    new = [part for part in parts if part.is_new]
    if not all(part.is_run for part in new):
        return None
    spans = {span.key: span for span in batch.spans}
    found: dict[int, list[tuple[int, Run]]] = {}
    by_key: dict[LedgerKey, list[Part]] = {}
    for part in new:
        by_key.setdefault(part.key, []).append(part)
    for key, own in by_key.items():
        own.sort(key=lambda part: _ordered(part.first) if unique else (part.partition,))
        if unique and any(_ordered(before.last) >= _ordered(after.first) for before, after in pairwise(own)):
            return None
        entry = spans[key].first
        for part in own:
            found.setdefault(part.partition, []).append((part.place, Run(part.rows, spans[key].ledger_id, entry, part.last)))
            entry += part.rows
    return {partition: [run for _, run in sorted(runs, key=lambda one: one[0])] for partition, runs in found.items()}


def _ordered(offset: Sequence[Any]) -> tuple[Any, ...]:
    """An offset by which to sort: NULL comes first, as Spark orders it."""
    return tuple((part is not None, part) for part in offset)


class OnDriver:
    """By lists, once the rows are here."""

    def __init__(self, head: pa.Table, identity: Identity, writer: Writer) -> None:
        self._head, self._identity, self._writer = head, identity, writer
        listed = head.select([SOURCE, OFFSET, HASH, ERROR, PUBLISHED, "replicate_to", "key", _TEXT]).to_pylist()
        self._keys = [LedgerKey.of(row[SOURCE], row["replicate_to"]) for row in listed]
        self._offsets = [_ordered(row[OFFSET].values()) for row in listed]
        self._rows = listed

    def tallies(self) -> list[Tally]:
        return _merged(
            (Tally(key, row[ERROR] is not None, row[PUBLISHED], 1, tuple(row[_TEXT].values()), row[HASH]), offset)
            for key, row, offset in zip(self._keys, self._rows, self._offsets, strict=True)
        )

    def rejected(self, most: int | None = None) -> list[Rejected]:
        """The new rows that are bad, all or some of them."""
        bad = [row for row in self._rows if row[ERROR] is not None and not row[PUBLISHED]]
        return [Rejected(row[SOURCE], tuple(row[_TEXT].values()), row[ERROR], row["key"]) for row in bad[:most]]

    def entries(self, batch: Batch) -> pa.Table:
        """The new rows as they stand in the log. Raises an error for which `is_repeated` if two are one."""
        spans = {span.key: span for span in batch.spans}
        new = [at for at, row in enumerate(self._rows) if row[ERROR] is None and not row[PUBLISHED]]
        new.sort(key=lambda at: (spans[self._keys[at]].ledger_id, self._offsets[at]))
        ids: list[int] = []
        entry_ids: list[int] = []
        for before, at in zip([None, *new], new, strict=False):
            span = spans[self._keys[at]]
            same = before is not None and self._keys[before] == self._keys[at]
            if same and self._identity.unique and self._offsets[before or 0] == self._offsets[at]:
                raise UsageError(_REPEATED)
            ids.append(span.ledger_id)
            entry_ids.append(entry_ids[-1] + 1 if same else span.first)
        rows, count = self._head.take(new), len(new)
        time = from_us(batch.publish_time_us)
        filled = {
            "origin": _repeat(self._writer.cluster, count, pa.string()),
            "ledger_id": pa.array(ids, pa.int64()),
            "entry_id": pa.array(entry_ids, pa.int64()),
            "publish_time": _repeat(time, count, pa.timestamp("us", "UTC")),
            "producer": _repeat(self._writer.producer, count, pa.string()),
            "marker": pa.nulls(count, pa.string()),
            "publish_date": _repeat(time.date(), count, pa.date32()),
        }
        names = self._writer.columns.names
        return pa.table({name: filled[name] if name in filled else rows[name] for name in names})


def is_repeated(error: Exception) -> bool:
    """Whether it says that two rows have the same offset."""
    return _REPEATED in str(error)


def is_other_rows(error: Exception) -> bool:
    """Whether it says that the rows to be written are not those that were counted."""
    return OTHER_ROWS in str(error)


def _repeat(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)
