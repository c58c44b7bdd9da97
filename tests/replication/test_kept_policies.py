"""A topic of which the registry was put back from an older backup goes nowhere where it was not to go."""

from __future__ import annotations

import logging
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.cli.main import main
from geo.crash import CrashPoint, watched
from geo.errors import RetryableError, UsageError
from geo.fleet.backfill import backfill
from geo.log.topic_policies import replication_clusters, set_replication_clusters
from geo.log.topics import create_topic, ensure_topic, known_topics
from geo.names import Topic
from geo.ops.held_dates import held_dates
from geo.replication.rebuild import rebuild
from geo.replication.repair import reconcile_links
from geo.schemas.table import POLICIES_PROPERTY
from geo.streams.life import State
from geo.testing import dies_at
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

OTHER = Topic.parse("persistent://shop/web/other")


@pytest.fixture
def regional(spark: SparkSession, tmp_path: Path) -> World:
    """Three regions, of which ap is not to have TOPIC; beside them an older copy of the registry of us, from before the topic."""
    world = World(tmp_path, ("eu", "us", "ap"), [("us", "eu"), ("us", "ap")], spark=spark)
    us = world.tables("us")
    create_topic(us, OTHER)
    shutil.copytree(tmp_path / "us" / "system" / "topics", tmp_path / "older")
    create_topic(us, TOPIC)
    set_replication_clusters(us, world.config, TOPIC, ["eu", "us"])
    world.publish("us", 5)
    world.replicate("eu")
    assert str(TOPIC) not in {report.topic for report in world.replicate("ap")}
    assert (world.count("eu"), world.count("ap")) == (5, 0)
    return world


def _put_back(world: World, older: str = "older") -> None:
    shutil.rmtree(world.folder / "us" / "system" / "topics")
    shutil.copytree(world.folder / older, world.folder / "us" / "system" / "topics")


def _forget(world: World) -> None:
    """The log is as an older program made it."""
    world.spark.sql(f"ALTER TABLE {world.log('us').sql} UNSET TBLPROPERTIES ('{POLICIES_PROPERTY}')")


def _all_say_how_to_set_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["topics"], ["doctor"], ["links", "status"], ["verify", "--quick"]):
        capsys.readouterr()
        assert main([*verb, "--config", str(world.path)]) == 1, verb
        told = capsys.readouterr().out.replace(f" --config {world.path}", "")  # the doctor's can be typed as they are
        assert f"geo topics set --cluster us --topic {TOPIC}" in told, verb


def test_a_topic_that_the_registry_lost_keeps_its_replication_clusters(regional: World) -> None:
    _put_back(regional)
    assert replication_clusters(regional.tables("us"), TOPIC) == ("eu", "us")
    assert [report.topic for report in regional.replicate("ap")] == [str(OTHER)]
    regional.publish("us", 10)  # registers it again
    (found,) = [one for one in known_topics(regional.tables("us")) if one.topic == TOPIC]
    assert (found.replication_clusters, found.is_unclear) == (("eu", "us"), False)
    assert str(TOPIC) not in {report.topic for report in regional.replicate("ap")}
    regional.replicate("eu")
    assert (regional.count("eu"), regional.count("ap")) == (10, 0)
    assert regional.verify().clean


def test_an_older_row_of_the_registry_lets_no_link_carry_what_the_log_forbids(
    regional: World, capsys: pytest.CaptureFixture[str]
) -> None:
    us = regional.tables("us")
    shutil.copytree(regional.folder / "us" / "system" / "topics", regional.folder / "narrow")
    set_replication_clusters(us, regional.config, TOPIC, None)
    shutil.copytree(regional.folder / "us" / "system" / "topics", regional.folder / "wide")
    set_replication_clusters(us, regional.config, TOPIC, ["eu", "us"])
    _put_back(regional, "wide")
    (report,) = [one for one in regional.replicate("ap") if one.topic == str(TOPIC)]
    assert (report.state, regional.count("ap")) == (State.DELAYED, 0)
    assert report.reason is not None
    assert f"geo topics set --cluster us --topic {TOPIC}" in report.reason

    set_replication_clusters(us, regional.config, TOPIC, None)
    _put_back(regional, "narrow")
    regional.replicate("ap")
    assert regional.count("ap") == 0, "nor the other way round"
    _all_say_how_to_set_it(regional, capsys)
    now = datetime.now(timezone.utc)
    held = held_dates(regional.config, us, TOPIC, regional.log("us"), [now.date()], now)
    assert [one.link for one in held] == ["us->ap"], "it goes on once somebody says it again"

    _put_back(regional, "wide")
    set_replication_clusters(us, regional.config, TOPIC, ["eu", "us"])
    _put_back(regional, "wide")
    for dry_run in (True, False):
        done, not_done = backfill(regional.spark, regional.config, "us", "ap", topics=str(TOPIC), dry_run=dry_run)
        assert not done
        assert f"geo topics set --cluster us --topic {TOPIC}" in not_done[str(TOPIC)]
        with pytest.raises(RetryableError, match=f"geo topics set --cluster us --topic {TOPIC}"):
            reconcile_links(regional.spark, regional.config, "us", "ap", topics=str(TOPIC), dry_run=dry_run)
    assert regional.count("ap") == 0


def test_of_a_log_that_does_not_say_only_links_that_have_carried_it_do(
    regional: World, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    _forget(regional)
    _put_back(regional)
    with caplog.at_level(logging.WARNING):
        assert str(TOPIC) not in {report.topic for report in regional.replicate("ap")}
    said = f"Say where it may go, which registers it too: geo topics set --cluster us --topic {TOPIC}"
    assert f"link us->ap: {TOPIC} is not carried" in caplog.text
    assert said in caplog.text

    with caplog.at_level(logging.WARNING):
        caplog.clear()
        done, not_done = backfill(regional.spark, regional.config, "us", "ap", topics="persistent://shop/web/*")
    assert ([one.topic for one in done], not_done) == ([str(OTHER)], {})
    assert f"us->ap: {TOPIC} is not carried" in caplog.text
    with pytest.raises(UsageError, match=said):
        reconcile_links(regional.spark, regional.config, "us", "ap", topics=str(TOPIC))
    (again,) = reconcile_links(regional.spark, regional.config, "us", "eu", topics=str(TOPIC))
    assert again.missing == 0, "that link has carried it"

    regional.publish("us", 10)  # registers it, and knows no more
    regional.run_links("eu", "ap")
    assert (regional.count("eu"), regional.count("ap")) == (10, 0)
    _all_say_how_to_set_it(regional, capsys)

    set_replication_clusters(regional.tables("us"), regional.config, TOPIC, ["eu", "us"])
    assert regional.log("us").properties()[POLICIES_PROPERTY] == '{"replication_clusters": "eu,us"}'
    for verb in (["topics"], ["links", "status"], ["verify", "--quick"]):
        assert main([*verb, "--config", str(regional.path)]) == 0, verb


def test_a_topic_that_comes_back_into_a_region_that_lost_all_goes_only_where_it_was(regional: World) -> None:
    us = regional.folder / "us"
    shutil.rmtree(us)
    for point in (CrashPoint.TOPIC_REGISTERED, CrashPoint.REBUILD_APPENDED):
        with dies_at(point):
            rebuild(regional.spark, regional.config, "us", "eu", str(TOPIC))
        regional.replicate("ap")
    (done,) = rebuild(regional.spark, regional.config, "us", "eu", str(TOPIC))
    regional.replicate("ap")
    assert (regional.count("us"), regional.count("ap")) == (5, 0)
    assert f"geo topics set --cluster us --topic {TOPIC}" in (done.unclear or "")
    with pytest.raises(UsageError, match="Say where it may go"):
        reconcile_links(regional.spark, regional.config, "us", "ap", topics=str(TOPIC))
    reconcile_links(regional.spark, regional.config, "us", "eu", topics=str(TOPIC))
    regional.publish("us", 8)
    regional.replicate("eu")
    assert regional.count("eu") == 5 + 8, "that link has carried it; the producer, whose records are lost, began anew"


def test_a_topic_that_comes_back_goes_on_as_configured_where_every_link_has_carried_it(regional: World) -> None:
    set_replication_clusters(regional.tables("us"), regional.config, TOPIC, ["eu", "us", "ap"])
    regional.replicate("ap")
    shutil.rmtree(regional.folder / "us")
    (done,) = rebuild(regional.spark, regional.config, "us", "eu", str(TOPIC))
    assert (done.messages, done.unclear) == (5, None), "there is no place where it was not"
    reconcile_links(regional.spark, regional.config, "us", "ap", topics=str(TOPIC))
    regional.publish("us", 8)
    regional.replicate("ap")
    assert regional.count("ap") == 5 + 8


def test_setting_its_clusters_registers_a_topic_that_the_registry_lost(regional: World) -> None:
    _forget(regional)
    _put_back(regional)
    us = regional.tables("us")
    assert set_replication_clusters(us, regional.config, TOPIC, ["us", "ap"]) == [TOPIC]
    assert replication_clusters(us, TOPIC) == ("ap", "us")
    _put_back(regional)
    assert replication_clusters(us, TOPIC) == ("ap", "us")


def test_the_log_of_an_older_program_keeps_what_the_registry_says_once_somebody_uses_it(regional: World) -> None:
    us = regional.tables("us")
    _forget(regional)
    before = regional.log("us").latest_version()
    for _ in range(2):
        ensure_topic(us, TOPIC)
    assert regional.log("us").latest_version() == before + 1
    _put_back(regional)
    assert replication_clusters(us, TOPIC) == ("eu", "us")


def test_what_is_set_while_the_log_is_made_is_kept_by_it(world: World) -> None:
    us = world.tables("us")

    def set_it(point: CrashPoint) -> None:
        if point is CrashPoint.TOPIC_REGISTERED:
            set_replication_clusters(world.tables("us"), world.config, TOPIC, ["us"])

    with watched(set_it):
        create_topic(us, TOPIC)
    assert world.log("us").properties()[POLICIES_PROPERTY] == '{"replication_clusters": "us"}'
