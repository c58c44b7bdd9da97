"""Which works of a broker do not go on, by what their events say. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from geo.journal.event_rate import Event, EventKind
from geo.ops.failed_works import failed_works
from geo.ops.health import Health
from geo.reasons import Reason
from geo.times import in_us

BEGAN = datetime(2026, 12, 1, tzinfo=timezone.utc)
"""When process 7 began."""


def _event(text: str) -> Event:
    """`orders RUNNING>FAILED 30 7`: of which work, its state before, if that is known, and then, so many seconds after BEGAN, by which
    process of the host vm7."""
    subject, states, second, pid = text.split()
    before, _, now = states.rpartition(">")
    code = Reason.SOURCE_CHANGED if now in ("FAILED", "DELAYED") else None
    at, reason = BEGAN + timedelta(seconds=int(second)), code and "a file grew shorter"
    return Event("1", at, "eu", EventKind.WORK, subject, None, before or None, now, code, reason, f"ann@vm7 {pid}")


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ("", []),
        ("orders RUNNING 0 7", []),
        ("orders RUNNING 0 7, orders FAILED 30 7", [("orders", Health.FAILED, 30)]),
        ("orders DELAYED 30 7", [("orders", Health.STALLED, 30)]),
        ("orders FAILED 30 7, orders RUNNING 330 7", []),
        # tried again, and failed again at once: it has been so all the time
        ("orders FAILED 30 7, orders STOPPED 330 7, orders RUNNING 331 7, orders FAILED 340 7", [("orders", Health.FAILED, 30)]),
        ("orders FAILED 30 7, orders RUNNING 330 7, orders FAILED 500 7", [("orders", Health.FAILED, 500)]),
        ("orders DELAYED 30 7, orders FAILED 90 7", [("orders", Health.FAILED, 30)]),
        ("orders FAILED 30 8", []),  # by a process that is gone
        ("orders FAILED 30 8, orders RUNNING 60 7", []),
        ("orders FAILED -400 7", []),  # by one of before with the same name
        ("orders FAILED 30 7, orders STOPPED 90 7", []),  # it was taken out of the configuration
        ("clicks DELAYED 9 7, orders FAILED 30 7", [("clicks", Health.STALLED, 9), ("orders", Health.FAILED, 30)]),
        # it was so before the first event that was read: nobody knows since when
        ("orders FAILED>RUNNING 30 7, orders RUNNING>FAILED 40 7", [("orders", Health.FAILED, None)]),
        ("orders FAILED>RUNNING 30 7, orders RUNNING>FAILED 400 7", [("orders", Health.FAILED, 400)]),
    ],
)
def test_a_work_that_does_not_go_on_is_told_since_it_went_well_last(
    events: str, found: list[tuple[str, Health, int | None]]
) -> None:
    told = failed_works([_event(one) for one in events.split(", ") if one], {"vm7:7": in_us(BEGAN)})
    assert [(one.subject, one.health, one.since_us) for one in told] == [
        (subject, health, None if second is None else in_us(BEGAN) + second * 1_000_000) for subject, health, second in found
    ]
    assert all(one.code is Reason.SOURCE_CHANGED and one.reason == "a file grew shorter" and one.do for one in told)
    assert all(one.level == "error" for one in told)
