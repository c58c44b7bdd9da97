"""What all regions share and what is one region's alone: the merge of both, and what the switch between them leaves of what is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from geo.ids import LedgerId, MessageId
from geo.names import Topic
from geo.subscription.acks.ack_state import AckState, Base, Epoch, merged
from geo.subscription.acks.fold import Fold, Received
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import (
    VERSION,
    RecordRefusal,
    RefusedRecordError,
    decode,
    decode_all,
    decode_epochs,
    encode,
    encode_all,
    is_newer,
    key_of,
    split_all,
    told_unreadable,
)
from geo.subscription.acks.subscription_state import Regional, SubscriptionState, merged_all
from tests.examples import examples
from tests.subscription.acks.test_ack_state import acked, bases, ids, states

KEY = key_of(Topic.parse("persistent://shop/web/clicks"), "billing")
NOW_US = 1_800_000_000_000_000
regionals = st.builds(Regional, st.integers(1, 3), st.booleans(), states())
alls = st.builds(SubscriptionState, st.none() | states(), st.none() | regionals)
some = alls.filter(lambda one: one != SubscriptionState())


# -- the merge, and its form -----------------------------------------------------------------------------------------------


@given(alls, alls, alls)
def test_the_merge_is_commutative_associative_and_idempotent(
    a: SubscriptionState, b: SubscriptionState, c: SubscriptionState
) -> None:
    assert a | b == b | a
    assert (a | b) | c == a | (b | c) == merged_all([c, a, b, a])
    assert a | a == a
    assert (a | b) | b == a | b
    assert a | SubscriptionState() == a


@given(some)
def test_all_that_is_known_is_read_back_as_it_was_written(known: SubscriptionState) -> None:
    assert decode_all(encode_all(known)) == known
    epochs = decode_epochs(encode_all(known))
    assert known | epochs == known
    assert not known.is_older_than(epochs)
    assert not epochs.is_older_than(known)
    assert not any(one.acked or one.redelivered for one in epochs.states)


@given(some, st.integers(1, 3))
def test_no_record_is_both_of_all_and_of_one_region_and_all_of_them_mean_the_same(known: SubscriptionState, most: int) -> None:
    records = list(split_all(known, most))
    assert all((one.replicated is None) != (one.regional is None) for one in records)
    assert all(
        sum(sets.range_count for sets in (state.acked, *state.redelivered)) <= most for one in records for state in one.states
    )
    assert merged_all(map(decode_all, reversed([*map(encode_all, records)]))) == known


@given(states())
def test_what_all_regions_share_is_written_as_programs_read_it_that_know_no_regional_ones(state: AckState) -> None:
    assert encode_all(SubscriptionState(state)) == encode(state)
    assert encode(state)[0] == VERSION


@given(regionals)
def test_a_program_that_knows_no_regional_ones_takes_them_for_a_newer_encoding(regional: Regional) -> None:
    payload = encode_all(SubscriptionState(regional=regional))
    assert VERSION < payload[0] <= 15, "what such a program refuses by name and waits with (record.is_newer)"
    assert not is_newer(payload), "and this one reads"
    with pytest.raises(RefusedRecordError) as refused:
        decode(payload)
    assert refused.value.reason is RecordRefusal.MALFORMED, "where only what is shared can be"


@given(some, st.data())
def test_a_cut_or_longer_record_is_refused(known: SubscriptionState, data: st.DataObject) -> None:
    payload = encode_all(known)
    for wrong in (payload[: data.draw(st.integers(0, len(payload) - 1))], payload + b"\0"):
        with pytest.raises(RefusedRecordError):
            decode_all(wrong)


# -- where records count ---------------------------------------------------------------------------------------------------


def record(known: SubscriptionState, origin: str) -> Received:
    return Received(LedgerId(origin, 7), 0, KEY, encode_all(known), NOW_US)


def test_what_is_of_one_region_counts_there_alone_whoever_brings_it_elsewhere() -> None:
    own = SubscriptionState(regional=Regional(1, True, AckState(Epoch(1, "us"), Base())))
    there, elsewhere = Fold("us"), Fold("eu")
    for fold in (there, elsewhere):
        fold.add([record(own, "us")])
    assert there.known.state == own
    assert elsewhere.known.state == SubscriptionState(), "it is not known there"
    assert elsewhere.refused == {RecordRefusal.OTHER_REGION: 1}
    assert told_unreadable(elsewhere.refused) == "", "which is no reason not to begin one of its own"


@given(some, st.lists(some, max_size=4), st.randoms())
def test_a_fold_of_records_in_any_order_is_their_merge(
    first: SubscriptionState, more: list[SubscriptionState], chance: object
) -> None:
    records = [record(part, "us") for known in (first, *more) for part in split_all(known, 2)]
    shuffled = [*records, *records[:2]]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    one_by_one, at_once = Fold("us"), Fold("us")
    for one in shuffled:
        one_by_one.add([one])
    at_once.add(records)
    assert one_by_one.known == at_once.known
    assert at_once.known.state == merged_all([first, *more])


# -- what is decided -------------------------------------------------------------------------------------------------------


def _of(*messages: MessageId) -> MessageSet:
    return MessageSet.of(messages)


ONE, TWO, THREE = (MessageId("us", 1, entry) for entry in range(3))
SHARED = AckState(base=Base(), acked=_of(ONE))


def test_one_of_its_region_begins_anew_beside_one_of_the_same_name_that_others_share() -> None:
    begun = SubscriptionState().begun("us", Base(), replicated=False)
    assert begun.is_regional
    assert begun.replicated is None
    heard = begun | SubscriptionState(SHARED) | SubscriptionState(SHARED.reset("eu", Base()))
    assert heard.here == AckState(Epoch(1, "us"), Base()), "whatever comes of the other one"


def test_turned_off_it_goes_on_as_it_is_and_hears_nothing_more() -> None:
    before = SubscriptionState(SHARED)
    told = before.made_regional()
    assert told.replicated is None, "the others are told nothing"
    after = before | told
    assert after.here == SHARED
    assert (after | SubscriptionState(AckState(acked=_of(TWO)))).here == SHARED


def test_turned_on_the_others_know_it_exactly() -> None:
    mine = SubscriptionState().begun("us", Base(), replicated=False)
    mine |= mine.part(AckState(Epoch(1, "us"), acked=_of(ONE), redelivered=(_of(TWO),)))
    told = mine.made_replicated("us")
    assert told.replicated == mine.here, "in its own epoch: what a consumer has in hand counts on"
    assert (mine | told).here == mine.here
    assert not (mine | told).is_regional
    there = merged_all(decode_all(encode_all(part)) for part in split_all(told) if part.regional is None)
    assert there.here == mine.here


def test_turned_on_it_replaces_what_others_have_made_of_the_name_since() -> None:
    """United, what eu has acknowledged and nobody in us has seen would be skipped in us."""
    before = SubscriptionState(SHARED)
    mine = before | before.made_regional() | SubscriptionState(AckState(acked=_of(TWO)))
    told = mine.made_replicated("us")
    assert told.replicated is not None
    for there in (SHARED, SHARED | AckState(acked=_of(TWO, THREE))):
        assert (SubscriptionState(there) | SubscriptionState(told.replicated)).here == told.replicated
    assert told.replicated.acked == _of(ONE)


def test_two_regions_that_turn_theirs_on_at_once_agree_on_one_of_them() -> None:
    known = {}
    for cluster, message in (("eu", ONE), ("us", TWO)):
        mine = SubscriptionState().begun(cluster, Base(), replicated=False)
        mine |= mine.part(AckState(Epoch(1, cluster), acked=_of(message)))
        known[cluster] = mine, mine.made_replicated(cluster)
    (eu, eu_told), (us, us_told) = known["eu"], known["us"]
    shared = SubscriptionState(eu_told.replicated) | SubscriptionState(us_told.replicated)
    assert (eu | eu_told | shared).here == (us | us_told | shared).here == us.here, "one of them whole, not a mixture of both"


def test_two_regions_that_set_it_differently_at_once_both_have_what_they_asked_for() -> None:
    """Each region's setting is its own: eu goes on sharing with whoever does, and us has its own."""
    before = SubscriptionState(SHARED)
    us = before | before.made_regional()
    acked = SubscriptionState(AckState(acked=_of(TWO)))
    assert (us | acked).here == SHARED
    assert (before | acked).here == SHARED | AckState(acked=_of(TWO))


def test_of_two_decisions_in_one_region_the_later_counts_whichever_is_heard_last() -> None:
    one = SubscriptionState(SHARED)
    off = one.made_regional()
    on = (one | off).made_replicated("us")
    for heard in ([one, off, on], [on, off, one], [off, one, on, off]):
        assert not merged_all(heard).is_regional
        assert merged_all(heard).here == on.replicated


def test_a_deleted_one_of_its_region_gives_the_name_back_only_when_that_is_said() -> None:
    mine = SubscriptionState(SHARED) | SubscriptionState(SHARED).made_regional()
    deleted = mine | mine.part(SHARED.delete("us"))
    assert deleted.here is not None
    assert deleted.here.deleted, "its consumer does not go on with the one of the others unasked"
    assert (deleted | deleted.made_replicated("us")).here == SHARED
    again = deleted | deleted.begun("us", Base(time_us=5), replicated=False)
    assert again.here == AckState(Epoch(2, "us"), Base(time_us=5))


@given(alls, bases, st.booleans())
def test_what_is_begun_anew_counts_whatever_was_known(known: SubscriptionState, base: Base, replicated: bool) -> None:
    begun = known | known.begun("us", base, replicated=replicated)
    if known.here is None or known.here.deleted:
        assert begun.is_regional is not replicated
        assert begun.here is not None
        assert not begun.here.deleted or known.here is None
        if not replicated or (known.replicated is not None and known.replicated.deleted):
            assert begun.here.base == base
        elif known.replicated is not None:
            assert begun.here == known.replicated | AckState(known.replicated.epoch, base), "it lives elsewhere"


@given(alls, bases)
def test_what_is_created_for_all_replaces_nothing_that_another_region_acknowledged(known: SubscriptionState, base: Base) -> None:
    alone = SubscriptionState(regional=known.regional)
    if alone.here is None or alone.here.deleted:
        created = alone.begun("us", base, replicated=True).replicated
        assert created is not None
        assert SHARED | created == SHARED | AckState(SHARED.epoch, base)


class Regions(RuleBasedStateMachine):
    """Two regions with one name each, whose records travel late, twice and out of order, and a naive model: what was acknowledged of
    the one that a region has now."""

    def __init__(self) -> None:
        super().__init__()
        begun = SubscriptionState(AckState(base=Base()))
        self.known = {"eu": begun, "us": begun}
        self.sent: dict[str, list[SubscriptionState]] = {"eu": [], "us": []}
        self.own: dict[str, set[MessageId] | None] = {"eu": None, "us": None}
        """Of a region that has one of its own, what was acknowledged of it."""

    def _tell(self, cluster: str, told: SubscriptionState) -> None:
        for part in split_all(told):
            self.known[cluster] |= decode_all(encode_all(part))
            if part.regional is None:
                self.sent[cluster].append(part)

    @rule(cluster=st.sampled_from(["eu", "us"]), messages=st.sets(ids))
    def acknowledge(self, cluster: str, messages: set[MessageId]) -> None:
        here = self.known[cluster].here
        assert here is not None
        self._tell(cluster, self.known[cluster].part(AckState(here.epoch, acked=MessageSet.of(messages))))
        if (own := self.own[cluster]) is not None:
            own |= messages

    @rule(cluster=st.sampled_from(["eu", "us"]))
    def turn_off(self, cluster: str) -> None:
        if not self.known[cluster].is_regional:
            here = self.known[cluster].here
            assert here is not None
            self._tell(cluster, self.known[cluster].made_regional())
            assert self.known[cluster].here == here
            self.own[cluster] = set(here.acked)

    @rule(cluster=st.sampled_from(["eu", "us"]))
    def turn_on(self, cluster: str) -> None:
        if self.known[cluster].is_regional:
            self._tell(cluster, self.known[cluster].made_replicated(cluster))
            here = self.known[cluster].here
            assert here is not None
            assert set(here.acked) == self.own[cluster]
            self.own[cluster] = None

    @rule(source=st.sampled_from(["eu", "us"]), chance=st.randoms())
    def a_link_runs(self, source: str, chance: object) -> None:
        target = "us" if source == "eu" else "eu"
        records = [*self.sent[source], *self.sent[source][:1]]
        chance.shuffle(records)  # type: ignore[attr-defined]
        for one in records:
            self.known[target] |= one

    @rule()
    def both_links_run_and_those_who_share_agree(self) -> None:
        for source, target in (("eu", "us"), ("us", "eu")):
            self.known[target] |= merged_all(self.sent[source])
        assert self.known["eu"].replicated == self.known["us"].replicated

    @invariant()
    def one_of_its_region_is_what_was_acknowledged_there(self) -> None:
        for cluster, own in self.own.items():
            here = self.known[cluster].here
            assert self.known[cluster].is_regional == (own is not None)
            assert own is None or (here is not None and set(here.acked) == own)


TestRegions = Regions.TestCase
TestRegions.settings = settings(max_examples=examples(0.5), stateful_step_count=25)


@given(states(), acked)
def test_a_part_is_of_the_subscription_that_the_region_has(state: AckState, more: MessageSet) -> None:
    both = SubscriptionState(state, Regional(2, True, AckState(Epoch(9, "us"))))
    assert both.part(AckState(acked=more)).replicated is None
    assert both.with_here(state).here == state
    off = SubscriptionState(state, replace(Regional(2, True), on=False))
    assert off.part(AckState(acked=more)) == SubscriptionState(AckState(acked=more))
    assert merged([state]) == off.here


def test_its_states_are_those_of_all_regions_and_of_its_own() -> None:
    assert SubscriptionState(SHARED, Regional(1, False)).states == [SHARED, AckState()]
