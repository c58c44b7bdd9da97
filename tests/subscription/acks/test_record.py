"""Records: what is written is read back, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.ids import LedgerId, MessageId
from geo.names import Topic
from geo.subscription.acks import record as acks_record
from geo.subscription.acks.ack_state import AckState, Base, Epoch, merged
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import (
    MAX_BYTES,
    MAX_EPOCH,
    RecordRefusal,
    RefusedRecordError,
    decode,
    encode,
    key_of,
    parse_key,
    split,
)

TOPIC = Topic.parse("persistent://shop/web/clicks")


@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_be_refused(payload: bytes) -> None:
    try:
        state = decode(payload)
    except RefusedRecordError:
        return
    assert encode(state)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", RecordRefusal.MALFORMED),
        (b"\3", RecordRefusal.NEWER_ENCODING),
        (b"\2", RecordRefusal.MALFORMED),
        (bytes(MAX_BYTES + 1), RecordRefusal.TOO_LARGE),
        (b"\1\0\0\0\1\2EU\0\0", RecordRefusal.MALFORMED),
        (b"\1\0\0\0\1\2eu\1\0\1\2\0\0\0\0\0", RecordRefusal.MALFORMED),  # the second range touches the first
        (b"\1\0\0\0\1\2eu\1\0\1\1\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0", RecordRefusal.MALFORMED),  # beyond a BIGINT
    ],
)
def test_what_is_no_record_is_refused_with_its_reason(payload: bytes, reason: RecordRefusal) -> None:
    with pytest.raises(RefusedRecordError) as refused:
        decode(payload)
    assert refused.value.reason is reason


def test_a_million_messages_with_ten_thousand_holes_take_some_tens_of_kilobytes() -> None:
    acked = MessageSet({LedgerId("eu", 7): tuple((first, first + 98) for first in range(0, 1_000_000, 100))})
    assert acked.size == 990_000
    payload = encode(AckState(Epoch(3, "us"), Base(), acked=acked))
    assert len(payload) < 50_000
    assert decode(payload).acked == acked


def test_the_key_names_topic_and_subscription() -> None:
    assert parse_key(key_of(TOPIC, "billing")) == (TOPIC, "billing")
    for key in ("billing", f"{TOPIC}/", "persistent://shop/web/Clicks and more/billing", f"{TOPIC}/x/y"):
        with pytest.raises(RefusedRecordError):
            parse_key(key)


@pytest.mark.slow
def test_a_state_too_large_for_one_record_is_refused_before_it_is_sent_and_can_be_split_or_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acks_record, "MAX_RANGES", 150_000)  # the size only
    acked = MessageSet({LedgerId("eu", 7): tuple((n * 2, n * 2) for n in range(150_001))})
    with pytest.raises(RefusedRecordError, match="too large"):
        encode(AckState(acked=acked))
    assert MessageId("eu", 7, 4) in acked
    assert merged(decode(encode(part)) for part in split(AckState(acked=acked))).acked == acked
    assert decode(encode(AckState(acked=acked), limited=False), limited=False).acked == acked


def test_nobody_can_freeze_a_subscription_in_a_last_epoch() -> None:
    last = Epoch(MAX_EPOCH - 1, "eu")
    assert decode(encode(AckState(last))).epoch == last
    with pytest.raises(RefusedRecordError, match="too large"):
        encode(AckState(Epoch(MAX_EPOCH, "eu")))
