"""Links that share their turns: bounded batches at a rate, comparisons that are stopped, turns that hang; on real tables."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.delta.commits import Kind
from geo.delta.engines.native.rows import MOST_ROWS
from geo.fleet import rate
from geo.names import Topic
from geo.replication.link_requests import Action
from geo.replication.link_state import LinkRecord
from geo.replication.link_table import read_links
from geo.replication.request_table import ask
from geo.streams import timetable
from geo.streams.life import State
from tests.running import running
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

OTHER = Topic.parse("persistent://shop/web/orders")

AT_A_RATE = {"source": "us", "target": "eu", "num_fetchers": 1, "dispatch_rate": "{messages_per_second: 1000}"}


def _brought(world: World, after: int = -1) -> list[tuple[int, bool]]:
    """Of each commit by which a link brought rows into eu: how many, and whether it was a step of a comparison."""
    log = world.log("eu")
    commits = [commit for commit in log.commits(after + 1, log.latest_version()) if commit.kind is Kind.APPEND]
    records = [(commit.rows or 0, LinkRecord.decode(commit.user_metadata)) for commit in commits]
    return [(rows, record.reconciling) for rows, record in records if record is not None]


@pytest.mark.parametrize("queries", [False, True])
def test_a_rate_bounds_every_batch_of_a_comparison_of_turns_and_of_a_query(world: World, queries: bool) -> None:
    world.rewrite(("eu", "us"), [AT_A_RATE])
    world.write("us", 0, 250)
    with mock.patch.object(rate, "TURN_S", 0.1):  # the size only: a hundred messages
        world.replicate("eu")
        assert _brought(world) == [(100, True), (100, True), (50, True)]
        for first in range(250, 610, 60):
            world.write("us", first, first + 60)
        seen = world.log("eu").latest_version()
        world.replicate("eu")
        assert _brought(world, seen) == [(60, False)] * 6, "two of them are more than a turn"
        seen = world.log("eu").latest_version()
        with running(world, "eu", queries=queries) as links:
            links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)
            for first in range(610, 850, 60):
                world.write("us", first, first + 60)
            links.until(lambda: world.count("eu") == 850)
    assert _brought(world, seen) == [(60, False)] * 4
    world.assert_clean()


def test_a_comparison_is_stopped_between_two_steps_and_the_next_start_compares_again(world: World) -> None:
    world.rewrite(("eu", "us"), [AT_A_RATE])
    world.write("us", 0, 30)
    tables, work = world.tables("eu"), world.topic_replicator()
    (ownership,) = claim(tables, [work.runners])
    with mock.patch("geo.replication.missing.STEP_ROWS", 10):  # the size only
        work.prepare(ownership, None, stopped=lambda: work.row.replicated >= 20)
    assert (work.cursor, work.row.replicated) == (None, 20)
    release([ownership])
    assert not read_links(tables), "nothing is recorded of what did not come to its end"
    assert world.brought("eu") == (State.STOPPED, 10)
    world.assert_clean()


@contextmanager
def _that_hangs(file: Path) -> Iterator[None]:
    """Whoever reads the file waits for ever: in its place is a pipe that nobody writes to. Let go of at the end."""
    kept = file.with_suffix(".kept")
    file.rename(kept)
    os.mkfifo(file)
    try:
        yield
    finally:
        pipe = os.open(file, os.O_RDWR | os.O_NONBLOCK)  # who waits for a writer has one
        kept.rename(file)
        os.close(pipe)


def test_a_large_turn_that_hangs_holds_up_no_local_producer_and_the_one_after_it_goes_on(linked: World) -> None:
    """More than is brought without Spark: what Spark reads of the other region, it reads before the log's lock is taken."""
    before = set(Path(linked.log("us").name).glob("publish_date=*/*.parquet"))
    linked.publish("us", MOST_ROWS + 100)
    (file,) = set(Path(linked.log("us").name).glob("publish_date=*/*.parquet")) - before
    with running(linked, "eu") as links:
        with _that_hangs(file):
            links.until(lambda: any(Path(linked.log("eu").name).glob("_geo-written-*")))
            producer = threading.Thread(target=lambda: linked.write("eu", 20, 25))
            producer.start()
            producer.join(60.0)
            assert not producer.is_alive()
            assert linked.count("eu") == 45
            with mock.patch.object(timetable, "HANGS_S", 1.0):
                links.until(lambda: any(report.begun_anew for report in links.reports))
        links.until(lambda: linked.count("eu") == 45 + MOST_ROWS + 100)
    linked.settle("us")


def test_a_turn_that_hangs_is_begun_anew_once_and_holds_up_no_other(linked: World) -> None:
    """One fetcher: what hangs has its turn."""
    linked.rewrite(("eu", "us"), [AT_A_RATE, ("eu", "us")])
    before = set(Path(linked.log("us").name).rglob("*.parquet"))
    linked.write("us", 20, 22)
    (file,) = {path for path in Path(linked.log("us").name).rglob("*.parquet") if path.parent.name.startswith("publish")} - before
    linked.write("us", 0, 5, topic=OTHER)
    with mock.patch.object(timetable, "HANGS_S", 3.0), running(linked, "eu") as links:
        with _that_hangs(file):
            links.until(lambda: links.last(TOPIC)[0] is State.FAILED)
            told = [(report.state, report.reason, report.begun_anew) for report in links.reports if report.topic == str(TOPIC)]
            (delayed, again, once), (failed, why, twice) = [one for one in told if one[0] in (State.DELAYED, State.FAILED)][-2:]
            assert (delayed, once, failed, twice) == (State.DELAYED, 1, State.FAILED, 2)
            assert "; restarted, 1 time by now" in str(again)
            assert {report.topic for report in links.reports if report.begun_anew} == {str(TOPIC)}
            assert "geo links restart --source us --target eu" in str(why)
            links.until(lambda: links.last(OTHER)[0] is State.RUNNING)
            linked.write("us", 5, 8, topic=OTHER)
            links.until(lambda: linked.count("eu", OTHER) == 8)
            assert linked.link_state("eu", "us").state is State.FAILED, "recorded, for whoever looks"
            asked = sum(report.topic == str(TOPIC) for report in links.reports)
            linked.write("us", 8, 10, topic=OTHER)
            links.until(lambda: linked.count("eu", OTHER) == 10)  # some discoveries later
            assert links.last(TOPIC)[0] is State.FAILED
            assert sum(report.topic == str(TOPIC) for report in links.reports) == asked, "it waits for a person"
        assert len(linked.arrived("eu")) == 20
        ask(linked.tables("eu"), "us", str(TOPIC), Action.RESTART)
        links.until(lambda: len(linked.arrived("eu")) == 22)
    linked.settle("us")
