"""Findings as they are printed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from geo.ops.health import Finding
from geo.text import lasting
from geo.times import from_us


def finding_fields(one: Finding, now_us: int) -> dict[str, Any]:
    """As JSON has them."""
    return {
        "health": one.health.value, "health_since": None if one.since_us is None else from_us(one.since_us),
        "health_code": None if one.code is None else one.code.value, "health_reason": one.reason or None, "do": one.do,
        "level": one.level, "is_problem": one.is_problem(now_us),
    }  # fmt: skip


def since(since_us: int | None, now_us: int) -> str | None:
    """Since when something has been so, in UTC: `02:47Z (25 min)`, of more than a day with the date; None: nobody knows."""
    if since_us is None:
        return None
    ago_s = max(0.0, (now_us - since_us) / 1e6)
    began = from_us(since_us)
    form = "%H:%MZ" if ago_s < timedelta(days=1).total_seconds() else "%Y-%m-%d %H:%MZ"
    return f"{began:{form}} ({lasting(ago_s)})"
