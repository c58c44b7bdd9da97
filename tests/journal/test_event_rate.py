"""How often an event is written: a row a minute of each subject and kind, whatever happens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from geo.journal.event_rate import MOST_CHARACTERS, Event, EventKind, EventRate
from geo.reasons import Reason
from geo.times import EPOCH


def event(
    second: float, to_state: str = "RUNNING", subject: str = "us->eu", kind: EventKind = EventKind.LINK, **more: object
) -> Event:
    at, said = EPOCH + timedelta(seconds=second), {"from_state": None, "reason_code": None, "reason": None, **more}
    return Event("", at, "eu", kind, subject, None, to_state=to_state, by="me", **said)  # type: ignore[arg-type]  # as `more` says


def test_ten_thousand_flaps_in_a_minute_are_one_row_however_often_it_is_written() -> None:
    rate, rows = EventRate("w"), dict[str, Event]()
    for number in range(10_000):
        rate.note(event(number * 0.006, "DELAYED" if number % 2 else "RUNNING"))
        if number % 167 == 0:
            rows |= {one.id: one for one in rate.due}
            rate.written(rate.due)
    rows |= {one.id: one for one in rate.due}
    assert [(one.count, one.to_state) for one in rows.values()] == [(10_000, "DELAYED")]


def test_a_row_says_what_was_before_the_first_and_why_as_the_last_that_knew() -> None:
    rate = EventRate("w")
    rate.note(event(1, "FAILED", from_state="RUNNING", reason_code=Reason.SOURCE_GONE, reason="gone"))
    rate.note(event(2, "RUNNING", from_state="FAILED"))
    (row,) = rate.due
    assert (row.from_state, row.to_state, row.reason_code, row.reason) == ("RUNNING", "RUNNING", Reason.SOURCE_GONE, "gone")
    rate.note(event(3, "DELAYED", reason_code=Reason.NO_ANSWER, reason="x" * 5_000))
    assert [(one.reason_code, len(one.reason or "")) for one in rate.due] == [(Reason.NO_ANSWER, MOST_CHARACTERS)]


def test_a_region_that_is_unwell_for_two_reasons_has_a_row_of_each_and_a_topic_one_of_all() -> None:
    rate, of_region = EventRate("w"), {"subject": "eu", "kind": EventKind.HEALTH}
    for second, state, code in (
        (1, "NO_BROKER", Reason.NO_OWNER),
        (2, "AT_RISK", Reason.KEYS_REFUSED),
        (3, "OK", Reason.NO_OWNER),
    ):
        rate.note(event(second, state, reason_code=code, **of_region))  # type: ignore[arg-type]  # as `of_region` says
    assert [(one.to_state, one.reason_code, one.count) for one in rate.due] == [
        ("OK", Reason.NO_OWNER, 2),
        ("AT_RISK", Reason.KEYS_REFUSED, 1),
    ]
    of_topic = EventRate("w")
    for code in (Reason.NO_OWNER, Reason.NOT_MOVING):
        of_topic.note(replace(event(1, kind=EventKind.HEALTH, reason_code=code), topic="persistent://shop/web/orders"))
    assert [one.count for one in of_topic.due] == [2]


_NOTED = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from(["a", "b"]), st.sampled_from([EventKind.LINK, EventKind.OWNER]), st.booleans())
)


@given(_NOTED)
def test_each_event_is_counted_in_one_row_of_its_minute_also_if_rows_are_written_in_between(
    noted: list[tuple[int, str, EventKind, bool]],
) -> None:
    rate, rows, minutes = EventRate("w"), dict[str, Event](), set[tuple[str, EventKind, int]]()
    before, parts = dict[tuple[str, EventKind], int](), 0
    for second, subject, kind, writes in noted:
        parts += before.get((subject, kind)) != second // 60
        before[subject, kind] = second // 60
        minutes.add((subject, kind, second // 60))
        rate.note(event(second, subject=subject, kind=kind))
        if writes:
            taken = rate.due
            rows |= {one.id: one for one in taken}
            rate.written(taken)
    rows |= {one.id: one for one in rate.due}
    assert sum(one.count for one in rows.values()) == len(noted)
    assert len(rows) == parts, "a row more only where a clock steps into another minute and back"
    assert {(one.subject, one.kind, int((one.at - EPOCH).total_seconds()) // 60) for one in rows.values()} == minutes


def test_what_came_while_rows_were_written_is_due() -> None:
    rate = EventRate("w")
    rate.note(event(1))
    taken = rate.due
    rate.note(event(2))
    rate.written(taken)
    assert [one.count for one in rate.due] == [2]
    rate.written(rate.due)
    assert rate.due == []


def test_of_too_many_that_wait_the_oldest_are_forgotten() -> None:
    rate = EventRate("w", most=3)
    for number in range(5):
        rate.note(event(number, subject=str(number)))
    assert [one.subject for one in rate.due] == ["2", "3", "4"]
    assert rate.forgotten == 2


def test_what_a_pattern_was_given_to_may_be_about_each_topic_for_which_it_stands() -> None:
    orders, all_of = "persistent://shop/web/orders", "persistent://shop/*/*"
    for named, asked, may_be in (
        (orders, orders, True), (orders, all_of, True), (orders, "persistent://bank/*/*", False), (None, all_of, False),
        (all_of, orders, True), (all_of, "persistent://bank/web/cards", False), (all_of, "persistent://shop/web/*", True),
    ):  # fmt: skip
        assert replace(event(1), topic=named).may_be_about(asked) is may_be, (named, asked)
