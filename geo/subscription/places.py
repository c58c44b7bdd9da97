"""Where a subscription begins, and what a log holds of it, told from the log by aggregates. Nothing is written."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from geo.config_tree import Start
from geo.errors import UsageError
from geo.log.message_id import MessageId
from geo.subscription.message_set import Ledger, MessageSet
from geo.subscription.state import Base
from geo.times import in_us, utc

Place = Start | datetime | MessageId
"""Where a subscription is to begin: earliest, latest, a time, or a message, which is then the first one of its ledger."""


def in_log(rows: DataFrame) -> MessageSet:
    """The messages of a log. A ledger has no holes (L5), so its first and last entry tell."""
    ends = rows.where(F.col("marker").isNull()).groupBy("origin", "ledger_id")
    found = ends.agg(F.min("entry_id").alias("first"), F.max("entry_id").alias("last")).collect()
    return MessageSet({(row["origin"], row["ledger_id"]): ((row["first"], row["last"]),) for row in found})


def before_base(base: Base | None, rows: DataFrame) -> MessageSet:
    """What of a log lies before a base."""
    if base is None or base.time_us is None:
        return base.below_floors if base is not None else MessageSet()
    return _first_at(rows, F.col("publish_time") >= F.timestamp_micros(F.lit(base.time_us))).below_floors


def base_at(place: Place, rows: DataFrame) -> Base:
    """The base of a subscription that begins there, as the log of `rows` holds the topic. Raises UsageError for a message that it
    does not hold."""
    if place == "earliest":
        return Base()
    if place == "latest":
        return _first_at(rows, F.lit(False))
    if isinstance(place, datetime):
        return Base(time_us=in_us(utc(place)))
    assert isinstance(place, MessageId)
    mine = (F.col("origin") == place.origin) & (F.col("ledger_id") == place.ledger_id)
    found = rows.where(mine & (F.col("entry_id") == place.entry_id) & F.col("marker").isNull()).select("publish_time").first()
    if found is None:
        raise UsageError(f"there is no message {place} here.")
    base = _first_at(rows, F.col("publish_time") >= F.lit(utc(found["publish_time"])))
    return Base({**base.floors, (place.origin, place.ledger_id): place.entry_id})


def _first_at(rows: DataFrame, wanted: Column) -> Base:
    """The floors by which of each ledger what is before the first wanted row is left out."""
    ends = rows.groupBy("origin", "ledger_id").agg(
        F.min(F.when(wanted, F.col("entry_id"))).alias("first"), F.max("entry_id").alias("end")
    )
    floors: dict[Ledger, int] = {}
    for row in ends.collect():
        floors[row["origin"], row["ledger_id"]] = row["end"] + 1 if row["first"] is None else row["first"]
    return Base(floors)
