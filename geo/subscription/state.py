"""The state of a subscription, which is also what its records carry: merging is a join, so they may come in any order, twice, late.

An *epoch* says since which reset a state counts; of two, the later replaces the other whole. Within an epoch acknowledged
sets are united. So the merge is commutative, associative and idempotent (a state-based CRDT), every cluster that has seen
the same records has the same state, and a record that stands for many (a compact one) is a record like any other.

Pure: no Spark, clock, random or I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from geo.log.message_id import MessageId
from geo.subscription import ranges
from geo.subscription.ranges import Ranges

Ledger = tuple[str, int]
"""Origin and ledger id."""


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """Counts the resets of a subscription; the cluster that made one decides between two at once."""

    counter: int = 0
    cluster: str = ""

    def next(self, cluster: str) -> Epoch:
        return Epoch(self.counter + 1, cluster)


@dataclass(frozen=True, slots=True)
class AckedSet:
    """Acknowledged messages, as ranges per ledger. Ledgers without any are left out."""

    ledgers: Mapping[Ledger, Ranges] = field(default_factory=dict)

    @classmethod
    def of(cls, ids: Iterable[MessageId]) -> AckedSet:
        entries: dict[Ledger, list[int]] = {}
        for one in ids:
            entries.setdefault((one.origin, one.ledger_id), []).append(one.entry_id)
        return cls({ledger: ranges.of_entries(found) for ledger, found in entries.items()})

    def __bool__(self) -> bool:
        return bool(self.ledgers)

    def __contains__(self, one: MessageId) -> bool:
        return ranges.contains(self.ledgers.get((one.origin, one.ledger_id), ()), one.entry_id)

    def __or__(self, other: AckedSet) -> AckedSet:
        if not self or not other:
            return self if self else other
        names = self.ledgers.keys() | other.ledgers.keys()
        return AckedSet({name: ranges.union(self.ledgers.get(name, ()), other.ledgers.get(name, ())) for name in names})

    def __sub__(self, other: AckedSet) -> AckedSet:
        left = {name: ranges.difference(mine, other.ledgers.get(name, ())) for name, mine in self.ledgers.items()}
        return AckedSet({name: found for name, found in left.items() if found})

    @property
    def size(self) -> int:
        """How many messages."""
        return sum(map(ranges.size, self.ledgers.values()))

    @property
    def range_count(self) -> int:
        """What its memory and its encoding grow with."""
        return sum(map(len, self.ledgers.values()))

    def mark_delete(self, ledger: Ledger, begin: int = 0) -> int:
        """The entry up to which all of the ledger's from `begin` on are acknowledged; `begin` - 1: none."""
        return ranges.mark_delete(self.ledgers.get(ledger, ()), begin)


@dataclass(frozen=True, slots=True)
class Base:
    """Where an epoch begins: what lies before it is not delivered. `Base()` is the earliest message.

    Either `floors`, per ledger the first entry wanted (other ledgers from 0), or `time_us`: what was published before, in
    microseconds since 1970, is not wanted.
    """

    floors: Mapping[Ledger, int] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True)
class State:
    """One subscription as far as some records tell.

    `base` None: the record that began this epoch has not been seen, so nothing is before the base: a message too many is
    delivered rather than one too few. `redelivered`: how often a message that is not acknowledged was delivered in vain.
    """

    epoch: Epoch = Epoch()
    base: Base | None = None
    deleted: bool = False
    acked: AckedSet = AckedSet()
    redelivered: Mapping[MessageId, int] = field(default_factory=dict)

    def __or__(self, other: State) -> State:
        """What both tell together."""
        if self.epoch != other.epoch:
            return max(self, other, key=lambda one: one.epoch)
        acked = self.acked | other.acked
        counts = dict(self.redelivered)
        for one, count in other.redelivered.items():
            counts[one] = max(count, counts.get(one, 0))
        return State(
            self.epoch,
            self.base & other.base if self.base and other.base else self.base or other.base,
            self.deleted or other.deleted,
            acked,
            {one: count for one, count in counts.items() if one not in acked},
        )

    def reset(self, cluster: str, base: Base) -> State:
        """A new epoch of this subscription, which begins at `base`; it also brings back one that was deleted."""
        return State(self.epoch.next(cluster), base)

    def delete(self, cluster: str) -> State:
        """The tombstone: no record of an earlier epoch brings the subscription back."""
        return State(self.epoch.next(cluster), deleted=True)

    def is_before_base(self, one: MessageId, publish_time_us: int) -> bool:
        if self.base is None:
            return False
        below = one.entry_id < self.base.floors.get((one.origin, one.ledger_id), 0)
        return below or (self.base.time_us is not None and publish_time_us < self.base.time_us)
