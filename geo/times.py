"""Times as numbers and back: microseconds since 1970, UTC, are what protocols compare. No clock is read here."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, TypeGuard, overload

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

FIRST_US = -62_135_596_800_000_000
"""The beginning of the year 1, in microseconds since 1970: no time of Python's can be earlier."""

LAST_US = 253_402_300_799_999_999
"""The end of the year 9999, in microseconds since 1970: neither a message nor a time of Python's can be later. What comes out of
a table or a record may say so."""


def utc(collected: datetime) -> datetime:
    """A time in UTC, with its zone. Spark's `collect` gives times without one, in that of this process. Of the first and the last
    day that Python knows, of which it cannot tell the local one, such a time is taken as it is."""
    try:
        return collected.astimezone(timezone.utc)
    except (OverflowError, ValueError):
        return collected.replace(tzinfo=timezone.utc)


def with_zone(collected: Any) -> Any:
    """A value out of Spark's `collect`; a time gets its zone, UTC."""
    return utc(collected) if isinstance(collected, datetime) else collected


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
