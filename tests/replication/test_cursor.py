"""A link's cursor on real tables: histories that were put back, regrown, restored and undone, on both sides, and other links."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession

from geo import crash
from geo.crash import CrashPoint, InjectedCrash
from geo.delta.appending import append_frame
from geo.delta.ddl import set_property
from geo.delta.spark_commits import with_user_metadata
from geo.log.topics import create_topic
from geo.now import now_us
from geo.replication import running_link
from geo.replication.link_state import LinkRecord
from geo.replication.link_table import append_links
from geo.replication.link_target import newest_commit
from geo.replication.rebuild import rebuild
from geo.replication.repair import reconcile_links
from geo.streams import timetable
from geo.streams.life import State
from geo.testing import dies_at
from tests.running import running
from tests.world import SHAPES, TOPIC, World, record_of

pytestmark = pytest.mark.spark


def _echoes(world: World, into: str, of: str, first: int, count: int) -> None:
    """As many commits of `into`, each with a message that `of` has written."""
    for number in range(first, first + count):
        world.write(of, number, number + 1)
        world.replicate(into)


# -- an older copy that grew past the cursor -------------------------------------------------------------------------------


@pytest.mark.parametrize("rebuilt", [False, True], ids=["quiet", "rebuilt"])
def test_an_older_copy_of_a_source_that_holds_all_that_crossed_and_grew_by_echoes_fails_the_link(
    linked: World, rebuilt: bool
) -> None:
    """The newest message of eu that crossed is in the copy too; only commits of the other link are another history."""
    put_back = linked.kept("eu")
    if rebuilt:
        linked.write("eu", 20, 22)  # what the copy lacks and the rebuild brings back
    _echoes(linked, "eu", "us", 20, 2)
    linked.replicate("us")
    stood = linked.log("eu").latest_version()
    put_back()
    if rebuilt:
        assert [done.messages for done in rebuild(linked.spark, linked.config, "eu", "us")] == [2]
    linked.replicate("eu")
    first = 22 if rebuilt else 20
    linked.write("eu", first, first + 3)
    _echoes(linked, "eu", "us", 22, 2)
    assert linked.log("eu").latest_version() > stood, "it has grown past the cursor"
    before = linked.log("us").latest_version()
    linked.fails("us", "than it had")
    assert linked.log("us").latest_version() == before
    reconcile_links(linked.spark, linked.config, "eu", "us")
    assert linked.ended("us")[0] is State.STOPPED
    linked.assert_clean()


def test_an_older_copy_of_a_target_that_grew_is_filled_again(linked: World) -> None:
    put_back = linked.kept("eu")
    linked.write("us", 20, 23)
    linked.replicate("eu")
    put_back()
    linked.write("eu", 20, 21)
    linked.write("eu", 21, 22)
    linked.write("us", 23, 25)
    assert linked.brought("eu") == (State.STOPPED, 5)
    linked.replicate("us")
    assert linked.arrived("eu", "us") == list(range(25))
    newest = newest_commit(linked.log("eu"), "this test")
    assert linked.link_state("eu", "us").target == newest, "its row names the target as it is now"


def test_an_older_copy_of_a_source_under_a_running_link_is_noticed_though_nothing_is_written(linked: World) -> None:
    """Until its versions pass the cursor Delta's stream has nothing to read."""
    put_back = linked.kept("us")
    with running(linked, "eu") as links:
        linked.write("us", 20, 25)
        links.until(lambda: len(linked.arrived("eu", "us")) == 25)
        put_back()
        links.until(lambda: links.last(TOPIC)[0] is State.FAILED)
        assert "an older copy was put back" in (links.last(TOPIC)[1] or "")


@pytest.mark.parametrize("restored", [False, True], ids=["an older copy", "restored"])
def test_a_target_that_is_put_back_under_a_running_link_is_filled_again(linked: World, restored: bool) -> None:
    put_back = linked.kept("eu")
    with running(linked, "eu") as links:
        linked.write("us", 20, 25)
        links.until(lambda: len(linked.arrived("eu", "us")) == 25)
        if restored:
            linked.log("eu").delta().restoreToVersion(linked.log("eu").latest_version() - 1)
            linked.write("us", 25, 30)
        else:
            put_back()
        links.until(lambda: linked.arrived("eu", "us") == list(range(30 if restored else 25)))
    linked.settle("us")


def test_a_target_put_back_before_its_link_was_recorded_is_filled_again(linked: World) -> None:
    """All that the older copy has is as the link left it; only what was appended since is not there."""
    put_back = linked.kept("eu")
    with running(linked, "eu") as links, mock.patch.object(timetable, "RECORD_S", 3600.0):
        linked.write("us", 20, 25)
        links.until(lambda: len(linked.arrived("eu", "us")) == 25)
        put_back()
    state, reason = links.last(TOPIC)
    assert (state, "lacks what was appended" in str(reason)) == (State.DELAYED, True)
    assert linked.ended("eu")[0] is State.STOPPED
    assert linked.arrived("eu", "us") == list(range(25))


# -- what is brought back to a source --------------------------------------------------------------------------------------


def test_what_a_rebuild_brings_back_is_not_doubled_where_it_was_kept(linked: World) -> None:
    """eu's retention was too short by mistake; us still holds what eu removed."""
    log = linked.log("eu")
    append_frame(log, linked.entries("eu", 20, 25).selectExpr("* EXCEPT (publish_date)", "publish_date - 30 AS publish_date"))
    linked.replicate("us")
    expiring = with_user_metadata(log, '{"geo.expire":1}')
    expiring.delta().delete("publish_date < current_date() - 7")
    assert linked.arrived("eu", "eu") == list(range(20))
    assert [done.messages for done in rebuild(linked.spark, linked.config, "eu", "us")] == [5]
    linked.write("eu", 25, 27)
    assert linked.ended("us")[0] is State.STOPPED
    assert linked.arrived("us", "eu") == list(range(27))
    linked.settle("eu")


def test_a_row_recorded_while_an_append_has_landed_unheard_brings_nothing_twice(linked: World) -> None:
    """Its query has not heard of it, so the cursor is that before; the row names the target's commit all the same."""
    link, ownership = linked.begun()
    linked.write("us", 20, 25)

    def record(point: CrashPoint) -> None:
        if point is CrashPoint.LINK_AFTER_APPEND and (now := link.running.progressed(State.RUNNING)) is not None:
            append_links(link.target, [now])
            raise InjectedCrash("and it dies")

    with crash.watched(record), pytest.raises(InjectedCrash, match="dies"):
        link.running.run_turns(lambda: False)
    ownership.abandon()
    assert linked.link_state("eu", "us").cursor == newest_commit(linked.log("us"), "this test")
    assert linked.brought("eu") == (State.STOPPED, 0)
    assert linked.arrived("eu", "us") == list(range(25))
    linked.settle("us")


# -- RESTORE under a link ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [True, False])
def test_a_source_restored_back_and_forth_under_a_running_link_fails_it_and_doubles_nothing(
    linked: World, *, queries: bool
) -> None:
    with running(linked, "eu", queries=queries) as links:
        linked.write("us", 20, 25)
        links.until(lambda: len(linked.arrived("eu", "us")) == 25)
        newest = linked.log("us").latest_version()
        linked.log("us").delta().restoreToVersion(newest - 1)
        linked.log("us").delta().restoreToVersion(newest)
        links.until(lambda: links.last(TOPIC)[0] is State.FAILED)
        assert "RESTORE" in (links.last(TOPIC)[1] or "")
    assert linked.arrived("eu", "us") == list(range(25))
    reconcile_links(linked.spark, linked.config, "us", "eu")
    linked.write("us", 25, 27)
    linked.settle("eu", "us")


def test_what_a_restore_brings_back_into_a_stream_is_looked_at_before_it_is_appended(linked: World) -> None:
    """A commit of adds only, which Delta's stream hands on, and no other look comes between."""
    old = linked.entries("us", 20, 25).selectExpr("* EXCEPT (publish_date)", "publish_date - 30 AS publish_date")
    log = linked.log("us")
    with running(linked, "eu", queries=True) as links, mock.patch.object(timetable, "SOURCE_LOOK_S", 3600.0):
        append_frame(log, old)
        links.until(lambda: len(linked.arrived("eu", "us")) == 25)
        with_user_metadata(log, '{"geo.expire":1}').delta().delete("publish_date < current_date() - 7")
        log.delta().restoreToVersion(log.latest_version() - 1)
        links.until(lambda: links.last(TOPIC)[0] is State.FAILED)
        assert "RESTORE" in (links.last(TOPIC)[1] or "")
    assert linked.arrived("eu", "us") == list(range(25))


def test_a_target_that_is_put_back_while_a_link_compares_gets_nothing_twice(linked: World) -> None:
    """It was RESTOREd, is compared with, and is RESTOREd back right before the append."""
    log = linked.log("eu")
    before = log.latest_version()
    log.delta().restoreToVersion(0)

    def put_back(point: CrashPoint) -> None:
        if point is CrashPoint.LINK_BEFORE_RECONCILE_APPEND and log.latest_version() == before + 1:
            log.delta().restoreToVersion(before)

    with crash.watched(put_back):
        assert linked.brought("eu") == (State.STOPPED, 0), "it compared again, and nothing was missing"
    assert linked.arrived("eu", "us") == list(range(20))
    linked.settle("us")


def test_a_restore_that_undoes_an_expiry_of_the_source_is_no_new_message(linked: World) -> None:
    """The rows come back by a commit of adds only, which a stream would read as new ones."""
    old = linked.entries("us", 20, 25).selectExpr("* EXCEPT (publish_date)", "publish_date - 30 AS publish_date")
    log = linked.log("us")
    append_frame(log, old)
    linked.replicate("eu")
    before = log.latest_version()
    with_user_metadata(log, '{"geo.expire":1}').delta().delete("publish_date < current_date() - 7")
    linked.write("us", 25, 26)
    assert linked.ended("eu")[0] is State.STOPPED, "an expiry is passed over"
    log.delta().restoreToVersion(before)
    linked.fails("eu", "RESTORE")
    assert linked.arrived("eu", "us") == list(range(26))


def test_a_commit_that_landed_twice_is_read_once(linked: World) -> None:
    """Its writer did not hear that it had landed and committed the same files again: Delta's state has them once, a reader of commits
    twice."""
    linked.write("us", 20, 25)
    log = Path(linked.log("us").name) / "_delta_log"
    newest = linked.log("us").latest_version()
    shutil.copy(log / f"{newest:020}.json", log / f"{newest + 1:020}.json")
    assert linked.ended("eu")[0] is State.STOPPED
    assert linked.arrived("eu", "us") == list(range(25))
    linked.write("us", 25, 26)
    assert linked.ended("eu")[0] is State.STOPPED
    linked.settle("us")


# -- several links ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(spark: SparkSession, tmp_path: Path) -> World:
    """a -> b -> c, b forwards a."""
    return World(tmp_path, *SHAPES["hub"], spark=spark)


def _left_out_ten(hub: World) -> None:
    """The link a -> b begins at the latest: the first ten entries of a are neither in b nor in c, the next ten are."""
    clusters, links = SHAPES["hub"]
    hub.rewrite(clusters, [{"source": "a", "target": "b", "start": "latest"}, links[1]])
    hub.write("a", 0, 10)
    hub.replicate("b")
    hub.write("a", 10, 20)
    hub.run_links("b", "c")


@pytest.mark.parametrize("runs", [False, True])
def test_what_a_reset_brings_into_a_hub_crosses_to_the_end_also_while_its_link_runs(hub: World, runs: bool) -> None:
    """Entries that come into the hub later than their successors: a reset of a -> b fetches what it had left out."""
    _left_out_ten(hub)
    assert hub.arrived("c", "a") == list(range(10, 20))
    with running(hub, "c") if runs else nullcontext() as links_of_c:
        reconcile_links(hub.spark, hub.config, "a", "b", start="earliest")
        assert hub.arrived("b", "a") == list(range(20))
        if links_of_c is not None:
            links_of_c.until(lambda: hub.arrived("c", "a") == list(range(20)))
    assert hub.ended("c")[0] is State.STOPPED
    assert hub.arrived("c", "a") == list(range(20))


def test_an_origin_that_is_added_to_a_link_comes_whole(hub: World) -> None:
    clusters, links = SHAPES["hub"]
    hub.rewrite(clusters, [links[0], ("b", "c")])
    for cluster in ("a", "b"):
        hub.write(cluster, 0, 5)
    hub.run_links("b", "c")
    assert hub.arrived("c", "a") == []
    hub.rewrite(clusters, links)
    hub.write("a", 5, 8)
    hub.run_links("b", "c")
    assert hub.arrived("c", "a") == list(range(8))
    hub.assert_clean()


def test_an_origin_that_moves_to_another_link_and_back_with_traffic_between_comes_once(hub: World) -> None:
    clusters, links = SHAPES["hub"]
    hub.write("a", 0, 5)
    hub.write("b", 0, 5)
    hub.run_links("b", "c")
    hub.rewrite(clusters, [links[0], ("b", "c"), ("a", "c")])
    hub.write("a", 5, 10)
    hub.write("b", 5, 10)
    hub.run_links("b", "c")
    assert hub.arrived("c", "a") == list(range(10))
    hub.rewrite(clusters, links)
    hub.write("a", 10, 12)
    hub.run_links("b", "c")
    assert hub.arrived("c", "a") == list(range(12))
    assert hub.arrived("c", "b") == list(range(10))
    hub.assert_clean()


def test_what_refills_a_hub_that_was_restored_is_not_doubled_behind_it(hub: World) -> None:
    """Whoever resolves b -> c at once is right too: a -> b has still to bring back what c has already."""
    hub.write("b", 0, 5)
    before = hub.log("b").latest_version()
    hub.write("a", 0, 10)
    hub.run_links("b", "c")
    hub.log("b").delta().restoreToVersion(before)
    assert hub.ended("c")[0] is State.FAILED
    reconcile_links(hub.spark, hub.config, "b", "c")
    hub.replicate("b")
    assert hub.arrived("b", "a") == list(range(10))
    hub.write("a", 10, 12)
    hub.run_links("b", "c")
    assert hub.arrived("c", "a") == list(range(12))
    hub.assert_clean()


# -- reconcile in steps ---------------------------------------------------------------------------------------------------------


def test_a_reconcile_that_is_killed_between_two_steps_begins_again_and_ends_complete(world: World) -> None:
    world.write("us", 0, 30)
    with mock.patch("geo.replication.missing.STEP_ROWS", 10):  # the size only
        with dies_at(CrashPoint.LINK_AFTER_RECONCILE_APPEND, 2):
            world.replicate("eu")
        assert world.arrived("eu", "us") == list(range(20)), "two steps landed"
        world.write("us", 30, 35)
        assert world.brought("eu") == (State.STOPPED, 15)
    records = [LinkRecord.decode(commit.user_metadata) for commit in world.log("eu").commits(0, 20)]
    assert [record.reconciling for record in records if record] == [True] * 4
    world.assert_clean()


def test_a_reset_that_is_killed_between_two_steps_goes_on_as_a_reset(world: World) -> None:
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "start": "latest"}])
    world.write("us", 0, 30)
    world.replicate("eu")
    assert world.arrived("eu", "us") == []
    with mock.patch("geo.replication.missing.STEP_ROWS", 10), dies_at(CrashPoint.LINK_AFTER_RECONCILE_APPEND):  # the size only
        reconcile_links(world.spark, world.config, "us", "eu", start="earliest")
    world.replicate("eu")
    assert world.arrived("eu", "us") == list(range(30))


def test_a_link_that_begins_at_the_latest_does_so_though_its_first_start_fails(world: World) -> None:
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "start": "latest"}])
    world.write("us", 0, 10)
    place = Path(world.log("eu").name)
    place.parent.mkdir(parents=True)
    place.write_text("no folder")
    assert world.ended("eu")[0] is State.DELAYED
    place.unlink()
    assert world.ended("eu")[0] is State.STOPPED
    world.write("us", 10, 12)
    world.replicate("eu")
    assert world.arrived("eu", "us") == [10, 11]


def test_a_source_that_is_away_for_a_moment_needs_no_person(linked: World) -> None:
    log = Path(linked.log("us").name)
    aside = log.rename(linked.folder / "aside")
    state, reason = linked.ended("eu")
    assert state is State.DELAYED
    assert "is not there" in reason
    aside.rename(log)
    linked.write("us", 20, 22)
    assert linked.ended("eu")[0] is State.STOPPED
    linked.settle("us")


def test_a_catch_up_comes_in_turns_of_whole_commits_and_a_kill_between_two_keeps_the_first(linked: World) -> None:
    linked.replicate("eu")  # its cursor stands behind what came into us by the other link
    before = linked.log("eu").latest_version()
    for number in range(20, 26):
        linked.write("us", number, number + 1)
    with mock.patch.object(running_link, "TURN_COMMITS", 2):  # the size only
        with dies_at(CrashPoint.LINK_BEFORE_APPEND, 3):
            linked.replicate("eu")
        assert linked.arrived("eu", "us") == list(range(24)), "two turns are there for good"
        assert linked.brought("eu") == (State.STOPPED, 2)
    records = [LinkRecord.decode(commit.user_metadata) for commit in linked.log("eu").commits(before + 1, before + 9)]
    assert [record.reconciling for record in records if record] == [False] * 3
    linked.settle("us")


def test_no_checkpoint_outlives_its_run(linked: World) -> None:
    checkpoints = Path(linked.config.cluster("eu").checkpoints) / "replicate"
    with running(linked, "eu", queries=True) as links:
        linked.write("us", 20, 25)
        links.until(lambda: len(linked.arrived("eu", "us")) == 25)
    assert not [path for path in checkpoints.rglob("*") if path.is_file()]
    shutil.rmtree(checkpoints.parent)
    linked.write("us", 25, 30)
    assert linked.brought("eu") == (State.STOPPED, 5), "nothing is needed of the folder of checkpoints"
    linked.assert_clean()


def test_a_start_and_its_append_read_nothing_of_the_targets_data(linked: World) -> None:
    target = Path(linked.log("eu").name)
    (day,) = target.glob("publish_date=*")
    linked.write("us", 20, 25)
    hidden = day.rename(target / "_out_of_reach")
    assert linked.brought("eu") == (State.STOPPED, 5)
    for path in [*hidden.iterdir()]:
        path.rename(day / path.name)
    hidden.rmdir()
    linked.settle("us")


def _of_last_week(entries: DataFrame) -> DataFrame:
    """Published eight days before."""
    return entries.selectExpr(
        "* EXCEPT (publish_time, publish_date)",
        "publish_time - INTERVAL 8 DAYS AS publish_time",
        "publish_date - 8 AS publish_date",
    )


@pytest.mark.parametrize("first", [True, False], ids=["by its first comparison", "as it goes on"])
def test_what_a_link_leaves_out_as_expired_is_counted_once_and_shown(world: World, first: bool) -> None:
    world.rewrite(("eu", "us"), ttl="7 days")
    create_topic(world.tables("us"), TOPIC)
    if not first:
        world.replicate("eu")
    append_frame(world.log("us"), _of_last_week(world.entries("us", 0, 5)), record_of(0, 5, now_us() - 8 * 86_400_000_000))
    world.write("us", 5, 8)
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated, report.expired) == (State.STOPPED, 3, 5)
    assert world.link_state("eu", "us").expired == 5
    world.write("us", 8, 9)
    set_property(world.log("us"), "note", "nothing of the messages")
    (report,) = world.replicate("eu")
    assert (report.replicated, report.expired) == (1, 0)
    assert world.link_state("eu", "us").expired == 5, "since the link began"
