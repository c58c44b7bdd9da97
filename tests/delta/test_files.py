"""Small files: on this disk by the operating system, elsewhere by Spark, and the same to whoever reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.delta.driver import Driver
from geo.delta.files import SmallFiles


@pytest.fixture(params=["by the system", "by Spark"])
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> str:
    """A folder of this disk; once as a storage that Spark reaches and this process does not."""
    if request.param == "by the system":
        return str(tmp_path)
    spark.conf.set("fs.viewfs.mounttable.files.link./here", tmp_path.as_uri())
    return "viewfs://files/here"


@pytest.mark.spark
def test_files_are_made_found_listed_and_removed(place: str, spark: SparkSession) -> None:
    small, folder = SmallFiles(Driver.of(spark)), f"{place}/fences/a"
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
