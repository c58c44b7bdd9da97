"""Where a subscription begins, derived from what the log holds of each ledger. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from geo.config.model import Start
from geo.coordination.clock import CLOCKS_APART_US
from geo.delta.table import Table
from geo.errors import UsageError
from geo.ids import LedgerId, MessageId
from geo.late import F
from geo.log.ledger_parts import ledger_parts
from geo.log.ledgers import LedgerPart
from geo.log.topic_log import is_message, is_of
from geo.now import now_us
from geo.subscription.acks.ack_state import Base
from geo.subscription.acks.message_set import MessageSet
from geo.times import LAST_US, from_us, in_us, with_zone

StartPosition = Start | datetime | MessageId
"""Where a subscription is to begin: earliest, latest, a time (one without a zone is UTC), or a message, which is then the first
one of its ledger."""


def split_at(base: Base | None, log: Table, version: int) -> tuple[MessageSet, MessageSet]:
    """All messages of a log at a version, and those that lie before a base. (A ledger has no holes, L5, and its times never
    decrease, L1, so its first and last entry tell.)"""
    parts = ledger_parts(log, version)
    messages = MessageSet({ledger: ((part.first, part.last),) for ledger, part in parts.items()})
    if base is None or base.time_us is None or parts.keys() <= base.floors.keys():
        return messages, base.below_floors if base is not None else MessageSet()
    by_time = _floors(parts, ledger_parts(log, version, from_us(min(base.time_us, LAST_US))))
    return messages, Base({**by_time, **base.floors}).below_floors


def base_at(start: StartPosition, log: Table) -> Base:
    """The base of a subscription that begins there, as the log holds the topic. Raises UsageError for a message that it does not
    hold."""
    if start == "earliest":
        return Base()
    if isinstance(start, datetime):
        return Base(time_us=in_us(with_zone(start)))
    now, version = now_us(), log.latest_version()
    # Of a ledger that is not here a message too many is delivered rather than one too few.
    if start == "latest":
        return Base(_floors(ledger_parts(log, version), {}), max(0, now - CLOCKS_APART_US))
    assert isinstance(start, MessageId)
    rows = log.read(version).where(is_of(start.ledger) & (F.col("entry_id") == start.entry_id) & is_message())
    found = rows.select(F.unix_micros("publish_time")).first()
    if found is None:
        raise UsageError(f"there is no message {start} here.")
    floors = {**_floors(ledger_parts(log, version), ledger_parts(log, version, from_us(found[0]))), start.ledger: start.entry_id}
    return Base(floors, max(0, found[0] - CLOCKS_APART_US))


def _floors(parts: Mapping[LedgerId, LedgerPart], wanted: Mapping[LedgerId, LedgerPart]) -> dict[LedgerId, int]:
    """By ledger, below what nothing is wanted: the first wanted entry, or what comes next."""
    return {ledger: wanted[ledger].first if ledger in wanted else part.last + 1 for ledger, part in parts.items()}
