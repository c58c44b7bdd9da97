"""Numbering by Spark's own jobs, of any number of rows, wherever the log is: they are held, counted, and written with their
entries.

Without a shuffle or a sort where each Spark partition has rows in order, as one range of a Kafka partition, one part of a file,
or a sorted DataFrame.

Spark may compute a DataFrame again, though it was cached, and get other rows (a lost executor; a source that changed
meanwhile). So what is written is held against what was counted in the very plan that writes it, which fails if they differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.errors import UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import Batch, LedgerKey
from geo.log.numbering.runs import BEGINS, FALLS, NEXT, OTHER_ROWS, Run, numbered, step
from geo.log.numbering.tallies import IS_NEW, LEDGER_KEY, REPEATED, TEXT, Alike, Common, Rejected, Tally, merged, ordered
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, Identity

_IDS = "_geo_ids"
_ORDER = (SOURCE, "replicate_to", OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Alike):
    """Of one Spark partition; where it does not matter in which one they are, of all of them."""

    partition: int
    at: int
    """The number of its first row, among all rows."""
    is_run: bool
    """They follow each other there, and rise if offsets are unique."""
    falls: bool
    """One of them has an offset that is not above that of the row before."""


class OnSpark:
    """In the Spark partitions in which the rows come, if they come in order there; if not, after a sort into ranges.

    `held` releases at its end what is held.
    """

    def __init__(self, tagged: DataFrame, identity: Identity, common: Common, held: ExitStack) -> None:
        self._tagged, self._identity, self._common, self._held = tagged, identity, common, held
        self._parts: list[Part] = []

    def tallies(self) -> list[Tally]:
        self._parts = self._count(self._tagged, by_partition=not self._identity.is_scattered)
        return merged((part.tally, ordered(part.last)) for part in self._parts)

    def rejected(self, most: int | None = None) -> list[Rejected]:
        """The new rows that are bad, all or some of them."""
        text = F.expr(self._identity.text).alias(TEXT)
        bad = self._tagged.where(F.col(ERROR).isNotNull() & ~F.col(PUBLISHED)).select(SOURCE, text, ERROR, "key")
        rows = (bad if most is None else bad.limit(most)).collect()
        return [Rejected(row[SOURCE], tuple(row[TEXT]), row[ERROR], row["key"]) for row in rows]

    def entries(self, batch: Batch) -> DataFrame:
        """The new rows as they stand in the log. This, or evaluating what it returns, raises an error for which `is_repeated` if
        two rows are one, and one for which `is_other_rows` unless they are, ledger by ledger, those that were counted: as many,
        with the same last offsets."""
        rows = self._tagged.where(IS_NEW)
        runs = None if self._identity.is_scattered else runs_of(self._counted_again(), batch, unique=self._identity.unique)
        if runs is None:
            rows = rows.repartitionByRange(*_ORDER).sortWithinPartitions(*_ORDER).persist()
            self._held.callback(rows.unpersist)
            parts = self._count(rows)
            if any(part.falls for part in parts):
                raise UsageError(REPEATED)
            if _planned(parts) != _planned(self._parts):
                raise UsageError(OTHER_ROWS)
            runs = runs_of(parts, batch, unique=self._identity.unique)
            assert runs is not None, "they are sorted"
        filled = {
            "ledger_id": F.col(_IDS)["ledger_id"],
            "entry_id": F.col(_IDS)["entry_id"],
            "marker": F.lit(None).cast("string"),
            **{name: F.lit(value) for name, value in self._common.of(batch).items()},
        }
        with_ids = rows.withColumn(_IDS, numbered(F.col(OFFSET), runs))
        return with_ids.select(*(filled.get(c, F.col(c)).alias(c) for c in self._common.columns.names))

    def _counted_again(self) -> list[Part]:
        """The parts, counted anew if Spark was told meanwhile to forget what it has cached: then the rows may lie elsewhere."""
        if self._tagged.storageLevel != StorageLevel.NONE:
            return self._parts
        parts = self._count(self._tagged.persist())
        if _planned(parts) != _planned(self._parts):
            raise UsageError(OTHER_ROWS)
        return parts

    def _count(self, rows: DataFrame, *, by_partition: bool = True) -> list[Part]:
        key = F.expr(f"IF({IS_NEW}, xxhash64({LEDGER_KEY}), NULL)")
        found = (
            rows.select(
                SOURCE,
                "replicate_to",
                F.col(ERROR).isNotNull().alias("bad"),
                PUBLISHED,
                OFFSET,
                HASH,
                (F.spark_partition_id() if by_partition else F.lit(-1)).alias("partition"),
                F.monotonically_increasing_id().alias("at"),
                (step(key, F.col(OFFSET), unique=self._identity.unique) if by_partition else F.lit(NEXT)).alias("step"),
            )
            .groupBy("partition", SOURCE, "replicate_to", "bad", PUBLISHED)
            .agg(
                F.min("at").alias("at"),
                F.count("*").alias("rows"),
                F.min(OFFSET).alias("first"),
                F.max(OFFSET).alias("last"),
                F.expr(self._identity.text_of(f"max({OFFSET})")).alias("last_text"),
                F.bit_xor(HASH).alias("hash"),
                F.count_if(F.col("step") == BEGINS).alias("begins"),
                F.bool_or(F.col("step") == FALLS).alias("falls"),
            )
        )
        return [
            Part(
                partition=r["partition"],
                at=r["at"],
                key=LedgerKey.of(r[SOURCE], r["replicate_to"]),
                bad=r["bad"],
                is_published=r[PUBLISHED],
                rows=r["rows"],
                hash=r["hash"],
                first=tuple(r["first"].values()),
                last=tuple(r["last"].values()),
                last_text=tuple(r["last_text"].values()),
                is_run=r["begins"] == 1 and not r["falls"],
                falls=r["falls"],
            )
            for r in found.toArrow().to_pylist()
        ]


def _planned(parts: Iterable[Part]) -> dict[LedgerKey, tuple[int, int, tuple[Any, ...]]]:
    """What of them is written: how many rows of each ledger, their hash and their last offset."""
    found: dict[LedgerKey, tuple[int, int, tuple[Any, ...]]] = {}
    for part in parts:
        if part.is_new:
            rows, hashed, last = found.get(part.key, (0, 0, part.last))
            found[part.key] = rows + part.rows, hashed ^ part.hash, max(last, part.last, key=ordered)
    return found


def runs_of(parts: Iterable[Part], batch: Batch, *, unique: bool) -> dict[int, list[Run]] | None:
    """The entries of the new rows, Spark partition by Spark partition. None unless the rows of each ledger come in runs of which
    each lies above the one before. Pure."""
    new = [part for part in parts if part.is_new]
    if not all(part.is_run for part in new):
        return None
    spans = {span.key: span for span in batch.spans}
    found: dict[int, list[tuple[int, Run]]] = {}
    by_key: dict[LedgerKey, list[Part]] = {}
    for part in new:
        by_key.setdefault(part.key, []).append(part)
    for key, own in by_key.items():
        own.sort(key=lambda part: ordered(part.first) if unique else (part.partition,))
        if unique and any(ordered(before.last) >= ordered(after.first) for before, after in pairwise(own)):
            return None
        entry = spans[key].first
        for part in own:
            found.setdefault(part.partition, []).append((part.at, Run(part.rows, spans[key].ledger_id, entry, part.last)))
            entry += part.rows
    return {partition: [run for _, run in sorted(runs, key=lambda one: one[0])] for partition, runs in found.items()}
