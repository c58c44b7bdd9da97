"""Whom a snapshot must ask: one table, one line a topology."""

from __future__ import annotations

import pytest

from geo.subscription.asked import Asked, asked


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
