"""Findings as they are printed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from geo.cli.output import Colour, Line, said
from geo.cli.verbs import typed
from geo.fleet.load_reports import UP
from geo.fleet.placement.views import SILENT
from geo.ops.health import Finding
from geo.ops.problems import Problem
from geo.ops.region_process import RegionProcess
from geo.replication.lag import Lag
from geo.text import counted, lasting
from geo.times import from_us


def finding_as_json(one: Finding, now_us: int, config: str) -> dict[str, Any]:
    """Gives the words that every screen has for how something is doing. `level`: of what is no problem, as a rest of an hour,
    it is ok. `do`: verbs are as they are typed for a configuration.
    """
    return {
        "health": one.health, "level": one.level if one.is_problem(now_us) else "ok", "since": None if one.since_us is None else from_us(one.since_us), "code": one.code,
        "reason": typed(one.reason, config) or None, "do": None if one.do is None else typed(one.do, config),
    }  # fmt: skip


def lag_as_json(lag: Lag | None, prefix: str = "") -> dict[str, Any]:
    """Gives the lag of a link, each name with a prefix where it stands among others. None: nobody knows."""
    return {f"{prefix}{name}": value if lag else None for name, value in said(lag or Lag()).items()}


def process_as_json(one: RegionProcess) -> dict[str, Any]:
    """Names who runs something in a region. `reason`: why it does nothing now."""
    holder = one.holder
    told = {"broker": one.name, "does": one.does, "state": SILENT if holder.why else UP, "since": from_us(one.since_us)}
    silent_s = None if holder.last_us is None else round(holder.silent_s, 3)
    return {**told, "silent_seconds": silent_s, "reason": holder.why or None, "works": one.works}


def since(since_us: int | None, now_us: int) -> str | None:
    """Since when something has been so, in UTC: `02:47Z (25 min)`, of more than a day with the date; None: nobody knows."""
    if since_us is None:
        return None
    ago_s = max(0.0, (now_us - since_us) / 1e6)
    began = from_us(since_us)
    form = "%H:%MZ" if ago_s < timedelta(days=1).total_seconds() else "%Y-%m-%d %H:%MZ"
    return f"{began:{form}} ({lasting(ago_s)})"


_INDENT = 11
"""Columns by which a problem's lines below its first are indented."""


def problem_lines(one: Problem, now_us: int, config: str) -> Iterator[Line]:
    """A problem with what to do; verbs are as they are typed for a configuration."""
    first = one.first
    colour = Colour.BAD if first.level == "error" else Colour.WARNS
    what = first.subject if one.count <= 1 else f"{one.count:,} of {counted(one.of, 'topic')}"
    parts = [
        first.health.value.ljust(_INDENT - 2),
        first.link,
        what,
        f"since {since(first.since_us, now_us) or 'an unknown time'}",
    ]
    reason = first.reason if one.count <= 1 else f"{first.subject}: {first.reason}"  # of others the numbers are others
    reason = typed(reason, config)
    why = f"{first.code.value}: {reason}" if first.code is not None else reason
    yield Line("  ".join(part for part in (*parts, why) if part), colour, _INDENT)
    more = first.topic if one.count > 1 or first.do is None else None
    told = [] if first.do is None else [f"do: {typed(first.do, config)}"]
    told += [] if more is None else [f"more: {typed(f'geo explain {more}', config)}"]
    yield from (Line(f"{' ' * _INDENT}{said}", indent=_INDENT + 4) for said in told)
