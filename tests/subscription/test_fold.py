"""Folding: records in any order, twice, and bad ones between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.log.message_id import MessageId
from geo.log.names import Topic
from geo.subscription.fold import HELD_ENTRIES, Fold, Received
from geo.subscription.record import Refusal, encode, key_of
from geo.subscription.state import AckedSet, Base, Epoch, State
from tests.subscription.test_state import states

TOPIC = Topic.parse("persistent://shop/web/clicks")
KEY = key_of(TOPIC, "billing")
CLUSTERS = ("eu", "us")


def _fold(*records: Received) -> Fold:
    fold = Fold(CLUSTERS)
    fold.add(records)
    return fold


@given(st.lists(states(), min_size=1, max_size=5), st.randoms())
def test_any_order_and_any_repeats_end_in_the_same_state(found: list[State], chance: st.DataObject) -> None:
    records = [Received(KEY, encode(state)) for state in found]
    shuffled = [*records, *records[:2]]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _fold(*shuffled).states == _fold(*records).states


def test_a_record_says_which_subscription_it_changed_and_a_repeat_changes_none() -> None:
    fold, record = Fold(CLUSTERS), Received(KEY, encode(State(acked=AckedSet.of([MessageId("eu", 1, 3)]))))
    assert fold.add([record]) == {"billing"}
    assert fold.add([record]) == set()


def _acked(origin: str, entry: int) -> bytes:
    return encode(State(acked=AckedSet({(origin, 1): ((0, entry),)})))


@pytest.mark.parametrize(
    ("key", "payload", "reason"),
    [
        (None, _acked("eu", 0), Refusal.MALFORMED),
        (KEY, None, Refusal.MALFORMED),
        (KEY, b"\x09", Refusal.NEWER_ENCODING),
        (KEY, _acked("mars", 0), Refusal.UNKNOWN_CLUSTER),
        (KEY, encode(State(Epoch(9, "mars"))), Refusal.UNKNOWN_CLUSTER),
        (KEY, _acked("eu", HELD_ENTRIES), Refusal.TOO_LARGE),
        (KEY, encode(State(Epoch(1, "eu"), acked=AckedSet({("eu", 1): ((0, 9),)}))), Refusal.OLDER_EPOCH),
    ],
)
def test_a_bad_record_is_counted_with_its_reason_and_changes_nothing(
    key: str | None, payload: bytes | None, reason: Refusal
) -> None:
    fold = _fold(Received(KEY, encode(State(Epoch(2, "us"), Base(time_us=5)))))
    before = dict(fold.states)
    assert fold.add([Received(key, payload)]) == set()
    assert fold.states == before
    assert dict(fold.refused) == {reason: 1}


def test_acknowledgements_may_run_ahead_of_their_messages_as_far_as_is_held() -> None:
    fold = Fold(CLUSTERS, ends={("eu", 1): 99})
    fold.add([Received(KEY, _acked("eu", 99 + HELD_ENTRIES))])
    assert fold.states["billing"].acked.size == 100 + HELD_ENTRIES
    assert not fold.refused
