"""Messages of a log by their ids: which are in a DataFrame, and a DataFrame of some of them. Columns only; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from geo.delta.predicate import to_sql
from geo.ids import LedgerId, MessageId
from geo.late import F
from geo.log.conditions import IS_POSSIBLE
from geo.log.topic_log import ID, PUBLISH_ORDER, is_of
from geo.sql_text import identifier
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.ranges import Range
from geo.times import with_zone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FEW_RANGES = 64
"""So many ranges are told to Spark as a condition, by which files can be skipped; more as a table that is joined."""


MOST_CONDITIONS = 64
"""So many ledgers are told to Spark as a condition, each some milliseconds of planning. Of 200 the code that it makes is too large to be compiled.
All of more as a table that is joined too."""

MOST_BUCKETS = 200_000
"""Buckets of the gaps of a set, at most, in a table that every task gets."""


def ids_of(rows: DataFrame) -> tuple[pa.Table, int]:
    """PUBLISH_ORDER of the rows, on the driver: 40 bytes a message. Of those that are possible (`IS_POSSIBLE`); and how many are not."""
    ids = rows.select(*PUBLISH_ORDER, F.expr(to_sql(IS_POSSIBLE)).alias("_possible")).toArrow()
    possible = ids.filter(ids["_possible"]).drop_columns(["_possible"])
    return possible, ids.num_rows - possible.num_rows


def in_publish_order(ids: pa.Table) -> pa.Table:
    """A table with the columns PUBLISH_ORDER, in that order."""
    return ids.sort_by([(name, "ascending") for name in PUBLISH_ORDER])


def message_ids(ids: pa.Table) -> list[MessageId]:
    """The messages of a table with the columns ID, one by one."""
    return [MessageId(*row.values()) for row in ids.select(ID).to_pylist()]


def message_set(ids: pa.Table) -> MessageSet:
    """The messages of a table with the columns ID."""
    if not ids.num_rows:
        return MessageSet()
    ordered = ids.select(ID).sort_by([(name, "ascending") for name in ID]).combine_chunks()
    origin, ledger, entry = (ordered[name].combine_chunks() for name in ID)
    breaks = reduce(
        pc.or_,
        (
            pc.not_equal(origin[1:], origin[:-1]),
            pc.not_equal(ledger[1:], ledger[:-1]),
            pc.greater(pc.subtract(entry[1:], entry[:-1]), 1),
        ),
    )
    ends = pc.indices_nonzero(breaks).to_pylist()
    firsts, lasts = [0, *(at + 1 for at in ends)], [*ends, len(entry) - 1]
    found: dict[LedgerId, list[Range]] = {}
    names, numbers = origin.take(firsts).to_pylist(), ledger.take(firsts).to_pylist()
    for name, number, first, last in zip(
        names, numbers, entry.take(firsts).to_pylist(), entry.take(lasts).to_pylist(), strict=True
    ):
        found.setdefault(LedgerId(name, number), []).append((first, last))
    return MessageSet({ledger: tuple(held) for ledger, held in found.items()})


def only(rows: DataFrame, messages: MessageSet) -> DataFrame:
    """The rows that are in `messages`, each id once. Columns as `rows`."""
    return among(rows, messages).dropDuplicates(list(ID))


def among(rows: DataFrame, messages: MessageSet) -> DataFrame:
    """The rows that are in `messages`. Columns as `rows`."""
    if messages.range_count > FEW_RANGES:
        rows = rows.where(_near(messages))
        wanted = rows.sparkSession.createDataFrame(_table(ID, [(*one.ledger, one.entry_id) for one in messages]))
        return rows.join(F.broadcast(wanted), list(ID), "left_semi").select(*map(identifier, rows.columns))
    conditions = [
        is_of(ledger) & F.col("entry_id").between(first, last)
        for ledger, found in sorted(messages.ledgers.items())
        for first, last in found
    ]
    return rows.where(reduce(or_, conditions, F.lit(False)))


def without(rows: DataFrame, done: MessageSet) -> DataFrame:
    """The rows that are not in `done`, a large set with many gaps, found where they are read. They are of other ledgers, after a ledger's last
    range, or in a gap before it. Columns as `rows`."""
    ends, gaps, bits = _ends_and_gaps(done)
    spark = rows.sparkSession
    keyed = rows.select("*", F.expr(f"shiftright(entry_id, {bits})").alias("_geo_bucket"))
    keyed = keyed.join(F.broadcast(spark.createDataFrame(ends)), ["origin", "ledger_id"], "left")
    # An entry lies in one gap at most, so no row comes twice.
    of_gap = "origin = _geo_origin AND ledger_id = _geo_ledger_id AND _geo_bucket = _geo_of_bucket AND entry_id BETWEEN _geo_first AND _geo_last"
    keyed = keyed.join(F.broadcast(spark.createDataFrame(gaps)), F.expr(of_gap), "left")
    missing = "_geo_end IS NULL OR entry_id IS NULL OR entry_id > _geo_end OR _geo_first IS NOT NULL"
    return keyed.where(missing).select(*map(identifier, rows.columns))


def _ends_and_gaps(done: MessageSet) -> tuple[pa.Table, pa.Table, int]:
    """Last entries of the ledgers of a set. The gaps before them, each once for every bucket in which it lies, of so many bits of an entry; and the
    number of bits.
    """
    found = [
        (ledger, first, last)
        for ledger, ranges in done.ledgers.items()
        for (_, before), (after_, _) in pairwise(((-1, -1), *ranges))
        if (first := before + 1) <= (last := after_ - 1)
    ]
    bits = 10
    while sum((last >> bits) - (first >> bits) + 1 for _, first, last in found) > max(MOST_BUCKETS, 2 * len(found)):
        bits += 2
    parts = [
        (*ledger, bucket, first, last) for ledger, first, last in found for bucket in range(first >> bits, (last >> bits) + 1)
    ]
    ends = [(*ledger, ranges[-1][1]) for ledger, ranges in done.ledgers.items()]
    return (
        _table(("origin", "ledger_id", "_geo_end"), ends),
        _table(("_geo_origin", "_geo_ledger_id", "_geo_of_bucket", "_geo_first", "_geo_last"), parts),
        bits,
    )


def between(rows: DataFrame, ids: pa.Table) -> DataFrame:
    """The rows of the time that `ids`, of the columns PUBLISH_ORDER, span, so that files can be skipped."""
    times = pc.min_max(ids["publish_time"]).as_py()
    first, last = (with_zone(time) for time in (times["min"], times["max"]))
    return rows.where(F.col("publish_time").between(F.lit(first), F.lit(last)))


def _near(messages: MessageSet) -> Column:
    """A condition that all of `messages` fulfil and by which Delta skips files. It goes from the first to the last of each ledger, or if these are
    many, of all."""
    if len(messages.ledgers) > MOST_CONDITIONS:
        numbers = [ledger.ledger_id for ledger in messages.ledgers]
        return F.col("ledger_id").between(min(numbers), max(numbers))
    conditions = (
        is_of(ledger) & F.col("entry_id").between(found[0][0], found[-1][1]) for ledger, found in messages.ledgers.items()
    )
    return reduce(or_, conditions)


def with_redelivery_counts(rows: DataFrame, counts: Mapping[MessageId, int]) -> DataFrame:
    """`rows` with a column `redelivery_count` INT: 0 for what is not in `counts`."""
    if not counts:
        return rows.withColumn("redelivery_count", F.lit(0))
    table = _table((*ID, "_geo_count"), [(*one.ledger, one.entry_id, count) for one, count in counts.items()])
    known = F.broadcast(rows.sparkSession.createDataFrame(table))
    count = F.coalesce(F.col("_geo_count").cast("int"), F.lit(0)).alias("redelivery_count")
    return rows.join(known, list(ID), "left").select(*map(identifier, rows.columns), count)


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> pa.Table:
    """A text, that of an origin, and numbers."""
    types = [pa.string(), *[pa.int64()] * (len(names) - 1)]
    return pa.table([pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types)], names=list(names))
