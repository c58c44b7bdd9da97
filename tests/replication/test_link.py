"""A link's life: what heals by the normal start, and what stops it loudly with the exact range and the resolving verb."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from geo.errors import AlreadyOwnedError
from geo.log.ownership import claim
from geo.ops.verify_result import Category
from geo.replication.replicate import reconcile_links
from geo.replication.state import State
from tests.world import TOPIC, World

pytestmark = [pytest.mark.spark, pytest.mark.long]


def _linked(world: World) -> World:
    """Both clusters have published and hold each other's messages."""
    for source, target in (("us", "eu"), ("eu", "us")):
        world.write(source, 20)
        world.replicate(target)
    return world


def _only_report(world: World, target: str) -> tuple[State, str]:
    (report,) = world.replicate(target)
    return report.state, report.reason or ""


def test_idle_linked_clusters_stay_at_the_same_versions(world: World) -> None:
    _linked(world)
    before = world.versions()
    for _ in range(2):
        for target in ("eu", "us"):
            world.replicate(target)
    assert world.versions() == before


def test_a_batch_with_nothing_to_replicate_makes_no_commit(world: World) -> None:
    _linked(world)
    before = world.log("eu").latest_version()
    local_only = world.rows(0, 5).withColumn("replicate_to", F.array().cast("array<string>"))
    from geo.log.publish import publish

    publish(local_only, TOPIC, config=world.config, cluster="us", producer="local", order_by="number")
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated) == (State.STOPPED, 0)
    assert report.source_version == world.log("us").latest_version(), "the batch was read"
    assert world.log("eu").latest_version() == before
    world.assert_clean()


def test_a_lost_checkpoint_heals(world: World) -> None:
    _linked(world)
    world.write("us", 30)
    shutil.rmtree(Path(world.config.cluster("eu").checkpoints) / "replicate")
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated) == (State.STOPPED, 10)
    world.write("us", 40)
    world.replicate("eu")
    world.assert_clean()


def test_an_older_checkpoint_put_back_heals(world: World) -> None:
    _linked(world)
    checkpoints = Path(world.config.cluster("eu").checkpoints) / "replicate"
    old = world.folder / "old"
    shutil.copytree(checkpoints, old)
    for end in (30, 40, 50):
        world.write("us", end)
        world.replicate("eu")
    shutil.rmtree(checkpoints)
    shutil.copytree(old, checkpoints)
    world.write("us", 60)
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated) == (State.STOPPED, 10)
    world.write("us", 70)
    world.replicate("eu")
    world.replicate("us")
    world.assert_clean()


def test_a_late_joining_third_cluster_gets_everything(world: World) -> None:
    _linked(world)
    world.rewrite(("eu", "us", "ap"))
    world.publish("ap", 5)
    for target in ("ap", "eu", "us"):
        reports = world.replicate(target)
        assert {report.state for report in reports} == {State.STOPPED}
    world.assert_clean()
    assert world.log("ap").read().groupBy("origin").count().count() == 3


def test_start_latest_begins_after_what_was_there(world: World) -> None:
    world.write("us", 20)
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "start": "latest"}])
    world.replicate("eu")
    assert world.log("eu").read().count() == 0
    world.write("us", 30)
    world.replicate("eu")
    assert world.log("eu").read().agg(F.min("entry_id"), F.max("entry_id")).collect()[0][:] == (20, 29)
    shutil.rmtree(Path(world.config.cluster("eu").checkpoints) / "replicate")
    world.replicate("eu")
    assert world.log("eu").read().count() == 10, "a reconcile obeys the floors"
    world.assert_clean()


def test_a_target_restored_to_an_older_version_is_filled_again(world: World) -> None:
    _linked(world)
    world.write("us", 30)
    before = world.log("eu").latest_version()
    world.replicate("eu")
    world.log("eu").delta().restoreToVersion(before)
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated) == (State.STOPPED, 10)
    world.assert_clean()


def test_a_source_that_was_dropped_and_created_again_fails_the_link(world: World) -> None:
    _linked(world)
    shutil.rmtree(world.log("us").name)
    shutil.rmtree(Path(world.config.cluster("us").checkpoints))
    world.publish("us", 7, producer="new")
    before = world.log("eu").latest_version()
    state, reason = _only_report(world, "eu")
    ledger = world.log("eu").read().where("origin = 'us'").select("ledger_id").first()
    assert state is State.FAILED
    assert "dropped and created again" in reason
    assert ledger is not None
    assert f"us:{ledger[0]}:0-19" in reason, "the exact range that is gone"
    assert f"geo reconcile --source us --target eu --topic {TOPIC}" in reason
    assert world.log("eu").latest_version() == before, "nothing was skipped or written"
    assert world.link_state("eu", "us").state is State.FAILED
    (done,) = reconcile_links(world.spark, world.config, "us", "eu", topics=str(TOPIC))
    assert done.appended == 7
    world.publish("us", 9, producer="new")
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated) == (State.STOPPED, 2)


def test_a_source_restored_to_an_older_version_fails_the_link(world: World) -> None:
    _linked(world)
    back_to = world.log("us").latest_version()
    world.publish("us", 10)
    world.replicate("eu")
    world.log("us").delta().restoreToVersion(back_to)
    state, reason = _only_report(world, "eu")
    assert state is State.FAILED
    assert f"versions {back_to + 1}-{back_to + 2} of us" in reason
    assert ":0-9" in reason, "the messages that the target has and the source lost"
    assert world.publish("us", 15).rows == 5, "what was published is not published again"
    assert _only_report(world, "eu")[0] is State.FAILED, "it stays failed until somebody decides"
    reconcile_links(world.spark, world.config, "us", "eu", topics=str(TOPIC))
    assert _only_report(world, "eu")[0] is State.STOPPED
    ends = world.log("eu").read().where("producer = 'p'").groupBy("ledger_id").agg(F.max("entry_id").alias("end"))
    assert sorted(row["end"] for row in ends.collect()) == [4, 9], "a new ledger: no id is used for other data"


def test_an_older_copy_of_the_source_that_grew_again_fails_the_link(world: World) -> None:
    _linked(world)
    copy = world.folder / "copy"
    log = Path(world.log("us").name)
    shutil.copytree(log, copy)
    world.write("us", 30)
    world.replicate("eu")
    shutil.rmtree(log)
    shutil.copytree(copy, log)
    world.publish("us", 5, producer="other")
    world.publish("us", 6, producer="other")
    assert world.log("us").latest_version() >= world.link_state("eu", "us").source_version
    state, reason = _only_report(world, "eu")
    assert state is State.FAILED
    assert ":20-29" in reason


def test_an_update_of_the_source_fails_the_link_with_its_version(world: World) -> None:
    _linked(world)
    world.log("us").delta().update("entry_id = 3", {"key": F.lit("changed")})
    changed = world.log("us").latest_version()
    world.write("us", 30)
    state, reason = _only_report(world, "eu")
    assert state is State.FAILED
    assert "UPDATE by someone" in reason
    assert f"version {changed} of us" in reason
    assert world.log("eu").read().where("origin = 'us'").count() == 20, "nothing after the change was read"
    (dry,) = reconcile_links(world.spark, world.config, "us", "eu", dry_run=True)
    assert (dry.missing, dry.appended) == (10, 0)
    reconcile_links(world.spark, world.config, "us", "eu")
    assert _only_report(world, "eu")[0] is State.STOPPED
    report = world.verify()
    assert (report.total(Category.MISSING), report.total(Category.DIFFERENT)) == (0, 1), "verify tells the changed message"


def test_one_failed_topic_does_not_stop_another(world: World) -> None:
    from geo.log.names import Topic
    from geo.log.publish import publish

    _linked(world)
    other = Topic.parse("persistent://shop/web/orders")
    publish(world.rows(0, 10), other, config=world.config, cluster="us", producer="p", order_by="number")
    world.log("us").delta().update("entry_id = 3", {"key": F.lit("changed")})
    states = {report.topic: report.state for report in world.replicate("eu")}
    assert states == {str(TOPIC): State.FAILED, str(other): State.STOPPED}
    assert world.log("eu", other).read().count() == 10


def test_a_second_runner_of_a_link_is_refused_by_name(world: World) -> None:
    from geo.replication.link import TopicLink

    _linked(world)
    link = TopicLink(world.tables("eu"), world.tables("us"), world.config, world.config.link("us", "eu"), TOPIC)
    (ownership,) = claim(world.tables("eu"), [link.runner])
    try:
        with pytest.raises(AlreadyOwnedError, match="already run by process"):
            world.replicate("eu")
    finally:
        ownership.release()
    assert _only_report(world, "eu")[0] is State.STOPPED


def test_columns_added_to_a_typed_topic_reach_the_target(world: World) -> None:
    from geo.log.publish import publish

    rows = world.spark.range(5).selectExpr("id", "cast(id * 2 AS int) AS seats")
    publish(rows, TOPIC, config=world.config, cluster="us", order_by="id")
    world.replicate("eu")
    source = world.log("us")
    world.spark.sql(f"ALTER TABLE {source.sql} ADD COLUMNS (gate STRING)")
    more = world.spark.range(8).selectExpr("id", "cast(id * 2 AS int) AS seats", "concat('G', id) AS gate")
    publish(more, TOPIC, config=world.config, cluster="us", order_by="id")
    assert _only_report(world, "eu")[0] is State.STOPPED
    assert [r["gate"] for r in world.log("eu").read().orderBy("entry_id").collect()] == [None] * 5 + ["G5", "G6", "G7"]
    world.assert_clean()
