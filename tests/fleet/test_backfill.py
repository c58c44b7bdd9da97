"""Backfills: beside a link that runs and in the place of one that does not, by rows and by files, killed anywhere, by time."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.coordination.claiming import claim
from geo.coordination.owners import owners_of
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import filling_runners, origin_runners
from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.delta.frames import bytes_of
from geo.delta.scan import few_rows
from geo.errors import AlreadyOwnedError, FencedError, OffsetFileError, UsageError
from geo.fleet import backfill as backfill_module
from geo.fleet.backfill import Backfill, Filled, Mode, backfill
from geo.fleet.offset_checkpoint import OffsetCheckpoint
from geo.log.topics import create_topic
from geo.names import Topic
from geo.ops.erase import erase
from geo.replication.link_state import backfilled
from geo.replication.rebuild import rebuild
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from geo.testing import dies_at
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3
from tests.running import running
from tests.world import SHAPES, TOPIC, World

pytestmark = pytest.mark.spark

FILES = Backfill(mode=Mode.FILES)
POINTS = [point for point in CrashPoint if point.value.startswith("backfill-")]


ALL = Backfill()


def _fill(
    world: World, what: Backfill = ALL, *, source: str = "us", target: str = "eu", **options: object
) -> tuple[list[Filled], dict[str, str]]:
    return backfill(world.spark, world.config, source, target, what=what, **options)  # type: ignore[arg-type]


def _filled(world: World, what: Backfill = ALL, **options: object) -> Filled:
    done, not_done = _fill(world, what, **options)  # type: ignore[arg-type]
    assert not not_done
    (filled,) = done
    return filled


@pytest.fixture(scope="module")
def _at_the_end_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("at-the-end"), spark=spark)
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "start": "latest"}])
    for first in (0, 10, 20):
        world.write("us", first, first + 10)
    world.replicate("eu")
    assert world.arrived("eu") == []
    return world


@pytest.fixture
def at_the_end(_at_the_end_once: World, tmp_path: Path) -> World:
    """A link that began at the end: of thirty messages of us, in three commits, eu has none. A copy of both logs would be clean. A copy
    for this test alone."""
    return _at_the_end_once.copy(tmp_path)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_backfill_beside_a_link_that_runs_brings_what_is_behind_it_and_nothing_twice(at_the_end: World, mode: Mode) -> None:
    world = at_the_end
    with running(world, "eu") as links:
        links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)
        world.write("us", 30, 35)
        links.until(lambda: world.arrived("eu") == list(range(30, 35)))
        filled = _filled(world, Backfill(mode=mode))
        assert (filled.messages, filled.by_file, filled.complete) == (30, 30 if mode is Mode.FILES else 0, True)
        world.write("us", 35, 40)
        links.until(lambda: len(world.arrived("eu")) == 40)
        assert {report.state for report in links.reports} == {State.RUNNING}, "the link was not disturbed"
    assert world.arrived("eu") == list(range(40))
    again = _filled(world, Backfill(mode=mode))
    assert (again.messages, again.total, again.complete) == (0, 0, True)
    theirs, ours = world.messages("us"), world.messages("eu")
    assert ours == theirs, "column by column the same"


@pytest.mark.parametrize(
    ("point", "mode"), [(point, mode) for point in POINTS for mode in Mode if mode is Mode.FILES or "copied" not in point.value]
)
def test_a_backfill_that_stops_here_brings_the_rest_when_it_is_run_again(
    at_the_end: World, point: CrashPoint, mode: Mode
) -> None:
    world, what = at_the_end, Backfill(mode=mode)
    with (
        mock.patch.object(backfill_module, "STEP_ROWS", 10),  # the sizes only: three steps
        mock.patch("geo.fleet.turns.TURN_BYTES", 4_000),
    ):
        with dies_at(point, 1 if point is CrashPoint.BACKFILL_FENCED else 2):
            _fill(world, what)
        landed = {CrashPoint.BACKFILL_FENCED: 0, CrashPoint.BACKFILL_APPENDED: 20}.get(point, 10)
        assert len(world.arrived("eu")) == landed
        filled = _filled(world, what)
    assert (filled.messages, filled.steps) == (30 - landed, 3 - landed // 10)
    world.write("us", 30, 35)
    world.replicate("eu")
    assert world.arrived("eu") == list(range(35))
    assert world.messages("eu") == world.messages("us")


@pytest.mark.parametrize("mode", list(Mode))
def test_a_backfill_by_time_brings_what_was_published_then(world: World, mode: Mode) -> None:
    """Before the first message, between two, at the end and past it. A file of which only a part is wanted goes by rows."""
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "start": "latest"}])
    before = datetime.now(timezone.utc)
    world.write("us", 0, 10)
    between = datetime.now(timezone.utc)
    world.write("us", 10, 20)
    world.log("us").delta().optimize().executeCompaction()
    world.write("us", 20, 30)
    last = datetime.fromtimestamp(
        world.log("us").read().agg(F.max(F.unix_micros("publish_time"))).collect()[0][0] / 1e6, timezone.utc
    )
    past = datetime.now(timezone.utc)
    world.replicate("eu")
    nothing = [
        Backfill(None, before, mode),
        Backfill(past, None, mode),
        Backfill(past, datetime(2100, 1, 1, tzinfo=timezone.utc), mode),
    ]
    for what in nothing:
        assert _filled(world, what).messages == 0
    assert _filled(world, Backfill(last, None, mode), dry_run=True).messages == 10, "at the last message, and later"
    part = _filled(world, Backfill(between, last, mode))
    assert (part.messages, part.by_file) == (10, 0), "two halves of one file"
    assert world.arrived("eu") == list(range(10, 20))
    rest = _filled(world, Backfill(before, past, mode))
    assert (rest.messages, rest.by_file) == (20, 10 if mode is Mode.FILES else 0)
    assert world.arrived("eu") == list(range(30))
    assert world.messages("eu") == world.messages("us")


def test_what_does_not_cross_stays_where_it_is_also_by_file(world: World) -> None:
    """Markers, messages for others, and some that are impossible, each in a file of its own beside some that cross."""
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "start": "latest"}])
    world.write("us", 0, 30)
    rows = world.entries("us", 0, 5)
    for ledger, change in enumerate(
        [
            {"marker": F.lit("SNAPSHOT")},
            {"replicate_to": F.array(F.lit("asia"))},
            {"replicate_to": F.array().cast("array<string>")},
            {"replicate_to": F.array(F.lit("eu"))},
            {"publish_time": F.lit(datetime(2200, 1, 1, tzinfo=timezone.utc))},
        ],
        start=2,
    ):
        append_frame(world.log("us"), rows.withColumns({"ledger_id": F.lit(ledger).cast("long"), **change}))
    world.replicate("eu")
    filled = _filled(world, FILES)
    assert (filled.messages, filled.by_file) == (30 + 5, 30), "what names eu crosses, by rows"
    assert {ledger for _, ledger, _ in world.messages("eu")} == {1, 5}


def test_files_cross_on_s3_by_the_copy_of_the_store(
    spark: SparkSession, tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    run, reached = uuid.uuid4(), json.dumps(s3.storage())
    for name in ("eu", "us"):
        s3.make_bucket(f"{name}-{run}")
    world = World(
        tmp_path, links=[("us", "eu")], place=lambda name: f"root: 's3a://{name}-{run}/t', storage: {reached}", spark=spark
    )
    world.write("us", 0, 10)
    world.write("us", 10, 20)
    with dies_at(CrashPoint.BACKFILL_COPIED):
        _fill(world, FILES)
    filled = _filled(world, FILES)
    assert (filled.messages, filled.by_file, filled.complete) == (20, 20, True)
    theirs, ours = (few_rows(log, log.latest_version()) for log in (world.log("us"), world.log("eu")))
    assert theirs is not None
    assert theirs == ours
    world.write("us", 20, 25)
    (report,) = world.replicate("eu")
    assert report.replicated == 5


def test_without_a_link_that_ran_the_whole_source_is_brought_and_the_link_then_finds_nothing_missing(world: World) -> None:
    world.write("us", 0, 20)
    steps: list[Filled] = []
    with mock.patch.object(backfill_module, "STEP_ROWS", 8):  # the size only
        filled = _filled(world, on_step=steps.append)
    assert (filled.messages, filled.source_version) == (20, world.log("us").latest_version())
    assert [step.messages for step in steps] == [8, 16, 20]
    world.write("us", 20, 25)
    (report,) = world.replicate("eu")
    assert report.replicated == 5
    world.assert_clean()


def test_a_comparison_and_a_backfill_of_the_same_messages_never_run_at_once(at_the_end: World) -> None:
    world = at_the_end
    tables = world.tables("eu")
    (filling,) = claim(tables, [filling_runners({"us"}, TOPIC, "eu")])
    with pytest.raises(AlreadyOwnedError, match="backfill of us of"):
        reconcile_links(world.spark, world.config, "us", "eu")
    assert "backfill of us of" in _fill(world)[1][str(TOPIC)]
    world.log("us").delta().restoreToVersion(1)  # so that the link's next start compares, once it may
    (report,) = world.replicate("eu")
    assert report.state is State.FAILED
    reconcile_links(world.spark, world.config, "us", "eu", take_over=True)
    with pytest.raises(FencedError, match="another runner took over"):
        filling.refuse_if_lost()
    filling.abandon()
    (mine,) = claim(tables, [filling_runners({"eu"}, TOPIC, "eu")])
    world.write("eu", 0, 5)
    world.rewrite(("eu", "us"), [("us", "eu"), ("eu", "us")])
    world.replicate("us")
    with pytest.raises(AlreadyOwnedError, match="backfill of eu of"):
        rebuild(world.spark, world.config, "eu", "us")
    release([mine])


def test_a_comparison_that_loses_its_place_to_a_backfill_appends_nothing_more(world: World) -> None:
    """Whoever is silent for minutes is taken over: its link is still its own, and what it compares is not."""
    world.write("us", 0, 20)
    link = world.topic_replicator("us", "eu")
    (ownership,) = claim(link.target, [link.runners])
    taken: list[Ownership] = []

    def take_after_a_step() -> bool:
        if link.row.replicated == 10 and not taken:
            taken.extend(claim(world.tables("eu"), [filling_runners({"us"}, TOPIC, "eu")], take_over=True))
        return False

    with (
        mock.patch("geo.replication.missing.STEP_ROWS", 10),  # the size only
        pytest.raises(FencedError, match=r"backfill of us of .* another runner took over"),
    ):
        link.prepare(ownership, None, stopped=take_after_a_step)
    assert world.arrived("eu") == list(range(10))
    ownership.abandon()
    release(taken)
    world.replicate("eu")
    world.assert_clean()


def test_what_expires_while_it_looks_is_not_brought_twice(world: World) -> None:
    """The clock goes on between the look at the one log and at the other."""
    world.rewrite(("eu", "us"), [("us", "eu")], ttl="1 hours")
    now = datetime.now(timezone.utc)
    create_topic(world.tables("us"), TOPIC)
    rows = world.entries("us", 0, 10).withColumn(
        "publish_time", F.lit(now) - F.expr("make_dt_interval(0, 0, 59, 0) - make_dt_interval(0, 0, 0, entry_id)")
    )
    append_frame(world.log("us"), rows)
    world.replicate("eu")
    # From ten seconds before the first of them expires, in steps so small that a look at each log meets another part of them.
    clock = itertools.count(int((now.timestamp() + 50) * 1e6), 3_000_000)
    with mock.patch.object(backfill_module, "checked_now_us", side_effect=lambda *_, **__: next(clock)):
        for _ in range(3):
            assert _filled(world).messages == 0
    assert world.arrived("eu") == list(range(10))


def test_what_ends_in_a_fault_with_nothing_in_flight_is_owned_no_longer(world: World) -> None:
    """Whoever resolves it, in another process, is not refused."""
    world.write("us", 0, 20)
    world.replicate("eu")
    world.log("us").delta().restoreToVersion(0)
    world.write("us", 20, 25)
    assert "geo reconcile" in _fill(world)[1][str(TOPIC)]

    def states() -> set[str]:
        return {one.state for one in owners_of(world.tables("eu"), "backfill ")}

    assert states() == {"released"}
    (way,) = claim(world.tables("eu"), [origin_runners({"us"}, TOPIC, "eu")])
    world.log("eu").delta().restoreToVersion(1)  # where the link stands is not known any more
    world.rewrite(("eu", "us"), [("us", "eu")])
    assert "somebody runs it" in _fill(world)[1][str(TOPIC)] or "geo reconcile" in _fill(world)[1][str(TOPIC)]
    assert states() == {"released"}
    release([way])


def test_what_was_erased_behind_the_link_does_not_come_back_by_a_backfill(at_the_end: World) -> None:
    world = at_the_end
    erase(world.spark, world.config, "us", TOPIC, "key = 'k3'")
    filled, not_done = _fill(world)
    assert filled == []
    assert "the link has not passed it yet" in not_done[str(TOPIC)]
    assert world.arrived("eu") == []
    world.replicate("eu")
    assert _filled(world).messages == 30
    payloads = [row["payload"] for row in world.log("eu").read().collect()]
    assert len(payloads) == 30
    assert b"payload 3" not in payloads


def test_what_a_backfill_brings_into_a_hub_crosses_once_also_where_some_of_it_is(hub: World) -> None:
    links: Sequence[dict[str, object]] = [
        {"source": "a", "target": "b", "start": "latest"},
        {"source": "b", "target": "c", "origins": "[a, b]"},
    ]
    hub.rewrite(("a", "b", "c"), links)
    hub.write("a", 0, 20)
    for target in ("b", "c"):
        hub.replicate(target)
    hub.write("a", 20, 25)
    for target in ("b", "c"):
        hub.replicate(target)
    with running(hub, "c") as running_links:
        running_links.until(lambda: running_links.last(TOPIC)[0] is State.RUNNING)
        assert _filled(hub, source="a", target="b").messages == 20
        running_links.until(lambda: len(hub.arrived("c", "a")) == 25)
    assert hub.arrived("c", "a") == list(range(25))
    origins = [backfilled(commit.user_metadata) for commit in hub.log("b").commits(0, hub.log("b").latest_version())]
    assert frozenset({"a"}) in origins
    assert hub.verify().clean


@pytest.fixture
def hub(spark: SparkSession, tmp_path: Path) -> World:
    return World(tmp_path, *SHAPES["hub"], spark=spark)


def test_a_rate_bounds_the_steps_and_a_stop_ends_it_between_two(at_the_end: World) -> None:
    world, stopped = at_the_end, threading.Event()
    steps: list[Filled] = []

    def step(filled: Filled) -> None:
        steps.append(filled)
        stopped.set()

    size = bytes_of(world.log("us"))
    filled = _filled(world, Backfill(bytes_per_second=size // 30), on_step=step, stopped=stopped)
    assert len(steps) == 1
    assert 0 < filled.messages < 30
    assert not filled.complete
    assert _filled(world).messages == 30 - filled.messages
    assert world.arrived("eu") == list(range(30))


def test_of_what_is_complete_the_file_of_offsets_says_where_to_go_on(at_the_end: World, tmp_path: Path) -> None:
    world, other = at_the_end, Topic.parse("persistent://shop/web/orders")
    world.write("us", 0, 3, topic=other.with_partition(2))
    checkpoint = OffsetCheckpoint(tmp_path / "offsets")
    checkpoint.write({("elsewhere", 0): 7})
    assert not _fill(world, checkpoint=checkpoint)[1]
    assert checkpoint.read() == {
        ("elsewhere", 0): 7,
        (str(TOPIC), 0): world.log("us").latest_version() + 1,
        (str(other), 2): world.log("us", other.with_partition(2)).latest_version() + 1,
    }
    with pytest.raises(UsageError, match="leave it out of a backfill by time"):
        _fill(world, Backfill(since=datetime.now(timezone.utc)), checkpoint=checkpoint)
    (tmp_path / "offsets").write_text("1\n0\n")
    with pytest.raises(OffsetFileError, match="unrecognised version 1"):
        _fill(world, checkpoint=checkpoint)


def test_what_cannot_be_backfilled_is_refused_by_name(at_the_end: World) -> None:
    world = at_the_end
    with pytest.raises(UsageError, match="us has no topic persistent://shop/web/none"):
        _fill(world, topics="persistent://shop/web/none")
    with pytest.raises(UsageError, match="has no link eu->us"):
        _fill(world, source="eu", target="us")
    noon = Backfill(datetime(2026, 1, 1, 12), mode="files")  # type: ignore[arg-type]  # as somebody types it in a notebook
    assert (noon.since, noon.mode) == (datetime(2026, 1, 1, 12, tzinfo=timezone.utc), Mode.FILES)
    with pytest.raises(UsageError, match="is no time"):
        Backfill(datetime(2026, 1, 2, tzinfo=timezone.utc), datetime(2026, 1, 1, tzinfo=timezone.utc))
    world.spark.sql(f"ALTER TABLE {world.log('us').sql} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    done, not_done = _fill(world, FILES)
    assert done == []
    assert "uses more of Delta's protocol than plain files" in not_done[str(TOPIC)]
    assert "Leave --mode out" in not_done[str(TOPIC)]
    assert world.arrived("eu") == []
