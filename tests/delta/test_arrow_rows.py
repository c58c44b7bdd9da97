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


def test_times_are_in_utc_and_later_ones_than_python_has_and_what_arrow_has_not_are_text(western: SparkSession) -> None:
    first = "TIMESTAMP '0001-01-01 00:00:00Z'"
    rows = western.sql(
        f"SELECT {first} AS t, map('k', {first}) AS m, array(struct({first} AS x, map('a', 1) AS y)) AS s, "
        f"X'00FF' AS b, NULL AS n, map('p', 'q') AS `a.b``c`, map(struct({first} AS x), 1) AS p, map({first}, X'FF') AS k, "
        "TIMESTAMP_NTZ '2026-11-01 01:30:00' AS z, parse_json('[1]') AS v, array(parse_json('2')) AS w"
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
        "p": [{"key": {"x": zero}, "value": 1}],
        "k": {zero: b"\xff"},
        "z": datetime(2026, 11, 1, 1, 30),
        "v": "[1]",
        "w": "[2]",
    }
    late = western.sql(f"SELECT timestamp_micros(400000000000000000L) AS `a.b``c`, {first} AS one")
    assert collected(late) == [{"a.b`c": "+14645-06-30T15:06:40Z", "one": zero}]
