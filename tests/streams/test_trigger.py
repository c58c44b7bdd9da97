"""Triggers as users write them."""

from __future__ import annotations

import pytest

from geo.streams.trigger import interval_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("available-now", None),
        ("500 ms", 0.5),
        ("9 Milliseconds", 0.009),
        ("1 second", 1.0),
        ("interval=5s", 5.0),
        ("2 m", 120.0),
        ("1 hour", 3600.0),
    ],
)
def test_an_interval_in_seconds(text: str, seconds: float | None) -> None:
    assert interval_s(text) == seconds
