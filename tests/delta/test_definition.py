"""What is said of a table that is made or changed without Spark is what Spark says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from geo import schemas
from geo.delta.columns import Growth
from geo.delta.commits import checksum_file, commit_file
from geo.delta.ddl import create_table, set_property
from geo.delta.definition import first_version
from geo.delta.delta_state import DeltaState, require_state
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.metadata import commit_columns, commit_properties
from geo.delta.table import Table
from geo.schemas import TOPIC_LOG, TableSchema

pytestmark = pytest.mark.spark

ALL = [value for value in vars(schemas).values() if isinstance(value, TableSchema)]
TYPED = "a INT, b DECIMAL(10,2), c TIMESTAMP_NTZ, d STRUCT<x: ARRAY<FLOAT>>"


def _columns(ddl: str) -> list[StructField]:
    return cast(StructType, StructType.fromDDL(ddl)).fields if ddl else []


def _actions(log: Path, version: int) -> dict[str, Any]:
    lines = (log / commit_file(version)).read_text().splitlines()
    return {kind: fields for line in lines for kind, fields in json.loads(line).items()}


def _protocol(said: dict[str, Any]) -> dict[str, Any]:
    return {name: sorted(value) if isinstance(value, list) else value for name, value in said["protocol"].items()}


@pytest.mark.parametrize(
    ("schema", "extra"),
    [*((schema, "") for schema in ALL), (TOPIC_LOG, TYPED)],
    ids=lambda of: of.kind if isinstance(of, TableSchema) else "typed" if of else "",
)
def test_the_first_version_is_spark_s(spark: SparkSession, tmp_path: Path, schema: TableSchema, extra: str) -> None:
    columns, own = _columns(extra), {"geo.own": "1"}
    create_table(Table(Driver(lambda: spark), str(tmp_path / "t"), by_path=True, lock=None), schema, columns, own)
    log = tmp_path / "t" / "_delta_log"
    theirs = _actions(log, 0)
    table_id, txn_id, made = theirs["metaData"]["id"], theirs["commitInfo"]["txnId"], theirs["metaData"]["createdTime"]
    actions, checksum = first_version(schema, columns, own, table_id=table_id, txn_id=txn_id, now_ms=made)
    ours = {kind: fields for action in actions for kind, fields in action.items()}
    assert ours["metaData"] == theirs["metaData"]
    assert _protocol(ours) == _protocol(theirs)
    assert {*ours["commitInfo"]} == {*theirs["commitInfo"]}
    assert {*ours["commitInfo"]["operationParameters"]} == {*theirs["commitInfo"]["operationParameters"]}
    assert {*checksum} <= {*json.loads((log / checksum_file(0)).read_text())}


def test_properties_and_columns_change_as_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(Driver(lambda: spark), str(tmp_path / "theirs"), by_path=True, lock=None)
    create_table(table, TOPIC_LOG)
    shutil.copytree(tmp_path / "theirs", tmp_path / "ours")
    set_property(table, "geo.fence.x", "1")
    added = "ab STRING COMMENT 'é', n BIGINT"
    spark.sql(f"ALTER TABLE {table.sql} ADD COLUMNS ({added})")
    folder = on_disk(tmp_path / "ours") / "_delta_log"
    commits: list[Callable[[DeltaState], bool]] = [
        partial(commit_properties, folder, properties={"geo.fence.x": "1"}),
        partial(commit_columns, folder, needed=Growth(tuple(_columns(added)), (), ())),
    ]
    for commit in commits:
        state = require_state(folder)
        assert commit(state)
        assert not commit(state), "that version is there"
    for version in (1, 2):
        ours, theirs = (_actions(tmp_path / name / "_delta_log", version) for name in ("ours", "theirs"))
        assert ours["metaData"] == {**theirs["metaData"]}
        assert {*ours["commitInfo"]} == {*theirs["commitInfo"]}
        for name in ("operation", "readVersion", "isBlindAppend", "isolationLevel"):
            assert ours["commitInfo"][name] == theirs["commitInfo"][name]
        columns = [json.loads(one["commitInfo"]["operationParameters"].get("columns", "0")) for one in (ours, theirs)]
        assert columns[0] == columns[1]
    set_property(table, "delta.enableTypeWidening", "true")
    spark.sql(f"ALTER TABLE {table.sql} ALTER COLUMN n TYPE DECIMAL(20,0)")
    assert commit_columns(folder, require_state(folder), Growth((), tuple(_columns("n DECIMAL(20,0)")), ()))
    ours, theirs = _actions(tmp_path / "ours" / "_delta_log", 3), _actions(tmp_path / "theirs" / "_delta_log", 4)
    before = _actions(tmp_path / "theirs" / "_delta_log", 3)["protocol"]
    assert _protocol(ours) == _protocol({**theirs, "protocol": before})
    assert ours["metaData"]["configuration"] == theirs["metaData"]["configuration"]
    assert [json.loads(one["metaData"]["schemaString"]) for one in (ours,)] == [json.loads(theirs["metaData"]["schemaString"])]
    assert spark.read.format("delta").load(str(tmp_path / "ours")).schema == table.read().schema
