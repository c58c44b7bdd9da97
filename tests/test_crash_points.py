"""Exactly once through every named crash point, in both directions.

Each point is met by an injected stop in a world of two clusters that replicate both ways; then everything is simply
started again and the logs are compared. `test_every_point_is_exercised` holds the list and the tests together.
"""

from __future__ import annotations

import pytest

from geo import crash
from geo.crash import CrashPoint, InjectedCrash
from tests.world import World

pytestmark = pytest.mark.spark

PUBLISH_POINTS = [point for point in CrashPoint if point.value.startswith(("publish-", "topic-"))]
LINK_POINTS = [point for point in CrashPoint if point.value.startswith("link-")]
REPAIR_POINTS = [CrashPoint.ERASE_UPDATED, CrashPoint.REBUILD_APPENDED]
"""Met in tests/replication/test_repair.py."""
CONSUME_POINTS = [point for point in CrashPoint if point.value.startswith(("consume-", "acks-"))]
"""Met in tests/subscription/test_consumer.py."""
FOLD_POINTS = [point for point in CrashPoint if point.value.startswith("fold-")]
"""Met in tests/subscription/test_folding.py."""


def test_every_point_is_exercised() -> None:
    named = [*PUBLISH_POINTS, *LINK_POINTS, *REPAIR_POINTS, *CONSUME_POINTS, *FOLD_POINTS]
    assert sorted(named) == sorted(CrashPoint)


@pytest.mark.parametrize("point", PUBLISH_POINTS, ids=lambda p: p.value)
def test_a_publish_that_stops_here_goes_on_where_it_was(world: World, point: CrashPoint) -> None:
    crash.arm(f"{point.value}:raise")
    with pytest.raises(InjectedCrash):
        world.publish("eu", 30)
    crash.arm(None)
    world.publish("eu", 40)
    rows = world.log("eu").read()
    assert rows.count() == 40
    assert rows.select("ledger_id").distinct().count() == 1, "the same ledger goes on"
    assert rows.agg({"entry_id": "max"}).collect()[0][0] == 39
    assert rows.select("key").distinct().count() == 40
    assert world.publish("eu", 40).rows == 0, "complete: nothing is added"
    world.replicate("us")
    world.assert_clean()


@pytest.mark.parametrize("point", LINK_POINTS, ids=lambda p: p.value)
def test_a_link_that_stops_here_replicates_everything_once_after_a_restart(
    request: pytest.FixtureRequest, point: CrashPoint
) -> None:
    """In both directions, one after the other."""
    streams = point in (CrashPoint.LINK_BEFORE_APPEND, CrashPoint.LINK_AFTER_APPEND)
    world: World = request.getfixturevalue("linked" if streams else "world")
    for source, target in (("us", "eu"), ("eu", "us")):
        world.write(source, 20, 40) if streams else world.write(source, 0, 20)
        crash.arm(f"{point.value}:raise")
        with pytest.raises(InjectedCrash):
            world.replicate(target)
        crash.arm(None)
        world.replicate(target)
        assert world.log(target).read().where(f"origin = '{source}'").count() == (40 if streams else 20)
    world.assert_clean()


@pytest.mark.parametrize("source", ["us", "eu"])
def test_a_replayed_batch_of_a_link_adds_nothing(linked: World, source: str) -> None:
    target = "eu" if source == "us" else "us"
    linked.write(source, 20, 40)
    linked.replicate(target)
    newest = linked.checkpoint_commits(target, "replicate")[-1]
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    before = linked.log(target).latest_version()
    linked.replicate(target)
    assert linked.log(target).latest_version() == before, "the replayed batch must not commit"
    linked.assert_clean()
