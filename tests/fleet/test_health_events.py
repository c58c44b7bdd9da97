"""What is noted of how links are doing, of two regions on an S3 API and on a local disk. Spark is never started."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from geo.fleet.health_events import HealthEvents
from geo.journal.event_rate import EventKind
from geo.journal.events import SETTING, events_of, read_events
from geo.now import utc_now
from tests.broken.place import TOPIC as ORDERS
from tests.broken.place import Place, without_spark
from tests.far import TOPIC, Far
from tests.object_store import ObjectStore as S3
from tests.ops.test_link_health import publish_long_ago

pytestmark = pytest.mark.slow


def test_each_change_of_health_is_noted_once_and_rest_costs_nothing(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "on")
    far, said = Far.made(s3, tmp_path), list[str]()
    publish_long_ago(far, 10, TOPIC)
    far.replicate()
    events = events_of(far.tables("eu"))
    watch = HealthEvents("eu", events, said.append)

    def look(*behind: str) -> None:
        watch.look(far.config, {(source, TOPIC) for source in behind})
        watch.wait(60)

    before = sum(s3.counts().values())
    look()
    assert sum(s3.counts().values()) == before, "nothing is behind, and nothing was"
    look("us")
    assert said == [], "it is in sync by now"
    publish_long_ago(far, 20, TOPIC)
    for _ in range(2):
        look("us")
    far.replicate()
    look()
    link = f"us->eu {TOPIC}"
    assert [one.partition(": it lacks")[0] for one in said] == [f"{link}: STOPPED", f"{link}: OK, was STOPPED"]
    assert events.flush(60)
    noted = read_events(far.tables("eu"), utc_now() - timedelta(hours=1), EventKind.HEALTH)
    told = {(one.subject, one.topic) for one in noted}
    assert told == {(link, str(TOPIC))}
    assert noted[-1].to_state == "OK", "of one subject and minute the last counts"


def test_who_begins_goes_on_with_what_events_told_and_each_names_since_when_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "on")
    with without_spark():
        place = Place(tmp_path, None)
        place.publish(10)
        place.replicate()
        ends = ("--source", "us", "--target", "eu", "--topic", str(ORDERS))

        def begin() -> list[str]:
            said = list[str]()
            watch = HealthEvents("eu", events_of(place.far.tables("eu")), said.append)
            watch.begin(place.far.config)
            watch.wait(60)
            return said

        assert begin() == []
        assert place.geo("links", "pause", *ends).code == 0
        link = f"us->eu {ORDERS}"
        assert begin() == [f"{link}: PAUSED: it was asked to pause"]
        assert events_of(place.far.tables("eu")).flush(60)
        assert begin() == [], "another process has told it"
        (noted,) = read_events(place.far.tables("eu"), utc_now() - timedelta(hours=1), EventKind.HEALTH)
        assert noted.reason is not None
        assert re.fullmatch(rf"it was asked to pause, since [-\dT:]+Z\. Do: geo links resume {' '.join(ends)}", noted.reason)
        assert place.geo("links", "resume", *ends).code == 0
        assert begin() == [f"{link}: OK, was PAUSED"]
