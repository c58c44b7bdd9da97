"""What becomes of a cursor when records are taken in."""

from __future__ import annotations

from geo.ids import LedgerId, MessageId
from geo.names import Topic
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.cursor import Cursor
from geo.subscription.acks.forgetting import Remembered
from geo.subscription.acks.gathered import Gathered
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import RecordRefusal
from geo.subscription.acks.subscription_state import SubscriptionState

TOPIC = Topic.parse("persistent://shop/web/clicks")
NOW_US, HOUR_US = 1_795_910_400_000_000, 3_600_000_000
ONE, TWO, MESSAGES = LedgerId("eu", 7), LedgerId("us", 7), LedgerId("eu", 1)
NEWER, MALFORMED = RecordRefusal.NEWER_ENCODING.value, RecordRefusal.MALFORMED.value
TODAY = 20_000


def _state(*entries: int, epoch: int = 0) -> SubscriptionState:
    acked = MessageSet.of(MessageId(MESSAGES.origin, MESSAGES.ledger_id, entry) for entry in entries)
    return SubscriptionState(AckState(Epoch(epoch, "eu" if epoch else ""), acked=acked))


def _told(state: SubscriptionState | None, ends: dict[LedgerId, int], **refused: int) -> Gathered:
    told = Remembered(state, {MESSAGES: TODAY}) if state else Remembered()
    return Gathered("", told, ends, {}, {RecordRefusal[name].value: n for name, n in refused.items()})


def test_a_cursor_is_read_as_it_was_written() -> None:
    cursor = Cursor(
        TOPIC,
        "billing",
        Remembered(_state(0, 1, 5), {MESSAGES: TODAY - 3}),
        {ONE: 4, TWO: -1},
        {MALFORMED: 2},
        NOW_US - HOUR_US,
        6,
    )
    row = cursor.as_row(NOW_US)
    assert (row["acknowledged"], row["ranges"], row["mark_delete"], row["sequence"]) == (3, 2, {"eu:1": 1}, 7)
    assert (row["folded"], row["named_on"], row["replicated"]) == ({"eu:7": 4, "us:7": -1}, {"eu:1": TODAY - 3}, True)
    read = Cursor.of_row(row)
    assert (read.remembered, read.folded, read.refused, read.compacted_us, read.sequence) == (
        cursor.remembered, cursor.folded, cursor.refused, cursor.compacted_us, 7,
    )  # fmt: skip


def test_records_add_to_it_and_it_never_goes_back() -> None:
    before = Cursor(TOPIC, "billing", Remembered(_state(0)), {ONE: 4, TWO: 9}, {MALFORMED: 1}, None, 3)
    after = before.taking(_told(_state(1), {ONE: 6, TWO: 2}, MALFORMED=2), {}, TODAY, None, all_read=False)
    assert after.remembered == Remembered(_state(0, 1)), "where nothing expires no day is kept"
    assert (after.folded, after.refused, after.sequence) == ({ONE: 6, TWO: 9}, {MALFORMED: 3}, 3)
    nothing = before.taking(_told(None, {ONE: 6}, MALFORMED=1), {}, TODAY, None, all_read=False)
    assert (nothing.remembered, nothing.folded) == (before.remembered, {ONE: 6, TWO: 9}), "what is refused is passed"


def test_what_a_newer_program_wrote_is_not_passed_and_is_counted_once_by_each_run() -> None:
    before = Cursor(TOPIC, "billing", Remembered(_state(0)), {ONE: 4}, {NEWER: 1, MALFORMED: 1}, None, 3)
    told = _told(_state(1), {ONE: 9}, NEWER_ENCODING=1)
    assert before.taking(told, {ONE: 6}, TODAY, None, all_read=True).folded == {ONE: 5}
    assert before.taking(told, {ONE: 6}, TODAY, None, all_read=True).refused == {NEWER: 1, MALFORMED: 1}
    assert before.taking(told, {ONE: 6}, TODAY, None, all_read=False).refused == {NEWER: 2, MALFORMED: 1}, "another one"


def test_a_ledger_of_which_no_day_is_known_counts_as_named_today() -> None:
    before = Cursor(TOPIC, "billing", Remembered(_state(0)), {}, {}, None, 3)
    assert before.taking(_told(None, {}), {}, TODAY, 10, all_read=False).remembered.days == {MESSAGES: TODAY}
    known = Cursor(TOPIC, "billing", Remembered(_state(0), {MESSAGES: TODAY - 5}), {}, {}, None, 3)
    assert known.taking(_told(_state(1), {}), {}, TODAY + 1, 10, all_read=False).remembered.days == {MESSAGES: TODAY}


def test_compact_records_are_due_when_there_are_none_or_old_ones() -> None:
    assert Cursor(TOPIC, "billing").is_long_ago(NOW_US, 3600.0)
    assert Cursor(TOPIC, "billing", compacted_us=NOW_US - HOUR_US).is_long_ago(NOW_US, 3600.0)
    assert not Cursor(TOPIC, "billing", compacted_us=NOW_US - HOUR_US + 60_000_000).is_long_ago(NOW_US, 3600.0)
