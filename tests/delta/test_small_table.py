"""A small table read from its files holds what Spark says it holds."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from geo.delta.arrow_rows import collected
from geo.delta.ddl import set_property
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.engine import UnsupportedError
from geo.delta.engines.native import rows as native_rows
from geo.delta.engines.native.engine import NativeEngine
from geo.delta.engines.native.rows import small_rows
from geo.delta.predicate import Compare
from geo.delta.table import Table
from geo.journal import upkeep
from geo.journal.journal import Journal
from geo.journal.rows import Row
from geo.schemas import CURSORS, LEDGERS, TableSchema
from tests.delta.engines import refuses

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 22, 10, 11, 12, 131415, tzinfo=timezone.utc)
_VALUES: dict[str, Any] = {
    "BIGINT": 7, "BINARY": b"\x00\xff", "BOOLEAN": True, "STRING": "it's\u2028", "TIMESTAMP": NOW, "ARRAY<STRING>": ["b", "a"],
    "MAP<STRING, STRING>": {"k": "v"}, "MAP<STRING, BIGINT>": {"eu:1": 5},
}  # fmt: skip


def _row(schema: TableSchema, number: int) -> dict[str, Any]:
    """Every value there can be; where there need be none, every third has none."""
    row = {c.name: None if c.nullable and number % 3 == 0 else _VALUES[c.type] for c in schema.columns}
    return row | {"topic": f"t{number % 4}", schema.order[-1]: number}


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("schema", [LEDGERS, CURSORS], ids=lambda schema: schema.kind)
def test_a_journal_reads_the_same_from_its_files_and_by_spark(
    spark: SparkSession, tmp_path: Path, schema: TableSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(Driver.of(spark), str(tmp_path / "j"), by_path=True, lock=None)
    journal, folder = Journal(table, schema), tmp_path / "j" / "_delta_log"

    def both() -> list[dict[str, Any]]:
        small = small_rows(on_disk(folder), schema.names)
        assert small is not None
        assert _sorted(small) == _sorted(collected(table.read().select(*schema.names)))
        return small

    def newest(begins: tuple[str, str] | None = None, **equal: str) -> list[Row]:
        mine = journal.newest(begins, **equal)
        with monkeypatch.context() as by_spark:
            by_spark.setattr(NativeEngine, "small_rows", refuses)
            assert sorted(map(repr, mine)) == sorted(map(repr, journal.newest(begins, **equal)))
        return mine

    journal.append([_row(schema, 0)])
    assert len(both()) == 1
    set_property(table, "delta.checkpointInterval", "4")
    for number in range(1, 7):
        journal.append([_row(schema, number), _row(schema, number + 10)])
    assert list(folder.glob("*.checkpoint.parquet"))
    assert len(both()) == 13
    assert len(newest()) >= 4
    assert {row["topic"] for row in newest(topic="t2")} == {"t2"}
    assert newest(("topic", "t"), topic="t9") == []
    upkeep.clean(journal)
    assert len(both()) == len(newest())
    journal.append([_row(schema, 20)])
    both()
    for checkpoint in folder.glob("*.checkpoint.parquet"):
        checkpoint.unlink()
    (folder / f"{0:020}.json").unlink()
    with pytest.raises(UnsupportedError, match="not all there"):  # nobody knows what was before
        small_rows(on_disk(folder), schema.names)


def test_what_takes_more_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(20, numPartitions=1).selectExpr("id", "id % 2 AS part")

    def written(name: str, **properties: str) -> Path:
        writer = rows.write.format("delta").options(**{key.replace("_", "."): value for key, value in properties.items()})
        (writer.partitionBy("part") if name == "parts" else writer).save(str(tmp_path / name))
        return tmp_path / name / "_delta_log"

    plain = small_rows(on_disk(written("plain")), ("id", "new"))
    assert [row for row in plain if row["id"] == 3] == [{"id": 3, "new": None}]
    with_vectors = written("vectors", delta_enableDeletionVectors="true")
    spark.sql(f"DELETE FROM delta.`{with_vectors.parent}` WHERE id = 3")
    for folder, why in (
        (written("parts"), "it has partitions"),
        (with_vectors, "not all rows"),
        (written("mapped", delta_columnMapping_mode="name"), "other names in the files"),
        (tmp_path / "nothing", "not all there"),
    ):
        with pytest.raises(UnsupportedError, match=why):
            small_rows(on_disk(folder), ("id",))


def test_of_many_rows_those_that_are_wanted_are_held_or_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.range(20, numPartitions=1).write.format("delta").save(str(tmp_path / "t"))
    folder = on_disk(tmp_path / "t" / "_delta_log")
    monkeypatch.setattr(native_rows, "MOST_SMALL_ROWS", 5)
    assert len(small_rows(folder, ("id",), Compare("id", "<", 3))) == 3
    with pytest.raises(UnsupportedError, match="more than 5 rows would be held"):
        small_rows(folder, ("id",))


def test_times_have_their_zone(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("SELECT TIMESTAMP '2026-11-22 10:11:12.131415' AS at").write.format("delta").save(str(tmp_path / "t"))
    (row,) = small_rows(on_disk(tmp_path / "t" / "_delta_log"), ("at",))
    assert row["at"] == NOW
