"""Times are read as they were written, whatever zone this process is in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

from geo.delta.engines.native.rows import as_collected
from geo.times import utc, with_zone


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


WRITTEN = [datetime(2026, 11, 1, hour, 30, tzinfo=timezone.utc) for hour in (4, 5, 6, 7)] + [
    datetime(1, 1, 1, tzinfo=timezone.utc)
]
"""Half past one comes twice that night: at 5:30 and at 6:30 UTC. The year 1 has no local time west of Greenwich."""


def test_a_time_in_the_hour_that_comes_twice_is_read_from_a_file_as_it_was_written(new_york: None) -> None:
    written = pa.table({"at": pa.array(WRITTEN, pa.timestamp("us", "UTC"))})
    read = [row["at"] for row in as_collected(written, ["at"])]
    assert [utc(one) for one in read] == WRITTEN
    assert {one.utcoffset() for one in read} == {timedelta(0)}


def test_a_time_that_spark_collected_in_that_hour_gets_its_zone(new_york: None) -> None:
    collected = [datetime.fromtimestamp(one.timestamp()) for one in WRITTEN[:4]]  # as Spark makes them
    assert [with_zone(one) for one in collected] == WRITTEN[:4]
    assert with_zone("2026") == "2026"


def test_the_first_and_the_last_time_of_python_are_taken_as_they_are(new_york: None) -> None:
    assert [utc(one).year for one in (datetime.min, datetime.max)] == [1, 9999]
