"""Times are read as they were written, whatever zone this process is in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.delta.engines.native.rows import as_collected
from geo.times import from_iso, utc, with_zone


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


ZONES = [
    ZoneInfo(name)
    for name in [
        "UTC",
        "America/New_York",
        "America/St_Johns",
        "America/Caracas",
        "Europe/Amsterdam",
        "Africa/Monrovia",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "Pacific/Kiritimati",
    ]
]
"""Among them offsets of half and quarter hours, of 14 hours, and in old times of seconds."""


@given(st.datetimes(), st.sampled_from([None, *ZONES]), st.booleans(), st.sampled_from("Tt "), st.integers(0, 5))
def test_a_time_that_iso_8601_writes_is_read_as_it_was_meant(
    time: datetime, zone: ZoneInfo | None, fold: bool, sign: str, more: int
) -> None:
    meant = time.replace(tzinfo=zone, fold=fold)
    text = meant.isoformat(sign, "microseconds")
    days, clock = text[:10], text[11:26]
    basic = f"{days.replace('-', '')}T{clock.replace(':', '')}{text[26:].replace(':', '')}"
    nanoseconds = f"{days}{sign}{clock.replace('.', ',')}{'9' * more}{text[26:]}"  # as Go and Java write them
    for one in (text, basic, nanoseconds, meant.isoformat()):
        found = from_iso(one)
        assert (found.replace(tzinfo=None), found.utcoffset()) == (time.replace(fold=0), meant.utcoffset())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2025-11-02", "2025-11-02T00:00:00"),
        ("20251102", "2025-11-02T00:00:00"),
        ("2025-11-02T06:30Z", "2025-11-02T06:30:00+00:00"),
        ("2025-11-02T06:30:00.5z", "2025-11-02T06:30:00.500000+00:00"),
        ("2025-11-02T06:30:00.1234567Z", "2025-11-02T06:30:00.123456+00:00"),
        ("2025-11-02T06:30:00+0530", "2025-11-02T06:30:00+05:30"),
        ("2025-11-02T06:30:00-05", "2025-11-02T06:30:00-05:00"),
        ("20251102T063000Z", "2025-11-02T06:30:00+00:00"),
    ],
)
def test_a_time_is_read_the_same_by_every_python(text: str, meant: str) -> None:
    """The grammar is our own: what Python reads of these differs from 3.10 to 3.11."""
    assert from_iso(text).isoformat() == meant


NO_TIMES = (
    "|yesterday|2025|2025-11|2025-1102|2025-11-02T|2025-11-02T06|2025-11-02T0630:00|2025-11-02T06:30:00.|2025-11-02T06:30:60Z|2025-02-29"
    "|2025-11-02T24:00:00|2025-11-02T06:30:00+24:00|2025-11-02T06:30:00+05:60|2025-11-02TZ|2025-W44-7|2025-11-02Z|0000-01-01"
    "|\u0662025-11-02| 2025-11-02|2025-11-02\n|2025-11-02  06:30:00"
)


@pytest.mark.parametrize("text", NO_TIMES.split("|"))
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|range|month|59|second|hour|year|offset|timedelta"):
        from_iso(text)
