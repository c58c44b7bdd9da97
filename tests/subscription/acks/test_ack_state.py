"""The merge of subscription states: whatever order, repeats and groupings records come in, the result is the same."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.ids import LedgerId, MessageId
from geo.subscription.acks import ranges
from geo.subscription.acks.ack_state import MAX_REDELIVERIES, AckState, Base, Epoch, merged
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.subscription_state import SubscriptionState

entries = st.sets(st.integers(0, 40))
ids = st.sampled_from([MessageId(origin, ledger, entry) for origin in ("eu", "us") for ledger in (1, 2) for entry in range(13)])
acked = st.builds(MessageSet.of, st.sets(ids))
ledgers = st.sampled_from([(origin, ledger) for origin in ("eu", "us") for ledger in (1, 2)])
bases = st.builds(Base, st.dictionaries(ledgers, st.integers(0, 9), max_size=3), st.none() | st.integers(1, 9))
epochs = st.builds(Epoch, st.integers(0, 2), st.sampled_from(["", "eu", "us"]))


@st.composite
def states(draw: st.DrawFn) -> AckState:
    """States as they are: counts are of messages that are not acknowledged, and their last level is not empty."""
    counts = tuple(draw(st.lists(acked, max_size=3)))
    return merged([AckState(draw(epochs), draw(st.none() | bases), draw(st.booleans()), draw(acked), counts)])


@given(entries, entries)
def test_ranges_are_sets(one: set[int], other: set[int]) -> None:
    a, b = ranges.of_entries(one), ranges.of_entries(other)
    assert ranges.union(a, b) == ranges.of_entries(one | other)
    assert ranges.difference(a, b) == ranges.of_entries(one - other)
    assert ranges.size(a) == len(one)
    assert {entry for entry in range(-1, 42) if ranges.contains(a, entry)} == one
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(a)), "disjoint and not touching"


@given(entries, st.integers(0, 40))
def test_the_mark_delete_is_the_end_of_the_unbroken_beginning(done: set[int], begin: int) -> None:
    expected = begin - 1
    while expected + 1 in done:
        expected += 1
    assert ranges.mark_delete(ranges.of_entries(done), begin) == expected


@given(st.sets(ids), st.sets(ids))
def test_an_acknowledged_set_covers_what_was_acknowledged_and_nothing_else(one: set[MessageId], other: set[MessageId]) -> None:
    united, left = MessageSet.of(one) | MessageSet.of(other), MessageSet.of(one) - MessageSet.of(other)
    every = {MessageId(origin, ledger, entry) for origin in ("eu", "us") for ledger in (1, 2) for entry in range(14)}
    assert {one for one in every if one in united} == one | other
    assert {one for one in every if one in left} == one - other
    assert set(MessageSet.of(one) & MessageSet.of(other)) == one & other
    assert list(united) == sorted(one | other)
    assert MessageSet.union([MessageSet.of(one), MessageSet.of(other), MessageSet.of(one)]) == united
    assert united.size == len(one | other)
    assert united == MessageSet.of(one | other)
    assert left == MessageSet.of(one - other), "equal sets are equal values"


@given(acked)
def test_a_set_is_read_from_its_text_and_its_halves_are_all_of_it(one: MessageSet) -> None:
    assert MessageSet.parse(str(one)) == one
    first, second = one.halves()
    assert first | second == one
    assert not first & second
    assert 0 <= second.size - first.size <= 1


@given(states(), states(), ids)
def test_within_an_epoch_nothing_acknowledged_is_lost_and_nothing_else_is_gained(
    a: AckState, b: AckState, one: MessageId
) -> None:
    both = a | b
    assert both.rank == max(a.rank, b.rank)
    counting = [state for state in (a, b) if state.rank == both.rank]
    assert (one in both.acked) == any(one in state.acked for state in counting)
    count = max(_count(state, one) for state in counting)
    assert _count(both, one) == (0 if one in both.acked else count)
    assert sum(one in level for level in both.redelivered) <= 1


def _count(state: AckState, one: MessageId) -> int:
    return state.redelivery_counts(MessageSet.of([one])).get(one, 0)


@given(bases, bases, bases, ids, st.integers(0, 10))
def test_what_lies_before_a_base_of_two_lies_before_both(a: Base, b: Base, c: Base, one: MessageId, time_us: int) -> None:
    if _is_before(a & b, one, time_us):
        assert _is_before(a, one, time_us)
        assert _is_before(b, one, time_us)
    assert a & a == a
    assert a & b == b & a
    assert (a & b) & c == a & (b & c)


@given(states(), states(), ids, st.integers(0, 10))
def test_what_a_merged_base_leaves_out_both_leave_out(a: AckState, b: AckState, one: MessageId, time_us: int) -> None:
    both = a | b
    known = [state.base for state in (a, b) if state.rank == both.rank and state.base is not None]
    if both.base is not None and _is_before(both.base, one, time_us):
        assert known
        assert all(_is_before(base, one, time_us) for base in known)


def _is_before(base: Base, one: MessageId, time_us: int) -> bool:
    if one.ledger in base.floors:
        return one in base.below_floors
    return base.time_us is not None and time_us < base.time_us


@given(states(), st.sets(ids))
def test_each_delivery_in_vain_counts_once(state: AckState, again: set[MessageId]) -> None:
    if not state.deleted:
        after = state | state.once_more(MessageSet.of(again))
        for one in again:
            assert _count(after, one) == (0 if one in state.acked else _count(state, one) + 1)
        assert after.acked == state.acked


@pytest.mark.slow
def test_what_waits_takes_as_much_room_however_often_it_came_and_at_the_greatest_count_nothing_is_told() -> None:
    holes = MessageSet({LedgerId("eu", 1): tuple((entry, entry) for entry in range(0, 400, 2))})
    state = AckState()
    for _ in range(MAX_REDELIVERIES):
        told = state.once_more(holes)
        assert sum(level.range_count for level in told.redelivered) == 200
        state |= told
        assert sum(level.range_count for level in state.redelivered) == 200
    assert state.in_vain(MAX_REDELIVERIES) == holes
    assert state.once_more(holes) == AckState()


@given(states(), states(), bases, bases)
def test_two_resets_at_once_converge_and_beat_every_acknowledgement_before_them(
    a: AckState, late: AckState, x: Base, y: Base
) -> None:
    here, there = a.reset("eu", x), a.reset("us", y)
    assert here | there == there | here == there, "the cluster decides between equal counters"
    old = AckState(a.epoch, acked=late.acked)
    assert here | old == old | here == here


@given(states(), bases, bases)
def test_two_creations_at_once_after_a_deletion_begin_before_both(a: AckState, x: Base, y: Base) -> None:
    tombstone = a.delete("eu")
    deleted = SubscriptionState(tombstone)
    here, there = (deleted.begun(cluster, base, replicated=True).replicated for cluster, base in (("eu", x), ("us", y)))
    assert here is not None
    assert there is not None
    assert tombstone | here | there == AckState(here.epoch, x & y)
    assert a.reset("us", x) | here == here


@given(states(), states())
def test_a_deleted_subscription_comes_back_by_a_new_epoch_only(a: AckState, late: AckState) -> None:
    tombstone = a.delete("eu")
    assert (tombstone | AckState(a.epoch, acked=late.acked)).deleted
    assert not (tombstone | tombstone.reset("us", Base())).deleted
    assert (tombstone | a.reset("us", Base())).deleted, "one that did not know of the deletion"


@pytest.mark.slow
def test_a_batch_costs_by_what_it_acknowledges_and_not_by_all_that_ever_was() -> None:
    state = AckState(acked=MessageSet({LedgerId("eu", ledger): ((0, 9),) for ledger in range(1, 200_001)}))
    begun = time.process_time()
    for ledger in range(200_001, 200_021):
        state |= AckState(acked=MessageSet({LedgerId("eu", ledger): ((0, 99),)}))
    assert time.process_time() - begun < 1.5, "a look at each ledger takes 0.2 s a batch"
    assert state.acked.size == 200_000 * 10 + 20 * 100
