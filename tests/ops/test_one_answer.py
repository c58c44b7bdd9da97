"""What `geo status`, `geo doctor`, `geo explain` and a broker's event tell of a link that nobody runs, or that stopped: one cause, one time, one verb. Of
two regions on a local disk, without Spark."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from geo.coordination.claiming import claim
from geo.coordination.claims import Liveness
from geo.coordination.holder import Holder
from geo.coordination.holders import RegionHolders
from geo.coordination.ownership import release
from geo.coordination.runners import broker_runner
from geo.fleet.health_events import HealthEvents
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import EventKind
from geo.journal.events import SETTING, events_of, read_events
from geo.now import utc_now
from geo.ops.health import Health
from geo.ops.region_process import RegionProcess
from geo.ops.region_processes import region_processes
from geo.ops.regions import OF_ALL, Regions
from geo.reasons import Reason
from geo.schemas import OWNERS
from geo.times import from_us
from tests.broken.owner import owner
from tests.broken.place import TOPIC, Place, without_spark
from tests.broken.set_ups import SET_UPS, SOON_S
from tests.waiting import until

pytestmark = pytest.mark.slow

Made = Callable[[Place], Iterator[float | None]]
Answer = tuple[str | None, str | None, str | None]
"""Code, since when, to the second, and what to do."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv(SETTING, "on")
    with without_spark():
        one = Place(tmp_path, None)
        one.publish(10)
        one.replicate()
        yield one


def _owner_dead(place: Place) -> Iterator[float | None]:
    with owner(place.path, TOPIC) as process:
        process.kill()
        process.wait()
        place.publish(20)
        with place.later(SOON_S):
            yield None


_BROKEN: dict[str, Made] = {one.name: one.make for one in SET_UPS} | {"owner dead": _owner_dead}


@pytest.mark.parametrize(
    ("name", "health", "code", "do"),
    [
        ("owner dead", Health.STOPPED, Reason.NO_OWNER, "geo replicate {config} --cluster eu"),
        ("halted", Health.STALLED, Reason.OWNER_SILENT, "kill -CONT "),
        ("no broker", Health.NO_BROKER, Reason.NO_OWNER, "geo broker {config} --cluster eu"),
        (
            "failed",
            Health.FAILED,
            Reason.SOURCE_RECREATED,
            f"geo links resolve {{config}} --source us --target eu --topic {TOPIC}",
        ),
    ],
)
def test_all_who_tell_of_a_link_tell_the_same(place: Place, name: str, health: Health, code: Reason, do: str) -> None:
    with contextmanager(_BROKEN[name])(place):
        problems = _said(place, "status")["problems"]
        (problem,) = [one for one in problems if one["link"] == "us->eu"]
        answer = _answer(problem, "code", "since", "do")
        assert (problem["health"], answer[0]) == (health.value, code.value)
        assert answer[1] is not None
        assert (answer[2] or "").startswith(do.format(config=_config(place)))
        (explained,) = [one for one in _said(place, "explain", str(TOPIC))[0]["links"] if one["link"] == "us->eu"]
        assert _answer(explained["finding"], "code", "since", "do") == answer
        symptoms = [one for one in _said(place, "doctor") if one["level"] == "error"]
        (link,) = [one for one in symptoms if one["where"].startswith("link us->eu")]
        assert _answer(link, "code", "since", "fix") == answer
        assert {(one["code"], one["fix"]) for one in symptoms} == {(one["code"], one["do"]) for one in problems}, "no other verb"
        event = _noted(place)
        assert (event.to_state, event.reason_code) == (health.value, code)
        noted = (answer[2] or "").replace(f" {_config(place)}", "")  # who reads it has his own configuration
        assert (event.reason or "").endswith(f", since {(answer[1] or '').replace(' ', 'T')}. Do: {noted}")


def test_what_nobody_knows_is_0_on_no_screen(place: Place) -> None:
    """How far links are behind, and what is in no other region, once a log in a region, or that region, is not what it was."""
    older, all_of, both = place.older_log("us"), {"us", "eu"}, {"us->eu", "eu->us"}
    place.publish(20)
    place.replicate()
    assert _unknown(place) == (set(), set(), set(), 2)
    place.remove_log("us")
    assert _unknown(place) == (all_of, both, both, 0)
    place.publish(20)
    assert _unknown(place) == (all_of, both, both, 0), "it is another log"
    place.replace_log("us", older)
    assert _unknown(place) == (all_of, both, both, 0)
    place.move_away("")
    assert _unknown(place) == (all_of, both, {"us->eu"}, 0), "of links into a region it tells itself"


def _unknown(place: Place) -> tuple[set[str], set[str], set[str], int]:
    """The regions of which nobody knows what would be lost, the links of which nobody knows how far they are behind, by status and by links status,
    and how often the topic is said to be nothing behind."""
    status, links = (place.geo(*verb, "--engine", "native", "-o", "json").data for verb in (["status"], ["links", "status"]))
    lost = {one["cluster"] for one in status["clusters"] if one["lost"]["messages"] is None}
    lags = {one["link"] for one in status["links"] if one["lag"]["messages"] is None}
    of_topic = {one["link"] for one in links if "link" in one and one["lag_messages"] is one["lag_seconds"] is None}
    return lost, lags, of_topic, place.geo("explain", str(TOPIC)).text.count(", 0 messages behind")


def test_a_link_that_will_begin_at_the_end_is_judged_by_one_lag(tmp_path: Path) -> None:
    with without_spark():
        place = Place(tmp_path, None)
        place.rewrite(lambda text: text.replace("target: eu", "target: eu, start: latest"))
        place.publish(10)
        tables = place.far.tables("eu")
        owned = claim(tables, [[broker_runner(tables)]])
        codes = [
            place.geo(*verb, *more).code for verb in (["status"], ["links", "status"]) for more in ([], ["--max-lag", "60s"])
        ]
        release(owned)
    assert codes == [0, 1, 0, 1]


def test_a_broker_that_is_halted_or_died_is_told_alike_while_nothing_is_lacking(place: Place) -> None:
    with owner(place.path, TOPIC, broker=True) as process:
        assert _of_region(place) == ([], [])
        process.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        ((halted,), of_doctor) = _of_region(place)
        assert of_doctor == [halted]
        assert (halted[0], halted[2]) == (Reason.OWNER_SILENT.value, f"kill -CONT {process.pid}")
        process.kill()
        process.wait()
        ((died,), of_doctor) = _of_region(place)
        assert of_doctor == [died]
        assert died == (Reason.NO_OWNER.value, halted[1], f"geo broker {_config(place)} --cluster eu")
        assert died[1] is not None


def test_of_a_claim_that_no_program_of_ours_can_read_its_time_alone_tells(place: Place) -> None:
    tables = place.far.tables("eu")
    (owned,) = claim(tables, [[broker_runner(tables)]])
    held = RegionHolders(tables).of_runner(broker_runner(tables).name)
    assert held is not None
    assert held.liveness is Liveness.LIVES
    for ago_s, liveness in ((10, Liveness.LIVES), (40, Liveness.SILENT)):
        since = from_us(RegionHolders(tables).now_us) - timedelta(seconds=ago_s)
        tables.journal(OWNERS).append([replace(held.claim, holder="{}", since=since, sequence=ago_s)])
        found = RegionHolders(tables).of_runner(broker_runner(tables).name)
        assert found is not None
        assert (found.liveness, found.name) == (liveness, "a process of another program version")
    release([owned])


@pytest.mark.parametrize("is_on_s3", [False, True], ids=["disk", "s3"])
def test_who_ended_by_itself_since_owners_were_read_did_not_die(
    is_on_s3: bool, place: Place, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    if is_on_s3:
        place = Place(tmp_path_factory.mktemp("s3"), request.getfixturevalue("s3"))
        place.publish(10)
    runner, far = f"origin us of {TOPIC} into eu", place.far
    with ExitStack() as running:
        running.enter_context(owner(place.path, TOPIC, broker=True))

        def look(tables: ClusterTables) -> tuple[Holder | None, list[RegionProcess]]:
            holders = RegionHolders(tables)
            assert holders.newest[runner].is_owned
            running.close()
            return holders.of_runner(runner), region_processes(holders)

        found, processes = Regions({"eu": far.tables("eu")}, OF_ALL).ask(look)["eu"].result()
    assert found is not None
    assert found.liveness is Liveness.ENDED
    assert processes == []


def test_what_this_process_released_since_owners_were_read_did_not_die(place: Place) -> None:
    tables = place.far.tables("eu")
    (owned,) = claim(tables, [[broker_runner(tables)]])
    holders = RegionHolders(tables)
    assert holders.newest[broker_runner(tables).name].is_owned
    release([owned])
    found = holders.of_runner(broker_runner(tables).name)
    assert found is not None
    assert found.liveness is Liveness.ENDED


def _config(place: Place) -> str:
    return f"--config {shlex.quote(str(place.path))}"


def _said(place: Place, *verb: str) -> Any:
    said = place.geo(*verb, "--engine", "native", "-o", "json")
    assert said.code == 1, said.text
    return said.data


def _answer(one: dict[str, Any], code: str, since: str, do: str) -> Answer:
    at = one[since]
    return one[code], at and f"{datetime.fromisoformat(at.replace('Z', '+00:00')):%Y-%m-%d %H:%M:%SZ}", one[do]


def _of_region(place: Place) -> tuple[list[Answer], list[Answer]]:
    """What `geo status` and `geo doctor` find wrong."""
    status = place.geo("status", "--engine", "native", "-o", "json")
    doctor = place.geo("doctor", "--engine", "native", "-o", "json")
    assert status.code == doctor.code
    errors = [one for one in doctor.data if one["level"] == "error"]
    return [_answer(one, "code", "since", "do") for one in status.data["problems"]], [
        _answer(one, "code", "since", "fix") for one in errors
    ]


def _noted(place: Place) -> Any:
    events = events_of(place.far.tables("eu"))
    watch = HealthEvents("eu", events, lambda line: None)
    watch.look(place.far.config, {("us", TOPIC)})
    watch.wait(60)
    assert events.flush(60)
    return read_events(place.far.tables("eu"), utc_now() - timedelta(hours=1), EventKind.HEALTH)[-1]
