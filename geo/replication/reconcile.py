"""Reconcile: what of a source is missing in a target, told from the two logs alone, and appended. Idempotent.

Bootstrap, repair, backfill and a lost checkpoint are all this. DataFrames in, DataFrames out; who may run it, and what
is recorded, is the link's business (geo.replication.link).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from geo.errors import RetryableError
from geo.log.frames import rows_frame
from geo.replication.routing_column import routing_column
from geo.replication.rule import Rule

ID = ("origin", "ledger_id", "entry_id")


def wanted(rule: Rule, floors: Mapping[str, int] | None, now_us: int) -> Column:
    """Rows of the source that cross the link: the routing rule, from the link's floors on (`start: latest`)."""
    crosses = routing_column(rule, now_us)
    if not floors:
        return crosses
    floor = F.create_map(*(F.lit(part) for item in sorted(floors.items()) for part in item))
    ledger = F.concat_ws(":", "origin", F.col("ledger_id").cast("string"))
    return crosses & (F.col("entry_id") >= F.coalesce(floor[ledger], F.lit(0)))


def without_present(rows: DataFrame, target: DataFrame, origins: Collection[str]) -> DataFrame:
    """`rows` whose MessageId is not in `target`. Columns as `rows`."""
    present = target.where(F.col("origin").isin(*origins)).select(*ID)
    return rows.join(present, list(ID), "left_anti")


def missing(source: DataFrame, target: DataFrame, rule: Rule, floors: Mapping[str, int] | None, now_us: int) -> DataFrame:
    """Messages of `source` that the rule selects and `target` lacks; never markers, whose time is over."""
    rows = source.where(F.col("marker").isNull() & wanted(rule, floors, now_us))
    return without_present(rows, target, rule.origins)


def beyond(rows: DataFrame, ends: Mapping[str, int]) -> DataFrame:
    """`rows` whose entry is after its ledger's end in `ends` (`origin:ledger` → last entry). Columns as `rows`."""
    if not ends:
        return rows
    listed = [
        {"origin": origin, "ledger_id": int(ledger), "_end": end}
        for (origin, _, ledger), end in ((name.partition(":"), end) for name, end in ends.items())
    ]
    table = rows_frame(rows.sparkSession, {"origin": "STRING", "ledger_id": "BIGINT", "_end": "BIGINT"}, listed)
    joined = rows.join(F.broadcast(table), ["origin", "ledger_id"], "left")
    return joined.where(F.col("entry_id") > F.coalesce(F.col("_end"), F.lit(-1))).select(*rows.columns)


def ledger_ends(rows: DataFrame, origins: Collection[str]) -> dict[str, int]:
    """`origin:ledger` → last entry, of the given origins."""
    found = rows.where(F.col("origin").isin(*origins)).groupBy("origin", "ledger_id").agg(F.max("entry_id").alias("end"))
    return {f"{row['origin']}:{row['ledger_id']}": row["end"] for row in found.collect()}


def ledger_begins(rows: DataFrame, origins: Collection[str]) -> dict[str, int]:
    """`origin:ledger` → first entry, of the given origins."""
    found = rows.where(F.col("origin").isin(*origins)).groupBy("origin", "ledger_id").agg(F.min("entry_id").alias("first"))
    return {f"{row['origin']}:{row['ledger_id']}": row["first"] for row in found.collect()}


def lost_ranges(source_ends: Mapping[str, int], target_ends: Mapping[str, int]) -> list[str]:
    """What the target has beyond the source, as `origin:ledger:first-last`, for a link's fault."""
    return [
        f"{ledger}:{source_ends.get(ledger, -1) + 1}-{end}"
        for ledger, end in sorted(target_ends.items())
        if end > source_ends.get(ledger, -1)
    ]


def in_target_shape(rows: DataFrame, columns: Collection[str]) -> DataFrame:
    """`rows` with exactly the target's columns; one the source does not have yet is NULL.

    Raises RetryableError if the source has got columns since the target's were compared with it: none is left out in silence.
    """
    if new := [name for name in rows.columns if name not in columns]:
        raise RetryableError(
            f"the source has got new columns meanwhile: {', '.join(new)}. Nothing was written; the next start adds them."
        )
    return rows.select(*(F.col(c) if c in rows.columns else F.lit(None).alias(c) for c in columns))
