"""Ledgers of which every message has expired, which a state may forget. Pure: no Spark, clock, random or I/O.

With each ledger of a state goes the *day* on which a record last named it. It is that of the record's publishing, or, of a compact record, the one
that it tells. So a day travels with what it is about, and days merge by the later one. What somebody else still tells of a ledger makes it no
younger. Two clusters do not keep a ledger alive by telling each other of it.

A message was published before it was acknowledged. So a TTL after a ledger's day all that is acknowledged of it has expired, and no link replicates
any of it any more. What the log here still holds is kept all the same: it would be delivered. To forget makes a state smaller and nothing else. A
message may be delivered once too often, where a TTL was raised or a region comes back after longer than the TTL. None is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from geo.ids import LedgerId
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.subscription_state import SubscriptionState, merged_all

DAY_US = 24 * 3600 * 1_000_000

MARGIN_DAYS = 2
"""One for messages whose producer was ahead of the storage (no link lets pass what is a day ahead), one for clocks apart."""

AGES = 8
"""Compact records of a state tell their days in so many steps to a TTL. Each step is a record, and delays forgetting by its length at most."""

Days = Mapping[LedgerId, int]
"""Days, since 1970, by ledger, on which a record last named it."""


def day_of(publish_time_us: int, event_time_us: int | None) -> int:
    """The day of what a record tells: of its publishing, or the earlier one that it says, which a compact record does."""
    return (publish_time_us if event_time_us is None else min(publish_time_us, event_time_us)) // DAY_US


def days_of(message_ttl_s: float) -> int:
    """A TTL in whole days, rounded up."""
    return -int(-message_ttl_s // 86_400)


@dataclass(frozen=True, slots=True)
class Remembered:
    """All that is known of a subscription, with the days of its ledgers. Merging is a join, as that of states is."""

    state: SubscriptionState = field(default_factory=SubscriptionState)
    days: Days = field(default_factory=dict)

    def __or__(self, other: Remembered) -> Remembered:
        """Merges both."""
        return remembered_all((self, other))

    def dated(self, today: int) -> Remembered:
        """Exactly the ledgers of the state have days: one of which none is known has today's."""
        return Remembered(self.state, {ledger: self.days.get(ledger, today) for ledger in all_named(self.state)})

    def old(self, today: int, ttl_days: int) -> frozenset[LedgerId]:
        """Ledgers of which all that is acknowledged has expired."""
        return frozenset(ledger for ledger, day in self.days.items() if today - day > ttl_days + MARGIN_DAYS)

    def without(self, ledgers: Collection[LedgerId]) -> Remembered:
        if not ledgers:
            return self
        return Remembered(
            without_all(self.state, ledgers), {ledger: day for ledger, day in self.days.items() if ledger not in ledgers}
        )

    def forgetting(self, held: Collection[LedgerId], today: int, ttl_days: int) -> Remembered:
        """Without the old ledgers that the log here does not hold any more."""
        return self.without(self.old(today, ttl_days).difference(held))

    def is_news(self, before: Remembered, today: int, ttl_days: int | None) -> bool:
        """Tells whether it says more than `before` did, which others are to be told. What has expired is no news: two clusters of which each still
        holds what the other has forgotten would tell each other for ever.
        """
        old = frozenset() if ttl_days is None else self.old(today, ttl_days)
        return without_all(self.state, old) != without_all(before.state, old)

    def by_age(self, today: int, ttl_days: int | None) -> Iterator[tuple[SubscriptionState, int | None]]:
        """Parts that together are the state, at least one. Each has the time in microseconds since 1970 before which all in it was told; None: now.
        The first has the base.

        Steps are a power of two of days and begin at the same day everywhere. So a day that is told on and on ends at the end of its step. What is
        old is told as just old, in one part.
        """
        if ttl_days is None:
            yield self.state, None
            return
        step = 1 << max(0, (ttl_days // AGES).bit_length() - 1)
        ages: dict[int, set[LedgerId]] = {}
        just_old = today - ttl_days - MARGIN_DAYS - 1
        for ledger, day in self.days.items():
            last = just_old if day <= just_old else min(today, day - day % step + step - 1)
            ages.setdefault(last, set()).add(ledger)
        rest = _each(self.state, lambda one: replace(one, base=None))
        for number, (last, ledgers) in enumerate(sorted(ages.items(), reverse=True) or [(today, set())]):
            whole = rest if number else self.state
            part = without_all(whole, self.days.keys() - ledgers) if len(ages) > 1 else whole
            yield part, None if last >= today else (last + 1) * DAY_US - 1


def remembered_all(parts: Iterable[Remembered]) -> Remembered:
    """Merges all of them. The days of an epoch that was replaced do not count."""
    found = list(parts)
    state = merged_all(one.state for one in found)
    days: dict[LedgerId, int] = {}
    for one in found:
        for ledger in still_named(one.state, state) & one.days.keys() if one.days else ():
            days[ledger] = max(one.days[ledger], days.get(ledger, one.days[ledger]))
    return Remembered(state, days)


def without_all(state: SubscriptionState, ledgers: Collection[LedgerId]) -> SubscriptionState:
    """Leaves out as `without`, of all that is known."""
    return _each(state, lambda one: without(one, ledgers))


def all_named(state: SubscriptionState) -> frozenset[LedgerId]:
    """Lists as `named`, of all that is known."""
    return frozenset().union(*map(named, state.states))


def still_named(one: SubscriptionState, whole: SubscriptionState) -> frozenset[LedgerId]:
    """The ledgers that it names and that count in what it is a part of. Those of an epoch, or of a turn, that was replaced do not."""
    found: frozenset[LedgerId] = frozenset()
    if one.replicated is not None and whole.replicated is not None and one.replicated.rank == whole.replicated.rank:
        found |= named(one.replicated)
    own, others = one.regional, whole.regional
    if own is not None and others is not None and (own.turn, own.state.rank) == (others.turn, others.state.rank):
        found |= named(own.state)
    return found


def _each(state: SubscriptionState, change: Callable[[AckState], AckState]) -> SubscriptionState:
    own = state.regional
    return SubscriptionState(
        None if state.replicated is None else change(state.replicated),
        None if own is None else replace(own, state=change(own.state)),
    )


def named(state: AckState) -> frozenset[LedgerId]:
    """The ledgers of which it tells what became of messages."""
    return frozenset().union(state.acked.ledgers, *(level.ledgers for level in state.redelivered))


def without(state: AckState, ledgers: Collection[LedgerId]) -> AckState:
    """Leaves out of the state the messages of these ledgers. Where it begins stays: that does not grow."""
    if not ledgers:
        return state
    acked, *levels = (
        MessageSet({ledger: found for ledger, found in one.ledgers.items() if ledger not in ledgers})
        for one in (state.acked, *state.redelivered)
    )
    while levels and not levels[-1]:
        levels.pop()
    return replace(state, acked=acked, redelivered=tuple(levels))
