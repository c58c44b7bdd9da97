"""A link's life: what heals by the normal start, and what stops it loudly with the exact range and the resolving verb."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from geo import crash
from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.ops.verify.report import Category
from geo.replication.link_target import newest_commit
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from tests.running import running
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def test_idle_linked_clusters_stay_at_the_same_versions(linked: World) -> None:
    before = linked.versions()
    for _ in range(2):
        linked.run_links("eu", "us")
    assert linked.versions() == before


def test_a_batch_with_nothing_to_replicate_makes_no_commit(linked: World) -> None:
    before = linked.log("eu").latest_version()
    local_only = linked.rows(0, 5).withColumn("replicate_to", F.array().cast("array<string>"))
    from geo.log.publish import publish

    publish(local_only, TOPIC, linked.config, "us", producer="local", order_by="number")
    (report,) = linked.replicate("eu")
    assert (report.state, report.replicated) == (State.STOPPED, 0)
    assert report.source_version == linked.log("us").latest_version(), "the batch was read"
    assert linked.log("eu").latest_version() == before
    linked.assert_clean()


def test_a_late_joining_third_cluster_gets_everything(linked: World) -> None:
    linked.rewrite(("eu", "us", "ap"))
    linked.publish("ap", 5)
    for target in ("ap", "eu", "us"):
        reports = linked.replicate(target)
        assert {report.state for report in reports} == {State.STOPPED}
    linked.assert_clean()
    assert linked.log("ap").read().groupBy("origin").count().count() == 3


def test_a_query_that_somebody_stops_again_and_again_doubles_nothing(linked: World) -> None:
    """As a notebook does: `for query in spark.streams.active: query.stop()`, at the append of a batch and at any time in turn."""
    streams, at_append, pauses = linked.spark.streams, threading.Event(), random.Random(11)

    def reach(point: CrashPoint) -> None:
        if point is CrashPoint.LINK_BEFORE_APPEND:
            at_append.set()

    with crash.watched(reach), running(linked, "eu", queries=True) as links:
        for number in range(20, 26):
            links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)  # its turns are over: what comes now, a query brings
            at_append.clear()
            linked.write("us", number, number + 1)
            if number % 2:
                links.until(at_append.is_set)
            else:
                links.until(lambda number=number: streams.active or len(linked.arrived("eu")) > number)  # type: ignore[misc, arg-type]
                time.sleep(pauses.uniform(0, 0.8))
            for query in streams.active:
                query.stop()
        links.until(lambda: len(linked.arrived("eu")) >= 26)
    linked.settle("us")


def test_start_latest_begins_after_what_was_there(world: World) -> None:
    world.write("us", 0, 20)
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "start": "latest"}])
    world.replicate("eu")
    assert world.log("eu").exists()
    assert world.count("eu") == 0
    world.write("us", 20, 30)
    world.replicate("eu")
    assert world.log("eu").read().agg(F.min("entry_id"), F.max("entry_id")).collect()[0][:] == (20, 29)
    (done,) = reconcile_links(world.spark, world.config, "us", "eu")
    assert (done.appended, world.count("eu")) == (0, 10), "a reconcile obeys the floors"
    world.assert_clean()


def test_a_target_restored_to_an_older_version_is_filled_again(linked: World) -> None:
    linked.write("us", 20, 30)
    before = linked.log("eu").latest_version()
    linked.replicate("eu")
    linked.log("eu").delta().restoreToVersion(before)
    assert linked.brought("eu") == (State.STOPPED, 10)
    newest = newest_commit(linked.log("eu"), "this test")
    assert linked.link_state("eu", "us").target == newest, "the RESTORE is behind it: no further start compares because of it"
    linked.assert_clean()


def test_a_source_that_was_dropped_and_created_again_fails_the_link(linked: World) -> None:
    shutil.rmtree(linked.log("us").name)
    shutil.rmtree(Path(linked.config.cluster("us").checkpoints))
    linked.publish("us", 7, producer="new")
    before = linked.log("eu").latest_version()
    state, reason = linked.ended("eu")
    ledger = linked.log("eu").read().where("origin = 'us'").select("ledger_id").first()
    assert state is State.FAILED
    assert "dropped and created again" in reason
    assert ledger is not None
    assert f"us:{ledger[0]}:0-19" in reason, "the exact range that is gone"
    assert f"geo reconcile --source us --target eu --topic {TOPIC}" in reason
    assert linked.log("eu").latest_version() == before, "nothing was skipped or written"
    assert linked.link_state("eu", "us").state is State.FAILED
    (done,) = reconcile_links(linked.spark, linked.config, "us", "eu", topics=str(TOPIC))
    assert done.appended == 7
    linked.publish("us", 9, producer="new")
    assert linked.brought("eu") == (State.STOPPED, 2)


def test_a_source_restored_to_an_older_version_fails_the_link(linked: World) -> None:
    back_to = linked.log("us").latest_version()
    linked.publish("us", 10)
    linked.replicate("eu")
    linked.log("us").delta().restoreToVersion(back_to)
    reason = linked.fails("eu", f"versions {back_to + 1}-{back_to + 2} of us")
    assert ":0-9" in reason, "the messages that the target has and the source lost"
    assert linked.publish("us", 15).rows == 5, "what was published is not published again"
    assert linked.ended("eu")[0] is State.FAILED, "it stays failed until somebody decides"
    reconcile_links(linked.spark, linked.config, "us", "eu", topics=str(TOPIC))
    assert linked.ended("eu")[0] is State.STOPPED
    ends = linked.log("eu").read().where("producer = 'p'").groupBy("ledger_id").agg(F.max("entry_id").alias("end"))
    assert sorted(row["end"] for row in ends.collect()) == [4, 9], "a new ledger: no id is used for other data"


def test_an_update_of_the_source_fails_the_link_with_its_version(linked: World) -> None:
    linked.log("us").delta().update("origin = 'us' AND entry_id = 3", {"key": F.lit("changed")})
    changed = linked.log("us").latest_version()
    linked.write("us", 20, 30)
    linked.fails("eu", "UPDATE by someone", f"version {changed} of us")
    assert len(linked.arrived("eu")) == 20, "nothing after the change was read"
    (dry,) = reconcile_links(linked.spark, linked.config, "us", "eu", dry_run=True)
    assert (dry.missing, dry.appended) == (10, 0)
    reconcile_links(linked.spark, linked.config, "us", "eu")
    assert linked.ended("eu")[0] is State.STOPPED
    report = linked.verify()
    assert (report.total(Category.MISSING), report.total(Category.DIFFERENT)) == (0, 1), "verify tells the changed message"


# -- a source cleaned below the link's position --------------------------------------------------------------------------


@pytest.mark.parametrize("files", [True, False], ids=["files", "commits"])
def test_what_was_cleaned_up_before_it_was_read_is_no_loss_if_the_rows_are_there(linked: World, files: bool) -> None:
    for number in range(20, 24):
        linked.write("us", number, number + 1)
    if files:
        _vacuum(linked, linked.log("us").delta().optimize().executeCompaction)
    else:
        linked.clean_up("us")
    assert linked.brought("eu") == (State.STOPPED, 4)
    linked.write("us", 24, 30)
    assert linked.ended("eu")[0] is State.STOPPED
    linked.assert_clean()


@pytest.mark.parametrize("ttl", [None, "7 days"])
def test_messages_deleted_and_vacuumed_before_they_were_read_fail_the_link_with_their_range(
    linked: World, ttl: str | None
) -> None:
    linked.rewrite(("eu", "us"), ttl=ttl)
    rows = linked.entries("us", 20, 25).withColumn("publish_date", F.expr("publish_date - 1"))
    append_frame(linked.log("us"), rows)
    linked.write("us", 25, 30)
    _vacuum(linked, lambda: linked.log("us").delta().delete("publish_date < current_date()"))
    linked.fails("eu", "us:1:20-24", "geo reconcile")
    assert len(linked.arrived("eu")) == 20
    reconcile_links(linked.spark, linked.config, "us", "eu")
    assert linked.ended("eu")[0] is State.STOPPED
    assert len(linked.arrived("eu")) == 25


def _vacuum(world: World, action: Callable[[], object]) -> None:
    """Do it, and remove at once every file that the newest version does not need."""
    action()
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    world.spark.conf.set(key, "false")
    try:
        world.log("us").delta().vacuum(0)
    finally:
        world.spark.conf.unset(key)
