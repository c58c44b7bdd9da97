"""PIP-33 on real tables: where a consumer of versions may go on in another cluster, and that each marker is written once."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo import crash
from geo.crash import InjectedCrash
from geo.subscription.marker_tail import out_of_order
from geo.subscription.version_starts import VersionStart, read_starts
from geo.subscription.version_subscriptions import create, finish
from geo.subscription.version_sync import VersionSync
from tests.test_crash_points import SYNC_POINTS
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

NAME = "reports"


@pytest.fixture
def synced(linked: World) -> World:
    """Two regions whose consumer in us has finished all that is there; snapshots as often as can be."""
    linked.path.write_text(linked.path.read_text() + "snapshots: {frequency: 1 seconds}\n")
    linked.reload()
    create(linked.tables("us"), TOPIC, NAME)
    return linked


def sync(world: World, *clusters: str) -> None:
    """A pass of these clusters' version syncs: of the tail, and of the controllers over what it has told by then."""
    for cluster in clusters or world.config.clusters:
        VersionSync(world.spark, world.config, cluster).run()


def settle(world: World) -> None:
    """Passes of links and version syncs until nothing comes any more."""
    for _ in range(20):
        before = world.versions()
        for cluster in world.config.clusters:
            world.replicate(cluster)
            sync(world, cluster)
            sync(world, cluster)  # its controllers hear what its tail has told
        if world.versions() == before:
            return
    raise AssertionError(f"markers without an end: {world.versions()}")


def finish_all(world: World, cluster: str) -> int:
    version = world.log(cluster).latest_version()
    finish(world.tables(cluster), TOPIC, NAME, version)
    return version


def start(world: World, cluster: str, told_in: str) -> VersionStart:
    """Where one may start in a cluster, by what another one says."""
    return read_starts(world.tables(told_in), TOPIC).starts[NAME, cluster]


def markers(world: World, cluster: str) -> DataFrame:
    return world.log(cluster).read().where("marker IS NOT NULL")


def ids(rows: DataFrame) -> set[tuple[str, int, int]]:
    return {(row[0], row[1], row[2]) for row in rows.where("marker IS NULL").select("origin", "ledger_id", "entry_id").collect()}


def test_whoever_goes_on_at_the_version_misses_nothing_that_was_routed_to_both(synced: World) -> None:
    settle(synced)
    synced.write("eu", 20, 30)
    synced.replicate("us")
    settle(synced)
    finished = finish_all(synced, "us")
    seen = ids(synced.log("us").read(finished))
    settle(synced)
    found = start(synced, "eu", "us")
    assert start(synced, "eu", "eu") == VersionStart(NAME, "eu", found.start, found.snapshot_id, found.taken_at, "us"), (
        "by an update"
    )
    synced.write("us", 20, 25)
    synced.replicate("eu")
    rest = ids(synced.log("eu").read_added(found.start, synced.log("eu").latest_version()))
    assert seen | rest == ids(synced.log("eu").read()) == {(origin, 1, entry) for origin in ("eu", "us") for entry in
                                                          range(30 if origin == "eu" else 25)}  # fmt: skip
    assert len(seen & rest) <= 10, "at most what came in the last snapshot interval"


def test_a_topic_at_rest_gets_no_marker_and_one_without_version_subscriptions_none_at_all(linked: World, synced: World) -> None:
    settle(synced)
    before = synced.versions()
    settle(synced)
    assert synced.versions() == before
    counts = Counter(row["marker"] for row in markers(synced, "us").collect())
    assert counts["SNAPSHOT"] == 1
    assert counts["SNAPSHOT_REQUEST"] == 1
    assert markers(synced, "eu").where("origin = 'eu'").count() == 1, "the answer"
    assert synced.verify().clean


def test_each_marker_is_written_once_whatever_stops_and_the_state_is_built_anew(synced: World) -> None:
    """One world, all crash points in a chain; then the query's state is lost."""
    for at, point in enumerate(SYNC_POINTS):
        synced.write("us", 20 + at, 21 + at)
        finish_all(synced, "us")
        crash.arm(f"{point.value}:raise")
        with pytest.raises(InjectedCrash):
            for _ in range(3):
                sync(synced, "us")
        crash.arm(None)
        sync(synced)
        synced.replicate("eu")
        sync(synced)
        synced.replicate("us")
    settle(synced)
    finish_all(synced, "us")
    settle(synced)
    known = start(synced, "eu", "us")
    for cluster in ("us", "eu"):
        shutil.rmtree(Path(synced.tables(cluster).checkpoint("markers")))
    before = synced.versions()
    settle(synced)
    assert synced.versions() == before, "what was written before is not written again"
    assert start(synced, "eu", "us") == known
    for cluster in ("us", "eu"):
        own = markers(synced, cluster).where(F.col("origin") == cluster).select("marker", "payload").collect()
        twice = [one for one, count in Counter((row[0], bytes(row[1])) for row in own).items() if count > 1]
        assert twice == []
    assert synced.verify().clean


def test_a_comparison_of_both_logs_is_out_of_order_and_makes_snapshots_void(linked: World) -> None:
    log = linked.log("eu")
    found = [out_of_order(commit) for commit in log.commits(0, log.latest_version())]
    assert "comparison of us->eu" in found
    linked.write("us", 20, 21)
    linked.replicate("eu")
    (newest,) = log.commits(log.latest_version(), log.latest_version())
    assert out_of_order(newest) is None
