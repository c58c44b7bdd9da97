"""When a region that is away was there last, where nobody met that it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from geo.journal.event_rate import Event, EventKind
from geo.ops.away import not_before, there_last
from geo.ops.health import Finding, Health
from geo.reasons import Reason
from geo.times import from_us
from tests.broken.place import TOPIC, Place, without_spark

MINUTE_US = 60_000_000
AWAY = Finding("us", None, None, Health.AWAY, None, Reason.NO_ANSWER, "us cannot be read", "wait")


def _event(minute: int, kind: EventKind, to_state: str, subject: str = "us->eu t") -> Event:
    return Event(str(minute), from_us(minute * MINUTE_US), "eu", kind, subject, None, None, to_state, None, None, "x")


HEALTH, LINK = EventKind.HEALTH, EventKind.LINK
THERE, GONE = _event(10, LINK, "RUNNING"), _event(20, HEALTH, "AWAY")
TOLD: list[tuple[str, list[Event], int | None]] = [
    ("nothing is known", [], None),
    ("others tell nothing of it", [_event(9, LINK, "RUNNING", "ap->eu t"), _event(9, EventKind.VERB, "done")], None),
    ("a runner that cannot go on may not have read it", [THERE, _event(12, LINK, "DELAYED")], 10),
    ("it was seen to be away", [THERE, GONE, _event(30, HEALTH, "AWAY", "us->eu other")], 10),
    ("it came back", [GONE, _event(25, HEALTH, "STALLED")], 25),
    ("nobody knows when it was there", [GONE], None),
]


@pytest.mark.parametrize(("what", "events", "there"), TOLD, ids=[one[0] for one in TOLD])
def test_events_tell_when_it_was_there_last(what: str, events: list[Event], there: int | None) -> None:
    assert there_last(events, "us") == (None if there is None else there * MINUTE_US), what


def test_what_is_a_bound_is_said_to_be_one_and_nothing_is_invented() -> None:
    met = Finding("us", None, None, Health.AWAY, 5, None, "", None)
    assert not_before(met, "us", 1) == met
    assert not_before(AWAY, "us", None) == AWAY
    after = not_before(AWAY, "us", MINUTE_US)
    assert (after.since_us, after.there_us) == (None, MINUTE_US)
    assert after.reason == "us cannot be read; us was read last at 1970-01-01 00:01:00Z, as far as is known"


@pytest.mark.slow
def test_the_newest_commit_that_a_link_brought_tells_when_its_source_was_there(tmp_path: Path) -> None:
    with without_spark():
        place = Place(tmp_path, None)
        place.publish(10)
        place.replicate("eu")
        place.move_away("")
        problems = place.geo("status", "-o", "json").data["problems"]
    (found,) = (one for one in problems if one["subject"] == "us")
    assert (found["health"], found["since"]) == ("AWAY", None)
    told = found["reason"].partition("was read last at ")[2].partition("Z")[0]
    commit = place.far.log("eu", TOPIC).commit_at(place.far.log("eu", TOPIC).latest_version())
    assert commit is not None
    assert f"{from_us(commit.committed_us):%Y-%m-%d %H:%M:%S}" == told
