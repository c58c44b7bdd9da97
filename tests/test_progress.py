"""What is said of something long, and when. No Spark."""

from __future__ import annotations

import logging

import pytest

from geo.progress import Progress


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_what_is_short_says_nothing_and_what_is_long_says_it_seldom(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    at = iter([0.0, 1.0, 4.9, 6.0, 8.0, 12.0, 150.0])
    progress = Progress(logging.getLogger("geo"), "us->eu", "messages", 10_000, clock=lambda: next(at))
    for done in (1_000, 1_000, 1_000, 1_000, 0, 6_000):
        progress.add(done)
    assert _said(caplog) == [
        "us->eu: 3,000 of 10,000 messages, 500 a second, 30%, 0:14 left",
        "us->eu: 4,000 of 10,000 messages, 333 a second, 40%, 0:18 left",
    ], "whoever asked for it says itself that it is done"


@pytest.mark.parametrize(("part", "end"), [(None, ""), (0.25, ", 25%, 5:00 left"), (0.0, ""), (1.0, "")])
def test_where_the_total_is_not_known_the_part_tells(caplog: pytest.LogCaptureFixture, part: float | None, end: str) -> None:
    caplog.set_level(logging.INFO)
    at = iter([0.0, 100.0])
    Progress(logging.getLogger("geo"), "p", "messages", clock=lambda: next(at)).add(7_000, part)
    assert _said(caplog) == ["p: 7,000 messages, 70 a second" + end]
