"""Where a subscription begins, derived from the log by aggregates. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from geo.config.model import Start
from geo.errors import UsageError
from geo.ids import LedgerId, MessageId
from geo.log.topic_log import Span, is_message, is_of
from geo.subscription.acks.ack_state import Base
from geo.subscription.acks.message_set import MessageSet
from geo.times import in_us, utc

StartPosition = Start | datetime | MessageId
"""Where a subscription is to begin: earliest, latest, a time, or a message, which is then the first one of its ledger."""


def before_base(base: Base | None, rows: DataFrame) -> MessageSet:
    """What of a log lies before a base."""
    if base is None or base.time_us is None:
        return base.below_floors if base is not None else MessageSet()
    return _first_at(rows, F.col("publish_time") >= F.timestamp_micros(F.lit(base.time_us))).below_floors


def before_base_of(base: Base | None, spans: Mapping[LedgerId, Span]) -> MessageSet:
    """As `before_base`, of a log of which this is known, `since` the time of the base."""
    if base is None or base.time_us is None:
        return base.below_floors if base is not None else MessageSet()
    return Base({ledger: span.last + 1 if span.since is None else span.since for ledger, span in spans.items()}).below_floors


def base_at(start: StartPosition, rows: DataFrame) -> Base:
    """The base of a subscription that begins there, as the log of `rows` holds the topic. Raises UsageError for a message that it
    does not hold."""
    if start == "earliest":
        return Base()
    if start == "latest":
        return _first_at(rows, F.lit(False))
    if isinstance(start, datetime):
        return Base(time_us=in_us(utc(start)))
    assert isinstance(start, MessageId)
    found = rows.where(is_of(start.ledger) & (F.col("entry_id") == start.entry_id) & is_message()).select("publish_time").first()
    if found is None:
        raise UsageError(f"there is no message {start} here.")
    base = _first_at(rows, F.col("publish_time") >= F.lit(utc(found["publish_time"])))
    return Base({**base.floors, start.ledger: start.entry_id})


def _first_at(rows: DataFrame, wanted: Column) -> Base:
    """Per-ledger floors that exclude everything before the first row matching `wanted`."""
    ends = rows.groupBy("origin", "ledger_id").agg(
        F.min(F.when(wanted, F.col("entry_id"))).alias("first"), F.max("entry_id").alias("end")
    )
    floors: dict[LedgerId, int] = {}
    for row in ends.collect():
        floors[LedgerId(row["origin"], row["ledger_id"])] = row["end"] + 1 if row["first"] is None else row["first"]
    return Base(floors)
