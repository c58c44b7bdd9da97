"""What records tell of a subscription."""

from __future__ import annotations

from geo.ids import LedgerId
from geo.log.ledgers import ledger_id
from geo.names import Topic
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.fold import Received
from geo.subscription.acks.forgetting import DAY_US
from geo.subscription.acks.gathered import gather, gather_all, joined
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import REGIONAL_VERSION, RecordRefusal, encode, key_of
from geo.subscription.acks.subscription_state import SubscriptionState

TOPIC = Topic.parse("persistent://shop/web/clicks")
KEY, OTHER = key_of(TOPIC, "billing"), key_of(TOPIC, "mail")
SECOND = 1_700_000_000
MESSAGES = LedgerId("eu", ledger_id(SECOND, 1))
ONE, TWO = LedgerId("eu", 7), LedgerId("us", 7)
NEWER = bytes([REGIONAL_VERSION + 1, 0])


def _acked(*entries: int, epoch: int = 0) -> bytes:
    return encode(AckState(Epoch(epoch, "eu" if epoch else ""), acked=MessageSet({MESSAGES: tuple((e, e) for e in entries)})))


def _record(ledger: LedgerId, entry: int, payload: bytes | None, *, key: str | None = KEY, day: int = 20_000) -> Received:
    return Received(ledger, entry, key, payload, day * DAY_US + SECOND)


def test_nothing_behind_a_record_of_a_newer_program_counts_as_folded() -> None:
    found = gather(
        "eu", KEY, [_record(ONE, 3, _acked(0)), _record(ONE, 5, NEWER), _record(ONE, 9, _acked(1)), _record(TWO, 4, _acked(2))]
    )
    assert found.told.state.here == AckState(acked=MessageSet({MESSAGES: ((0, 2),)})), "what can be read counts all the same"
    assert (found.unread, found.refused) == ({ONE: 5}, {RecordRefusal.NEWER_ENCODING.value: 1})
    assert found.folded(found.unread) == {ONE: 4, TWO: 4}
    later = gather("eu", KEY, [_record(ONE, 12, _acked(3)), _record(TWO, 6, _acked(4))])
    assert later.folded(found.unread) == {ONE: 4, TWO: 6}, "nor what comes later"


def test_records_of_an_older_epoch_than_the_cursor_are_refused() -> None:
    before = SubscriptionState(AckState(Epoch(2, "eu")))
    found = gather("eu", KEY, [_record(ONE, 0, _acked(1, epoch=1)), _record(ONE, 1, _acked(2, epoch=2))], before)
    assert found.refused == {RecordRefusal.OLDER_EPOCH.value: 1}
    assert found.told.state.here == AckState(Epoch(2, "eu"), acked=MessageSet({MESSAGES: ((2, 2),)}))


def test_what_parts_tell_is_together_what_all_of_it_tells() -> None:
    """With records of a newer program, such as are refused, and of an older epoch, wherever they are."""
    records = [
        _record(ONE, 0, _acked(0), day=1),
        _record(ONE, 1, NEWER),
        _record(TWO, 0, _acked(1), day=3),
        _record(ONE, 2, b"", key=OTHER),
        _record(TWO, 1, NEWER),
        _record(ONE, 3, _acked(5, epoch=1), day=2),
        _record(TWO, 2, _acked(7, epoch=1), day=4),
        _record(TWO, 3, _acked(3), day=5),
    ]
    before = {KEY: SubscriptionState(AckState(Epoch(1, "eu")))}
    whole = gather_all("eu", records, before)
    assert whole[KEY].refused == {RecordRefusal.NEWER_ENCODING.value: 2, RecordRefusal.OLDER_EPOCH.value: 3}
    assert whole[KEY].folded(whole[KEY].unread) == {ONE: 0, TWO: 0}
    for at in range(len(records) + 1):
        assert joined([gather_all("eu", records[:at], before), gather_all("eu", records[at:], before)]) == whole
