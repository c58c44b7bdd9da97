"""The `--trigger` of every job: `available-now`, or an interval such as `1 second`. One place, one grammar."""

from __future__ import annotations

import re
from typing import Any

from geo.errors import UsageError

AVAILABLE_NOW = "available-now"

_INTERVAL = re.compile(r"(?:interval=)?\s*(\d+)\s*(?:(ms|milliseconds?)|(s|seconds?)|(m|minutes?)|(h|hours?))")
_MILLISECONDS = {2: 1, 3: 1_000, 4: 60_000, 5: 3_600_000}
"""Milliseconds of a unit, by the group that matched."""


def parse_trigger(text: str) -> dict[str, Any]:
    """Keyword arguments of `DataStreamWriter.trigger`. Accepts `available-now`, `1 second`, `500 ms`, `interval=5s`.

    Raises UsageError.
    """
    every_s = interval_s(text)
    return {"availableNow": True} if every_s is None else {"processingTime": f"{round(every_s * 1000)} milliseconds"}


def interval_s(text: str) -> float | None:
    """The interval in seconds; None for `available-now`. Raises UsageError."""
    if text == AVAILABLE_NOW:
        return None
    match = _INTERVAL.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"trigger {text!r} is neither 'available-now' nor an interval such as '1 second' or '500 ms'.")
    if not int(match[1]):
        raise UsageError(f"trigger {text!r} is no interval: 1 ms or more. What there is and no more: {AVAILABLE_NOW}.")
    return int(match[1]) * _MILLISECONDS[match.lastindex or 0] / 1000
