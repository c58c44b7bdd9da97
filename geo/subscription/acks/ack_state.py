"""The state of a subscription, which is also what its records carry: merging is a join, so they may come in any order, twice,
late.

An *epoch* says since which reset a state counts; of two, the later replaces the other whole. Within an epoch acknowledged
sets are united. So the merge is commutative, associative and idempotent (a state-based CRDT), every cluster that has seen
the same records has the same state, and a record that stands for many (a compact one) is a record like any other.

Pure: no Spark, clock, random or I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from geo.ids import LedgerId, MessageId
from geo.subscription.acks.message_set import MessageSet

MAX_REDELIVERIES = 255
"""Redelivery counts stop here; a message redelivered more often reports this value."""


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """Counts the resets of a subscription; the cluster that made one decides between two at once."""

    counter: int = 0
    cluster: str = ""

    def next(self, cluster: str) -> Epoch:
        return Epoch(self.counter + 1, cluster)


@dataclass(frozen=True, slots=True)
class Base:
    """Where an epoch begins: what lies before it is not delivered. `Base()` is the earliest message.

    Either `floors`, per ledger the first entry wanted (other ledgers from 0), or `time_us`: what was published before, in
    microseconds since 1970, is not wanted.
    """

    floors: Mapping[LedgerId, int] = field(default_factory=dict)
    time_us: int | None = None

    def __and__(self, other: Base) -> Base:
        """What lies before both: two clusters that create a subscription at once begin it differently. Of a time and floors it
        is the earliest message."""
        if self.time_us is not None and other.time_us is not None:
            return Base(time_us=min(self.time_us, other.time_us))
        if self.time_us is not None or other.time_us is not None:
            return Base()
        both = self.floors.keys() & other.floors.keys()
        return Base({ledger: min(self.floors[ledger], other.floors[ledger]) for ledger in both})

    @property
    def below_floors(self) -> MessageSet:
        """What the floors leave out."""
        return MessageSet({ledger: ((0, first - 1),) for ledger, first in self.floors.items() if first > 0})


@dataclass(frozen=True, slots=True)
class AckState:
    """One subscription as far as some records tell.

    `base` None: the record that began this epoch has not been seen, so nothing is before the base: a message too many is
    delivered rather than one too few. `redelivered[n]`: the messages not acknowledged that were delivered in vain more than
    n times; as sets, a count merges as everything else does, and a million of them take no room.
    """

    epoch: Epoch = Epoch()
    base: Base | None = None
    deleted: bool = False
    acked: MessageSet = field(default_factory=MessageSet)
    redelivered: tuple[MessageSet, ...] = ()

    def __or__(self, other: AckState) -> AckState:
        """What both tell together."""
        return merged((self, other))

    def reset(self, cluster: str, base: Base) -> AckState:
        """A new epoch of this subscription, which begins at `base`; it also brings back one that was deleted."""
        return AckState(self.epoch.next(cluster), base)

    def delete(self, cluster: str) -> AckState:
        """The tombstone: no record of an earlier epoch brings the subscription back."""
        return AckState(self.epoch.next(cluster), deleted=True)

    def redelivery_count(self, one: MessageId) -> int:
        return sum(one in level for level in self.redelivered)

    def once_more(self, messages: MessageSet) -> AckState:
        """The record that `messages` were delivered once more in vain."""
        levels = [messages, *(messages & level for level in self.redelivered[: MAX_REDELIVERIES - 1])]
        return AckState(self.epoch, redelivered=_levels([levels], self.acked))

    def begins_as(self, other: AckState) -> bool:
        """Whether both leave out the same messages from the beginning."""
        return (self.epoch, self.base, self.deleted) == (other.epoch, other.base, other.deleted)


def merged(states: Iterable[AckState]) -> AckState:
    """What all of them tell together; the same whatever their order, and if one is among them twice."""
    found = list(states)
    epoch = max((one.epoch for one in found), default=Epoch())
    found = [one for one in found if one.epoch == epoch]
    acked = MessageSet.union(one.acked for one in found)
    base: Base | None = None
    for one in found:
        base = base & one.base if base and one.base else base or one.base
    return AckState(
        epoch, base, any(one.deleted for one in found), acked, _levels((one.redelivered for one in found), acked)
    )  # fmt: skip


def _levels(counts: Iterable[Iterable[MessageSet]], acked: MessageSet) -> tuple[MessageSet, ...]:
    """Of some counts the highest, of what is not acknowledged."""
    united = (MessageSet.union(level) - acked for level in zip_longest(*counts, fillvalue=MessageSet()))
    levels = list(united)
    while levels and not levels[-1]:
        levels.pop()
    return tuple(levels)
