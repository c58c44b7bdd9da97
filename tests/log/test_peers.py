"""Ends of ledgers, as a producer's start asks for them here and at its peers."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from pyspark.sql import functions as F

from geo.delta.appending import append_frame
from geo.delta.driver import Reads
from geo.delta.engine import Scan
from geo.delta.engines.native import engine as native
from geo.delta.scan import scan_here
from geo.journal.cluster import connect_later
from geo.log.peers import ends_of_ids
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("little_rows", [native.LITTLE_ROWS, 3])
def test_the_ends_of_ledgers_are_the_same_with_and_without_spark(
    world: World, little_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "LITTLE_ROWS", little_rows)
    world.write("eu", 0, 5)  # a file of one ledger
    log, ledger = world.log("eu"), F.col("ledger_id")
    marker = world.entries("eu", 5, 6).withColumn("marker", F.lit("SNAPSHOT_REQUEST"))
    both = world.entries("eu", 6, 9).withColumn("ledger_id", F.lit(2)).unionByName(world.entries("us", 0, 20)).unionByName(marker)
    append_frame(log, both.coalesce(1))
    day_ago = F.current_timestamp() - F.expr("INTERVAL 1 DAY")
    old = world.entries("eu", 0, 4).withColumns(
        {"ledger_id": ledger + 2, "publish_time": day_ago, "publish_date": F.to_date(day_ago)}
    )
    append_frame(log, old.coalesce(1))
    by = {
        reads: connect_later(lambda: world.spark, world.config.cluster("eu"), reads=reads).log(TOPIC)
        for reads in (Reads.NONE, Reads.LITTLE)
    }
    version = log.latest_version()
    for origin, ids, since, expected in [
        ("eu", [1, 2, 3, 4], None, {1: 5, 2: 8, 3: 3}),
        ("eu", [2], None, {2: 8}),
        ("eu", [1, 3], date.today() - timedelta(days=3), {1: 5, 3: 3}),
        ("us", [1], None, {1: 19}),
        ("us", [2, 3], None, {}),
        ("de", [1], None, {}),
    ]:
        assert ends_of_ids(by[Reads.NONE], version, origin, ids, since) == expected
        assert ends_of_ids(by[Reads.LITTLE], version, origin, ids, since) == expected


def test_a_time_in_the_statistics_that_python_has_none_for_is_not_known(world: World) -> None:
    world.write("eu", 0, 5)
    log = world.log("eu")
    rows = world.entries("eu", 5, 6).withColumn("event_time", F.expr("TIMESTAMP'0000-06-01 00:00:00'"))
    rows.write.format("delta").mode("append").save(log.name)  # as Delta describes its files; ours leave such a time out
    found = scan_here(log, log.latest_version(), Scan(["entry_id"], lambda rows: rows["entry_id"].to_pylist()))
    assert sorted(entry for entries in found or () for entry in entries) == list(range(6))
    assert ends_of_ids(log, log.latest_version(), "eu", [1], None) == {1: 5}
