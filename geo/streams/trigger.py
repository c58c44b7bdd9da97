"""The `--trigger` of every job: `available-now`, or an interval such as `1 second`. One place, one grammar."""

from __future__ import annotations

import re
from typing import Any

from geo.errors import UsageError

AVAILABLE_NOW = "available-now"

_INTERVAL = re.compile(r"(?:interval=)?\s*(\d+)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_SECONDS = {"milliseconds": 0.001, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


def parse_trigger(text: str) -> dict[str, Any]:
    """Keyword arguments of `DataStreamWriter.trigger`. Accepts `available-now`, `1 second`, `500 ms`, `interval=5s`.

    Raises UsageError.
    """
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    match = _INTERVAL.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"trigger {text!r} is neither 'available-now' nor an interval such as '1 second' or '500 ms'.")
    unit = match[2]
    name = _UNITS.get(unit, unit if unit.endswith("s") else unit + "s")
    return {"processingTime": f"{int(match[1])} {name}"}


def interval_s(text: str) -> float | None:
    """The same in seconds; None for `available-now`. Raises UsageError."""
    options = parse_trigger(text)
    if text == AVAILABLE_NOW:
        return None
    number, unit = options["processingTime"].split()
    return int(number) * _SECONDS[unit if unit.endswith("s") else unit + "s"]
