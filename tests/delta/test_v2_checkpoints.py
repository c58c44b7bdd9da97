"""Checkpoints of v2, which name files beside them: by every name that Delta may give one, no row is missed and the log is cut."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.delta import delta_log
from geo.delta.delta_log import read_folder, remove_below
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.engines.native.rows import small_rows
from geo.delta.local_state import why_left_to_spark
from geo.delta.table import Table

pytestmark = pytest.mark.spark


def _has_all(log: Path) -> None:
    assert sorted(row["id"] for row in small_rows(on_disk(log), ("id",))) == list(range(6))


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_log_with_v2_checkpoints_is_read_and_cut_with_what_they_name(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(Driver.of(spark), str(tmp_path / "t"), by_path=True, lock=None)
    spark.conf.set("spark.databricks.delta.checkpointV2.topLevelFileFormat", kind)
    properties = "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'"
    spark.sql(f"CREATE TABLE {table.sql} (id BIGINT) USING delta TBLPROPERTIES ({properties})")
    for number in range(6):
        spark.range(number, number + 1, numPartitions=1).write.format("delta").mode("append").save(table.name)
    spark.conf.unset("spark.databricks.delta.checkpointV2.topLevelFileFormat")
    folder = tmp_path / "t" / "_delta_log"
    found = read_folder(on_disk(folder))
    assert found.checkpoints == (2, 4, 6)
    assert any(name.endswith(kind) for name in found.files[6] if ".checkpoint." in name)
    assert why_left_to_spark(table) is None
    _has_all(folder)
    (newest,) = (name for name in found.files[6] if ".checkpoint." in name and not name.startswith("."))
    classic = tmp_path / "classic" / "_delta_log"
    shutil.copytree(tmp_path / "t", classic.parent)
    if kind == "parquet":  # as other writers name it, so that older readers find it
        (classic / newest).rename(classic / f"{6:020}.checkpoint.parquet")
    for one in (*classic.glob("*.json"), *classic.glob(".*.json.crc")):
        if ".checkpoint." not in one.name and int(one.name.lstrip(".")[:20]) < 6:
            one.unlink()
    _has_all(classic)
    sidecars = sorted((folder / "_sidecars").iterdir())
    monkeypatch.setattr(delta_log, "_SIDECAR_S", 0.0)
    for one in sidecars:
        os.utime(one, (0, 0))
    for one in (classic / "_sidecars").iterdir():
        os.utime(one, (0, 0))
    remove_below(on_disk(classic), read_folder(on_disk(classic)), 6)
    _has_all(classic)
    assert remove_below(on_disk(folder), found, 4) == 4
    assert len(list((folder / "_sidecars").glob("*.parquet"))) < len([one for one in sidecars if one.suffix == ".parquet"])
    other = Table(Driver.of(spark.newSession()), table.name, by_path=True, lock=None)
    assert sorted(row.id for row in other.read().collect()) == list(range(6))
    assert sorted(row.id for row in other.read(4).collect()) == list(range(4))
