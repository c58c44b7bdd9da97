"""Rows as plain values: what publish takes is shown, whatever zone this process or the session is in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
from pyspark.sql import SparkSession

from geo.delta.arrow_rows import collected

pytestmark = pytest.mark.spark


@pytest.fixture
def western(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(before))
    monkeypatch.undo()
    time.tzset()


def test_the_first_times_of_python_are_shown_in_utc_and_later_ones_than_it_has_as_text(western: SparkSession) -> None:
    first = "TIMESTAMP '0001-01-01 00:00:00Z'"
    rows = western.sql(
        f"SELECT {first} AS t, map('k', {first}) AS m, array(struct({first} AS x, map('a', 1) AS y)) AS s, "
        "X'00FF' AS b, NULL AS n, map('p', 'q') AS `a.b``c`"
    )
    (row,) = collected(rows)
    zero = datetime(1, 1, 1, tzinfo=timezone.utc)
    assert row == {
        "t": zero,
        "m": {"k": zero},
        "s": [{"x": zero, "y": {"a": 1}}],
        "b": b"\x00\xff",
        "n": None,
        "a.b`c": {"p": "q"},
    }
    late = western.sql("SELECT timestamp_micros(400000000000000000L) AS `a.b``c`, 1 AS one")
    assert collected(late) == [{"a.b`c": "+14645-06-30 11:06:40", "one": 1}]


def test_what_arrow_has_otherwise_is_as_spark_collects_it(western: SparkSession) -> None:
    (row,) = collected(western.sql("SELECT parse_json('[1]') AS v, TIMESTAMP '2026-11-01 05:00:00Z' AS t"))
    assert (str(row["v"]), row["t"]) == ("[1]", datetime(2026, 11, 1, 5, tzinfo=timezone.utc))
