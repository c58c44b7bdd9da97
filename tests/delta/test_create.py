"""A table that this process makes as Spark made one of its kind is the same table, whatever ends it on the way."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, DecimalType, StructField, StructType, VariantType

from geo.crash import CrashPoint
from geo.delta import create
from geo.delta.appending import append_rows
from geo.delta.ddl import create_table, find_columns, set_property
from geo.delta.driver import Driver
from geo.delta.table import Table
from geo.errors import RetryableError
from geo.schemas import LINKS, TOPIC_LOG, TableSchema
from geo.testing import dies_at
from tests.delta.logs import checksum_of, commit_of, log_of, rows_of

pytestmark = pytest.mark.spark

PLAIN = StructType().add("amount", DecimalType(10, 2)).add("line", StructType().add("day", DateType()))
UNKNOWN = StructType().add("line", VariantType())


@pytest.fixture(autouse=True)
def _nothing_made_yet() -> Iterator[None]:
    with mock.patch.dict(create._first_versions, clear=True):
        yield


def _table(spark: SparkSession, folder: Path, name: str) -> Table:
    return Table(Driver.of(spark), str(folder / name), by_path=True, lock=folder / f"{name}.lock")


@contextmanager
def _spark_makes_none() -> Iterator[None]:
    ask = SparkSession.sql

    def sql(spark: SparkSession, statement: str) -> DataFrame:
        assert not statement.startswith("CREATE TABLE"), "Spark was asked"
        return ask(spark, statement)

    with mock.patch.object(SparkSession, "sql", sql):
        yield


def _said(table: Table) -> list[Any]:
    """What its first version says, but for what is each table's own."""
    said = [*map(json.loads, commit_of(table, 0).read_text().splitlines()), json.loads(checksum_of(table, 0).read_text())]
    assert said[0]["commitInfo"]["txnId"] == said[-1]["txnId"]
    (metadata,) = (one["metaData"] for one in said if "metaData" in one)
    assert metadata == said[-1]["metadata"]
    for own in (said[0]["commitInfo"], metadata, said[-1], said[-1]["metadata"]):
        for name in ("id", "txnId", "timestamp", "createdTime"):
            own.pop(name, None)
    return said


@pytest.mark.parametrize(("schema", "extra"), [(TOPIC_LOG, StructType()), (TOPIC_LOG, PLAIN), (LINKS, StructType())])
def test_it_says_what_spark_says_and_spark_goes_on_in_it(
    spark: SparkSession, tmp_path: Path, schema: TableSchema, extra: Iterable[StructField]
) -> None:
    by_spark, here = _table(spark, tmp_path, "by-spark"), _table(spark, tmp_path, "deep/down/here")
    create_table(by_spark, schema, extra)
    with _spark_makes_none():
        assert not here.exists()
        create_table(here, schema, extra)
        assert find_columns(here, schema) == find_columns(by_spark, schema)
    assert _said(here) == _said(by_spark)
    assert here.table_id() != by_spark.table_id()
    assert here.read().schema == by_spark.read().schema
    set_property(here, "note", "Spark's own commit")
    create_table(here, schema, extra)  # it is there
    assert here.latest_version() == 1
    assert here.delta().detail().collect()[0]["properties"] == {**by_spark.properties(), "note": "Spark's own commit"}


def test_what_was_there_already_is_no_example(spark: SparkSession, tmp_path: Path) -> None:
    create_table(_table(spark, tmp_path, "first"), TOPIC_LOG, PLAIN)
    create._first_versions.clear()
    create_table(_table(spark, tmp_path, "first"), TOPIC_LOG)
    second = _table(spark, tmp_path, "second")
    create_table(second, TOPIC_LOG)
    assert second.read().columns == list(TOPIC_LOG.names)


def test_a_table_with_columns_that_are_not_known_here_is_made_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    create_table(_table(spark, tmp_path, "first"), TOPIC_LOG, UNKNOWN)
    with _spark_makes_none(), pytest.raises(AssertionError, match="Spark was asked"):
        create_table(_table(spark, tmp_path, "second"), TOPIC_LOG, UNKNOWN)


@pytest.mark.parametrize("same_process", [True, False], ids=["same-process", "another"])
@pytest.mark.parametrize("point", [CrashPoint.COMMIT_WRITTEN, CrashPoint.TABLE_COMMITTED], ids=lambda point: point.value)
def test_one_that_stops_here_is_there_whole_or_made_anew(
    spark: SparkSession, tmp_path: Path, point: CrashPoint, same_process: bool
) -> None:
    create_table(_table(spark, tmp_path, "first"), TOPIC_LOG)
    with dies_at(point):
        create_table(_table(spark, tmp_path, "here"), TOPIC_LOG)
    here = _table(spark, tmp_path, "here")
    if point is CrashPoint.COMMIT_WRITTEN:  # as a process leaves it that dies there
        drawn = "01234567-89ab-cdef-0123-456789abcdef"
        for name in (f".{0:020}.{drawn}.tmp", f".{0:020}.json.{drawn}.tmp", f"..{0:020}.json.{drawn}.tmp.crc"):
            (log_of(here) / name).write_text("half of")
        (log_of(here) / "_staged_commits").mkdir(exist_ok=True)
    assert here.exists() is (point is CrashPoint.TABLE_COMMITTED)
    if not same_process:
        create._first_versions.clear()
    create_table(here, TOPIC_LOG)
    append_rows(here, rows_of(0, 2))
    assert here.read().count() == 2
    assert [commit.operation for commit in here.commits(0, 9)] == ["CREATE TABLE", "WRITE"]
    assert not list(Path(here.name, "_delta_log").glob("*.tmp"))


def test_where_it_cannot_be_made_spark_makes_it(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "a file system without links")

    create_table(_table(spark, tmp_path, "first"), TOPIC_LOG)
    here = _table(spark, tmp_path, "here")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        create_table(here, TOPIC_LOG)
    assert here.latest_version() == 0
    assert not list(Path(here.name, "_delta_log").glob("*.tmp"))


def test_where_something_else_is_nothing_is_made(spark: SparkSession, tmp_path: Path) -> None:
    create_table(_table(spark, tmp_path, "first"), TOPIC_LOG)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "notes.txt").write_text("mine")
    with pytest.raises(RetryableError, match="something that is no Delta table is there"):
        create_table(_table(spark, tmp_path, "here"), TOPIC_LOG)
    assert (tmp_path / "here" / "notes.txt").read_text() == "mine"


def test_a_log_that_somebody_else_is_just_making_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "here" / "_delta_log"
    log.mkdir(parents=True)
    (log / "what another writer makes").touch()  # of which nobody can tell whose it is
    here = Table(Driver.of(spark), str(tmp_path / "here"), by_path=True, lock=None)
    other = threading.Timer(0.5, (log / "what another writer makes").unlink)
    other.start()
    create_table(here, TOPIC_LOG)
    other.join()
    assert here.latest_version() == 0


def test_of_several_who_make_it_at_once_one_does(spark: SparkSession, tmp_path: Path) -> None:
    create_table(_table(spark, tmp_path, "first"), TOPIC_LOG)
    ids: list[str] = []

    def make(number: int) -> None:
        one = _table(spark, tmp_path, "here")
        create_table(one, TOPIC_LOG)
        append_rows(one, rows_of(0, 1))
        ids.append(one.table_id())

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 4
    assert len(set(ids)) == 1
    assert _table(spark, tmp_path, "here").read().count() == 4


def test_columns_are_told_as_spark_shows_them_and_not_where_they_are_in_files(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(spark, tmp_path, "mapped")
    columns = "a INT COMMENT 'of ours', s STRUCT<b: INT, c: ARRAY<STRUCT<d: INT>>>"
    spark.sql(f"CREATE TABLE {table.sql} ({columns}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    seen = table.snapshot()
    assert seen is not None
    assert seen.columns == table.delta().toDF().schema
