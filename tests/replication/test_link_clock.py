"""A link leaves nothing out by a clock that is not the storage's, before its first line, at a start and while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.errors import UnsafeError, WrongClockError
from geo.fleet.backfill import backfill
from geo.replication.link_table import read_links
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from tests.clock_off import clock_off
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

DAYS = 2 * 86_400


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(tmp_path, links=[("us", "eu")], ttl="1 day", spark=spark)


@pytest.mark.parametrize(("off_s", "told"), [(-DAYS, "behind"), (DAYS, "ahead of"), (-600, "behind"), (600, "ahead of")])
def test_a_first_comparison_by_a_clock_that_is_off_writes_nothing(world: World, off_s: int, told: str) -> None:
    """Two days behind, the rows were ones that no producer can have written; two days ahead they had expired."""
    world.write("us", 0, 10)
    link = world.topic_replicator()
    with clock_off(off_s), pytest.raises(WrongClockError, match=rf"is not run with a clock that is {told} the storage's.*NTP"):
        claim(link.target, [link.runners])
    (ownership,) = claim(link.target, [link.runners])  # and a claim is no clock for ever
    with clock_off(off_s), pytest.raises(WrongClockError, match=f"us->eu .* nothing is replicated with a clock that is {told}"):
        link.prepare(ownership, None)
    ownership.abandon()
    assert not world.log("eu").exists()
    assert read_links(world.tables("eu")) == {}
    (report,) = world.replicate("eu")
    assert (report.state, world.arrived("eu")) == (State.STOPPED, list(range(10)))


@pytest.mark.parametrize(("off_s", "by_spark"), [(-DAYS, False), (DAYS, False), (-DAYS, True)])
def test_a_running_link_whose_clock_jumps_stops_before_it_leaves_anything_out(
    world: World, off_s: int, *, by_spark: bool
) -> None:
    world.write("us", 0, 5)
    if by_spark:
        world.leave_to_spark("us")
    link, ownership = world.begun()
    cursor = link.cursor
    world.write("us", 5, 10)
    with clock_off(off_s), pytest.raises(UnsafeError, match="nothing is replicated"):
        link.running.run_turns(lambda: False)
    assert (link.cursor, world.arrived("eu")) == (cursor, list(range(5)))
    link.running.run_turns(lambda: False)
    assert world.arrived("eu") == list(range(10))
    assert (link.row.expired, link.row.impossible) == (0, 0)
    release([ownership])


@pytest.mark.parametrize("off_s", [-299, 299])
def test_a_clock_that_is_off_by_less_leaves_out_nothing_that_is_due(spark: SparkSession, tmp_path: Path, off_s: int) -> None:
    """Messages live for four minutes, and what has expired is told by the storage's clock."""
    world = World(tmp_path, links=[("us", "eu")], ttl="4 minutes", spark=spark)
    world.write("us", 0, 5)
    with clock_off(off_s):
        assert world.replicate("eu")[0].state is State.STOPPED
    assert world.arrived("eu") == list(range(5))


def test_a_backfill_and_a_rehearsal_by_a_clock_that_is_off_are_refused(world: World) -> None:
    world.write("us", 0, 5)
    world.replicate("eu")
    with clock_off(DAYS):
        done, not_done = backfill(world.spark, world.config, "us", "eu")
        assert done == []
        assert "nothing is brought with a clock that is ahead of" in not_done[str(TOPIC)]
        with pytest.raises(WrongClockError, match="nothing is compared"):
            reconcile_links(world.spark, world.config, "us", "eu", dry_run=True)
        with pytest.raises(WrongClockError, match="is not verified"):
            world.verify()
