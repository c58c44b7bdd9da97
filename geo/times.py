"""Times as numbers and as text, and back: microseconds since 1970, UTC, are what protocols compare. No clock is read here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from typing import TypeGuard, overload

from geo.errors import UsageError

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

FIRST_US = -62_135_596_800_000_000
"""The beginning of the year 1, in microseconds since 1970: no time of Python's can be earlier."""

LAST_US = 253_402_300_799_999_999
"""The end of the year 9999, in microseconds since 1970: neither a message nor a time of Python's can be later. What comes out of
a table or a record may say so."""


_DAY_US, _CYCLE_DAYS, _CYCLE_YEARS = 86_400_000_000, 146_097, 400
"""The calendar is the same after so many days, which are so many years."""


def with_zone(given: datetime) -> datetime:
    """A time that somebody gives; without a zone it is of UTC."""
    return given.replace(tzinfo=given.tzinfo or timezone.utc)


@overload
def in_us(time: datetime) -> int: ...


@overload
def in_us(time: datetime | None) -> int | None: ...


def in_us(time: datetime | None) -> int | None:
    """Microseconds since 1970 of a time with a zone."""
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def is_time(value: object) -> TypeGuard[datetime]:
    return isinstance(value, datetime)


def from_us(time_us: int) -> datetime:
    """The inverse of `in_us`."""
    return EPOCH + timedelta(microseconds=time_us)


def shown_time(time: datetime) -> str:
    """A time as people read it: in UTC, to the second."""
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M:%SZ}"


def any_time(time_us: int) -> datetime | str:
    """Converts as `from_us`. A year that Python has not is text, as ISO 8601 has it: `+14645-06-30T11:06:40Z`,
    `-0001-12-31T00:00:00Z`.
    """
    if FIRST_US <= time_us <= LAST_US:
        return from_us(time_us)
    days, rest_us = divmod(time_us, _DAY_US)
    return f"{any_day(days)}T{from_us(rest_us).time().isoformat()}Z"


def any_day(days: int) -> date | str:
    """The day so many days after the first of 1970; text as of `any_time`."""
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = EPOCH.date() + timedelta(days=rest)
    year = day.year + cycles * _CYCLE_YEARS
    if date.min.year <= year <= date.max.year:
        return day.replace(year=year)
    sign = "-" if year < 0 else "+" if year > 0 else ""
    return f"{sign}{abs(year):04}-{day:%m-%d}"


_ISO = re.compile(
    r"(\d{4})(-?)(\d\d)\2(\d\d)(?:[Tt ](\d\d)(:?)(\d\d)(?:\6(\d\d)(?:[.,](\d+))?)?(?:([Zz])|([+-]\d\d)(?::?(\d\d)(?::?(\d\d))?)?)?)?",
    re.ASCII,
)


def from_iso(text: str) -> datetime:
    """A date or a time as ISO 8601 writes it, with its zone if it says one: `2013-01-01T05:15:00Z`. One grammar, whatever Python reads it.

    T may be a blank; seconds, and what follows them, may be missing; digits behind the microseconds are cut off. Zones are Z, +05:30, +0530 or +05;
    all of it may be without its signs (`20130101T051500Z`). Raises ValueError for anything else, and for a day or an hour that is none.
    """
    if (found := _ISO.fullmatch(text)) is None:
        raise ValueError(f"not a time as ISO 8601 writes it: {text!r}")
    year, _, month, day, hour, _, minute, second, fraction, z, *offset = found.groups(default="")
    zone = timezone.utc if z else _zone(*offset) if offset[0] else None
    us = int(fraction[:6].ljust(6, "0"))
    return datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), us, zone)


MAX_DURATION_S = 36_525 * 86_400
"""A longer duration is a slip of the pen, and now minus it would leave the calendar of Python and Spark."""

_UNITS_S: Mapping[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_BRIEF_S: Mapping[str, int] = {"min": 60, **{unit[0]: size for unit, size in _UNITS_S.items()}}
_DURATION = re.compile(rf"([1-9][0-9]{{0,11}})(?: ({'|'.join(_UNITS_S)})s?|({'|'.join(_BRIEF_S)}))")


def duration_s(text: str) -> int:
    """The seconds of `7 days`, `5 minutes`, or `7d`, `5m`, `5min`. Raises UsageError."""
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * (_UNITS_S[found[2]] if found[2] else _BRIEF_S[found[3]]) if found else 0
    if not 0 < seconds <= MAX_DURATION_S:
        raise UsageError(
            f"{ascii(text)[:120]} is not a duration; allowed: <int> {'|'.join(f'{unit}s' for unit in _UNITS_S)},"
            f" such as 7 days or 7d, up to {MAX_DURATION_S // 86_400} days"
        )
    return seconds


def duration_text(seconds: int) -> str:
    """Writes a duration as `duration_s` reads it, in the largest unit that is whole."""
    unit, size = max(((unit, size) for unit, size in _UNITS_S.items() if seconds % size == 0), key=lambda one: one[1])
    return f"{seconds // size} {unit}{'' if seconds == size else 's'}"


def from_words(text: str, now: datetime) -> datetime:
    """A time as people say it, by the time that it is `now` (with a zone): `-90m` and `-1d`, so long ago. `now`; `today` and `yesterday`, the
    beginning of that day in UTC; or a time as `from_iso`, without a zone of UTC. Raises ValueError for anything else."""
    if text == "now":
        return now
    if text in ("today", "yesterday"):
        today = now.astimezone(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
        return today - timedelta(days=text == "yesterday")
    try:
        if text.startswith("-"):
            return now - timedelta(seconds=duration_s(text[1:]))
        return with_zone(from_iso(text)).astimezone(timezone.utc)
    except UsageError as error:
        raise ValueError(str(error)) from None
    except OverflowError:
        raise ValueError(f"not in the years 1 to 9999, as UTC: {text!r}") from None


def _zone(hours: str, minutes: str, seconds: str) -> timezone:
    behind = timedelta(hours=int(hours[1:]), minutes=int(minutes or 0), seconds=int(seconds or 0))
    if int(minutes or 0) > 59 or int(seconds or 0) > 59:
        raise ValueError("a zone has no more than 59 minutes")
    return timezone(-behind if hours[0] == "-" else behind)
