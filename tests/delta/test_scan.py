"""Questions about rows have one answer, whoever wrote the files and whichever engine is asked."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.delta.appending import append_frame
from geo.delta.driver import Reads
from geo.delta.engine import Scan
from geo.delta.engines.spark import scan as spark_scan
from geo.delta.predicate import AtLeast, Compare, holds
from geo.delta.scan import count_nulls, rows_where, scan, summarise
from geo.delta.summary import Summary
from geo.journal.cluster import connect_later
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

COLUMNS = ("origin", "entry_id", "properties", "replicate_to")


@pytest.mark.parametrize(("least", "count"), [(3, 12), (14, 1), (99, 0)])
def test_rows_of_files_of_three_writers_are_asked_for_together(world: World, least: int, count: int) -> None:
    """Each has its own idea of which columns may be NULL."""
    world.write("us", 0, 5)
    append_frame(world.log("us"), world.entries("us", 5, 10))
    write_deltalake(world.log("us").name, world.entries("us", 10, 15).toArrow(), mode="append")
    version, wanted = world.log("us").latest_version(), Compare("entry_id", ">=", least)
    found, scanned, days = {}, {}, {}
    start = {Reads.NONE: lambda: world.spark, Reads.ALL: lambda: pytest.fail("Spark is asked")}
    for reads, session in start.items():
        log = connect_later(session, world.config.cluster("us"), reads=reads).log(TOPIC)
        rows = rows_where(log, version, COLUMNS, wanted).sort_by([("entry_id", "ascending")])
        assert count_nulls(log, version, "marker") == 15
        found[reads] = [tuple(row[name] for name in COLUMNS) for row in rows.to_pylist()]
        answers = scan(log, version, Scan(["publish_time", "origin"], lambda rows: rows.to_pylist(), wanted))
        scanned[reads] = sorted((row["publish_time"], row["origin"]) for answer in answers for row in answer)
        of_count = scan(log, version, Scan(["entry_id"], _entries, wanted, _all))
        assert sorted(_all(of_count)) == sorted(row[1] for row in found[reads])
        assert len(of_count) <= 1
        of_groups = scan(log, version, Scan(["entry_id"], _entries, wanted, _all, ("entry_id",)))
        assert sorted(_all(of_groups)) == sorted(_all(of_count))
        days[reads] = summarise(log, version, Summary(("publish_date",)))
    assert len(found[Reads.ALL]) == count
    assert found[Reads.ALL] == found[Reads.NONE]
    assert days[Reads.ALL] == days[Reads.NONE]
    assert len(scanned[Reads.ALL]) == count
    assert scanned[Reads.ALL] == scanned[Reads.NONE]
    assert {str(time.tzinfo) for time, _ in scanned[Reads.NONE]} <= {"UTC"}


@pytest.mark.parametrize("most", [64, 1, 0])
def test_bounds_of_groups_are_the_same_as_conditions_and_as_a_table_that_is_joined(
    world: World, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group has NULL, and one has no bound."""
    monkeypatch.setattr(spark_scan, "MOST_CONDITIONS", most)
    groups = {"key": F.expr("CASE entry_id % 3 WHEN 0 THEN 'a:b' WHEN 1 THEN 'c' END"), "ledger_id": F.expr("1 + entry_id % 2")}
    world.write("us", 0, 1)
    append_frame(world.log("us"), world.entries("us", 0, 30).withColumns(groups))
    wanted = AtLeast("entry_id", ("key", "origin", "ledger_id"), {"a:b:us:1": 9, "a:b:us:2": 28, "c:us:2": 20})
    version, names = world.log("us").latest_version(), ("entry_id", "key", "origin", "ledger_id")
    rows = world.log("us").read(version).select(*names).toArrow().to_pylist()
    expected = sorted(row["entry_id"] for row in rows if holds(wanted, row))
    assert 10 < len(expected) < 31
    for reads in (Reads.NONE, Reads.ALL):
        log = connect_later(lambda: world.spark, world.config.cluster("us"), reads=reads).log(TOPIC)
        assert sorted(_all(scan(log, version, Scan(["entry_id"], _entries, wanted)))) == expected


def _entries(rows: pa.Table) -> list[int]:
    return list(rows["entry_id"].to_pylist())


def _all(parts: Iterable[list[int]]) -> list[int]:
    return [entry for part in parts for entry in part]


def test_no_two_tasks_tell_of_one_group(spark: SparkSession) -> None:
    rows = spark.range(0, 1_000, numPartitions=4).selectExpr("id % 7 AS group")
    answers = spark_scan.scanned(rows, Scan(["group"], lambda read: set(read["group"].to_pylist()), by=["group"]))
    assert sorted(group for answer in answers for group in answer) == list(range(7))
