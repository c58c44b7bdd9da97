"""Where a subscription begins, derived from what the log holds of each ledger. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import functions as F

from geo.config.model import Start
from geo.errors import UsageError
from geo.ids import LedgerId, MessageId
from geo.log.topic_log import Held, is_message, is_of, ledgers_held
from geo.subscription.acks.ack_state import Base
from geo.subscription.acks.message_set import MessageSet
from geo.tables.table import Table
from geo.times import from_us, in_us, utc

StartPosition = Start | datetime | MessageId
"""Where a subscription is to begin: earliest, latest, a time, or a message, which is then the first one of its ledger."""


def split_at(base: Base | None, log: Table) -> tuple[MessageSet, MessageSet]:
    """All messages of a log, and those that lie before a base. (A ledger has no holes, L5, so its first and last entry tell.)"""
    time_us = None if base is None else base.time_us
    held = ledgers_held(log, log.latest_version(), None if time_us is None else from_us(time_us))
    before = base if time_us is None else Base(_floors(held))
    messages = MessageSet({ledger: ((one.first, one.last),) for ledger, one in held.items()})
    return messages, before.below_floors if before is not None else MessageSet()


def base_at(start: StartPosition, log: Table) -> Base:
    """The base of a subscription that begins there, as the log holds the topic. Raises UsageError for a message that it does not hold."""
    if start == "earliest":
        return Base()
    if isinstance(start, datetime):
        return Base(time_us=in_us(utc(start)))
    version = log.latest_version()
    if start == "latest":
        return Base(_floors(ledgers_held(log, version)))
    assert isinstance(start, MessageId)
    rows = log.read(version).where(is_of(start.ledger) & (F.col("entry_id") == start.entry_id) & is_message())
    found = rows.select("publish_time").first()
    if found is None:
        raise UsageError(f"there is no message {start} here.")
    return Base({**_floors(ledgers_held(log, version, utc(found["publish_time"]))), start.ledger: start.entry_id})


def _floors(held: Mapping[LedgerId, Held]) -> dict[LedgerId, int]:
    """By ledger, below what nothing is wanted: the first entry since the time that was asked for, or what comes next."""
    return {ledger: one.last + 1 if one.since is None else one.since for ledger, one in held.items()}
