"""Maintenance: which dates expire, what holds them back, and that links never notice."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from geo.config.cluster import Cluster
from geo.coordination.storage_clock import renew
from geo.delta.appending import append_frame
from geo.delta.commits import Kind
from geo.delta.ddl import set_property
from geo.errors import UnsafeError
from geo.journal.cluster import connect
from geo.log import log_cutter
from geo.log.topics import create_topic
from geo.ops.delete_topic import delete_topics
from geo.ops.held_dates import held_dates
from geo.ops.maintain import MARGIN, expired_days, maintain
from geo.replication.repair import reconcile_links
from geo.schemas import LINKS, PROCESSES
from tests.running import running
from tests.world import TOPIC, World


@given(
    st.dates(date(1990, 1, 1), date(2100, 1, 1)), st.integers(1, 10**7), st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1))
)
def test_a_date_expires_when_its_last_message_has_and_never_before(day: date, ttl_s: int, at: datetime) -> None:
    now = at.replace(tzinfo=timezone.utc)
    last = datetime(day.year, day.month, day.day, 23, 59, 59, 999_999, tzinfo=timezone.utc)
    expired = expired_days([day], ttl_s, now) == [day]
    assert expired == (last + timedelta(microseconds=1, seconds=ttl_s) + MARGIN <= now)
    assert expired_days([day], None, now) == []


def _age(world: World, cluster: str, days: int, *, ledger: int = 2) -> None:
    """Ten messages of another ledger published `days` ago, as a producer would have written them then."""
    rows = world.entries(cluster, 0, 10).withColumn("ledger_id", F.lit(ledger).cast("bigint"))
    rows = rows.withColumn("publish_time", F.expr(f"publish_time - INTERVAL {days} DAYS"))
    append_frame(world.log(cluster), rows.withColumn("publish_date", F.to_date("publish_time")))


def _expiring(world: World, outage: str = "7 days") -> World:
    with world.path.open("a") as file:
        file.write(f'topics:\n  - {{match: "{TOPIC}", message_ttl: 5 days, longest_outage: {outage}}}\n')
    world.reload()
    return world


@pytest.mark.spark
def test_what_has_expired_goes_and_what_a_link_has_not_read_stays(linked: World) -> None:
    world = _expiring(linked)
    _age(world, "us", 20)
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC), dry_run=True, pass_silent=True)
    assert [(one.rows, one.files) for one in log.expired] == []
    (held,) = log.held
    assert (held.link, held.silent) == ("us->eu", False)
    assert "it has read up to version" in held.why

    world.replicate("eu")
    before = world.log("us").latest_version()
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC), dry_run=True)
    assert [(one.rows, one.files) for one in log.expired] == [(10, 1)]
    assert log.expired[0].bytes > 0
    assert world.log("us").latest_version() == before, "a dry run writes nothing"
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert [one.rows for one in log.expired] == [10]
    assert len(world.arrived("us")) == 20

    (deleted,) = [c for c in world.log("us").commits(0, world.log("us").latest_version()) if c.operation == "DELETE"]
    assert deleted.kind is Kind.EXPIRY, "whoever reads on tells it from anybody's DELETE"
    assert world.spark.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
    world.write("us", 20, 40)
    assert [report.state.value for report in world.replicate("eu")] == ["STOPPED"], "the link does not notice"
    assert world.log("eu").read().where("origin = 'us'").agg(F.max("entry_id")).collect()[0][0] == 39
    report = world.verify()
    assert report.clean, "\n".join(report.lines())


@pytest.mark.spark
def test_what_has_expired_goes_of_a_log_whose_columns_have_other_names_in_files(linked: World) -> None:
    world = _expiring(linked)
    _age(world, "us", 20)
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    world.spark.sql(f"ALTER TABLE {world.log('us').sql} SET TBLPROPERTIES ({mapped})")
    world.replicate("eu")
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert [one.rows for one in log.expired] == [10]
    assert len(world.arrived("us")) == 20


@pytest.mark.spark
def test_what_another_clusters_links_have_read_by_a_name_that_is_not_its_own_lets_no_date_go(linked: World) -> None:
    _age(linked, "us", 20)
    log, now = linked.log("us"), datetime.now(timezone.utc)
    (row,) = linked.tables("eu").journal(LINKS).newest(source="us")
    place = Cluster("asia", root=str(linked.folder / "asia"))
    asia = connect(linked.spark, place)
    create_topic(asia, TOPIC)
    asia.journal(LINKS).append([{**row, "source_version": log.latest_version()}])
    mixed_up = replace(linked.config, clusters={**linked.config.clusters, "eu": replace(place, name="eu")})
    due = [now.date() - timedelta(days=20)]
    (held,) = held_dates(mixed_up, linked.tables("us"), TOPIC, log, due, now)
    assert (held.link, held.days, held.silent) == ("us->eu", tuple(due), True)
    assert "is that of cluster asia" in held.why


@pytest.mark.spark
def test_expiry_and_compaction_beside_links_that_run_and_publishing_that_goes_on(linked: World) -> None:
    world = _expiring(linked)
    with running(world, "eu") as links:
        for number in range(2):
            _age(world, "us", 8 + number, ledger=2 + number)
            world.write("us", 20 + number * 10, 30 + number * 10)
            maintain(world.spark, world.config, "us", str(TOPIC))
            maintain(world.spark, world.config, "eu", str(TOPIC))
        links.until(lambda: sum(one[:2] == ("us", 1) for one in world.messages("eu")) == 40)
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert world.log("us").read().where("ledger_id > 1").isEmpty(), f"all that had expired is gone in the end: {log}"
    assert world.log("eu").read().where("ledger_id > 1").isEmpty(), "and never crossed"
    world.assert_clean()


@pytest.mark.spark
def test_after_a_raised_ttl_what_is_still_in_the_source_comes_by_a_reconcile(linked: World) -> None:
    _age(linked, "us", 8)
    world = _expiring(linked)
    assert [report.replicated for report in world.replicate("eu")] == [0], "what has expired does not cross"
    report = world.verify()
    assert report.clean, "\n".join(report.lines())
    world.path.write_text(world.path.read_text().replace("message_ttl: 5 days", "message_ttl: 30 days"))
    world.reload()
    assert [report.replicated for report in world.replicate("eu")] == [0], "the link is past it"
    assert any("10 missing" in line for line in world.verify().lines())
    (done,) = reconcile_links(world.spark, world.config, "us", "eu")
    assert done.appended == 10
    world.assert_clean()


@pytest.mark.spark
def test_a_link_that_is_long_silent_is_named_and_needs_a_yes(linked: World) -> None:
    world = _expiring(linked)
    _age(world, "us", 20)
    journal = world.tables("eu").journal(LINKS)
    (state,) = journal.newest(source="us")
    long_ago = datetime.now(timezone.utc) - timedelta(days=3)
    journal.append([{**state, "sequence": state["sequence"] + 1, "updated_at": long_ago}])
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert log.expired == ()
    assert [one.silent for one in log.held] == [True]
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC), pass_silent=True)
    assert [one.rows for one in log.expired] == [10]


@pytest.mark.spark
def test_a_link_that_has_read_nothing_yet_is_waited_for(linked: World) -> None:
    world = _expiring(linked)
    _age(world, "us", 20)
    journal = world.tables("eu").journal(LINKS)
    (state,) = journal.newest(source="us")
    row = {**state, "sequence": state["sequence"] + 1, "updated_at": datetime.now(timezone.utc)}
    journal.append([{**row, "source_table_id": None, "source_version": None, "source_commit": None}])
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert [(one.silent, "it has read nothing yet" in one.why) for one in log.held] == [(False, True)]
    assert log.expired == ()


@pytest.mark.spark
def test_nothing_waits_for_a_cluster_in_which_the_topic_was_deleted(linked: World) -> None:
    world = _expiring(linked)
    _age(world, "us", 20)
    delete_topics(world.spark, world.config, "eu", str(TOPIC), lose=True)
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert (log.held, [one.rows for one in log.expired]) == ((), [10])


@pytest.mark.spark
def test_a_log_is_cut_and_the_links_of_both_directions_go_on(linked: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = linked
    set_property(world.log("us"), "delta.checkpointInterval", "4")
    for number in range(9):
        world.write("us", 20 + number, 21 + number)
    monkeypatch.setattr(log_cutter, "KEEP", 3)
    monkeypatch.setattr(log_cutter, "KEEP_S", 0.0)
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert log.log is not None
    assert log.log.held_by is not None
    assert log.log.held_by.startswith("link us->eu, STOPPED, at version")
    world.replicate("eu")
    world.replicate("us")
    before = len(list(world.log("us").commits(0, 99)))
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC), dry_run=True)
    assert log.log is not None
    assert log.log.commits > 4
    assert len(list(world.log("us").commits(0, 99))) == before
    (log, *_) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert log.log is not None
    assert log.log.kept == len(list(world.log("us").commits(0, 99))) < before
    world.write("us", 29, 40)
    assert [(r.state.value, r.replicated) for r in world.replicate("eu")] == [("STOPPED", 11)]
    assert [r.state.value for r in world.replicate("us")] == ["STOPPED"]
    world.assert_clean()


@pytest.mark.spark
def test_processes_that_are_long_gone_are_forgotten(linked: World) -> None:
    tables = linked.tables("us")
    long_ago = datetime.now(timezone.utc) - timedelta(days=2)
    tables.journal(PROCESSES).append([{"process": "x", "holder": "{}", "renewed_at": long_ago, "sequence": 1}])
    renew(tables)
    done = {one.table: one.superseded_rows for one in maintain(linked.spark, linked.config, "us", str(TOPIC))}
    assert done["system/processes"] == 1
    assert {"system/topics", "system/ledgers", "system/owners", "system/links", "system/cursors"} <= done.keys()
    assert [row["process"] for row in tables.journal(PROCESSES).newest()] == [tables.me.name]


@pytest.mark.spark
def test_small_files_and_superseded_rows_are_cleaned_up_beside_the_link(linked: World) -> None:
    world = linked
    for number in range(18):
        world.write("us", 20 + number, 21 + number)
    world.replicate("eu")
    (log, *journals) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert [one.files for one in log.compacted] == [20]
    assert _files(world) == 1
    assert sum(one.superseded_rows for one in journals) > 0
    (log, *journals) = maintain(world.spark, world.config, "us", str(TOPIC))
    assert (log.compacted, sum(one.superseded_rows for one in journals)) == ((), 0)
    world.write("us", 38, 40)
    maintain(world.spark, world.config, "eu", str(TOPIC))
    (report,) = world.replicate("eu")
    assert (report.state.value, report.replicated) == ("STOPPED", 2)
    world.assert_clean()


def _files(world: World) -> int:
    return len(world.log("us").read().inputFiles())


@pytest.mark.spark
def test_a_retention_shorter_than_the_longest_outage_is_refused(linked: World) -> None:
    world = _expiring(linked, "60 days")
    with pytest.raises(UnsafeError, match=r"logRetentionDuration is interval 30 days, shorter than longest_outage \(60 days\)"):
        maintain(world.spark, world.config, "us", str(TOPIC))
    assert Path(world.log("us").name).exists()
