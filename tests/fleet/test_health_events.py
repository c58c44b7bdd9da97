"""What is noted of how links are doing, of two regions on an S3 API and on a local disk. Spark is never started."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from pathlib import Path

import pytest

from geo.coordination.claiming import claim
from geo.coordination.runners import broker_runner
from geo.fleet.health_events import HealthEvents
from geo.journal.event_rate import Event, EventKind
from geo.journal.events import SETTING, events_of, flush_all, read_events, this_writer
from geo.now import utc_now
from geo.ops.noted import goes_on, noted_since
from geo.reasons import Reason
from geo.times import from_us
from tests.broken.place import TOPIC as ORDERS
from tests.broken.place import Place, without_spark
from tests.far import TOPIC, Far
from tests.object_store import ObjectStore as S3
from tests.ops.test_link_health import publish_long_ago

pytestmark = pytest.mark.slow

LINK = "  - {source: us, target: eu}\n"


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
        place.rewrite(lambda text: text.replace(LINK, ""))
        watch = HealthEvents("eu", events_of(place.far.tables("eu")), (gone := list[str]()).append)
        watch.begin(place.far.config)
        for _ in range(2):
            watch.wait(60)
            watch.look(place.far.config, ())
        watch.wait(60)
        assert gone == [f"{link}: OK, was PAUSED"], "what left the configuration is over"
        assert events_of(place.far.tables("eu")).flush(60)
        place.rewrite(lambda text: text.replace("links:\n", f"links:\n{LINK}"))
        assert begin() == [f"{link}: PAUSED: it was asked to pause"]
        assert place.geo("links", "resume", *ends).code == 0
        assert begin() == [f"{link}: OK, was PAUSED"]


def test_a_second_broker_is_told_once_it_is_refused_twice_beside_what_else_is_wrong_and_what_is_told_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "on")
    with without_spark():
        place, said = Place(tmp_path, None), list[str]()
        place.publish(10)
        place.replicate()
        place.rewrite(lambda text: text.replace("eu: {", "eu: {spark_conf: {fs.x.key: 'secret://env/GEO_BROKEN_KEY'}, ", 1))
        monkeypatch.setenv("GEO_BROKEN_KEY", "x")
        first = Far(place.path, "elsewhere").tables("eu")
        claim(first, [[broker_runner(first)]])

        def second() -> int:
            return place.geo("broker", "--cluster", "eu", "--trigger", "available-now").code

        def problems() -> list[tuple[str, str, str]]:
            flush_all(60)
            return [(one["code"], one["since"], one["do"]) for one in place.geo("status", "-o", "json").data["problems"]]

        def look() -> None:
            watch.look(place.far.config, (), regions=True)
            watch.wait(60)

        assert second() == 3
        flush_all(60)
        (refused,) = read_events(first, utc_now() - timedelta(hours=1), EventKind.OWNER)
        assert (refused.subject, refused.to_state, refused.count) == ("broker of eu", "FAILED", 1)
        assert problems() == [], "once its exit code told it"
        assert second() == 3
        flush_all(60)
        monkeypatch.delenv("GEO_BROKEN_KEY")
        watch = HealthEvents("eu", events_of(place.far.tables("eu")), said.append)
        look()
        before = problems()
        assert {one[0] for one in before} == {"OWNED_ELSEWHERE", "KEYS_REFUSED"}
        look()
        assert problems() == before, "each is so since it was noted"
        monkeypatch.setenv("GEO_BROKEN_KEY", "x")
        ends = next(do for code, _, do in before if code == "OWNED_ELSEWHERE")
        told = shlex.split(ends.partition("geo broker ")[2])
        assert place.typed(["broker", *told, "--trigger", "available-now"]).code == 0, ends
        look()
        assert problems() == []
        assert [one.partition(": ")[::2][1].partition(":")[0] for one in said] == ["AT_RISK", "AT_RISK", *["OK, was AT_RISK"] * 2]


def test_events_tell_what_goes_on_by_cause_and_of_a_host_its_own_alone() -> None:
    def event(second: int, to_state: str, code: Reason | None, subject: str = "eu", by: str = this_writer()) -> Event:
        return Event("", from_us(second * 1_000_000), "eu", EventKind.HEALTH, subject, None, None, to_state, code, None, by)

    host, dead, keys = "this host", event(1, "NO_BROKER", Reason.NO_OWNER), event(2, "AT_RISK", Reason.KEYS_REFUSED)
    elsewhere = event(3, "STOPPED", Reason.CLOCK, host, "root@elsewhere 1")
    assert noted_since([dead, keys, elsewhere]) == {("eu", Reason.NO_OWNER): 1_000_000, ("eu", Reason.KEYS_REFUSED): 2_000_000}
    here = event(4, "STOPPED", Reason.CLOCK, host)
    over = event(5, "OK", Reason.CLOCK, host, "root@elsewhere 1")
    assert list(goes_on([here, over, elsewhere])) == [(host, Reason.CLOCK)], "another host's clock was set"
    assert list(goes_on([dead, keys, event(3, "OK", Reason.NO_OWNER)])) == [("eu", Reason.KEYS_REFUSED)]
    assert list(goes_on([dead, keys, event(3, "OK", None)])) == []


def test_of_a_topic_that_was_never_run_nothing_is_over_while_its_source_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "on")
    with without_spark():
        place, said = Place(tmp_path, None), list[str]()
        place.publish(10)
        watch = HealthEvents("eu", events_of(place.far.tables("eu")), said.append)
        with place.later(60.0):
            watch.look(place.far.config, {("us", ORDERS)})
            watch.wait(60)
            place.move_away("")
            watch.look(place.far.config, ())
            watch.wait(60)
    assert [one.partition(f"us->eu {ORDERS}: ")[2].partition(":")[0] for one in said] == ["STOPPED", "AWAY, was STOPPED"]
