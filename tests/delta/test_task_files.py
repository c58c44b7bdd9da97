"""Files that Spark's tasks write to an object store, and one commit that adds them."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from geo.delta.appending import append_frame, append_rows, append_written, write_feed, write_file_rows, write_frame
from geo.delta.ddl import add_columns, create_table
from geo.delta.driver import Driver
from geo.delta.engines.spark import task_files
from geo.delta.file_rows import FileRows
from geo.delta.object_store import ObjectStore
from geo.delta.predicate import Compare
from geo.delta.s3_store import port_of
from geo.delta.scan import added, few_rows
from geo.delta.store import parquet
from geo.delta.table import Table
from geo.errors import RetryableError, UnsafeError
from geo.schemas import TOPIC_LOG
from tests.delta.on_s3 import keys_in_files, table_on
from tests.delta.typed_rows import ALL_TYPES, listed, rows_for
from tests.object_store import ObjectStore as S3

pytestmark = pytest.mark.spark

_ROW = (
    "'us' AS origin",
    "7L AS ledger_id",
    "id AS entry_id",
    "timestamp_seconds(1700000000 + id) AS publish_time",
    "CAST(NULL AS TIMESTAMP) AS event_time",
    "'p' AS producer",
    "concat('k', id) AS key",
    "map('n', CAST(id AS STRING)) AS properties",
    "array('eu') AS replicate_to",
    "encode(CAST(id AS STRING), 'UTF-8') AS payload",
    "CAST(NULL AS STRING) AS marker",
    "date_add(DATE'2026-01-01', CAST(id % 3 AS INT)) AS publish_date",
)


@pytest.fixture
def log(spark: SparkSession, s3: S3) -> Table:
    place = table_on(s3)
    port = ObjectStore(place.store.s3.bucket, s3.options())  # type: ignore[attr-defined]  # it is one
    table = Table(Driver.of(spark, find_port=lambda: port), str(place), by_path=True, lock=None)
    create_table(table, TOPIC_LOG)
    return table


def _rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr(*_ROW)


def _data_files(log: Table) -> list[str]:
    assert log.log_folder is not None
    port = log.log_folder.store
    assert isinstance(port, ObjectStore)
    return [path for path in port.below(log.name) if path.endswith(".parquet") and "_delta_log" not in path]


@pytest.mark.parametrize("file_bytes", [2**28, 1])
def test_rows_come_as_they_are_in_one_commit(
    spark: SparkSession, log: Table, file_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "FILE_BYTES", file_bytes)
    rows = _rows(spark, 300)
    append_frame(log, rows, "record")
    found = few_rows(log, log.latest_version())
    assert found is not None
    wanted = sorted((row.asDict() for row in rows.collect()), key=lambda row: int(row["entry_id"]))
    read = sorted(found.to_pylist(), key=lambda row: int(row["entry_id"]))
    assert [(one["entry_id"], one["key"], dict(one["properties"]), one["replicate_to"], one["payload"]) for one in read] == [
        (one["entry_id"], one["key"], one["properties"], one["replicate_to"], bytes(one["payload"])) for one in wanted
    ]
    (commit,) = log.commits(1, 9)
    assert (commit.user_metadata, log.count_files()) == ("record", len(_data_files(log)))
    assert log.log_folder is not None
    lines = (log.log_folder / f"{1:020}.json").lines()
    told = [json.loads(json.loads(line)["add"]["stats"]) for line in lines if line.startswith('{"add"')]
    assert sum(one["numRecords"] for one in told) == 300
    assert (min(one["minValues"]["entry_id"] for one in told), max(one["maxValues"]["entry_id"] for one in told)) == (0, 299)


def test_columns_of_every_type_come_as_they_are(spark: SparkSession, log: Table) -> None:
    add_columns(log, cast(StructType, StructType.fromDDL(ALL_TYPES)).fields)
    rows, seen = rows_for(log, 0, 7), log.snapshot()
    assert seen is not None
    append_frame(log, spark.createDataFrame(rows, seen.columns).repartition(2))
    found, names = few_rows(log, 2), rows.column_names
    assert found is not None
    assert listed(found, names) == listed(rows, names)


def test_rows_in_files_come_as_they_are_and_what_cannot_be_read_is_left_to_spark(
    spark: SparkSession, s3: S3, log: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_columns(log, cast(StructType, StructType.fromDDL(ALL_TYPES)).fields)
    made = rows_for(log, 0, 20)
    append_rows(log, made)
    monkeypatch.setattr("geo.delta.engines.native.rows.MOST_ROWS", 9)
    found = added(log, 2, 2)
    assert isinstance(found, FileRows)
    other = Table(log.driver, f"{log.name}2", by_path=True, lock=None)
    create_table(other, TOPIC_LOG)
    wanted = replace(found, where=Compare("entry_id", ">=", 5))
    assert write_file_rows(other, wanted, ["entry_id"]) is None, "it has not all columns"
    add_columns(other, cast(StructType, StructType.fromDDL(ALL_TYPES)).fields)
    written = write_file_rows(other, wanted, ["entry_id"])
    assert written is not None
    append_written(other, written, "record")
    monkeypatch.undo()
    copied = few_rows(other, other.latest_version())
    assert copied is not None
    assert listed(copied, made.column_names) == listed(made.slice(5), made.column_names)
    assert log.log_folder is not None
    log.log_folder.store.delete(str(found.files[0].path))
    assert write_file_rows(other, wanted, ["entry_id"]) is None


def test_rows_that_lack_what_is_required_leave_nothing(spark: SparkSession, log: Table) -> None:
    bad = _rows(spark, 100).withColumn("ledger_id", F.when(F.col("entry_id") < 99, F.col("ledger_id")))
    with pytest.raises(UnsafeError, match="these rows are not as its columns are"):
        append_frame(log, bad)
    assert (_data_files(log), log.latest_version()) == ([], 0)


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, log: Table) -> None:
    bad = _rows(spark, 100).withColumn(
        "key", F.when(F.col("entry_id") < 99, F.col("key")).otherwise(F.raise_error(F.lit("on purpose")))
    )
    with pytest.raises(Exception, match="on purpose"):
        append_frame(log, bad)
    assert log.latest_version() == 0


def test_a_change_feed_is_written_beside_the_table(spark: SparkSession, log: Table) -> None:
    told = _rows(spark, 6).withColumn("_change_type", F.lit("update_postimage"))
    files = write_feed(log, told)
    assert files is not None
    assert {file.partition["publish_date"] for file in files} == {str(date(2026, 1, day)) for day in (1, 2, 3)}
    assert all(file.path.startswith("_change_data/publish_date=") for file in files)
    assert log.log_folder is not None
    table = log.log_folder.parent
    read = [row for file in files for row in parquet(table / file.path).read().to_pylist()]
    assert sorted(row["entry_id"] for row in read) == list(range(6))
    assert {row["_change_type"] for row in read} == {"update_postimage"}


def test_executors_that_do_not_reach_the_store_are_named_before_anything_is_computed(
    spark: SparkSession, s3: S3, log: Table
) -> None:
    rows = _rows(spark, 100).withColumn("key", F.raise_error(F.lit("it was computed")))
    s3.refuse("AccessDenied", 403, "GET")
    try:
        with pytest.raises(
            RetryableError, match=f"on {socket.gethostname()}: S3 bucket .*AccessDenied; check the credential .*Nothing was"
        ):
            append_frame(log, rows)
    finally:
        s3.refuse()
    append_frame(log, _rows(spark, 100))
    assert (len(_data_files(log)), log.latest_version()) == (6, 1)


def test_executors_are_asked_once(spark: SparkSession, s3: S3, log: Table) -> None:
    append_frame(log, _rows(spark, 10))
    s3.refuse("AccessDenied", 403, "GET")  # what a question would meet
    try:
        written = write_frame(log, _rows(spark, 10))
    finally:
        s3.refuse()
    assert written is not None
    assert sum(file.rows for file in written.files) == 10


def test_a_task_goes_on_with_keys_that_are_rotated_while_it_runs(spark: SparkSession, s3: S3, tmp_path: Path) -> None:
    cluster = keys_in_files(s3, tmp_path, "first")
    log = Table(Driver.of(spark, find_port=lambda: port_of(cluster)), f"{cluster.root}/log", by_path=True, lock=None)
    create_table(log, TOPIC_LOG)
    rows, files, rotates = _rows(spark, 300).coalesce(1), list(map(str, tmp_path.iterdir())), f"{s3.endpoint}/-/key/second"

    def rotate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In the task, which has put nothing by then."""
        for path in files:
            Path(path).write_text("second")
        urllib.request.urlopen(rotates).close()  # noqa: S310  # our own endpoint
        yield from batches

    before = s3.counts()["of another key"]
    s3.takes_only("first")
    try:
        append_frame(log, rows.mapInArrow(rotate, rows.schema))
        found = few_rows(log, log.latest_version())
        assert found is not None
        assert (len(found), log.latest_version()) == (300, 1)
        assert s3.counts()["of another key"] >= before + 2, "the task's, and the driver's"
    finally:
        s3.takes_only("")
