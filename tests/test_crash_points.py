"""Exactly once through every named crash point.

Each point is met by an injected stop in a world of two clusters that replicate both ways; then everything is simply
started again and the logs are compared. Publishers go through their points one after the other in one world.
`test_every_point_is_exercised` holds the list and the tests together.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.coordination.owners import owned_now
from geo.crash import CrashPoint
from geo.delta.commits import Kind
from geo.testing import crash_points, dies_at
from tests.world import World

pytestmark = pytest.mark.spark

PUBLISH_POINTS, LINK_POINTS = crash_points("claim-", "publish-", "topic-"), crash_points("claim-", "link-")
CONSUME_POINTS, SINK_POINTS, FOLD_POINTS = crash_points("consume-", "acks-"), crash_points("sink-"), crash_points("fold-")
SYNC_POINTS, CHANGE_POINTS = crash_points("markers-", "controllers-"), crash_points("change-")

ELSEWHERE = {
    ("erase-", "rebuild-"): "replication/test_repair.py",
    ("backfill-",): "fleet/test_backfill.py",
    ("consume-", "acks-"): "subscription/consumer/test_consumer.py",
    ("delete-", "folder-"): "ops/test_delete_topic.py",
    ("remove-",): "ops/test_remove_cluster.py",
    ("sink-",): "subscription/test_sink.py",
    ("fold-",): "subscription/acks/test_folding.py",
    ("markers-", "controllers-"): "subscription/pip33/test_version_sync.py",
    ("placement-",): "fleet/test_member.py",
    ("append-", "commit-"): "delta/test_writer.py",
    ("change-",): "ops/test_erase.py",
    ("table-",): "delta/test_create.py",
    ("events-",): "journal/test_events.py",
    ("columns-",): "log/sources/test_table.py",
}
"""By how the others' names begin, where they are met."""


def test_every_point_is_exercised() -> None:
    elsewhere = [point for begins in ELSEWHERE for point in crash_points(*begins)]
    assert {*PUBLISH_POINTS, *LINK_POINTS, *elsewhere} == set(CrashPoint)
    assert all((Path(__file__).parent / name).exists() for name in ELSEWHERE.values())


@pytest.fixture(scope="module")
def one_world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Where each point has a producer of its own."""
    return World(tmp_path_factory.mktemp("one-world"), spark=spark)


@pytest.mark.parametrize("point", PUBLISH_POINTS, ids=lambda p: p.value)
def test_a_publish_that_stops_here_goes_on_where_it_was(request: pytest.FixtureRequest, point: CrashPoint) -> None:
    makes_topic = point.value.startswith("topic-")
    world: World = request.getfixturevalue("world" if makes_topic else "one_world")
    producer = point.value
    with dies_at(point):
        world.publish("eu", 30, producer=producer)
    world.publish("eu", 40, producer=producer)
    published = {one: row for one, row in world.messages("eu").items() if row["producer"] == producer}
    assert sorted(entry for _, _, entry in published) == list(range(40))
    assert len({ledger for _, ledger, _ in published}) == 1, "the same ledger goes on"
    assert len({row["key"] for row in published.values()}) == 40
    assert world.publish("eu", 40, producer=producer).rows == 0, "complete: nothing is added"
    world.replicate("us")
    world.assert_clean()


@pytest.mark.parametrize("point", LINK_POINTS, ids=lambda p: p.value)
def test_a_link_that_stops_here_replicates_everything_once_after_a_restart(
    request: pytest.FixtureRequest, point: CrashPoint
) -> None:
    """Twice where a run brings what is new, so that the stop meets the append's own cursor too."""
    turns = point in (CrashPoint.LINK_BEFORE_APPEND, CrashPoint.LINK_AFTER_APPEND, CrashPoint.LINK_START_RECORDED)
    world: World = request.getfixturevalue("linked" if turns else "world")
    world.write("us", 20, 40) if turns else world.write("us", 0, 20)
    if point is CrashPoint.LINK_START_RECORDED:
        # A start records its cursor if its commits are ahead of its row: when the last run died behind an append.
        _stopped(world, CrashPoint.LINK_AFTER_APPEND)
    _stopped(world, point)
    if turns:
        world.write("us", 40, 60)
    world.replicate("eu")
    assert sorted(entry for origin, _, entry in world.messages("eu") if origin == "us") == list(range(60 if turns else 20))
    world.replicate("us")
    world.assert_clean()
    assert owned_now(world.tables("eu")) == [], "nor does a comparison seem to be under way"


def _stopped(world: World, point: CrashPoint) -> None:
    with dies_at(point):
        world.replicate("eu")


def test_what_landed_before_a_stop_is_told_by_its_own_commit_and_not_appended_again(linked: World) -> None:
    linked.write("us", 20, 40)
    _stopped(linked, CrashPoint.LINK_AFTER_APPEND)
    before = linked.log("eu").latest_version()
    (report,) = linked.replicate("eu")
    assert report.replicated == 0
    behind = linked.log("eu").commits(before + 1, linked.log("eu").latest_version())
    # Where no lock keeps processes apart the next claim fences, which is a commit without rows.
    assert {commit.kind for commit in behind} <= (set() if linked.tables("eu").lock_folder else {Kind.NEUTRAL})
    linked.assert_clean()
