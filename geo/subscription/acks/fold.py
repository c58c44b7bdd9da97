"""Folding records into states: what a record changes, and why some change nothing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from geo.ids import LedgerId
from geo.log.ledgers import LEDGER_RANDOM_BITS
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.forgetting import Remembered, all_named, day_of, remembered_all
from geo.subscription.acks.record import RecordRefusal, RefusedRecordError, decode_all, parse_key
from geo.subscription.acks.subscription_state import SubscriptionState, merged_all
from geo.times import LAST_US

HELD_ENTRIES = 10**9
HELD_ENTRIES_A_SECOND = 10**6
"""Upper bound of a ledger's length: a first bulk load, and a generous rate since its creation (which its id encodes). A record
may name messages that are not here yet. One that acknowledges beyond this bound is refused: it would silently skip every future
message."""


@dataclass(frozen=True, slots=True)
class Received:
    """A row of an `__acks` log. It has its place, by which it is of the cluster that first wrote it, its key and payload, and when it was written.
    That is in microseconds since 1970. `event_time_us`: what a compact record tells was told before that time.
    """

    ledger: LedgerId
    entry: int
    key: str | None
    payload: bytes | None
    publish_time_us: int
    event_time_us: int | None = None


@dataclass(slots=True)
class Fold:
    """State of one subscription, as records of it come in, in any order and more than once.

    Whether a record that regions share is taken is a function of the record alone. So every cluster that has seen the same ones has the same state.
    One of a cluster that has left the configuration counts: a link was to replicate it, and what it says did happen. What is of one region only
    counts if that is `cluster`, whoever has copied it elsewhere.
    """

    cluster: str
    known: Remembered = field(default_factory=Remembered)
    """All that is known, with the last day on which a record of the state's epoch named each ledger."""
    refused: Counter[RecordRefusal] = field(default_factory=Counter)

    def add(self, records: Iterable[Received]) -> None:
        by_day: dict[int, list[SubscriptionState]] = {}
        older = 0
        for record in records:
            try:
                state = self._checked(record)
            except RefusedRecordError as error:
                self.refused[error.reason] += 1
            else:
                older += state.is_older_than(self.known.state)
                by_day.setdefault(day_of(record.publish_time_us, record.event_time_us), []).append(state)
        if older:
            self.refused[RecordRefusal.OLDER_EPOCH] += older
        if by_day:
            told = ((day, merged_all(states)) for day, states in by_day.items())
            self.known = remembered_all(
                [self.known, *(Remembered(state, dict.fromkeys(all_named(state), day)) for day, state in told)]
            )

    def _checked(self, record: Received) -> SubscriptionState:
        parse_key(record.key or "")
        told = decode_all(record.payload or b"")
        if not 0 <= record.publish_time_us <= LAST_US:
            raise RefusedRecordError(RecordRefusal.MALFORMED, f"published at {record.publish_time_us}")
        if told.regional is not None and record.ledger.origin != self.cluster:
            raise RefusedRecordError(RecordRefusal.OTHER_REGION, record.ledger.origin)
        for state in told.states:
            self._check_possible(state, record.publish_time_us)
        return told

    def _check_possible(self, state: AckState, at_us: int) -> None:
        if not epoch_is_possible(state.epoch, at_us):
            raise RefusedRecordError(RecordRefusal.TOO_LARGE, f"epoch {state.epoch.counter}")
        for messages in (state.acked, *state.redelivered):
            for (origin, ledger_id), found in messages.ledgers.items():
                if found[-1][1] > longest_end(ledger_id, at_us):
                    raise RefusedRecordError(RecordRefusal.TOO_LARGE, f"{origin}:{ledger_id} up to entry {found[-1][1]}")


def epoch_is_possible(epoch: Epoch, at_us: int) -> bool:
    """Tells whether a record of this epoch can have been written at a time in microseconds since 1970: there are no more resets than seconds. So a
    later epoch is always possible, at the latest a day after one that a peer made up. No link lets a later time pass.
    """
    return epoch.counter <= at_us // 1_000_000


def longest_end(ledger_id: int, at_us: int) -> int:
    """The last entry that a ledger can have at a time in microseconds since 1970."""
    age_s = at_us // 1_000_000 - (ledger_id >> LEDGER_RANDOM_BITS)
    return HELD_ENTRIES + HELD_ENTRIES_A_SECOND * max(0, age_s)
