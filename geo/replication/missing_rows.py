"""What of a source is missing in a target, derived from the two logs alone. DataFrames in, DataFrames out; nothing is
written. `missing.py` finds the same of two small logs without Spark.

Bootstrap, repair and backfill are all this; who may append it, and what is recorded, is the link's business
(geo.replication.link_target).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from geo.delta.arrow_rows import rows_frame
from geo.delta.predicate import to_sql
from geo.ids import LedgerId
from geo.log.topic_log import ID, is_message, is_of
from geo.progress import Progress
from geo.replication.gaps import Extent, Gap, gaps, steps
from geo.replication.rule import Rule, crosses

log = logging.getLogger(__name__)

FEW_GAPS = 20
"""Up to so many gaps are a condition by which Delta skips files; more are a join."""

_BLOCK_BITS = 20
_BLOCK = 2**_BLOCK_BITS
"""Entries of a block. The squares of its numbers fit into a BIGINT eight million times."""


def wanted(rule: Rule, floors: Mapping[str, int] | None, now_us: int) -> Column:
    """Rows of the source that cross the link: the routing rule, from the link's floors on (`start: latest`)."""
    routed = F.expr(to_sql(crosses(rule, now_us)))
    if not floors:
        return routed
    # One literal however many ledgers there are; Spark reads it once.
    floor = F.from_json(F.lit(json.dumps(dict(floors))), "map<string, bigint>")
    ledger = F.concat_ws(":", "origin", F.col("ledger_id").cast("string"))
    return routed & (F.col("entry_id") >= F.coalesce(floor[ledger], F.lit(0)))


def messages_wanted(rule: Rule, floors: Mapping[str, int] | None, now_us: int) -> Column:
    """As `wanted`, without markers, whose time is over. Of a replica it says the same as of the row it is a copy of."""
    return is_message() & wanted(rule, floors, now_us)


def extents(rows: DataFrame) -> dict[LedgerId, Extent]:
    """The entries of each ledger in a line.

    Sums of large numbers are Spark's decimals, of which a row each is slow. So entries are summed by blocks, in whose numbers a BIGINT
    has room, and only the blocks as decimals.
    """
    entry, inside = F.col("entry_id"), F.col("entry_id").bitwiseAND(F.lit(_BLOCK - 1))
    blocks = rows.groupBy("origin", "ledger_id", F.shiftright(entry, _BLOCK_BITS).alias("block")).agg(
        F.min(entry).alias("first"),
        F.max(entry).alias("last"),
        F.count("*").alias("count"),
        F.try_sum(inside).alias("inside"),
        F.try_sum(inside * inside).alias("squares"),
    )
    begin = F.col("block").cast("decimal(20,0)") * F.lit(_BLOCK)
    count, inside_sum, squares = (F.col(name).cast("decimal(20,0)") for name in ("count", "inside", "squares"))

    found = blocks.groupBy("origin", "ledger_id").agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum("count").alias("count"),
        F.try_sum(F.try_add(F.try_multiply(begin, count), inside_sum)).alias("total"),
        F.try_sum(
            F.try_add(F.try_multiply(begin, F.try_add(F.try_multiply(begin, count), F.lit(2) * inside_sum)), squares)
        ).alias("squares"),
    )
    return {
        LedgerId(row["origin"], row["ledger_id"]): Extent(
            row["first"], row["last"], row["count"], _whole(row["total"]), _whole(row["squares"])
        )
        for row in found.collect()
    }


def missing_in_steps(source: DataFrame, target: DataFrame, what: str, most: int) -> Iterator[DataFrame]:
    """What `target` lacks of the rows of `source`, in steps of at most so many entries. Columns as `source`. How far that has come is logged as `what`."""
    found = gaps(extents(source), extents(target))
    progress = Progress(log, what, "messages compared", sum(gap.size for gap in found))
    for step in steps(found, most):
        yield missing(source, target, step)
        progress.add(sum(gap.size for gap in step))


def missing(source: DataFrame, target: DataFrame, step: Sequence[Gap]) -> DataFrame:
    """The rows of `source` that are in the gaps and not in `target`, each MessageId once. Columns as `source`."""
    parts = []
    for compare, repeated in product((False, True), repeat=2):
        some = [gap for gap in step if (gap.compare, gap.repeated) == (compare, repeated)]
        if some:
            rows = within(source, some)
            rows = rows.dropDuplicates(list(ID)) if repeated else rows
            parts.append(without_present(rows, within(target, some)) if compare else rows)
    return reduce(DataFrame.unionByName, parts)


def within(rows: DataFrame, found: Sequence[Gap]) -> DataFrame:
    """The rows whose entries are in the gaps. Columns as `rows`."""
    if len(found) <= FEW_GAPS:
        return rows.where(
            reduce(
                or_,
                (is_of(gap.ledger) & F.col("entry_id").between(gap.first, gap.last) for gap in found),
            )
        )
    listed = [
        {"origin": gap.ledger.origin, "ledger_id": gap.ledger.ledger_id, "_first": gap.first, "_last": gap.last} for gap in found
    ]
    types = {"origin": "STRING", "ledger_id": "BIGINT", "_first": "BIGINT", "_last": "BIGINT"}
    joined = rows.join(F.broadcast(rows_frame(rows.sparkSession, types, listed)), ["origin", "ledger_id"])
    return joined.where(F.col("entry_id").between(F.col("_first"), F.col("_last"))).select(*rows.columns)


def without_present(rows: DataFrame, target: DataFrame) -> DataFrame:
    """`rows` whose MessageId is not in `target`. Columns as `rows`."""
    return rows.join(target.select(*ID), list(ID), "left_anti").select(*rows.columns)


def lost_ranges(source_ends: Mapping[LedgerId, int], target_ends: Mapping[LedgerId, int]) -> list[str]:
    """What the target has beyond the source, as `origin:ledger:first-last`, for a link's fault."""
    return [
        f"{ledger}:{source_ends.get(ledger, -1) + 1}-{end}"
        for ledger, end in sorted(target_ends.items())
        if end > source_ends.get(ledger, -1)
    ]


def count_rows(rows: DataFrame | pa.Table) -> int:
    return len(rows) if isinstance(rows, pa.Table) else rows.count()


def _whole(number: object) -> int | None:
    return None if number is None else int(str(number))
