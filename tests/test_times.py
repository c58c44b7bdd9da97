"""Times are read and shown as they were written, whatever zone this process is in."""

from __future__ import annotations

import json
import re
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geo.cli.arguments import moment
from geo.cli.output import as_text, to_json
from geo.coordination.liveness import silent_s
from geo.coordination.signs import record, signs
from geo.delta.arrow_rows import plain_values
from geo.delta.engines.native.engine import NativeEngine
from geo.times import FIRST_US, LAST_US, any_day, any_time, from_iso, from_us, from_words, in_us, with_zone
from tests.delta.engines import refuses
from tests.world import World

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


@contextmanager
def zone(name: str) -> Iterator[None]:
    """This process in another zone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


TWICE_US = [in_us(datetime(2026, 11, 1, hour, 30, tzinfo=timezone.utc)) for hour in (4, 5, 6, 7)]
"""In New York half past one comes twice that night: at 5:30 and at 6:30 UTC."""


@given(
    st.lists(st.integers(FIRST_US, LAST_US) | st.sampled_from(TWICE_US), min_size=1, max_size=8),
    st.sampled_from([one.key for one in ZONES]),
)
@example([FIRST_US, LAST_US, *TWICE_US], "America/New_York")
@example([FIRST_US, LAST_US, *TWICE_US], "Pacific/Kiritimati")
def test_a_time_of_the_years_1_to_9999_is_shown_and_taken_as_it_was_written_in_any_zone(times_us: list[int], name: str) -> None:
    kept = pa.table({
        "at": pa.array(times_us, pa.timestamp("us", name)),
        "local": pa.array(times_us, pa.timestamp("us")),
        "in": pa.array([{"s": [{"m": [(one, one)]}]} for one in times_us],
                       pa.struct([("s", pa.list_(pa.struct([("m", pa.map_(pa.timestamp("us", "UTC"), pa.timestamp("us")))])))])),
    })  # fmt: skip
    written = list(map(from_us, times_us))
    with zone(name):
        read = {column: plain_values(kept[column]) for column in kept.column_names}
        shown = json.loads(json.dumps(to_json(read)))
        taken = [(moment(one), moment(as_text(at))) for one, at in zip(shown["at"], read["at"], strict=True)]
    without = [one.replace(tzinfo=None) for one in written]
    assert read == {"at": written, "local": without, "in": [{"s": [{"m": {one: one.replace(tzinfo=None)}}]} for one in written]}
    assert {one.utcoffset() for one in read["at"]} == {timedelta(0)}
    assert taken == [(one, one) for one in written]
    assert shown["local"] == [one.removesuffix("Z") for one in shown["at"]]


@given(st.integers(-1_096_193_779_200_000_000, 971_890_963_199_999_999))  # of which Arrow has texts
@example(FIRST_US - 1)
@example(LAST_US + 1)
def test_a_time_of_any_other_year_is_text(time_us: int) -> None:
    """As Arrow has it, but for the sign of years with more than four digits."""
    said, day = any_time(time_us), any_day(time_us // 86_400_000_000)
    if FIRST_US <= time_us <= LAST_US:
        assert (said, day) == (from_us(time_us), from_us(time_us).date())
    else:
        (text,) = pa.array([time_us], pa.timestamp("us")).cast(pa.string()).to_pylist()
        assert str(said).removeprefix("+").removesuffix("Z").partition(".")[0] == text.replace(" ", "T").partition(".")[0]
        assert str(said).startswith(f"{day}T")
        assert to_json(plain_values(pa.chunked_array([pa.array([time_us], pa.timestamp("us", "UTC"))]))) == [said]


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


def test_times_beyond_pythons_are_as_iso_8601_has_them() -> None:
    assert [any_time(one) for one in (LAST_US + 1, FIRST_US - 1, FIRST_US - 367 * 86_400_000_000)] == [
        "+10000-01-01T00:00:00Z", "0000-12-31T23:59:59.999999Z", "-0001-12-31T00:00:00Z",
    ]  # fmt: skip
    assert (any_day(0), any_day(2_932_897)) == (date(1970, 1, 1), "+10000-01-01")


def test_a_time_that_somebody_gives_without_a_zone_is_of_utc() -> None:
    east = datetime(2026, 11, 1, 6, 30, tzinfo=timezone(timedelta(hours=14)))
    with zone("America/New_York"):
        assert with_zone(datetime(2026, 11, 1, 6, 30)) == datetime(2026, 11, 1, 6, 30, tzinfo=timezone.utc)
        assert with_zone(east).isoformat() == east.isoformat()


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-05:00"])
def test_a_time_that_is_of_no_year_of_ours_as_utc_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="a time such as"):
        moment(text)


def test_every_time_of_day_that_the_program_says_has_its_zone() -> None:
    said = [
        (file, line)
        for file in Path("geo").rglob("*.py")
        for line in file.read_text().splitlines()
        if re.search(r"%[HMS]|shown_time\(", line)
    ]
    assert len(said) > 20
    assert [one for one in said if not re.search(r'%H:%M(:%S)?Z["}]|%S[.]|shown_time\(', one[1])] == []
    assert {str(file) for file, line in said if "%Y-%m-%d %H:%M:%S" in line} == {"geo/times.py", "geo/cli/logs.py"}, "shown_time"


@pytest.mark.spark
def test_who_signed_five_seconds_ago_lives_in_the_hour_that_comes_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = world.tables("us")
    with zone("America/New_York"):
        for at_us in TWICE_US:
            record(tables, at_us)
            with monkeypatch.context() as by_spark:
                here = signs(tables)
                by_spark.setattr(NativeEngine, "small_rows", refuses)
                assert signs(tables) == here
            assert silent_s(at_us + 5_000_000, (signed for signed, _ in here.values())) == 5.0


NOW = datetime(2026, 11, 21, 0, 30, tzinfo=timezone(timedelta(hours=2)))  # in UTC it is the day before


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("-90m", "2026-11-20T21:00:00Z"),
        ("-1d", "2026-11-19T22:30:00Z"),
        ("-2w", "2026-11-06T22:30:00Z"),
        ("now", "2026-11-20T22:30:00Z"),
        ("today", "2026-11-20T00:00:00Z"),
        ("yesterday", "2026-11-19T00:00:00Z"),
        ("2026-11-21", "2026-11-21T00:00:00Z"),
        ("2026-11-21T12:00:00+02:00", "2026-11-21T10:00:00Z"),
    ],
)
def test_a_time_may_be_said_by_how_long_ago_it_was(text: str, time: str) -> None:
    assert from_words(text, NOW) == from_iso(time)


@pytest.mark.parametrize("text", ["-0m", "-1x", "--1d", "1d", "-999999999w", "tomorrow", "-1 d", ""])
def test_what_is_no_time_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_words(text, NOW)
