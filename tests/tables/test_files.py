"""Small files: on this disk by the operating system, elsewhere by Spark, and the same to whoever reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.tables import files
from geo.tables.driver import Driver
from geo.tables.files import SmallFiles


@pytest.fixture(params=["by the system", "by Spark"])
def small(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SmallFiles:
    if request.param == "by Spark":
        # Spark's way is the one for every storage, so it is tried on this one.
        monkeypatch.setattr(files, "local_path", lambda location: None)
    return SmallFiles(Driver.of(spark))


@pytest.mark.spark
def test_files_are_made_found_listed_and_removed(small: SmallFiles, spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "fences" / "a")
    first, second = f"{folder}/000000000001-x", f"{folder}/000000000002-y"
    assert small.names(folder) == []
    assert not small.exists(first)
    small.remove(first)
    small.create(first, "x")
    small.create(second, "y")
    assert small.names(folder) == ["000000000001-x", "000000000002-y"]
    assert spark.read.text(first).collect()[0][0] == "x", "any text reader reads it by its name"
    with pytest.raises(Exception, match=r"exists|EXISTS"):
        small.create(first, "again")
    small.remove(first)
    assert not small.exists(first)
    assert small.exists(second)
    assert small.names(folder) == ["000000000002-y"]
