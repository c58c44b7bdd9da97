"""What clusters hold of a topic, asked while one removal goes on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from pyspark.sql import functions as F

from geo.delta.appending import append_frame
from geo.delta.driver import Reads
from geo.delta.engines.native import engine as native
from geo.journal.cluster import connect_later
from geo.now import now_us
from geo.ops.holdings import Holdings, message_extents
from geo.ops.removal import Extents, OnlyThere
from geo.times import from_us
from tests.waiting import until
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def test_what_a_log_holds_is_the_same_with_and_without_spark(world: World) -> None:
    for first in (5, 0):  # of one ledger, in two files
        world.write("eu", first, first + 5)
    entry, hours = F.col("entry_id"), F.expr("INTERVAL 1 HOURS")
    other = world.entries("us", 0, 30).withColumns(
        {
            "marker": F.when(entry == 3, "SNAPSHOT"),
            "ledger_id": F.expr("IF(entry_id > 9, 2L, 1L)"),
            "entry_id": F.when(entry == 11, 12).when(entry > 20, entry + 2**40).otherwise(entry),
            "publish_time": F.current_timestamp() - hours * entry,
        }
    )
    append_frame(world.log("eu"), other.coalesce(1))
    version = world.log("eu").latest_version()
    world.write("eu", 10, 20)

    def held(reads: Reads, since: datetime | None) -> Extents:
        return message_extents(connect_later(start[reads], world.config.cluster("eu"), reads=reads).log(TOPIC), version, since)

    start = {Reads.NONE: lambda: world.spark, Reads.LITTLE: lambda: pytest.fail("Spark is asked")}
    for since in (None, from_us(now_us()) - timedelta(hours=24.5), from_us(now_us()) - timedelta(hours=2.5)):
        assert held(Reads.LITTLE, since) == held(Reads.NONE, since)
    found = held(Reads.LITTLE, None)
    assert [str(ledger) for ledger, extent in sorted(found.items()) if extent.is_whole] == ["eu:1"]
    assert {str(ledger): extent.count for ledger, extent in found.items()} == {"eu:1": 10, "us:1": 9, "us:2": 20}


def test_no_limit_cuts_off_who_reads_a_log_and_it_is_read_once_a_version(linked: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "LITTLE_ROWS", 0)  # by jobs of Spark's one sees what is read
    found = Holdings({"us": linked.tables("us")})
    context, told = linked.spark.sparkContext, linked.spark.sparkContext.statusTracker()

    def jobs(asked: str, messages: int) -> int:
        """How many jobs this thread runs when it asks. What is limited in time is asked in threads of its own."""
        context.setJobGroup(asked, "what only eu has")
        assert found.only_in(linked.tables("eu"), linked.config, TOPIC).messages == messages
        context.setJobGroup(f"after {asked}", "told in order, later than it happens")
        linked.spark.range(1).count()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        until(lambda: bool(told.getJobIdsForGroup(f"after {asked}")))
        return len(told.getJobIdsForGroup(asked))

    both, none = jobs("both are read", 0), jobs("none is read", 0)
    assert both > none == jobs("none is read again", 0)
    linked.write("eu", 20, 25)
    one = jobs("one is read", 5)
    assert both > one > none


def test_who_could_not_be_asked_once_is_not_waited_for_again(linked: World) -> None:
    us = linked.folder / "us"
    us.rename(linked.folder / "elsewhere")
    us.write_text("no folder")
    found = Holdings({"us": linked.tables("us")})
    first = found.only_in(linked.tables("eu"), linked.config, TOPIC)
    us.unlink()
    (linked.folder / "elsewhere").rename(us)
    again = found.only_in(linked.tables("eu"), linked.config, TOPIC)
    assert first == again
    assert (first.messages, list(first.away or {})) == (40, ["us"])
    assert Holdings({"us": linked.tables("us")}).only_in(linked.tables("eu"), linked.config, TOPIC) == OnlyThere()
