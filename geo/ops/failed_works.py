"""Publishers, folds and the version sync of a broker that do not go on, as their events tell. Pure: no Spark, clock or I/O.

Nothing but an event tells of them: a link has a row in `system/links`, these have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from geo.journal.event_rate import Event, EventKind
from geo.ops.health import Finding, Health
from geo.reasons import Reason
from geo.streams.life import State
from geo.times import in_us

_HEALTH = {State.FAILED.value: Health.FAILED, State.DELAYED.value: Health.STALLED}
"""Health by the state in which an event leaves a work: those in which it does not go on."""

FLICKERS_US = 60 * 1_000_000
"""A work that is tried again runs for a moment before it fails again. That does not end what has been so."""


def failed_works(events: Iterable[Event], living: Collection[str]) -> list[Finding]:
    """Finds the works whose newest event leaves them FAILED or DELAYED, in the order of their names.

    `events`: of one cluster, oldest first. `living`: the processes that run something in it, each `HOST:PID`. An event of another process tells
    nothing of now: whoever runs the work next notes an event of its own.
    """
    newest, since_us, well_us = dict[str, Event](), dict[str, int](), dict[str, int]()
    for one in events:
        if one.kind is not EventKind.WORK:
            continue
        newest[one.subject], at_us = one, in_us(one.at)
        if one.to_state not in _HEALTH:
            well_us.setdefault(one.subject, at_us)
        elif one.subject not in since_us or at_us - well_us.get(one.subject, at_us) > FLICKERS_US:
            since_us[one.subject] = at_us
        if one.to_state in _HEALTH:
            well_us.pop(one.subject, None)
    return [
        _finding(one, since_us[subject])
        for subject, one in sorted(newest.items())
        if one.to_state in _HEALTH and _process(one) in living
    ]


def _process(one: Event) -> str:
    """`HOST:PID`, of `USER@HOST PID`."""
    return one.by.rpartition("@")[2].replace(" ", ":")


def _finding(one: Event, since_us: int) -> Finding:
    code = one.reason_code or Reason.OTHER
    do = code.do or "end its cause; it is tried again by itself, a work that FAILED after five minutes"
    return Finding(one.subject, None, None, _HEALTH[one.to_state], since_us, code, one.reason or "it failed", do)
