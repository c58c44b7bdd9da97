"""The state of a subscription, which is also what its records carry: merging is a join, so they may come in any order, twice, late.

An *epoch* says since which reset a state counts; of two, the later replaces the other whole (`AckState.rank`). Within an epoch acknowledged sets
are united, and of two counts of a message the higher one holds. So the merge is commutative, associative and idempotent (a state-based CRDT). Every
cluster that has seen the same records has the same state. A record that stands for many (a compact one) is a record like any other.

Pure: no Spark, clock, random or I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from geo.ids import LedgerId, MessageId
from geo.subscription.acks.message_set import MessageSet

MAX_REDELIVERIES = 255
"""Redelivery counts stop here; a message redelivered more often reports this value."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """Counts the resets of a subscription. Of two at once a deletion wins, else the cluster that made one decides. A creation is
    nobody's: `cluster` is empty."""

    counter: int = 0
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.counter}.{self.cluster}" if self.cluster else str(self.counter)

    def next(self, cluster: str) -> Epoch:
        return Epoch(self.counter + 1, cluster)


@dataclass(frozen=True, slots=True)
class Base:
    """The place where an epoch begins: what lies before it is not delivered. `Base()` is the earliest message.

    `floors`: by ledger the first entry wanted. Of every other ledger `time_us` decides: what was published before, in microseconds since 1970, is
    not wanted; None: all of it is. So a base that names the ledgers of one cluster also decides about ledgers that only other clusters have.
    """

    floors: Mapping[LedgerId, int] = field(default_factory=dict)
    time_us: int | None = None

    def __post_init__(self) -> None:
        if self.time_us is None and 0 in self.floors.values():  # they say nothing, and each base has one form
            object.__setattr__(self, "floors", {ledger: first for ledger, first in self.floors.items() if first})

    def __and__(self, other: Base) -> Base:
        """Intersects both beginnings: two clusters that create a subscription at once begin it differently. A ledger that one of them alone names
        begins at its first entry: a floor and a time are not compared.
        """
        time_us = None if self.time_us is None or other.time_us is None else min(self.time_us, other.time_us)
        ledgers = self.floors.keys() | other.floors.keys()
        return Base({ledger: min(self.floors.get(ledger, 0), other.floors.get(ledger, 0)) for ledger in ledgers}, time_us)

    @property
    def below_floors(self) -> MessageSet:
        """Messages that the floors leave out."""
        return MessageSet({ledger: ((0, first - 1),) for ledger, first in self.floors.items() if first > 0})

    def decided_by_time(self, messages: MessageSet) -> MessageSet:
        """Those of the messages whose ledgers it does not name."""
        return MessageSet({ledger: found for ledger, found in messages.ledgers.items() if ledger not in self.floors})


@dataclass(frozen=True, slots=True)
class AckState:
    """One subscription as far as some records tell.

    `base` None: the record that began this epoch has not been seen, so nothing is before the base. A message too many is delivered rather than one
    too few. `redelivered[n]`: the messages not acknowledged that were delivered in vain n + 1 times, each in one set only. So what they take grows
    with the messages that wait and not with how often they came. A deleted one has nothing else.
    """

    epoch: Epoch = Epoch()
    base: Base | None = None
    deleted: bool = False
    acked: MessageSet = field(default_factory=MessageSet)
    redelivered: tuple[MessageSet, ...] = ()

    @property
    def rank(self) -> tuple[int, bool, str]:
        """Rank by which one of two states replaces the other: the counter, then a deletion, then the cluster. The greater one replaces."""
        return self.epoch.counter, self.deleted, self.epoch.cluster

    def __or__(self, other: AckState) -> AckState:
        """Merges both."""
        return merged((self, other))

    def reset(self, cluster: str, base: Base) -> AckState:
        """A new epoch of this subscription, which begins at `base`."""
        return AckState(self.epoch.next(cluster), base)

    def delete(self, cluster: str) -> AckState:
        """The tombstone: no record of an earlier epoch restores the subscription."""
        return AckState(self.epoch.next(cluster), deleted=True)

    def redelivery_counts(self, messages: MessageSet) -> dict[MessageId, int]:
        """Counts how often those of `messages` were delivered in vain that were."""
        return {one: count for count, level in enumerate(self.redelivered, 1) for one in messages & level}

    def in_vain(self, least: int = 1) -> MessageSet:
        """The messages that were delivered in vain so often, or more."""
        return MessageSet.union(self.redelivered[least - 1 :])

    def once_more(self, messages: MessageSet) -> AckState:
        """The record that `messages` were delivered once more in vain. Of those that have the greatest count it tells nothing."""
        below = self.redelivered[: MAX_REDELIVERIES - 1]
        levels = [messages - self.in_vain(), *(messages & level for level in below)]
        return AckState(self.epoch, redelivered=_levels([levels], self.acked))

    @property
    def beginning(self) -> AckState:
        """The part that says where the subscription begins, and nothing else."""
        return AckState(self.epoch, self.base, self.deleted)

    def begins_as(self, other: AckState) -> bool:
        """Tells whether both leave out the same messages from the beginning."""
        return self.beginning == other.beginning


def merged(states: Iterable[AckState]) -> AckState:
    """Merges all of them; the result is the same whatever their order, and if one is among them twice."""
    found = list(states)
    newest = max(found, key=lambda one: one.rank, default=AckState())
    if newest.deleted:
        return AckState(newest.epoch, deleted=True)
    found = [one for one in found if one.rank == newest.rank]
    acked = MessageSet.union(one.acked for one in found)
    base: Base | None = None
    for one in found:
        base = base & one.base if base and one.base else base or one.base
    return AckState(newest.epoch, base, False, acked, _levels([one.redelivered for one in found], acked))


def _levels(counts: Sequence[Sequence[MessageSet]], acked: MessageSet) -> tuple[MessageSet, ...]:
    """Takes of some counts the highest of each message, of what is not acknowledged."""
    levels: list[MessageSet] = []
    above = acked
    for at in reversed(range(max(map(len, counts), default=0))):
        level = MessageSet.union(one[at] for one in counts if at < len(one))
        level = level - above if level else level
        if level:
            above = above | level
        if level or levels:
            levels.append(level)
    return tuple(reversed(levels))
