"""Brokers that share a cluster, as real processes: each topic runs in one of them, what is paused or killed is taken over, and what comes
back writes nothing more."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from geo.coordination.claiming import claim
from geo.coordination.owners import owned_now, owners_of
from geo.crash import CrashPoint, InjectedCrash, arm
from geo.delta.process import Process
from geo.errors import AlreadyOwnedError
from geo.fleet.assignments import member_runner, read_assignments, read_averages, read_bundles, read_owners
from geo.fleet.load_reports import LEFT, read_reports
from geo.fleet.placement.bundles import bundle_of
from geo.fleet.placement.leading import SPLIT, TRANSFER
from geo.fleet.placement_requests import ISOLATION, ask, set_policy
from geo.journal.cluster import ClusterTables
from geo.log.topics import create_topic
from geo.names import Topic
from geo.schemas import LOAD_REPORTS, OWNERS
from geo.version import program_version
from tests.clock_off import clock_off
from tests.members import Alone, bundle_owners, leader
from tests.processes import geo
from tests.rows import owner
from tests.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]

TOPICS = [Topic.parse(f"persistent://shop/web/t{number}") for number in range(6)]
CONF = "placement: {broker_timeout: 5 seconds, bundles: 4}\n"


def _broker(world: World, name: str) -> list[str]:
    return ["broker", "--config", str(world.path), "--cluster", "us", "--name", name]


def _runs(tables: ClusterTables) -> dict[Topic, str]:
    """The broker that runs the link of each topic."""
    reports = read_reports(tables)
    names = {one.holder: name for name, one in reports.items()}
    owners = [one for one in owned_now(tables) if one.runner.startswith("origin eu of ")]
    return {Topic.parse(one.runner.split()[3]): names.get(one.holder, "?") for one in owners}


def _placed(tables: ClusterTables, without: str = "") -> bool:
    """Whether the link of each topic is run by the owner of its bundle, and none by `without`."""
    runs, owners, bundles = _runs(tables), bundle_owners(tables), read_bundles(tables)
    right = "shop/web" in bundles and all(owners.get(bundle_of(str(topic), bundles)) == runs.get(topic) for topic in TOPICS)
    return right and runs.keys() == set(TOPICS) and without not in runs.values()


def test_brokers_share_topics_and_take_over_from_those_that_stand_still_or_end(world: World) -> None:
    world.configure(CONF)
    us, written = world.tables("us"), 0

    def write() -> None:
        nonlocal written
        for topic in TOPICS:
            world.write("eu", written, written + 5, topic=topic)
        written += 5

    def brought() -> bool:
        return all(world.count("us", topic) == written for topic in TOPICS)

    with ExitStack() as ends:
        brokers = {name: ends.enter_context(geo(world.folder, *_broker(world, name))) for name in ("a", "b")}
        a = brokers["a"]
        # Before there are topics: what one of them places while it is alone stays with it, where there is no load.
        a.until(lambda: read_reports(us).keys() == {"a", "b"})
        for topic in TOPICS:
            create_topic(world.tables("eu"), topic)
        write()
        a.until(lambda: _placed(us))
        a.until(brought)
        assert set(bundle_owners(us).values()) == {"a", "b"}
        assert leader(us) in ("a", "b")
        with pytest.raises(AlreadyOwnedError, match="broker b of us: already run by"):
            claim(us, [[member_runner(us, "b")]])

        # What a person asks: all of b's to a, one of them split, and back what isolation wants.
        for bundle, owner in bundle_owners(us).items():
            if owner == "b":
                ask(us, bundle, TRANSFER, broker="a")
        a.until(lambda: _placed(us, without="b"))
        split = bundle_of(str(TOPICS[0]), read_bundles(us))
        ask(us, split, SPLIT)
        a.until(lambda: split not in bundle_owners(us) and _placed(us))
        assert len(read_bundles(us)["shop/web"].ranges) == 5
        set_policy(us, ISOLATION, "of b", {"namespaces": "shop/web", "primary": "b", "secondary": "a"})
        a.until(lambda: _placed(us, without="a"))
        write()
        a.until(brought)

        # b stands still, not in the middle of a commit, which would hold up all on this disk: a, which is secondary, takes over, and leads if b did.
        b = brokers["b"]
        with us.journal(LOAD_REPORTS).alone(), us.journal(OWNERS).alone():
            b.signal(signal.SIGSTOP)
        a.until(lambda: _placed(us, without="b"))
        write()
        a.until(brought)
        assert leader(us) == "a"
        b.signal(signal.SIGCONT)
        b.until(lambda: _placed(us, without="a"))  # as isolation wants
        write()
        a.until(brought)

        # b is killed, and comes back under its name.
        b.signal(signal.SIGKILL)
        b.wait()
        a.until(lambda: _placed(us, without="b"))
        brokers["b"] = b = ends.enter_context(geo(world.folder, *_broker(world, "b")))
        b.until(lambda: _placed(us, without="a"))

        # b hands over and ends; a, which is alone, just ends.
        b.signal_python(signal.SIGTERM)
        assert b.wait() == 0, b.log.read_text()
        assert read_reports(us)["b"].state == LEFT
        a.until(lambda: _placed(us, without="b"))
        write()
        a.until(brought)
        a.signal_python(signal.SIGTERM)
        assert a.wait() == 0, a.log.read_text()
    assert bundle_owners(us) == {}
    assert {one.broker for bundle, one in read_assignments(us).items() if bundle != split} == {"a"}
    world.assert_clean(*TOPICS)
    report = world.verify_quick()
    assert report.clean, report.lines()


def test_the_name_of_a_broker_on_another_host_is_taken_once_that_one_is_silent(one_world: World) -> None:
    us, name = one_world.tables("us"), "pod"
    runner, there = member_runner(us, name).name, Process("elsewhere", 7, "1")
    us.journal(OWNERS).append([owner(runner, 1_000, holder=there)])
    with pytest.raises(AlreadyOwnedError, match="it gave a sign of life lately"):
        claim(us, [[member_runner(us, name)]])
    alone = Alone(one_world, [], name=name)
    assert alone.said == [f"broker pod: {there} has the name; it is watched for 5 s"]
    alone.member.close()
    assert {one.state for one in owners_of(us, runner)} == {"released"}


@pytest.fixture(scope="module")
def one_world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Where each point has a namespace of its own."""
    world = World(tmp_path_factory.mktemp("one-world"), spark=spark)
    world.configure(CONF)
    return world


@pytest.mark.parametrize("off_s", [-299, 299])
def test_what_a_leader_and_a_broker_say_has_the_storages_time(one_world: World, off_s: int) -> None:
    """So that the next leader, on a host with another clock, knows for how long a bundle has not been released."""
    us, topics = one_world.tables("us"), [Topic.parse(f"persistent://shop/clock{off_s}/t{number}") for number in range(3)]
    with clock_off(off_s):
        alone = Alone(one_world, topics)
        alone.until(lambda: True)
        said = [one.since for bundle, one in read_assignments(us).items() if bundle.startswith(f"shop/clock{off_s}/")]
        alone.member.close()
    assert said
    assert all(abs(time.time() - since) < 120 for since in said)
    assert abs(time.time() - read_reports(us)["a"].sequence / 1e6) < 120


def _life(world: World, alone: Alone) -> None:
    """All is placed; then a bundle is split, whose parts are placed."""
    us, namespace = world.tables("us"), alone.topics[0].namespace
    alone.until(lambda: True)
    bundles = read_bundles(us)
    if len(bundles[f"shop/{namespace}"].ranges) == 4:
        ask(us, bundle_of(str(alone.topics[0]), bundles), SPLIT)
    alone.until(lambda: len(read_bundles(us)[f"shop/{namespace}"].ranges) == 5)


@pytest.mark.parametrize(
    "point", [CrashPoint(value) for value in CrashPoint if value.startswith("placement-")], ids=lambda p: p.value
)
def test_a_broker_that_stops_here_goes_on_where_it_was(one_world: World, point: CrashPoint) -> None:
    us, namespace = one_world.tables("us"), point.value
    topics = [Topic.parse(f"persistent://shop/{namespace}/t{number}") for number in range(6)]
    alone = Alone(one_world, topics)
    arm(f"{point.value}:raise")
    try:
        with pytest.raises(InjectedCrash):
            _life(one_world, alone)
    finally:
        arm(None)
        alone.member.abandon()
    alone = Alone(one_world, topics)
    try:
        _life(one_world, alone)
        owned = {bundle for bundle in bundle_owners(us) if bundle.startswith(f"shop/{namespace}/")}
        assert {bundle_of(str(topic), read_bundles(us)) for topic in topics} == owned
    finally:
        alone.member.close()
    assert bundle_owners(us) == {}
    assert not read_owners(us).lead.is_owned  # type: ignore[union-attr]


def test_a_leader_goes_on_with_the_averages_of_the_one_before_it(one_world: World) -> None:
    us, topics = one_world.tables("us"), [Topic.parse(f"persistent://shop/averages/t{number}") for number in range(6)]
    counts = []
    for name in ("a", "b"):
        alone = Alone(one_world, topics, name=name)
        alone.until(lambda: read_averages(us) is not None)
        for _ in range(30):
            alone.now += 1
            alone.member.round(alone.now)
        alone.member.hand_over()
        alone.now += 1
        alone.member.round(alone.now)  # it gives up the lead first
        alone.member.close()
        assert read_reports(us)[name].version == program_version()
        kept = read_averages(us)
        assert kept is not None
        counts.append({bundle: one.count for bundle, one in kept.samples.items() if bundle.startswith("shop/averages/")})
    first, second = counts
    assert first.keys() == second.keys()
    assert all(0 < first[bundle] < second[bundle] for bundle in first)
