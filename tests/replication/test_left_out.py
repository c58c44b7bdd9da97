"""What a link leaves out for ever is told: in its row, beside its lag, and by verify."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.cli.main import main
from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.journal.event_rate import EventKind
from geo.journal.events import SETTING, flush_all, read_events
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.ops.health import Health
from geo.ops.link_health import link_findings
from geo.ops.verify.report import Category
from geo.reasons import Reason
from geo.replication.link_row import LinkRow
from geo.replication.link_status import LinkStatus, link_statuses
from geo.replication.link_table import append_links
from geo.streams.life import State
from geo.testing import dies_at
from geo.times import EPOCH, in_us
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(tmp_path, links=[("us", "eu")], spark=spark)


LATE = datetime(2200, 1, 1, tzinfo=timezone.utc)


def _forge(world: World, first: int, end: int, *, by_producer: bool = False) -> None:
    """Somebody appends rows of the year 2200, or a producer whose storage had a wrong clock."""
    late = world.entries("us", first, end).withColumn("publish_time", F.lit(LATE))
    batch = Batch("w", in_us(LATE), (Span(LedgerKey("", None), 1, first, end - 1),), {})
    append_frame(world.log("us"), late, batch.encode() if by_producer else None)


def _status(world: World) -> LinkStatus:
    clusters = world.all_tables()
    (one,) = link_statuses(clusters["eu"], clusters, world.config, str(TOPIC))
    return one


def test_rows_that_no_producer_can_have_written_are_in_the_links_row_out_of_sync_and_a_fault(world: World) -> None:
    world.write("us", 0, 5)
    _forge(world, 5, 7)
    (report,) = world.replicate("eu")  # compares both logs
    assert (report.impossible, world.link_state("eu", "us").impossible) == (2, 2)
    _forge(world, 7, 10)
    (report,) = world.replicate("eu")  # goes on from its cursor
    assert (report.impossible, world.link_state("eu", "us").impossible) == (3, 5)
    assert world.arrived("eu") == list(range(5))
    status = _status(world)
    assert (status.impossible, status.in_sync, status.state) == (5, False, State.STOPPED)
    found = world.verify()
    assert (found.clean, found.total(Category.IMPOSSIBLE), found.total(Category.MISSING)) == (False, 5, 0)
    assert world.verify_quick().total(Category.IMPOSSIBLE) == 5
    assert any("5 impossible" in line for line in found.lines())


def test_what_a_link_left_out_is_not_ok_until_a_person_takes_the_source_as_it_is(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "on")

    def typed(*verb: str) -> int:
        return main([*verb, "--config", str(world.path)])

    def health() -> tuple[Health, Reason | None]:
        clusters = world.all_tables()
        ((_, found, _),) = link_findings(clusters["eu"], clusters, world.config, str(TOPIC))
        return found.health, found.code

    world.write("us", 0, 5)
    _forge(world, 5, 7)
    world.replicate("eu")
    capsys.readouterr()
    assert typed("links", "status", "--fail-on", "error") == 1
    told = capsys.readouterr().out
    assert "BEHIND" in told
    assert f"do: geo reconcile --config {world.path} --source us --target eu" in told
    since = world.link_state("eu", "us").impossible_since
    assert typed("reconcile", "--source", "us", "--target", "eu", "--topic", str(TOPIC)) == 0
    assert health() == (Health.OK, None)
    assert _status(world).in_sync
    assert typed("links", "status") == 0
    assert (world.verify().clean, world.verify_quick().clean) == (True, True)
    assert any("left out 2 rows" in note for note in world.verify().notes)

    _forge(world, 7, 8)
    world.replicate("eu")
    assert health() == (Health.BEHIND, Reason.IMPOSSIBLE_ROWS), "of what came later nobody has said anything"
    assert not world.verify().clean
    row = world.link_state("eu", "us")
    assert (row.impossible, row.not_accepted) == (3, 1)
    assert since is not None
    assert row.impossible_since is not None
    assert row.impossible_since > since
    flush_all()
    noted = read_events(world.tables("eu"), EPOCH, EventKind.REJECT)
    assert {(one.reason_code, one.to_state) for one in noted} == {(Reason.IMPOSSIBLE_ROWS, "left out")}

    world.log("us").delta().delete("publish_time >= '2200-01-01'")
    assert typed("reconcile", "--source", "us", "--target", "eu", "--topic", str(TOPIC)) == 0
    row = world.link_state("eu", "us")
    assert (row.impossible, row.not_accepted, row.impossible_since, health()) == (0, 0, None, (Health.OK, None))


@pytest.mark.parametrize("by_spark", [False, True])
def test_what_is_left_out_is_recorded_before_the_cursor_passes_it(world: World, *, by_spark: bool) -> None:
    world.write("us", 0, 5)
    world.replicate("eu")
    if by_spark:
        world.leave_to_spark("us")
    _forge(world, 5, 7, by_producer=True)
    world.write("us", 7, 8)
    with dies_at(CrashPoint.LINK_AFTER_APPEND):
        world.replicate("eu")
    assert world.arrived("eu") == [*range(5), 7], "the cursor is in that commit"
    world.replicate("eu")
    assert world.link_state("eu", "us").impossible == 2


def test_the_row_of_an_older_program_is_not_in_sync_until_what_it_left_out_is_counted(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.write("us", 0, 5)
    _forge(world, 5, 7)
    world.replicate("eu")
    append_links(world.tables("eu"), [replace((row := world.link_state("eu", "us")), impossible=None, sequence=row.sequence + 1)])
    status = _status(world)
    assert (status.impossible, status.in_sync, status.lag and status.lag.messages) == (None, False, 0)
    found = world.verify_quick()
    assert (found.clean, found.total(Category.IMPOSSIBLE)) == (False, 0)
    assert any("is unknown" in line and "geo replicate --cluster eu" in line for line in found.lines())
    main(["links", "status", "--config", str(world.path)])
    assert "is unknown; its next start counts them" in capsys.readouterr().out

    _forge(world, 7, 8, by_producer=True)
    (report,) = world.replicate("eu")
    assert (report.impossible, world.link_state("eu", "us").impossible) == (1, 3), "what runs before left out is not this one's"
    assert any("3 impossible" in line for line in world.verify_quick().lines())


def test_a_number_that_nobody_knows_stays_unknown_whatever_is_added_to_it(world: World) -> None:
    world.write("us", 0, 5)
    world.replicate("eu")
    row = LinkRow(world.tables("eu"), "us", TOPIC, ("us",))
    row.begin(replace(world.link_state("eu", "us"), impossible=None), 9)
    row.leave_out(2)
    assert (row.impossible, world.link_state("eu", "us").impossible) == (2, None)
    row.counted(3)
    row.leave_out(1)
    assert world.link_state("eu", "us").impossible == 4
