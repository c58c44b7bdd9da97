"""What becomes of works is an event where it changes, and none where it does not. No Spark."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from geo.config.cluster import Cluster
from geo.journal import events
from geo.journal.event_rate import EventKind
from geo.journal.events import SETTING, Events, read_events
from geo.names import Topic
from geo.reasons import Reason
from geo.streams.life import Life, State, Why, WorkEvent
from geo.streams.life_events import LifeEvents, Was
from geo.times import EPOCH
from tests.journal.test_events import region

TOPIC = Topic.parse("persistent://shop/web/clicks")
AWAY = Why("nobody answers", Reason.NO_ANSWER)
UP, AGAIN = Life().after(WorkEvent.UP), Life().after(WorkEvent.FAULT, why=AWAY)


@pytest.mark.parametrize(
    ("lives", "recorded", "told"),
    [
        ([Life().after(WorkEvent.DONE)], None, []),
        ([Life().after(WorkEvent.DONE)], (State.STOPPED, None), []),
        ([Life().after(WorkEvent.DONE)], (State.FAILED, Reason.SOURCE_GONE), [("FAILED", "STOPPED", None)]),
        ([UP, UP, UP.after(WorkEvent.STOP)], None, [(None, "RUNNING", None), ("RUNNING", "STOPPED", None)]),
        ([UP], (State.RUNNING, None), []),
        ([UP, AGAIN, AGAIN, AGAIN.after(WorkEvent.UP)], (State.STOPPED, None),
         [("STOPPED", "RUNNING", None), ("RUNNING", "DELAYED", Reason.NO_ANSWER), ("DELAYED", "RUNNING", None)]),
        ([AGAIN, Life().after(WorkEvent.FAULT, why=Why("no space", Reason.TARGET_DISK_FULL))], None,
         [(None, "DELAYED", Reason.NO_ANSWER), ("DELAYED", "DELAYED", Reason.TARGET_DISK_FULL)]),
    ],
)  # fmt: skip
def test_a_change_of_state_or_code_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lives: list[Life],
    recorded: Was | None,
    told: list[tuple[str | None, str, Reason | None]],
) -> None:
    minutes = count(1)
    monkeypatch.setattr(events, "utc_now", lambda: EPOCH + timedelta(minutes=next(minutes)))
    monkeypatch.delenv(SETTING)
    eu = region(Cluster("eu", root=str(tmp_path)))
    noted = Events(eu)
    of = LifeEvents(noted)
    for life in lives:
        of.note(EventKind.LINK, "us->eu clicks", TOPIC, life, recorded)
    assert noted.flush()
    rows = read_events(eu, EPOCH)
    assert [(one.from_state, one.to_state, one.reason_code) for one in rows] == told
    assert {(one.kind, one.topic) for one in rows} <= {(EventKind.LINK, str(TOPIC))}
