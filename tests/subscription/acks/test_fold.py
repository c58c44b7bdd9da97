"""Folding: what a record tells, and bad ones. (Any order of them: `test_subscription_state.py`.)"""

from __future__ import annotations

from dataclasses import replace

import pytest

from geo.ids import LedgerId
from geo.log.ledgers import ledger_id
from geo.names import Topic
from geo.subscription.acks import record as acks_record
from geo.subscription.acks.ack_state import AckState, Base, Epoch
from geo.subscription.acks.fold import HELD_ENTRIES, HELD_ENTRIES_A_SECOND, Fold, Received
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import RecordRefusal, encode, key_of

TOPIC = Topic.parse("persistent://shop/web/clicks")
KEY = key_of(TOPIC, "billing")
BORN = 1_800_000_000
LEDGER = ledger_id(BORN, 0)


def record(payload: bytes | None, *, key: str | None = KEY, origin: str = "eu", second: int = BORN) -> Received:
    return Received(LedgerId(origin, 7), 0, key, payload, second * 1_000_000)


def _fold(*records: Received) -> Fold:
    fold = Fold("eu")
    fold.add(records)
    return fold


def _here(fold: Fold) -> AckState:
    assert fold.known.state.here is not None
    return fold.known.state.here


def _acked(entry: int, origin: str = "eu", first: int = 0) -> bytes:
    return encode(AckState(acked=MessageSet({LedgerId(origin, LEDGER): ((first, entry),)})))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(_acked(0), key=None), RecordRefusal.MALFORMED),
        (record(None), RecordRefusal.MALFORMED),
        (record(b"\x09"), RecordRefusal.NEWER_ENCODING),
        (record(encode(AckState(Epoch(BORN + 1, "us"), deleted=True))), RecordRefusal.TOO_LARGE),
        (record(_acked(HELD_ENTRIES + 1)), RecordRefusal.TOO_LARGE),
        (record(_acked(2**62)), RecordRefusal.TOO_LARGE),
        (record(encode(AckState(Epoch(1, "eu"), acked=MessageSet({LedgerId("eu", 1): ((0, 9),)})))), RecordRefusal.OLDER_EPOCH),
    ],
    ids=lambda value: value.value if isinstance(value, RecordRefusal) else "",
)
def test_a_bad_record_is_counted_with_its_reason_and_changes_nothing(bad: Received, reason: RecordRefusal) -> None:
    fold = _fold(record(encode(AckState(Epoch(2, "us"), Base(time_us=5)))))
    before = fold.known
    fold.add([bad])
    assert fold.known == before
    assert dict(fold.refused) == {reason: 1}


def test_acknowledgements_may_run_ahead_of_their_messages_as_far_as_a_ledger_can_have_grown() -> None:
    fold = _fold(record(_acked(HELD_ENTRIES + 60 * HELD_ENTRIES_A_SECOND), second=BORN + 60))
    assert _here(fold).acked.size == HELD_ENTRIES + 60 * HELD_ENTRIES_A_SECOND + 1
    assert not fold.refused


def test_what_a_cluster_that_left_had_written_is_still_acknowledged() -> None:
    fold = _fold(record(_acked(9, origin="gone")), record(_acked(19, first=10), origin="gone"))
    assert _here(fold).acked.size == 20
    assert not fold.refused


def test_a_large_state_is_the_same_whatever_the_order_of_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks_record, "MAX_RANGES", 50_000)  # the size only: of a record, not of what records make
    parts = [
        AckState(acked=MessageSet({LedgerId("eu", LEDGER): tuple((e, e) for e in range(at, 90_000 + at, 3))})) for at in (0, 1, 2)
    ]
    one, other = _fold(*(record(encode(part)) for part in parts)), Fold("eu")
    for part in reversed(parts):
        other.add([record(encode(part))])
    assert one.known == other.known
    assert _here(one).acked.size == 90_000
    assert not one.refused


def _named(*entries: LedgerId, epoch: int = 0) -> bytes:
    return encode(AckState(Epoch(epoch, "eu" if epoch else ""), acked=MessageSet(dict.fromkeys(entries, ((0, 3),)))))


def test_of_each_ledger_is_known_on_which_day_a_record_of_its_epoch_last_named_it() -> None:
    one, other, day = LedgerId("eu", LEDGER), LedgerId("us", LEDGER), BORN // 86_400
    at = [BORN + number * 86_400 for number in range(9)]
    compact = replace(record(_named(one), second=at[8]), event_time_us=at[1] * 1_000_000)
    records = [
        record(_named(one), second=at[2]),
        record(_named(one, other), second=at[1]),
        record(_named(other), second=at[4]),
        compact,
    ]
    for found in (records, records[::-1], [*records, *records]):
        fold = _fold(*found[:1])
        fold.add(found[1:])
        assert fold.known.days == {one: day + 2, other: day + 4}
    reset = record(_named(one, epoch=1), second=at[3])
    for found in ([*records, reset], [reset, *records]):
        fold = Fold("eu")
        for each in found:
            fold.add([each])
        assert fold.known.days == {one: day + 3}, "what was acknowledged before a reset does not count"
        assert _fold(*found).known == fold.known
