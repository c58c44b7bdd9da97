"""Where a consumer of versions may go on in another cluster, and what that repeats and does not show it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import version_sync_runner
from geo.delta.appending import append_frame
from geo.delta.driver import Reads
from geo.delta.process import Process
from geo.errors import UsageError
from geo.journal.cluster import ClusterTables, connect_later
from geo.schemas import OWNERS
from geo.subscription.versions import sync_state
from geo.subscription.versions.handoff_report import WhyUnfinished
from geo.subscription.versions.version_status import StartElsewhere, VersionStanding, start_elsewhere, version_standings
from geo.subscription.versions.version_subscriptions import create, delete, finish
from tests.rows import owner
from tests.subscription.streams_of_others import DeltaStream
from tests.version_starts import found_refused, found_start, found_waits, read_up_to
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

NAME = "reports"


def clusters(world: World) -> dict[str, ClusterTables]:
    return {name: world.tables(name) for name in world.config.clusters}


def move(world: World, target: str = "us", *, source_gone: bool = False) -> StartElsewhere:
    """From eu."""
    return start_elsewhere(clusters(world), world.config, TOPIC, NAME, "eu", target, source_gone=source_gone)


def standing(world: World, cluster: str = "eu") -> VersionStanding:
    return next(one for one in version_standings(clusters(world), world.config, TOPIC, NAME) if one.cluster == cluster)


def write_for(world: World, cluster: str, first: int, end: int, to: str, ledger: int = 2) -> None:
    """Entries of another ledger, for the clusters named (SQL)."""
    rows = world.entries(cluster, first, end).withColumns({"replicate_to": F.expr(to), "ledger_id": F.lit(ledger).cast("bigint")})
    append_frame(world.log(cluster), rows)


@contextmanager
def running(world: World, *clusters: str) -> Iterator[None]:
    """Somebody runs version sync in these clusters meanwhile."""
    tables = [world.tables(name) for name in clusters]
    owned = [claim(one, [[version_sync_runner(one)]]) for one in tables]
    yield
    for ownerships in owned:
        release(ownerships)


@pytest.fixture
def moving(world: World) -> World:
    """eu wrote 0-9 and 10-19, both are in us; us wrote 5 for itself between them. In us these are the versions 1, 3 and 2."""
    world.write("eu", 0, 10)
    world.replicate("us")
    write_for(world, "us", 0, 5, "array('ap')")
    world.write("eu", 10, 20)
    world.replicate("us")
    assert world.versions() == {"eu": 2, "us": 3}
    create(world.tables("eu"), TOPIC, NAME)
    return world


def test_what_comes_again_and_what_was_never_routed_there_is_counted_and_listed(moving: World) -> None:
    finish(moving.tables("eu"), TOPIC, NAME, 2)
    found_start(moving, "eu", NAME, "us", 3)
    found = move(moving)
    assert (found.start, found.told_by, found.finished, found.why_not, found.uncounted) == (3, "eu", 2, None, None)
    assert found.age_s is not None
    assert 0 <= found.age_s < 60
    assert (found.at_most_repeated, found.unseen) == (10, {WhyUnfinished.NOT_ADDRESSED.value: 5})
    assert found.unseen_ids == "us:2:0-4"
    (same,) = standing(moving).elsewhere
    assert replace(same, age_s=None) == replace(found, age_s=None)


def test_only_what_was_finished_can_come_again(moving: World) -> None:
    finish(moving.tables("eu"), TOPIC, NAME, 1)
    found_start(moving, "eu", NAME, "us", 1)
    found = move(moving)
    assert (found.at_most_repeated, found.unseen) == (10, {}), "of the 25 that follow"


def test_nothing_is_known_before_a_snapshot_and_what_holds_it_up_is_named(moving: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_state, "SOON_S", -60.0)
    assert move(moving).why_not == "its consumer has finished no version in eu yet"
    finish(moving.tables("eu"), TOPIC, NAME, 1)
    found = move(moving)
    assert found.why_not == "no snapshot is at or before version 1 of eu yet"
    assert found.not_run == {"eu": "nobody ever has", "us": "nobody ever has"}
    with running(moving, "eu", "us"):
        assert move(moving).not_run == {}
        found_waits(moving, "eu", {"ap": "the link ap->eu is FAILED"})
        found = move(moving)
        assert (found.start, found.why_not, found.waits_for) == (
            None,
            "eu takes no snapshots",
            {"ap": "the link ap->eu is FAILED"},
        )
        assert standing(moving).waits_for == {"ap": "the link ap->eu is FAILED"}
        found_waits(moving, "eu", {})
        assert move(moving).waits_for == {}
        assert (standing(moving).unread or "").startswith("its log is not read at all, and version 1 waits for ")
        for read_to, begins in ((1, "its log is read up to version 1 of 2 only, and version 2 waits for "), (2, "")):
            read_up_to(moving, "eu", read_to)
            assert (standing(moving).unread or "").startswith(begins)
        assert standing(moving).unread is None
        answer = {"marker": F.lit("SNAPSHOT_RESPONSE"), "payload": F.lit(b""), "ledger_id": F.lit(9).cast("bigint")}
        append_frame(moving.log("eu"), moving.entries("eu", 0, 1).withColumns(answer))
        assert standing(moving).unread is None, "of its own answer to others its controller need not hear"
        append_frame(moving.log("eu"), moving.entries("us", 0, 1).withColumns(answer))
        assert (standing(moving).unread or "").startswith("its log is read up to version 2 of 4 only, and version 4 waits for ")
    for cluster in ("eu", "us"):
        found_refused(moving, cluster, {"malformed": 3})
        assert standing(moving, cluster).refused == {"malformed": 3}, "also where it is not known"
    assert re.fullmatch(r"process \d+ on \S+ ended at .*Z", standing(moving).not_run or "")
    for silent_s, says in ((0, ""), (600, r"process 7 on elsewhere gave no sign of life for 6\d\d s")):
        runner, there = version_sync_runner(moving.tables("eu")).name, Process("elsewhere", 7, "")
        one = owner(runner, 100 + silent_s, holder=there, age=timedelta(seconds=silent_s))
        moving.tables("eu").journal(OWNERS).append([one])
        assert re.fullmatch(says, standing(moving).not_run or "")


def test_where_the_source_is_gone_what_its_updates_brought_counts(moving: World) -> None:
    finish(moving.tables("eu"), TOPIC, NAME, 2)
    with pytest.raises(UsageError, match="neither eu nor us knows"):
        move(moving, source_gone=True)
    found_start(moving, "us", NAME, "us", 3, sender="eu")
    for gone in (True, False):
        if not gone:
            shutil.rmtree(moving.folder / "eu")
            (moving.folder / "eu").write_text("no folder")
        found = move(moving, source_gone=gone)
        assert (found.start, found.told_by, found.finished) == (3, "eu", None)
        assert (found.at_most_repeated, found.unseen) == (10, {WhyUnfinished.NOT_ADDRESSED.value: 5}), (
            "all that follows may come again"
        )
        assert found.source_unreadable is not None
    eu, us = version_standings(clusters(moving), moving.config, TOPIC, NAME)
    assert eu.unreadable == f"{moving.folder / 'eu'} is not a folder"
    assert (us.known, us.start_here, us.told_by) == (False, 3, "eu")


def test_what_a_target_was_told_does_not_count_against_what_the_source_says_itself(moving: World) -> None:
    """A subscription that was deleted and made anew has finished nothing, whatever its updates said before."""
    finish(moving.tables("eu"), TOPIC, NAME, 2)
    found_start(moving, "eu", NAME, "us", 3)
    found_start(moving, "us", NAME, "us", 3, sender="eu")
    found_start(moving, "eu", NAME, "eu", 1, sender="us")
    delete(moving.tables("eu"), TOPIC, NAME)
    create(moving.tables("eu"), TOPIC, NAME)
    assert (move(moving).start, move(moving).why_not) == (None, "its consumer has finished no version in eu yet")
    assert standing(moving).start_here == 1, "what us told is not of the one that was deleted here"


def test_a_start_that_is_no_place_in_the_log_there_is_none(moving: World) -> None:
    finish(moving.tables("eu"), TOPIC, NAME, 2)
    found_start(moving, "eu", NAME, "us", 4)
    found = move(moving)
    assert found.start is None
    assert found.why_not == "the log of us ends at version 3: it is another one than that of which eu told version 4"
    found_start(moving, "eu", NAME, "us", 2)
    moving.clean_up("us")
    found = move(moving)
    assert (found.start, found.why_not) == (
        None,
        "us does not have the commit of version 2 any more (log cleanup), so no stream can begin there",
    )


def test_a_target_that_cannot_be_read_has_its_start_all_the_same(moving: World) -> None:
    finish(moving.tables("eu"), TOPIC, NAME, 2)
    found_start(moving, "eu", NAME, "us", 3)
    shutil.rmtree(moving.folder / "us")
    (moving.folder / "us").write_text("no folder")
    found = move(moving)
    assert (found.start, found.at_most_repeated) == (3, None)
    assert found.uncounted == f"us cannot be read: {moving.folder / 'us'} is not a folder"


def test_one_way_expired_and_late_messages_are_each_named(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, ("ap", "eu", "us"), [("us", "eu"), ("ap", "us")], spark=spark)
    world.write("us", 0, 3)
    world.replicate("eu")
    world.write("ap", 0, 2)
    world.replicate("us")
    write_for(world, "us", 0, 2, "NULL", ledger=3)
    world.replicate("eu")
    write_for(world, "us", 0, 4, "NULL", ledger=4)  # as if it had expired on its way to eu
    world.write("us", 3, 4)
    create(world.tables("eu"), TOPIC, NAME)
    finish(world.tables("eu"), TOPIC, NAME, 1)
    found_start(world, "eu", NAME, "us", 5)
    found = move(world)
    assert found.unseen == {WhyUnfinished.NO_WAY.value: 2, WhyUnfinished.LATER.value: 2, WhyUnfinished.ABSENT.value: 4}
    assert found.unseen_ids == "ap:1:0-1 us:3:0-1 us:4:0-3"


def test_ledgers_with_holes_are_read_message_by_message_and_with_or_without_spark_the_same(moving: World) -> None:
    finish(moving.tables("eu"), TOPIC, NAME, 2)
    found_start(moving, "eu", NAME, "us", 3)
    moving.spark.sql(f"DELETE FROM {moving.log('us').sql} WHERE origin = 'eu' AND entry_id IN (12, 15)")
    found = move(moving)
    assert (found.at_most_repeated, found.unseen_ids) == (8, "us:2:0-4")
    by_spark = {
        name: connect_later(lambda: moving.spark, cluster, reads=Reads.NONE) for name, cluster in moving.config.clusters.items()
    }
    same = start_elsewhere(by_spark, moving.config, TOPIC, NAME, "eu", "us", source_gone=False)
    assert replace(same, age_s=None) == replace(found, age_s=None)


def test_a_stream_that_goes_on_there_misses_nothing_that_was_routed_to_both(moving: World) -> None:
    """A plain Delta stream in eu, stopped anywhere; its replacement begins in us at the version given."""
    delete(moving.tables("eu"), TOPIC, NAME)
    stream = DeltaStream(moving, startingVersion=0, maxFilesPerTrigger=1)
    stream.run()
    create(moving.tables("eu"), TOPIC, NAME, stream.checkpoint)
    found_start(moving, "eu", NAME, "us", 2)
    moving.write("eu", 20, 25)
    moving.replicate("us")
    found = move(moving)
    assert (found.finished, found.start, found.at_most_repeated, found.unseen) == (2, 2, 10, {})
    there = moving.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", found.start)
    seen = {row["entry_id"] for row in there.load(moving.log("us").name).where("origin = 'eu'").collect()}
    assert seen == set(range(10, 25)), "what the first one finished, and all after it"
