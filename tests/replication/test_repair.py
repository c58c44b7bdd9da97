"""Resetting, erasing and rebuilding: what operators do to a link and a region, and that all ends clean."""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo import crash
from geo.crash import CrashPoint
from geo.errors import AlreadyOwnedError, RetryableError, UsageError
from geo.fleet.broker import Broker
from geo.log.publisher import Publisher
from geo.ops.erase import erase
from geo.ops.verify.report import Category
from geo.replication.rebuild import rebuild
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from geo.testing import dies_at
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


# -- reset ---------------------------------------------------------------------------------------------------------------


def test_a_link_is_reset_to_latest_to_a_time_and_back_to_earliest(world: World) -> None:
    world.write("us", 0, 10)
    between = datetime.now(timezone.utc)
    world.write("us", 10, 20)
    (dry,) = reconcile_links(world.spark, world.config, "us", "eu", start=between, dry_run=True)
    assert (dry.missing, dry.appended) == (10, 0)
    assert not world.log("eu").exists()

    reconcile_links(world.spark, world.config, "us", "eu", start="latest")
    world.write("us", 20, 25)
    assert world.ended("eu")[0] is State.STOPPED
    assert world.arrived("eu") == list(range(20, 25))
    world.assert_clean()

    (done,) = reconcile_links(world.spark, world.config, "us", "eu", start=between)
    assert done.appended == 10
    assert world.arrived("eu") == list(range(10, 25))
    world.assert_clean()

    reconcile_links(world.spark, world.config, "us", "eu", start="earliest")
    world.write("us", 25, 30)
    assert world.ended("eu")[0] is State.STOPPED
    assert world.arrived("eu") == list(range(30))
    world.assert_clean()


# -- erase ---------------------------------------------------------------------------------------------------------------


def test_an_erased_message_is_empty_and_the_links_go_on(linked: World) -> None:
    world = linked
    with pytest.raises(UsageError, match="is no condition on"):
        erase(world.spark, world.config, "us", TOPIC, "colour = 'red'")
    assert erase(world.spark, world.config, "us", TOPIC, "key = 'k7'", dry_run=True).messages == 2
    with dies_at(CrashPoint.ERASE_UPDATED):
        erase(world.spark, world.config, "us", TOPIC, "key = 'k7'")
    world.write("us", 20, 30)
    assert erase(world.spark, world.config, "us", TOPIC, "key IN ('k7', 'k25')").messages == 1, (
        "what is erased is not erased again"
    )
    emptied = world.log("us").read().where("entry_id IN (7, 25) AND origin = 'us'").collect()
    assert [(row["key"], row["payload"]) for row in emptied] == [(None, None)] * 2
    assert world.ended("eu")[0] is State.STOPPED, "no fault: the link knows an erasure"
    assert len(world.arrived("eu")) == 30
    report = world.verify()
    assert (report.total(Category.MISSING), report.total(Category.HOLES), report.total(Category.DIFFERENT)) == (0, 0, 2)
    assert erase(world.spark, world.config, "eu", TOPIC, "key IN ('k7', 'k25')").messages == 2
    world.write("us", 30, 35)
    assert world.ended("eu")[0] is State.STOPPED
    assert world.ended("us")[0] is State.STOPPED
    same = world.log("eu").read().where("entry_id = 7").select("key", "payload").distinct().collect()
    assert [tuple(row) for row in same] == [(None, None)]
    world.assert_clean()  # erased everywhere: equal again


# -- rebuild -------------------------------------------------------------------------------------------------------------


def test_a_region_that_is_gone_gets_everything_back(linked: World) -> None:
    world = linked
    world.publish("eu", 10)
    world.replicate("us")
    shutil.rmtree(world.config.cluster("eu").root or "")
    with pytest.raises(
        RetryableError,
        match=r"and us replicated from it.*If it is lost for good: geo rebuild --cluster eu --from us, or geo clusters remove eu",
    ):
        world.replicate("eu")
    with pytest.raises(RetryableError, match="and us replicated from it"):
        Broker(world.spark, str(world.path), "eu")
    assert not world.log("eu").exists(), "made anew it would go wherever the configuration lets it, whatever a person had set"
    (dry,) = rebuild(world.spark, world.config, "eu", "us", dry_run=True)
    assert dry.messages == 30
    with dies_at(CrashPoint.REBUILD_APPENDED):
        rebuild(world.spark, world.config, "eu", "us")
    (done,) = rebuild(world.spark, world.config, "eu", "us")
    assert done.messages == 0, "it had landed"
    assert done.unclear is None, "the links out of eu go to us alone, which holds it"
    assert world.ended("eu")[0] is State.STOPPED, "what others wrote comes by the link"
    assert world.publish("eu", 5, producer="new").rows == 5
    assert world.ended("us")[0] is State.FAILED, "us must be told that this is eu now"
    reconcile_links(world.spark, world.config, "eu", "us")
    assert world.ended("us")[0] is State.STOPPED
    report = world.verify()
    assert report.clean, "\n".join(report.lines())
    world.assert_clean()


def test_nothing_begins_in_a_region_that_is_gone_and_that_another_one_reads_though_it_reads_nobody(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path, links=[{"source": "eu", "target": "us"}], spark=spark)
    world.write("eu", 0, 5)
    world.replicate("us")
    shutil.rmtree(tmp_path / "eu")
    with pytest.raises(RetryableError, match="and us replicated from it"):
        Broker(spark, str(world.path), "eu")


def test_yesterdays_copy_put_back_is_filled_and_reuses_no_id(linked: World) -> None:
    world = linked
    world.publish("eu", 10)
    world.replicate("us")
    root = Path(world.config.cluster("eu").root or "")
    shutil.copytree(root, world.folder / "yesterday")
    world.publish("eu", 15)
    world.write("us", 20, 30)
    world.run_links("us", "eu")
    shutil.rmtree(root)
    shutil.copytree(world.folder / "yesterday", root)
    writer = Publisher(world.tables("eu"), world.config, TOPIC, "other").open(world.rows(0, 0).schema, {"number"})
    with pytest.raises(AlreadyOwnedError, match="stop that one first"):
        rebuild(world.spark, world.config, "eu", "us")
    writer.close()
    log = world.log("eu")

    def put_back(point: CrashPoint) -> None:
        if point is CrashPoint.REBUILD_APPENDED:
            log.delta().restoreToVersion(log.latest_version() - 1)

    with (
        mock.patch("geo.replication.missing.STEP_ROWS", 3),  # the size only
        crash.watched(put_back),
        pytest.raises(RetryableError, match="RESTORE"),
    ):
        rebuild(world.spark, world.config, "eu", "us")
    (done,) = rebuild(world.spark, world.config, "eu", "us")
    assert done.messages == 5
    assert world.ended("eu")[0] is State.STOPPED
    assert world.publish("eu", 17).rows == 7, "the record of yesterday knows ten of its rows"
    reconcile_links(world.spark, world.config, "eu", "us")
    assert world.ended("us")[0] is State.STOPPED
    report = world.verify()
    assert report.clean, "\n".join(report.lines())
    ends = world.log("us").read().where("producer = 'p'").groupBy("ledger_id").agg(F.max("entry_id").alias("end")).collect()
    assert sorted(row["end"] for row in ends) == [6, 14], "what was published again is in a ledger of its own"
