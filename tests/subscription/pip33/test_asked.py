"""Whom a snapshot must ask: one table, one line a topology."""

from __future__ import annotations

import pytest

from geo.subscription.pip33.asked import Asked, asked, ways_of


@pytest.mark.parametrize(
    ("reaches", "expected"),
    [
        ({"a": "b", "b": "a"}, Asked(("b",), ())),
        ({"a": "bc", "b": "ac", "c": "ab"}, Asked(("b", "c"), ())),
        ({"a": "b", "b": ""}, Asked((), ())),
        ({"a": "", "b": "a"}, Asked((), ())),
        ({}, Asked((), ())),
        # c is never heard here: nothing of it is routed to both.
        ({"a": "bc", "b": "ac", "c": ""}, Asked(("b",), ())),
        ({"a": "b", "b": "ac", "c": "b"}, Asked(("b",), ())),
        # c sends here alone: nothing of it is in the log of b.
        ({"a": "b", "b": "a", "c": "a"}, Asked(("b",), ())),
        # What c sends to both may be in b and not yet here, and no request reaches it.
        ({"a": "b", "b": "a", "c": "ab"}, Asked(("b", "c"), ("c",))),
        ({"a": "b", "b": "ac", "c": "ab"}, Asked(("b", "c"), ("c",))),
        # seed 004: a to b and back, and to c alone
        ({"a": "bc", "b": "a", "c": ""}, Asked(("b",), ())),
    ],
)
def test_who_has_a_position_or_messages_before_one_is_asked(reaches: dict[str, str], expected: Asked) -> None:
    assert asked("a", reaches) == expected


def test_who_cannot_answer_is_told_by_the_first_link_on_the_way_there_and_back_that_has_a_fault() -> None:
    """a to c through b and back the same way; d sends to a and b alone, and no request reaches it."""
    hubs: dict[tuple[str, str], tuple[str, ...]] = {
        ("a", "b"): (), ("b", "a"): (), ("a", "c"): ("b",), ("c", "a"): ("b",), ("b", "c"): (), ("c", "b"): (), ("d", "a"): (), ("d", "b"): ()
    }  # fmt: skip
    ways = ways_of("a", hubs)
    assert ways.asked == Asked(("b", "c", "d"), ("d",))
    assert (ways.there, ways.back) == ({"b": (), "c": ("b",)}, {"b": (), "c": ("b",), "d": ()})
    assert ways.unable(lambda source, target: None) == {"d": "no link brings a request to d, and its messages come here"}
    faults = {("c", "b"): "first", ("b", "a"): "second"}
    found = ways.unable(lambda source, target: faults.get((source, target)))
    assert (found["b"], found["c"]) == ("second", "first")
