"""Removing a cluster: what hangs on it in all others goes, what they hold of it stays, and it may come again."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.crash import CrashPoint
from geo.errors import UnsafeError, UsageError
from geo.log.topic_policies import replication_clusters, set_replication_clusters
from geo.ops.remove_cluster import RemovedCluster, remove_cluster
from geo.replication.link_requests import Action
from geo.replication.link_table import read_links
from geo.replication.request_table import ask
from geo.schemas import REQUESTS, VERSION_STARTS
from geo.streams.life import State
from geo.testing import crash_points, dies_at
from tests.running import running
from tests.version_starts import found_start
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def _three_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("three"), ("eu", "us", "ap"), spark=spark)
    world.write("ap", 0, 10)
    world.write("eu", 0, 10)
    for name in ("us", "ap", "eu"):
        world.replicate(name)
    world.write("ap", 10, 15)
    world.replicate("eu", source="ap")
    return world


@pytest.fixture
def three(_three_once: World, tmp_path: Path) -> World:
    """eu, us and ap, each linked with each; of 15 messages of ap eu has all and us 10, of 10 of eu all have all."""
    return _three_once.copy(tmp_path)


def _remove(world: World, name: str = "ap", *, lose: bool = False, dry_run: bool = False) -> RemovedCluster:
    return remove_cluster(world.spark, world.config, name, lose=lose, dry_run=dry_run)


def _links(world: World) -> set[tuple[str, str]]:
    return {(source, target) for target in ("eu", "us") for source, _ in read_links(world.tables(target))}


def test_what_hangs_on_a_cluster_goes_in_all_others_and_its_messages_stay(three: World) -> None:
    world = three
    eu, us = world.tables("eu"), world.tables("us")
    ask(us, "ap", "persistent://shop/*/*", Action.PAUSE)
    ask(us, "ap", str(TOPIC), Action.RESTART)
    ask(us, "eu", "persistent://shop/*/*", Action.RESUME)
    set_replication_clusters(eu, world.config, TOPIC, ("eu", "us", "ap"))
    found_start(world, "us", "reports", "ap", 3)
    found_start(world, "us", "reports", "us", 2, sender="ap")

    dry = _remove(world, dry_run=True)
    assert (dry.refused, dry.unread) == ((), None)
    (topic,) = dry.topics
    assert topic.only is not None
    assert (topic.only.messages, topic.lacking) == (0, {"us": 5})
    found = {one.cluster: one for one in dry.others}
    assert (found["us"].links, found["us"].requests, found["us"].pauses, found["us"].policies) == ((str(TOPIC),), 1, 1, ())
    assert (found["eu"].links, found["eu"].requests, found["eu"].policies) == ((str(TOPIC),), 0, (str(TOPIC),))
    assert _links(world) == set(itertools.permutations(("eu", "us"), 2)) | {("ap", "eu"), ("ap", "us")}

    held = {name: world.messages(name).keys() for name in ("eu", "us", "ap")}
    _remove(world)
    assert _links(world) == set(itertools.permutations(("eu", "us"), 2))
    assert {(row["source"], row["action"]) for row in us.journal(REQUESTS).newest()} == {("ap", "pause"), ("eu", "resume")}
    assert [(row["cluster"], row["sender"]) for row in us.journal(VERSION_STARTS).newest()] == [("us", "ap")], (
        "what it told of others is right as long as its messages are there"
    )
    assert [report.state for report in world.replicate("us", source="ap")] == [State.PAUSED], (
        "who still has the link does not begin it anew"
    )
    assert _links(world) == set(itertools.permutations(("eu", "us"), 2))
    assert replication_clusters(eu, TOPIC) == ("eu", "us")
    assert {name: world.messages(name).keys() for name in ("eu", "us", "ap")} == held
    again = _remove(world)
    assert [(one.links, one.requests, one.policies, one.stays) for one in again.others] == [((), 0, (), None)] * 2

    world.rewrite(("eu", "us"), [("us", "eu"), {"source": "eu", "target": "us", "origins": "[eu]"}])
    world.write("eu", 10, 20)
    assert {r.state for name in ("eu", "us") for r in world.replicate(name)} == {State.STOPPED}
    assert len(world.messages("us")) == 30
    report = world.verify()
    assert report.clean
    assert f"{TOPIC}: ap reached us once and no longer does: what came from there is not compared" in report.notes
    assert {one.cluster: (one.requests, one.pauses) for one in _remove(world).others} == {"eu": (0, 0), "us": (1, 0)}
    with pytest.raises(UsageError, match="cluster 'ap' is unknown"):
        _remove(world)

    world.rewrite(("eu", "us", "ap"))
    set_replication_clusters(eu, world.config, TOPIC, None)
    for name in ("eu", "us", "ap"):
        world.replicate(name)
    world.assert_clean()


def test_what_only_the_cluster_has_is_not_given_up_unless_that_was_said(three: World) -> None:
    three.write("ap", 15, 20)
    with pytest.raises(UnsafeError, match=r"5 of them in no other cluster \(ap:1:15-19\)") as refused:
        _remove(three)
    assert str(refused.value).endswith("Nothing was removed.")
    assert ("ap", "eu") in _links(three)
    assert [one.only.messages for one in _remove(three, lose=True).topics if one.only is not None] == [5]
    assert ("ap", "eu") not in _links(three)


def test_a_cluster_that_is_away_for_good_is_removed_once_somebody_says_so(three: World) -> None:
    shutil.rmtree(three.folder / "ap")
    with pytest.raises(UnsafeError, match=r"what only ap has is not known, since it cannot be read: .*ap is not there"):
        _remove(three)
    done = _remove(three, lose=True)
    assert "is not there" in (done.unread or "")
    (topic,) = done.topics
    assert (topic.topic, topic.only, topic.lacking) == (str(TOPIC), None, {"us": 5})
    assert _links(three) == set(itertools.permutations(("eu", "us"), 2))
    assert _remove(three).refused == (), "nothing hangs on it any more"


def test_a_cluster_that_left_the_configuration_is_removed_and_one_that_is_away_later(three: World) -> None:
    three.rewrite(("eu", "us"))
    (three.folder / "us").rename(three.folder / "elsewhere")
    (three.folder / "us").write_text("no folder")
    with pytest.raises(UnsafeError, match="does not say any more where it is"):
        _remove(three)
    done = {one.cluster: one for one in _remove(three, lose=True).others}
    assert "is not a folder" in (done["us"].away or "")
    assert done["eu"].links == (str(TOPIC),)
    (three.folder / "us").unlink()
    (three.folder / "elsewhere").rename(three.folder / "us")
    assert _links(three) == {("ap", "us"), ("eu", "us"), ("us", "eu")}
    _remove(three, lose=True)
    assert _links(three) == {("eu", "us"), ("us", "eu")}


def test_a_policy_that_also_names_one_that_left_the_configuration_is_no_hindrance(three: World) -> None:
    three.rewrite(("eu", "us", "ap", "zz"))
    set_replication_clusters(three.tables("eu"), three.config, TOPIC, ("eu", "us", "ap", "zz"))
    three.rewrite(("eu", "us", "ap"))
    _remove(three)
    assert replication_clusters(three.tables("eu"), TOPIC) == ("eu", "us", "zz")
    with pytest.raises(UsageError, match="cluster 'ap2' is unknown"):
        set_replication_clusters(three.tables("eu"), three.config, TOPIC, ("eu", "us", "zz", "ap2"))


def test_a_link_that_lives_is_named_and_nothing_is_removed(three: World) -> None:
    with running(three, "eu") as links:
        links.until(lambda: sum(report.state is State.RUNNING for report in links.reports) == 2)
        assert _remove(three, dry_run=True).refused[0].startswith(f"origin ap of {TOPIC} into eu: already run by this process")
        with pytest.raises(UnsafeError, match="Nothing was removed"):
            _remove(three, lose=True)
    assert {("ap", "eu"), ("ap", "us")} < _links(three)


@pytest.mark.parametrize("point", crash_points("remove-"), ids=lambda p: p.value)
def test_a_removal_that_stops_here_is_ended_by_another_one(three: World, point: CrashPoint) -> None:
    for name in ("eu", "us"):
        ask(three.tables(name), "ap", "persistent://shop/*/*", Action.RESTART)
    with dies_at(point, 2):
        _remove(three)
    assert [one for one in _remove(three).others if one.cluster == "eu" and (one.links or one.requests)] == []
    assert _links(three) == set(itertools.permutations(("eu", "us"), 2))
    assert [row for name in ("eu", "us") for row in three.tables(name).journal(REQUESTS).newest()] == []
    for name in ("eu", "us"):
        three.replicate(name)
    three.assert_clean()
