"""Rows that are hold_on_driver to the driver are, byte for byte, the rows that were there."""

from __future__ import annotations

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.delta.small_batch import FEW, LIGHT, hold_on_driver

pytestmark = pytest.mark.spark

STRANGE = [
    "'no text', CAST(X'C328' AS STRING), X'00FF', map('a', CAST(NULL AS STRING), '', 'b'), array('us', NULL), '0001-01-01 00:00:00Z'",
    "'empty', '', X'', map(), array(), '9999-12-31 23:59:59.999999Z'",
    "'nothing', NULL, NULL, NULL, NULL, NULL",
    "'text', 'Zürich \U0001f600', CAST('x' AS BINARY), map('key', 'value'), array('eu'), '2024-10-27 02:30:00.000001Z'",
]


@pytest.fixture(scope="module")
def strange(spark: SparkSession) -> DataFrame:
    rows = spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in STRANGE))
    columns = rows.toDF("name", "key", "payload", "properties", "replicate_to", "time")
    return columns.withColumn("event_time", F.to_timestamp("time"))


def collectable(rows: DataFrame) -> DataFrame:
    """Python knows neither text that is not UTF-8 nor each of Spark's times."""
    return rows.withColumn("key", F.hex(F.col("key").cast("binary"))).withColumn("event_time", F.unix_micros("event_time"))


def test_few_light_rows_come_as_they_are(strange: DataFrame) -> None:
    rows = hold_on_driver(strange, ["name"])
    assert rows is not None
    assert rows.count() == 4
    assert_df_equality(collectable(rows), collectable(strange.orderBy("name")))


def test_they_come_in_the_order_that_is_asked_for(strange: DataFrame) -> None:
    rows = hold_on_driver(strange, ["name"])
    assert rows is not None
    assert [row["name"] for row in rows.select("name").collect()] == ["empty", "no text", "nothing", "text"]


def test_no_rows_are_told_to_be_none(strange: DataFrame) -> None:
    rows = hold_on_driver(strange.where("name = 'other'"), ["name"])
    assert rows is not None
    assert rows.collect() == []


@pytest.mark.parametrize("what", ["many", "heavy"])
def test_many_or_heavy_rows_stay_where_they_are(strange: DataFrame, what: str) -> None:
    if what == "many":
        rows = strange.crossJoin(strange.sparkSession.range(FEW // 4 + 1))
    else:
        rows = strange.withColumn("payload", F.expr(f"CAST(repeat('x', {LIGHT}) AS BINARY)"))
    assert hold_on_driver(rows, ["name"]) is None
