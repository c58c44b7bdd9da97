"""`./run clocks`: whole processes on hosts whose clocks are off by 1, 60, 240, 299 and 600 seconds and by two days, both ways, at links,
owners and leaders. A command of its own: it takes some five minutes.

Up to 299 s works: nothing that is due is left out, nobody who lives is replaced, and who dies is replaced within the owner timeout. 600 s
and two days are refused by name, and nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql import SparkSession

from geo.coordination.owners import owners_of
from geo.fleet.assignments import read_assignments
from geo.fleet.load_reports import read_reports
from geo.replication.link_table import read_links
from geo.schemas import OWNERS
from tests.clock_actor import end, run, start
from tests.clock_world import OWNER_TIMEOUT_S, REFUSED_S, WORKS_S, clock_world, ready
from tests.members import bundle_owners, leader
from tests.world import World

pytestmark = pytest.mark.spark

AGAIN_S = 10
"""How often a taker that is refused is started again."""

BUSY_S = 20
"""What processes take to begin, on a machine that does much else."""


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return clock_world(spark, tmp_path_factory.mktemp("clocks"), with_brokers=True)


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as processes:
        yield processes


def _told(world: World, off_s: float, role: str, topic: object) -> dict[str, Any]:
    return run(off_s, "taker", world.path, role, str(topic))


@pytest.mark.parametrize("off_s", WORKS_S)
def test_a_link_by_a_clock_that_is_off_by_minutes_leaves_out_nothing(world: World, off_s: int) -> None:
    topic = ready(world, f"works{off_s}")
    assert _told(world, off_s, "link", topic) == {"replicated": 10, "expired": 0, "impossible": 0}
    world.write("us", 10, 20, topic=topic)
    assert _told(world, off_s, "link", topic) == {"replicated": 10, "expired": 0, "impossible": 0}
    world.assert_clean(topic)


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("off_s", REFUSED_S)
def test_a_link_by_a_clock_that_is_off_by_more_is_refused_by_name_and_writes_nothing(
    world: World, off_s: int, *, has_run: bool
) -> None:
    topic, eu = ready(world, f"refused{off_s}-{has_run}".lower()), world.tables("eu")
    if has_run:
        _told(world, 0, "link", topic)
        world.write("us", 10, 20, topic=topic)
    before = world.count("eu", topic), read_links(eu).get(("us", str(topic))), eu.journal(OWNERS).table.latest_version()
    told = _told(world, off_s, "link", topic)
    assert told["error"] == "WrongClockError"
    assert f"clock that is {'ahead of' if off_s > 0 else 'behind'} the storage's" in told["text"]
    assert (world.count("eu", topic), read_links(eu).get(("us", str(topic))), eu.journal(OWNERS).table.latest_version()) == before
    assert _told(world, 0, "link", topic) == {"replicated": 10, "expired": 0, "impossible": 0}
    world.assert_clean(topic)


def test_no_owner_who_lives_is_replaced_and_one_who_died_is_within_the_owner_timeout(world: World, started: ExitStack) -> None:
    topics = {off_s: ready(world, f"owned{off_s}") for off_s in WORKS_S}
    owners = {off_s: start(off_s, "owner", world.path, "own", str(topic)) for off_s, topic in topics.items()}
    for owner in owners.values():
        started.callback(end, owner)

    def tries() -> list[str]:
        """What takers of each clock are told of each owner."""
        pairs = [(off_s, topic) for topic in topics.values() for off_s in (-299, -1, 299)]
        with ThreadPoolExecutor(2) as two:
            return list(two.map(lambda one: str(_told(world, one[0], "take", one[1]).get("error")), pairs))

    began = time.monotonic()
    assert set(tries()) == {"AlreadyOwnedError"}
    while time.monotonic() - began < 2 * OWNER_TIMEOUT_S:
        time.sleep(1)
    assert set(tries()) == {"AlreadyOwnedError"}, "their signs of life count, too"
    for off_s in REFUSED_S:
        before = owners_of(world.tables("eu"), f"origin us of {topics[-1]}")
        assert _told(world, off_s, "take", topics[-1])["error"] == "WrongClockError"
        assert owners_of(world.tables("eu"), f"origin us of {topics[-1]}") == before
        assert {one.state for one in before} == {"owned"}
    for owner in owners.values():
        end(owner)
    died = time.monotonic()

    def until_taken(pair: tuple[int, int]) -> float:
        owner_s, taker_s = pair
        while "error" in _told(world, taker_s, "take", topics[owner_s]):
            assert time.monotonic() - died < OWNER_TIMEOUT_S + 3 * AGAIN_S + BUSY_S
            time.sleep(AGAIN_S)
        return time.monotonic() - died

    with ThreadPoolExecutor(len(WORKS_S)) as each:
        took = list(each.map(until_taken, zip(WORKS_S, reversed(WORKS_S), strict=True)))
    assert min(took) > OWNER_TIMEOUT_S / 3, "a sign of life is a third of the timeout old at most, and this waits for silence"


def test_leaders_whose_clocks_are_apart_leave_bundles_where_they_are_and_take_over_from_the_dead(
    world: World, started: ExitStack
) -> None:
    eu, brokers = world.tables("eu"), {"a": -299, "b": 299, "c": 1}
    processes = {name: start(off_s, f"host-{name}", world.path, "member", name) for name, off_s in brokers.items()}
    for process in processes.values():
        started.callback(end, process)

    alive = set(brokers)

    def until_placed() -> None:
        """Until one of those that live leads, and each bundle is owned by whom the leader says, who lives."""
        deadline = time.monotonic() + 120
        while True:
            owned, wanted = bundle_owners(eu), {bundle: one.broker for bundle, one in read_assignments(eu).items()}
            if owned and owned == wanted and set(owned.values()) <= alive and leader(eu) in alive:
                return
            assert time.monotonic() < deadline, (owned, wanted, leader(eu))
            time.sleep(0.5)

    until_placed()
    while len(alive) > 1:
        placed, led = bundle_owners(eu), leader(eu)
        time.sleep(25)  # more than two broker timeouts
        assert (bundle_owners(eu), leader(eu)) == (placed, led), "nothing moves between those that live"
        assert led is not None
        end(processes[led])
        alive -= {led}
        until_placed()
        kept = {bundle: broker for bundle, broker in placed.items() if broker in alive}
        assert kept.items() <= bundle_owners(eu).items(), "and of the others' bundles nothing"
    for off_s in REFUSED_S:
        reports = set(read_reports(eu))
        told = run(off_s, "host-d", world.path, "member", "d")
        assert (told["error"], set(read_reports(eu))) == ("WrongClockError", reports)
