"""This host's time of day. The only file of this program that reads it."""

from __future__ import annotations

import time
from datetime import datetime

from geo.times import from_us


def now_us() -> int:
    """Microseconds since 1970, as this host's clock says."""
    return time.time_ns() // 1000


def now_s() -> float:
    """Seconds since 1970, as this host's clock says."""
    return time.time_ns() / 1e9


def utc_now() -> datetime:
    """This host's time, with its zone, UTC."""
    return from_us(now_us())


def steady_us() -> int:
    """Microseconds by a clock that nobody sets. Where the system has such a clock it counts also while the host sleeps."""
    return time.clock_gettime_ns(_STEADY) // 1000


_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
