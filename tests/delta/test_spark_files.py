"""Rows that Spark writes beside a table, for a commit without Spark: as Delta's own append, and without the lock."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo import crash
from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.delta.committing import alone, wait_for_commits
from geo.delta.ddl import set_property
from geo.delta.driver import Driver
from geo.delta.engines.spark.files import STAGED_S, sweep
from geo.delta.local_state import own_state
from geo.delta.spark_commits import vacuum_table
from geo.delta.table import Table
from geo.errors import FencedError
from geo.faults import SPARK_ERRORS
from tests.delta.logs import made_log, rows_of
from tests.waiting import until

pytestmark = pytest.mark.spark


def _rows(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.createDataFrame(rows_of(first, end)).coalesce(1)


def _leave_to_spark(table: Table) -> None:
    set_property(table, "delta.feature.typeWidening-preview", "supported")
    assert own_state(table) is None


def _left(table: Table) -> list[Path]:
    """Files that no version of the table has."""
    named = {Path(name.removeprefix("file:")) for name in table.read().inputFiles()}
    return [path for path in Path(table.name).rglob("*") if path.suffix == ".parquet" and path not in named] + list(
        Path(table.name).glob("_geo*")
    )


def _hanging(rows: DataFrame, pipe: Path) -> DataFrame:
    """The rows, once somebody has written to the pipe."""
    os.mkfifo(pipe)

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pipe.read_text()
        yield from batches

    return rows.mapInArrow(wait, rows.schema)


def _until_spark_writes(log: Table) -> None:
    elsewhere = "its plan runs elsewhere than into files beside the table"
    until(lambda: any(Path(log.name).glob("_geo-written-*")), lambda: elsewhere, every_s=0.01)


@pytest.mark.parametrize("native", [True, False])
def test_a_plan_that_hangs_holds_up_nobody_and_adds_nothing_once_it_is_refused(
    spark: SparkSession, tmp_path: Path, native: bool
) -> None:
    log, pipe = made_log(spark, tmp_path), tmp_path / "pipe"
    hanging = _hanging(_rows(spark, 0, 2), pipe)
    if not native:
        _leave_to_spark(log)
    refused, errors, replaced = threading.Event(), list[BaseException](), threading.Event()

    def refuse() -> None:
        if replaced.is_set():
            refused.set()
            raise FencedError("replaced")

    def bring() -> None:
        try:
            append_frame(log, hanging, refuse=refuse)
        except FencedError as error:
            errors.append(error)

    hung = threading.Thread(target=bring)
    hung.start()
    _until_spark_writes(log)
    beside = threading.Thread(target=lambda: append_frame(log, _rows(spark, 10, 12)))
    beside.start()
    beside.join(60.0)
    assert not beside.is_alive(), "a local producer is not held up"
    assert hung.is_alive()
    replaced.set()
    pipe.write_text("go on")
    hung.join(60.0)
    assert (refused.is_set(), len(errors)) == (True, 1)
    assert sorted(row["entry_id"] for row in log.read().collect()) == [10, 11]
    assert not _left(log)


def test_a_plan_whose_append_counts_once_holds_up_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """As a sink's is: what its rows are made of may be slow to read."""
    log, pipe = made_log(spark, tmp_path), tmp_path / "pipe"
    hanging = _hanging(_rows(spark, 0, 2), pipe)
    hung = threading.Thread(target=lambda: append_frame(log, hanging, "a record", ("sink", 1)))
    hung.start()
    _until_spark_writes(log)
    beside = threading.Thread(target=lambda: append_frame(log, _rows(spark, 10, 12), "another", ("sink of others", 1)))
    beside.start()
    beside.join(60.0)
    assert not beside.is_alive()
    assert hung.is_alive()
    pipe.write_text("go on")
    hung.join(60.0)
    append_frame(log, _rows(spark, 20, 22), "the number was used", ("sink", 1))
    assert sorted(row["entry_id"] for row in log.read().collect()) == [0, 1, 10, 11]
    assert [commit.user_metadata for commit in log.commits(1, 9)] == ["another", "a record"]
    assert not _left(log)


def test_a_column_without_a_type_is_written_as_delta_does(spark: SparkSession, tmp_path: Path) -> None:
    """In a folder whose name has what Spark's readers take for patterns."""
    table = Table(Driver.of(spark), str(tmp_path / "a[1]{b}*" / "sink"), by_path=True, lock=tmp_path / "sink.lock")
    append_frame(table, spark.range(1).selectExpr("id", "'a' AS note"), "first", ("sink", 1))
    append_frame(table, spark.range(1, 2).selectExpr("id", "NULL AS note"), "second", ("sink", 2))
    assert sorted((row["id"], row["note"]) for row in table.read().collect()) == [(0, "a"), (1, None)]


def test_files_that_nobody_needs_are_removed_without_the_lock(spark: SparkSession, tmp_path: Path) -> None:
    log = made_log(spark, tmp_path)
    append_frame(log, _rows(spark, 0, 2))
    with alone(log):
        vacuum = threading.Thread(target=partial(vacuum_table, log))
        vacuum.start()
        vacuum.join(60.0)
        assert not vacuum.is_alive()


def test_whoever_waits_for_commits_waits_for_one_whose_check_has_passed(spark: SparkSession, tmp_path: Path) -> None:
    log, seen = made_log(spark, tmp_path), list[int]()

    def take_over() -> None:
        assert wait_for_commits(log)
        seen.append(log.latest_version())

    taker = threading.Thread(target=take_over)

    def begin(point: CrashPoint) -> None:
        if point is CrashPoint.APPEND_CHECKED:
            taker.start()
            taker.join(0.3)
            assert taker.is_alive()

    with crash.watched(begin):
        append_frame(log, _rows(spark, 0, 1))
    taker.join(60.0)
    assert seen == [1]


def test_a_value_that_is_missing_is_refused_by_delta_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    log = made_log(spark, tmp_path)
    with pytest.raises(SPARK_ERRORS):
        append_frame(log, _rows(spark, 0, 2).withColumn("ledger_id", F.expr("IF(entry_id = 1, NULL, ledger_id)")))
    assert (log.latest_version(), list(Path(log.name).glob("_geo*"))) == (0, [])


def test_what_a_process_left_that_died_while_it_wrote_is_swept_once_it_is_old(spark: SparkSession, tmp_path: Path) -> None:
    log = made_log(spark, tmp_path)
    old, young = (Path(log.name) / f"_geo-written-{name}" / "publish_date=2026-11-24" for name in ("old", "young"))
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_text("half")
    sums = Path(log.name) / "publish_date=2026-11-24" / ".gone.snappy.parquet.crc"  # its file went by a VACUUM
    sums.parent.mkdir()
    sums.write_text("of a file that is gone")
    for path in (old, old.parent, old / "part-0.parquet", sums):
        os.utime(path, (time.time() - STAGED_S - 60,) * 2)
    assert sweep(Path(log.name)) == 1
    assert (old.parent.exists(), young.parent.exists(), sums.exists()) == (False, True, False)
