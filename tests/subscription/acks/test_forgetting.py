"""What a state forgets: never what would be delivered, always what has expired, whoever still tells of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.ids import LedgerId, MessageId
from geo.subscription.acks.ack_state import AckState, Base, Epoch
from geo.subscription.acks.forgetting import (
    AGES,
    DAY_US,
    MARGIN_DAYS,
    Remembered,
    all_named,
    day_of,
    days_of,
    without,
    without_all,
)
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.subscription_state import Regional, SubscriptionState
from tests.examples import examples
from tests.subscription.acks.test_ack_state import ids, ledgers, states

TTL, TODAY = 10, 20_000
LAST = TTL + MARGIN_DAYS
"""Days for which a ledger is kept after its last record."""

day_maps = st.dictionaries(ledgers.map(lambda one: LedgerId(*one)), st.integers(TODAY - 3 * TTL, TODAY), max_size=4)
shared = states().map(SubscriptionState)
wholes = st.builds(
    SubscriptionState, st.none() | states(), st.none() | st.builds(Regional, st.integers(1, 2), st.booleans(), states())
)
remembered = st.builds(lambda state, days: Remembered(state, days).dated(TODAY), shared, day_maps)
of_any_kind = st.builds(lambda state, days: Remembered(state, days).dated(TODAY), wholes, day_maps)


def _acked(*ids: MessageId) -> AckState:
    return AckState(acked=MessageSet.of(ids))


EU, US = MessageId("eu", 1, 3), MessageId("us", 1, 5)


@pytest.mark.parametrize(
    ("days", "held", "kept"),
    [
        ({EU: TODAY - LAST, US: TODAY}, (), {EU, US}),
        ({EU: TODAY - LAST - 1, US: TODAY}, (), {US}),
        ({EU: TODAY - LAST - 1, US: TODAY}, (EU,), {EU, US}),
        ({EU: TODAY - LAST - 1, US: TODAY - LAST - 1}, (US,), {US}),
        ({EU: -1, US: TODAY}, (), {US}),
        ({US: TODAY - LAST - 1}, (), {EU}),
        ({}, (), {EU, US}),
    ],
    ids=["on its last day", "expired", "expired and held here", "of two one is held", "of no time", "one of no known day", "of no known days"],
)  # fmt: skip
def test_what_is_forgotten(days: dict[MessageId, int], held: tuple[MessageId, ...], kept: set[MessageId]) -> None:
    state = Remembered(SubscriptionState(_acked(EU, US)), {one.ledger: day for one, day in days.items()}).dated(TODAY)
    left = state.forgetting([one.ledger for one in held], TODAY, TTL)
    assert left.state.here is not None
    assert set(left.state.here.acked) == kept
    assert left.days.keys() == {one.ledger for one in kept}


@pytest.mark.parametrize(
    ("published", "told", "day"),
    [(5 * DAY_US, None, 5), (5 * DAY_US, 3 * DAY_US, 3), (5 * DAY_US, 9 * DAY_US, 5), (5 * DAY_US - 1, None, 4)],
)
def test_the_day_of_a_record_is_that_of_its_publishing_or_an_earlier_one(published: int, told: int | None, day: int) -> None:
    assert day_of(published, told) == day


def test_a_ttl_is_whole_days() -> None:
    assert [days_of(seconds) for seconds in (1, 86_400, 86_401, 30 * 86_400)] == [1, 1, 2, 30]


def test_where_it_begins_and_that_it_was_deleted_is_never_forgotten() -> None:
    base = Base({EU.ledger: 3})
    state = AckState(Epoch(2, "eu"), base, acked=MessageSet.of([EU]), redelivered=(MessageSet.of([US]),))
    for whole in (SubscriptionState(state), SubscriptionState(None, Regional(1, True, state))):
        left = Remembered(whole, {EU.ledger: 0, US.ledger: 0}).forgetting([], TODAY, TTL)
        assert left == Remembered(whole.with_here(AckState(Epoch(2, "eu"), base)))
    assert without(AckState(Epoch(3, "eu"), deleted=True), [EU.ledger]) == AckState(Epoch(3, "eu"), deleted=True)


@given(remembered, remembered, remembered)
def test_the_merge_with_days_is_commutative_associative_and_idempotent(a: Remembered, b: Remembered, c: Remembered) -> None:
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert a | a == a
    assert (a | b).state == a.state | b.state
    assert (a | b).dated(0) == a | b, "it has the days of its ledgers and no others"


@given(of_any_kind, of_any_kind)
def test_what_is_of_one_region_and_of_all_has_days_together(a: Remembered, b: Remembered) -> None:
    assert a | b == b | a
    assert (a | b).state == a.state | b.state
    assert (a | b).dated(0) == a | b
    assert all(day <= max(a.days.get(ledger, 0), b.days.get(ledger, 0)) for ledger, day in (a | b).days.items())


@given(wholes, wholes, st.sets(ledgers.map(lambda one: LedgerId(*one))))
def test_to_forget_before_a_merge_is_to_forget_after_it(a: SubscriptionState, b: SubscriptionState, gone: set[LedgerId]) -> None:
    assert without_all(a, gone) | without_all(b, gone) == without_all(a | b, gone)
    assert without_all(without_all(a, gone), gone) == without_all(a, gone)
    assert not all_named(without_all(a, gone)) & gone
    assert without_all(a, gone) | a == a, "nothing comes to it"


@given(of_any_kind, st.integers(1, 400))
def test_compact_records_of_all_ages_are_together_the_state_and_no_day_is_told_earlier(one: Remembered, ttl_days: int) -> None:
    parts = list(one.by_age(TODAY, ttl_days))
    told = Remembered()
    for part, before_us in parts:
        day = day_of(TODAY * DAY_US, before_us)
        told |= Remembered(part, dict.fromkeys(all_named(part), day))
    assert told.state == one.state
    step = max(1, ttl_days // AGES)
    old = one.old(TODAY, ttl_days)
    assert told.old(TODAY, ttl_days) == old, "what is old is told as old, and nothing else"
    young = {ledger: day for ledger, day in told.days.items() if ledger not in old}
    assert all(one.days[ledger] <= day <= min(TODAY, one.days[ledger] + step - 1) for ledger, day in young.items())
    assert list(told.by_age(TODAY, ttl_days)) == parts, "told on it has the same days"
    assert all(state.base is None for part, _ in parts[1:] for state in part.states)
    assert [part for part, _ in one.by_age(TODAY, None)] == [one.state]


def test_a_state_of_many_days_is_few_records() -> None:
    many = {LedgerId("eu", number): TODAY - number % 400 for number in range(1, 2000)}
    state = SubscriptionState(AckState(acked=MessageSet(dict.fromkeys(many, ((0, 9),)))))
    for ttl_days in (1, 7, 8, 30, 100, 365):
        assert len(list(Remembered(state, many).by_age(TODAY, ttl_days))) <= 2 * AGES + MARGIN_DAYS + 3


# -- clusters that tell each other ---------------------------------------------------------------------------------------


@dataclass
class _Region:
    """A cluster: what it remembers, what its log holds, and how many of the records it has taken in."""

    held: set[LedgerId] = field(default_factory=set)
    memory: Remembered = field(default_factory=Remembered)
    taken: set[int] = field(default_factory=set)


@dataclass
class _Regions:
    today: int = TODAY
    records: list[tuple[SubscriptionState, int]] = field(default_factory=list)
    """With their days."""
    by_consumers: list[tuple[MessageId, int]] = field(default_factory=list)
    all: tuple[_Region, ...] = field(default_factory=lambda: (_Region(), _Region(), _Region()))

    def acknowledge(self, region: _Region, one: MessageId) -> None:
        self.by_consumers.append((one, self.today))
        self.records.append((SubscriptionState(_acked(one)), self.today))
        region.held.add(one.ledger)

    def take(self, region: _Region, number: int) -> None:
        state, day = self.records[number % len(self.records)]
        region.taken.add(number % len(self.records))
        region.memory |= Remembered(state, dict.fromkeys(all_named(state), day))

    def take_all(self, region: _Region) -> None:
        for number in sorted(set(range(len(self.records))) - region.taken, reverse=True):
            self.take(region, number)

    def compact(self, region: _Region) -> None:
        before = region.memory
        region.memory = before.forgetting(region.held, self.today, TTL)
        forgotten = all_named(before.state) - all_named(region.memory.state)
        assert not forgotten & region.held, "what the log here holds would be delivered"
        for part, before_us in region.memory.by_age(self.today, TTL):
            self.records.append((part, day_of(self.today * DAY_US, before_us)))

    def check(self, region: _Region) -> None:
        acked = set((region.memory.state.here or AckState()).acked)
        assert acked <= {one for one, _ in self.by_consumers}, "nobody acknowledged it"
        if len(region.taken) == len(self.records):
            young = {one for one, day in self.by_consumers if self.today - day <= LAST}
            assert young <= acked, "a link may still bring it"


@settings(max_examples=examples(3))
@given(
    st.lists(
        st.tuples(st.sampled_from(["acknowledge", "take", "take all", "compact", "drop", "days"]), st.integers(0, 2), ids, st.integers(0, 99)),
        max_size=60,
    )
)  # fmt: skip
def test_clusters_that_tell_each_other_at_any_time_lose_nothing_young_and_keep_nothing_for_ever(
    events: list[tuple[str, int, MessageId, int]],
) -> None:
    regions = _Regions()
    for what, at, one, number in events:
        region = regions.all[at]
        if what == "acknowledge":
            regions.acknowledge(region, one)
        elif what == "take" and regions.records:
            regions.take(region, number)
        elif what == "take all":
            regions.take_all(region)
        elif what == "compact":
            regions.compact(region)
        elif what == "drop":
            region.held.discard(one.ledger)
        elif what == "days":
            regions.today += number % (2 * TTL)
        regions.check(region)
    for region in regions.all:
        region.held.clear()
    for _ in range(LAST + AGES):  # they go on telling each other, each day, and one hears of all at once at the end
        regions.today += 1
        for region in regions.all[:2]:
            regions.compact(region)
            regions.take_all(region)
    for region in regions.all:
        regions.take_all(region)
        regions.compact(region)
        assert not all_named(region.memory.state)


@given(remembered, remembered)
def test_what_has_expired_is_no_news(before: Remembered, more: Remembered) -> None:
    after = before | more
    old = after.old(TODAY, TTL)
    assert after.is_news(before, TODAY, TTL) == (without_all(after.state, old) != without_all(before.state, old))
    assert after.is_news(before, TODAY, None) == (after.state != before.state)
    assert not before.is_news(before, TODAY, TTL)
    forgot = after.without(old)
    assert not (forgot | after).is_news(forgot, TODAY, TTL), "what others still hold"
