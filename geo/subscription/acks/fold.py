"""Folding records into states: what a record changes, and why some change nothing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from geo.ids import LedgerId
from geo.log.ledgers import LEDGER_RANDOM_BITS
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.forgetting import day_of, still_named
from geo.subscription.acks.record import Refusal, RefusedRecordError, decode_all, parse_key
from geo.subscription.acks.subscription_state import SubscriptionState, merged_all
from geo.times import LAST_US

HELD_ENTRIES = 10**9
HELD_ENTRIES_A_SECOND = 10**6
"""Upper bound of a ledger's length: a first bulk load, and a generous rate since its creation (which its id encodes). A record
may name messages that are not here yet. One that acknowledges beyond this bound is refused: it would silently skip every future
message."""


@dataclass(frozen=True, slots=True)
class Received:
    """A row of an `__acks` log: by whom it was first written, its key and payload, and when, in microseconds since 1970.
    `event_time_us`: what a compact record tells was told before that time."""

    origin: str
    key: str | None
    payload: bytes | None
    publish_time_us: int
    event_time_us: int | None = None


@dataclass(slots=True)
class Fold:
    """The states of some subscriptions, as records come in, in any order and more than once.

    Whether a record that regions share is taken is a function of the record alone, so every cluster that has seen the same ones has the
    same state. One of a cluster that has left the configuration counts: a link was to bring it, and what it says did happen. What is of
    one region only counts if that is `cluster`, whoever has brought it elsewhere.
    """

    cluster: str
    known: dict[str, SubscriptionState] = field(default_factory=dict)
    """By the records' key, all that is known."""
    days: dict[str, dict[LedgerId, int]] | None = None
    """If given: by the records' key, of the ledgers that records of the state's epoch named the last day on which one did."""
    _refused: Counter[tuple[str, Refusal]] = field(default_factory=Counter)
    """By the records' key, as it was."""

    @property
    def states(self) -> dict[str, AckState]:
        """By the records' key, the subscriptions as they are in this region."""
        return {key: state for key, known in self.known.items() if (state := known.here) is not None}

    @property
    def refused(self) -> Counter[Refusal]:
        return sum((Counter({reason: count}) for (_, reason), count in self._refused.items()), Counter())

    def refused_of(self, key: str) -> Counter[Refusal]:
        """Of the records of one subscription."""
        return Counter({reason: count for (of, reason), count in self._refused.items() if of == key})

    def add(self, records: Iterable[Received]) -> set[str]:
        """Take records in. Returns the keys of the subscriptions whose state they changed."""
        found: dict[str, list[SubscriptionState]] = {}
        told: dict[str, list[tuple[SubscriptionState, int]]] = {}
        for record in records:
            try:
                state = self._checked(record)
            except RefusedRecordError as error:
                self._refused[record.key or "", error.reason] += 1
            else:
                found.setdefault(record.key or "", []).append(state)
                if self.days is not None:
                    day = day_of(record.publish_time_us, record.event_time_us)
                    told.setdefault(record.key or "", []).append((state, day))
        changed = set()
        for key, states in found.items():
            before = self.known.get(key)
            after = merged_all([before, *states] if before else states)
            if before is not None and (older := sum(one.is_older_than(before) for one in states)):
                self._refused[key, Refusal.OLDER_EPOCH] += older
            if self.days is not None:
                goes_on = before is not None and not before.is_older_than(after)
                self.days[key] = _later(self.days.get(key, {}) if goes_on else {}, after, told[key])
            if after != before:
                self.known[key] = after
                changed.add(key)
        return changed

    def join(self, key: str, state: SubscriptionState | None, refused: Mapping[Refusal, int]) -> None:
        """Take in what another fold made of records of a subscription."""
        self._refused.update({(key, reason): count for reason, count in refused.items()})
        if state is not None:
            self.known[key] = merged_all([self.known[key], state] if key in self.known else [state])

    def _checked(self, record: Received) -> SubscriptionState:
        parse_key(record.key or "")
        told = decode_all(record.payload or b"")
        if not 0 <= record.publish_time_us <= LAST_US:
            raise RefusedRecordError(Refusal.MALFORMED, f"published at {record.publish_time_us}")
        if told.regional is not None and record.origin != self.cluster:
            raise RefusedRecordError(Refusal.OTHER_REGION, record.origin)
        for state in told.states:
            self._check_possible(state, record.publish_time_us)
        return told

    def _check_possible(self, state: AckState, at_us: int) -> None:
        if not epoch_is_possible(state.epoch, at_us):
            raise RefusedRecordError(Refusal.TOO_LARGE, f"epoch {state.epoch.counter}")
        for messages in (state.acked, *state.redelivered):
            for (origin, ledger_id), found in messages.ledgers.items():
                if found[-1][1] > longest_end(ledger_id, at_us):
                    raise RefusedRecordError(Refusal.TOO_LARGE, f"{origin}:{ledger_id} up to entry {found[-1][1]}")


def _later(
    days: Mapping[LedgerId, int], after: SubscriptionState, told: Iterable[tuple[SubscriptionState, int]]
) -> dict[LedgerId, int]:
    """The days with those of records, as far as they are of the epoch of the state that came of them."""
    found = dict(days)
    for state, day in told:
        for ledger in still_named(state, after):
            found[ledger] = max(day, found.get(ledger, day))
    return found


def epoch_is_possible(epoch: Epoch, at_us: int) -> bool:
    """Whether a record of this epoch can have been written at a time in microseconds since 1970: there are no more resets than
    seconds. So a later epoch is always possible, at the latest a day after one that a peer made up: no link lets a later time
    pass."""
    return epoch.counter <= at_us // 1_000_000


def longest_end(ledger_id: int, at_us: int) -> int:
    """The last entry that a ledger can have at a time in microseconds since 1970."""
    age_s = at_us // 1_000_000 - (ledger_id >> LEDGER_RANDOM_BITS)
    return HELD_ENTRIES + HELD_ENTRIES_A_SECOND * max(0, age_s)
