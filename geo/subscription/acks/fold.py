"""Folding records into states: what a record changes, and why some change nothing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from geo.log.ledgers import LEDGER_RANDOM_BITS
from geo.subscription.acks.ack_state import AckState, Epoch, merged
from geo.subscription.acks.record import Refusal, RefusedRecordError, decode, parse_key
from geo.times import LAST_US

HELD_ENTRIES = 10**9
HELD_ENTRIES_A_SECOND = 10**6
"""Upper bound of a ledger's length: a first bulk load, and a generous rate since its creation (which its id encodes). A record
may name messages that are not here yet. One that acknowledges beyond this bound is refused: it would silently skip every future
message."""


@dataclass(frozen=True, slots=True)
class Received:
    """A row of an `__acks` log: by whom it was first written, its key and payload, and when, in microseconds since 1970."""

    origin: str
    key: str | None
    payload: bytes | None
    publish_time_us: int


@dataclass(slots=True)
class Fold:
    """The states of some subscriptions, as records come in, in any order and more than once.

    Whether a record is taken is a function of the record alone, so every cluster that has seen the same ones has the same state.
    One of a cluster that has left the configuration counts: a link was to bring it, and what it says did happen.
    """

    states: dict[str, AckState] = field(default_factory=dict)
    """By the records' key."""
    _refused: Counter[tuple[str, Refusal]] = field(default_factory=Counter)
    """By the records' key, as it was."""

    @property
    def refused(self) -> Counter[Refusal]:
        return sum((Counter({reason: count}) for (_, reason), count in self._refused.items()), Counter())

    def refused_of(self, key: str) -> Counter[Refusal]:
        """Of the records of one subscription."""
        return Counter({reason: count for (of, reason), count in self._refused.items() if of == key})

    def add(self, records: Iterable[Received]) -> set[str]:
        """Take records in. Returns the keys of the subscriptions whose state they changed."""
        found: dict[str, list[AckState]] = {}
        for record in records:
            try:
                state = self._checked(record)
            except RefusedRecordError as error:
                self._refused[record.key or "", error.reason] += 1
            else:
                found.setdefault(record.key or "", []).append(state)
        changed = set()
        for key, states in found.items():
            before = self.states.get(key)
            after = merged([before, *states] if before else states)
            if before is not None and (older := sum(one.rank < before.rank for one in states)):
                self._refused[key, Refusal.OLDER_EPOCH] += older
            if after != before:
                self.states[key] = after
                changed.add(key)
        return changed

    def join(self, key: str, state: AckState | None, refused: Mapping[Refusal, int]) -> None:
        """Take in what another fold made of records of a subscription."""
        self._refused.update({(key, reason): count for reason, count in refused.items()})
        if state is not None:
            self.states[key] = merged([self.states[key], state] if key in self.states else [state])

    def found(self) -> Iterator[tuple[str, AckState | None, Counter[Refusal]]]:
        """What `join` takes, of each subscription of which there was a record. Records of an older epoch are not among the refused: how
        many there are depends on what else is known."""
        refused: dict[str, Counter[Refusal]] = {}
        for (key, reason), count in self._refused.items():
            if reason is not Refusal.OLDER_EPOCH:
                refused.setdefault(key, Counter())[reason] += count
        for key in self.states.keys() | refused.keys():
            yield key, self.states.get(key), refused.get(key, Counter())

    def _checked(self, record: Received) -> AckState:
        parse_key(record.key or "")
        state = decode(record.payload or b"")
        if not 0 <= record.publish_time_us <= LAST_US:
            raise RefusedRecordError(Refusal.MALFORMED, f"published at {record.publish_time_us}")
        if not epoch_is_possible(state.epoch, record.publish_time_us):
            raise RefusedRecordError(Refusal.TOO_LARGE, f"epoch {state.epoch.counter}")
        for messages in (state.acked, *state.redelivered):
            for (origin, ledger_id), found in messages.ledgers.items():
                if found[-1][1] > longest_end(ledger_id, record.publish_time_us):
                    raise RefusedRecordError(Refusal.TOO_LARGE, f"{origin}:{ledger_id} up to entry {found[-1][1]}")
        return state


def epoch_is_possible(epoch: Epoch, at_us: int) -> bool:
    """Whether a record of this epoch can have been written at a time in microseconds since 1970: there are no more resets than
    seconds. So a later epoch is always possible, at the latest a day after one that a peer made up: no link lets a later time
    pass."""
    return epoch.counter <= at_us // 1_000_000


def longest_end(ledger_id: int, at_us: int) -> int:
    """The last entry that a ledger can have at a time in microseconds since 1970."""
    age_s = at_us // 1_000_000 - (ledger_id >> LEDGER_RANDOM_BITS)
    return HELD_ENTRIES + HELD_ENTRIES_A_SECOND * max(0, age_s)
