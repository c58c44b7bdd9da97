"""Tables with columns of any type, and that ask more of a writer than plain files: what this process appends to them, Spark, `deltalake` and
this process read alike, and each goes on from the other's commits."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from geo.delta.appending import append_here
from geo.delta.arrow_rows import collected
from geo.delta.ddl import add_columns, create_table
from geo.delta.delta_log import read_folder, remove_below
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver, Reads
from geo.delta.engines.native.engine import NativeEngine
from geo.delta.local_state import own_state, why_left_to_spark
from geo.delta.scan import few_added, few_rows
from geo.delta.table import Table
from geo.ops.date_files import compact_date
from geo.schemas import TOPIC_LOG
from tests.delta.logs import NOW, actions_of, checksum_of, log_of
from tests.delta.typed_rows import ALL_TYPES, listed, rows_for

pytestmark = pytest.mark.spark


def _made(spark: SparkSession, folder: Path, columns: str = "") -> Table:
    table = Table(Driver.of(spark), str(folder / "t"), by_path=True, lock=None)
    create_table(table, TOPIC_LOG, cast(StructType, StructType.fromDDL(columns)).fields if columns else ())
    return table


def _by_deltalake(table: Table) -> pa.Table:
    read = QueryBuilder().register("t", DeltaTable(table.name)).execute("SELECT * FROM t").read_all()
    return pa.table(read)


def test_rows_of_every_type_are_the_same_whoever_reads(spark: SparkSession, tmp_path: Path) -> None:
    table = _made(spark, tmp_path, ALL_TYPES)
    spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'entry_id,publish_time,n,t,st,i')")
    rows = rows_for(table, 0, 7)
    assert append_here(table, rows)
    told = json.loads(actions_of(table, 2, "add")[0]["stats"])
    assert (told["minValues"]["n"], told["minValues"]["t"]) == ("2026-01-01T01:02:03.456", "2026-01-01T01:02:03.456Z")
    by_spark, names = table.read(), rows.column_names
    expected = listed(rows, names)
    assert listed(by_spark.toArrow(), names) == expected
    for found in (few_rows(table, 2), few_added(table, 2, 2), _by_deltalake(table)):
        assert found is not None
        assert listed(found, names) == expected
    engine = NativeEngine(on_disk(log_of(table)), Reads.ALL, lambda: True)
    shown = [name for name in names if name != "publish_date"]
    newest = by_spark.where("marker IS NULL").select(*shown).orderBy("publish_time", "entry_id", ascending=False)
    last = engine.last_rows(shown, ("publish_time", "entry_id"), 7, where_null="marker")
    assert last == collected(newest), "as a person is shown them"
    assert len(last) == 7
    assert by_spark.where("n = TIMESTAMP_NTZ'2026-01-02 01:02:03.456789'").count() == 1
    assert by_spark.where("n > TIMESTAMP_NTZ'2026-01-04 01:02:03.4567'").count() == 3
    assert by_spark.where("st.b.c < TIMESTAMP_NTZ'2026-01-03'").count() == 1
    by_spark.write.format("delta").mode("append").save(table.name)  # in other files, as Spark writes them
    for found in (few_rows(table, 3), few_added(table, 2, 3)):
        assert found is not None
        assert [sorted(map(str, column)) for column in listed(found, names)] == [sorted(map(str, 2 * one)) for one in expected]


_FEATURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "deletion vectors": ("", ("SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", "DELETE WHERE entry_id = 1")),
    "columns with other_names": (
        "u INT, v STRUCT<a: INT, b: ARRAY<STRUCT<x: INT>>>",
        (
            "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "RENAME COLUMN u TO w",
            "RENAME COLUMN v.a TO z",
            "ADD COLUMNS (late STRUCT<q: INT, r: MAP<STRING, STRUCT<x: STRING>>>, m TIMESTAMP)",
        ),
    ),
    "wider types": (
        "u SMALLINT, v STRUCT<a: INT>, w DATE, x ARRAY<INT>, y INT, z DECIMAL(5,2)",
        (
            "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')",
            *(f"ALTER COLUMN {one}" for one in ("u TYPE INT", "u TYPE BIGINT", "v.a TYPE BIGINT", "w TYPE TIMESTAMP_NTZ")),
            *(f"ALTER COLUMN {one}" for one in ("x.element TYPE BIGINT", "y TYPE DOUBLE", "z TYPE DECIMAL(8,4)")),
        ),
    ),
    "times in commits, numbers of rows and v2 checkpoints": (
        "",
        (
            "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true', 'delta.enableRowTracking' = 'true', 'delta.checkpointPolicy' = 'v2')",
        ),
    ),
}


@pytest.mark.parametrize("feature", _FEATURES)
def test_a_table_that_asks_more_of_a_writer_is_appended_to_and_spark_goes_on(
    spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    columns, statements = _FEATURES[feature]
    log = _made(spark, tmp_path, columns)
    first = rows_for(log, 0, 3)
    spark.createDataFrame(first).coalesce(1).write.format("delta").mode("append").save(log.name)
    for sql in ("SET TBLPROPERTIES ('delta.checkpointInterval' = '2')", *statements):
        verb = (
            f"DELETE FROM {log.sql}{sql.removeprefix('DELETE')}" if sql.startswith("DELETE") else f"ALTER TABLE {log.sql} {sql}"
        )
        spark.sql(verb)
    kept = [row for row in range(3) if not (feature == "deletion vectors" and row == 1)]
    at, later = log.latest_version(), list[pa.Table]()
    for number in range(3, 9, 3):
        later.append(rows_for(log, number, number + 2))
        assert append_here(log, later[-1], "record"), why_left_to_spark(log)
        later.append(rows_for(log, number + 2, number + 3))
        spark.createDataFrame(later[-1], log.read().schema).write.format("delta").mode("append").save(log.name)
    assert log.latest_version() == at + 4
    names = log.read().columns
    expected = listed(pa.concat_tables(later), names)
    assert listed(log.read().where("entry_id >= 3").toArrow(), names) == expected
    assert sorted(row.entry_id for row in log.read().where("entry_id < 3").collect()) == kept
    added, whole = few_added(log, at + 1, at + 4), few_rows(log, at + 4)
    if feature == "columns with other_names":
        assert added is None
        assert whole is None
    else:
        assert added is not None
        assert listed(added, names) == expected
        assert (whole is None) is (feature == "deletion vectors")
    if feature == "wider types":
        assert whole is not None
        assert listed(whole, names) == listed(log.read().toArrow(), names), "older files too"
    else:
        assert sorted(_by_deltalake(log)["entry_id"].to_pylist()) == [*kept, *range(3, 9)]
    if feature.startswith("times"):
        _has_times_and_numbers(log, at)
    before = _listed_by_spark(log)
    compact_date(log, NOW.date())
    (commit,) = log.commits(log.latest_version(), log.latest_version())
    assert (commit.operation, log.count_files(), _listed_by_spark(log)) == ("OPTIMIZE", 1, before)
    checkpoints = read_folder(on_disk(log_of(log))).checkpoints
    copy = tmp_path / "copy"
    shutil.copytree(log.name, copy)
    folder = on_disk(copy / "_delta_log")
    assert remove_below(folder, read_folder(folder), checkpoints[-1]) > 0
    cut = Table(Driver.of(spark), str(copy), by_path=True, lock=None)
    assert sorted(row.entry_id for row in cut.read().collect()) == [*kept, *range(3, 9)], "from a checkpoint of either"
    assert append_here(cut, rows_for(log, 9, 10))
    assert cut.read().count() == len(kept) + 7


def _listed_by_spark(log: Table) -> list[list[Any]]:
    return listed(log.read().toArrow(), log.read().columns)


def _has_times_and_numbers(log: Table, at: int) -> None:
    """Of four commits above one."""
    times = [actions_of(log, version, "commitInfo")[0]["inCommitTimestamp"] for version in range(at, at + 5)]
    assert times == sorted(set(times))
    history = [int(row.timestamp.timestamp() * 1000) for row in log.delta().history().where(f"version >= {at}").collect()]
    assert sorted(history) == times
    assert json.loads(checksum_of(log, at + 3).read_text())["inCommitTimestampOpt"] == times[3]
    for version in range(at + 1, at + 5):
        assert {add["defaultRowCommitVersion"] for add in actions_of(log, version, "add")} == {version}
    ids = [row.row_id for row in log.read().select("_metadata.row_id").collect()]
    assert sorted(ids) == list(range(9))


def test_of_what_columns_are_called_in_files_nobody_reads_another_one(spark: SparkSession, tmp_path: Path) -> None:
    """By numbers, of columns that never had plain names; statistics and partitions too."""
    table = Table(Driver.of(spark), str(tmp_path / "t"), by_path=True, lock=None)
    spark.sql(
        f"CREATE TABLE {table.sql} (a INT, st STRUCT<x: INT, y: STRING>, b INT, day DATE NOT NULL) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'id', 'delta.dataSkippingStatsColumns' = 'a,b')"
    )
    state = own_state(table)
    assert state is not None
    rows = pa.table([[1, None], [{"x": 1, "y": "a"}, None], [7, 8], [date(2026, 1, 1), date(2026, 1, 2)]], schema=state.schema)
    assert append_here(table, rows.slice(0, 2))
    spark.sql(f"ALTER TABLE {table.sql} RENAME COLUMN a TO c")
    spark.sql(f"ALTER TABLE {table.sql} RENAME COLUMN b TO a")
    found = [row.asDict(recursive=True) for row in table.read().orderBy("day").collect()]
    assert found == [
        {"c": 1, "st": {"x": 1, "y": "a"}, "a": 7, "day": date(2026, 1, 1)}, {"c": None, "st": None, "a": 8, "day": date(2026, 1, 2)},
    ]  # fmt: skip
    assert table.read().where("a = 8 AND day = DATE'2026-01-02'").count() == 1
    assert table.read().where("a = 1").count() == 0
    add_columns(table, [StructField("n", cast(StructType, StructType.fromDDL("n TIMESTAMP_NTZ")).fields[0].dataType)])
    assert table.read().columns == ["c", "st", "a", "day", "n"]
