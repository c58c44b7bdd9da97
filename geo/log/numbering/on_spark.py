"""Numbering by Spark's own jobs, of any number of rows, wherever the log is: they are held, counted, and written with their entries.

It takes no shuffle and no sort where each Spark partition has rows in order. It has with one range of a Kafka partition, one part of a file, or a
sorted DataFrame.

Spark may compute a DataFrame again, though it was cached, and get other rows (a lost executor; a source that changed meanwhile). So what is written
is held against what was counted in the very plan that writes it, which fails if they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from geo.errors import SetupError, UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import Batch, LedgerKey
from geo.log.numbering.held_rows import hold_by_tasks
from geo.log.numbering.holding import KEY, OTHER_ROWS, EntryRun, numbers, runs_of
from geo.log.numbering.order import ordered
from geo.log.numbering.tallies import IS_NEW, LEDGER_KEY, REPEATED, Alike, Common, Rejected, Tally, merged
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, RowIdentity
from geo.sql_text import identifier

_IDS = "_geo_ids"
_ORDER = (SOURCE, "replicate_to", OFFSET)


class OnSpark:
    """In the Spark partitions in which the rows come, if those of each ledger come in order there; if not, after a sort into ranges.
    Raises SetupError by a Spark that cannot.

    `held` releases at its end what is held.
    """

    def __init__(self, tagged: DataFrame, identity: RowIdentity, common: Common, held: ExitStack) -> None:
        if tagged.sparkSession.version.startswith("4.0."):
            raise SetupError(
                "Spark 4.0 numbers no rows of a log that is neither on a local disk nor on S3: take Spark 4.1 or newer there."
            )
        self._tagged, self._identity, self._common, self._held = tagged, identity, common, held
        self._parts: list[Alike] | None = None
        """Tallies of the rows as they lie; None: not yet counted so, or not in order."""
        self._counted: Sequence[Alike] = ()

    def tallies(self) -> list[Tally]:
        if not self._identity.is_scattered:
            self._parts = self._lying(self._tagged)
        self._counted = self._count() if self._parts is None else self._parts
        return merged(self._counted)

    def rejected(self, most: int | None = None) -> list[Rejected]:
        """The new rows that are bad, all or some of them."""
        text = F.expr(self._identity.text)
        bad = self._tagged.where(F.col(ERROR).isNotNull() & ~F.col(PUBLISHED)).select(SOURCE, text, ERROR, "key")
        rows = (bad if most is None else bad.limit(most)).collect()
        return [Rejected(source, tuple(offset), reason, key) for source, offset, reason, key in rows]

    def entries(self, batch: Batch) -> DataFrame:
        """The new rows as they are in the log. This, or evaluating what it returns, raises an error with REPEATED if two rows are one. It raises one
        with OTHER_ROWS unless they are, ledger by ledger, those that were counted: as many, with the same last offsets.
        """
        rows, parts = self._tagged.where(IS_NEW), self._parts
        if parts is not None and self._tagged.storageLevel == StorageLevel.NONE:
            # Spark was told meanwhile to forget what it has cached: the rows may lie elsewhere.
            parts = self._lying(self._tagged.persist())
        if parts is None:
            rows = rows.repartitionByRange(*_ORDER).sortWithinPartitions(*_ORDER).persist()
            self._held.callback(rows.unpersist)
            if (parts := self._lying(rows)) is None:
                raise UsageError(REPEATED)
        if _planned(parts) != _planned(self._counted):
            raise UsageError(OTHER_ROWS)
        filled = {
            "ledger_id": F.col(_IDS)["ledger_id"],
            "entry_id": F.col(_IDS)["entry_id"],
            "marker": F.lit(None).cast("string"),
            **{name: F.lit(value) for name, value in self._common.of(batch).items()},
        }
        with_ids = rows.withColumn(_IDS, _numbered(runs_of(parts, batch.spans)))
        return with_ids.select(
            *((filled[c] if c in filled else F.col(identifier(c))).alias(c) for c in self._common.columns.names)
        )

    def _lying(self, rows: DataFrame) -> list[Alike] | None:
        """Tell which rows lie in which Spark partition; None unless those of each ledger are in order."""
        found = hold_by_tasks(rows, self._identity, ["replicate_to"], KEY)
        return None if found is None else found[0]

    def _count(self) -> list[Alike]:
        """The rows, wherever they lie."""
        by = (SOURCE, "replicate_to", "bad", PUBLISHED)
        found = self._tagged.withColumn("bad", F.col(ERROR).isNotNull()).groupBy(*by).agg(
            F.count("*").alias("rows"),
            F.min(OFFSET).alias("first"),
            F.max(OFFSET).alias("last"),
            F.expr(self._identity.text_of(f"max({OFFSET})")).alias("last_text"),
            F.bit_xor(HASH).alias("hash"),
        )  # fmt: skip
        return [
            Alike(
                key=LedgerKey.of(r[SOURCE], r["replicate_to"]),
                bad=r["bad"],
                is_published=r[PUBLISHED],
                rows=r["rows"],
                hash=r["hash"],
                first=tuple(r["first"].values()),
                last=tuple(r["last"].values()),
                last_text=tuple(r["last_text"].values()),
            )
            for r in found.toArrow().to_pylist()
        ]


def _planned(parts: Iterable[Alike]) -> dict[LedgerKey, tuple[int, int, tuple[Any, ...]]]:
    """Plan what is written of the rows: how many rows of each ledger, their hash and their last offset."""
    found: dict[LedgerKey, tuple[int, int, tuple[Any, ...]]] = {}
    for part in parts:
        if part.is_new:
            rows, hashed, last = found.get(part.key, (0, 0, part.last))
            found[part.key] = rows + part.rows, hashed ^ part.hash, max(last, part.last, key=ordered)
    return found


def _numbered(runs: Mapping[int, Mapping[int, EntryRun]]) -> Column:
    """Ledger and entry of each row (struct of two BIGINT), of the rows of a DataFrame whose Spark partitions consist of these runs.
    Evaluating it raises an error with OTHER_ROWS unless they do: as many rows, with these last offsets."""

    from pyspark.sql.pandas.functions import arrow_udf  # Spark 4.0 has none

    def of_partition(blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        context = TaskContext.get()
        assert context is not None
        for ledgers, entries in numbers(blocks, runs.get(context.partitionId(), {})):
            yield pa.StructArray.from_arrays([ledgers, entries], ["ledger_id", "entry_id"])

    # Spark takes its kind from its type hints. Not deterministic: what it says depends on the rows before, so it is neither
    # repeated nor moved.
    udf = cast(Any, arrow_udf)(of_partition, "struct<ledger_id: bigint, entry_id: bigint>").asNondeterministic()
    found: Column = udf(F.expr(f"xxhash64({LEDGER_KEY})"), F.col(OFFSET))
    return found
