"""What a target lacks is the same with Spark and without, and so is what becomes of it."""

from __future__ import annotations

from importlib import import_module
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from geo.delta.appending import append_frame
from geo.delta.driver import Reads
from geo.delta.engines.native import engine as native
from geo.delta.engines.native.rows import MOST_ROWS
from geo.delta.scan import few_added, few_rows
from geo.delta.table import Table
from geo.ids import LEDGER_ID_LIMIT
from geo.journal.cluster import connect_later
from geo.log.topic_log import ID
from geo.now import now_us
from geo.replication.both_logs import BothLogs
from geo.replication.rebuild import rebuild
from geo.replication.rule import Floors, Rule
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

missing_module = import_module("geo.replication.missing")


def _source(world: World) -> None:
    """Entries of us, in ledger 1, every kind of row among them, and of ledgers and origins beside it."""
    world.write("us", 0, 4)
    entry = F.col("entry_id")
    rows = world.entries("us", 4, 40)
    rows = rows.withColumns(
        {
            "marker": F.when(entry == 4, "SNAPSHOT_REQUEST").when(entry == 5, "SNAPSHOT"),
            "replicate_to": F.when(entry == 6, F.array()).when(entry == 7, F.array(F.lit("asia"))).when(
                entry == 8, F.array(F.lit("asia"), F.lit("eu"))
            ),
            "origin": F.when(entry.between(9, 10), "asia").otherwise(F.col("origin")),
            "ledger_id": F.expr(f"CASE WHEN entry_id = 11 THEN 0L WHEN entry_id = 12 THEN {LEDGER_ID_LIMIT}L WHEN entry_id > 30 THEN 2L ELSE 1L END"),
            "publish_time": F.when(entry.between(13, 15), F.current_timestamp() - F.expr("INTERVAL 2 HOURS"))
            .when(entry == 16, F.current_timestamp() + F.expr("INTERVAL 2 DAYS"))
            .otherwise(F.col("publish_time")),
            "event_time": F.when(entry == 17, F.current_timestamp()),
            "properties": F.when(entry == 18, F.create_map(F.lit("a"), F.lit("b"))),
            "payload": F.when(entry == 19, F.lit(None)).otherwise(F.col("payload")),
            "publish_date": F.when(entry == 20, F.current_date() - 1).otherwise(F.col("publish_date")),
        }
    )  # fmt: skip
    append_frame(world.log("us"), rows.coalesce(1))
    append_frame(world.log("us"), world.log("us").read().where("entry_id IN (20, 33)"))  # somebody put them in once more


def _rows(step: object) -> pa.Table:
    return step if isinstance(step, pa.Table) else step.toArrow()  # type: ignore[attr-defined]


def test_what_is_missing_is_the_same_with_and_without_spark(world: World) -> None:
    _source(world)
    world.write("eu", 0, 3)
    here = world.entries("us", 18, 34).withColumn("ledger_id", F.expr("IF(entry_id > 30, 2L, 1L)"))
    append_frame(world.log("eu"), here.where("entry_id NOT IN (20, 33)").coalesce(1))
    cases: list[tuple[Floors | None, int | None]] = [(None, None), ({"us:1": 15}, 3600), ({}, 3600)]
    for floors, ttl_s in cases:
        found = {}
        for reads in (Reads.NONE, Reads.LITTLE):
            source, target = (_log(world, name, reads) for name in ("us", "eu"))
            logs = BothLogs(source, target, Rule("us", "eu", frozenset({"us"}), ttl_s), "us->eu", now_us)
            steps = list(logs.missing(source.latest_version(), target.latest_version(), floors, 7))
            assert [isinstance(step, pa.Table) for step in steps] == [reads is Reads.LITTLE] * len(steps)
            assert logs.count_missing(source.latest_version(), floors) == sum(len(_rows(step)) for step in steps)
            assert all(len(_rows(step)) <= 7 for step in steps)
            names = source.read().columns
            rows = pa.concat_tables([_rows(step).select(names) for step in steps], promote_options="permissive")
            found[reads] = rows.sort_by([(name, "ascending") for name in ID]).to_pylist()
        assert 5 <= len(found[Reads.NONE]) <= 25
        assert found[Reads.LITTLE] == found[Reads.NONE]


def _log(world: World, cluster: str, reads: Reads) -> Table:
    return connect_later(lambda: world.spark, world.config.cluster(cluster), reads=reads).log(TOPIC)


def test_a_log_with_many_rows_is_left_to_spark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("us", 0, 10)
    world.write("eu", 0, 10)
    for most, expected in ((10, 10), (9, None)):
        monkeypatch.setattr(native, "MOST_ROWS", most)
        few = few_rows(world.log("us"), world.log("us").latest_version())
        assert (few and len(few)) == expected


def test_rows_that_are_small_in_a_file_and_large_in_memory_are_left_to_spark(world: World) -> None:
    world.write("us", 0, 1)
    same = world.entries("us", 1, 200).withColumn("payload", F.expr("CAST(repeat('x', 1000000) AS BINARY)"))
    append_frame(world.log("us"), same.coalesce(1))
    log = world.log("us")
    assert few_rows(log, log.latest_version()) is None
    assert few_added(log, log.latest_version(), log.latest_version()) is None
    world.replicate("eu")
    assert world.count("eu") == 200


@pytest.mark.parametrize("most", [MOST_ROWS, 3])
def test_a_region_gets_back_what_is_its_own_and_lost_in_the_middle(
    linked: World, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "MOST_ROWS", most)
    by_spark = mock.Mock(wraps=missing_module.missing_in_steps)
    monkeypatch.setattr(missing_module, "missing_in_steps", by_spark)
    linked.spark.sql(f"DELETE FROM {linked.log('eu').sql} WHERE origin = 'eu' AND entry_id BETWEEN 5 AND 9")
    assert [one.messages for one in rebuild(linked.spark, linked.config, "eu", "us", dry_run=True)] == [5]
    assert [one.messages for one in rebuild(linked.spark, linked.config, "eu", "us")] == [5]
    assert [one.messages for one in rebuild(linked.spark, linked.config, "eu", "us")] == [0]
    assert by_spark.called is (most == 3)
    linked.assert_clean()
