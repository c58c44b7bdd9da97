"""Publishers, folds and the version sync of a broker that do not go on, as their events tell. Pure: no Spark, clock or I/O.

Nothing but an event tells of them: a link has a row in `system/links`, these have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.journal.event_rate import Event
from geo.ops.health import Finding, Health
from geo.reasons import Reason
from geo.streams.life import State
from geo.times import in_us

_HEALTH = {State.FAILED.value: Health.FAILED, State.DELAYED.value: Health.STALLED}
"""Health by the state in which an event leaves a work: those in which it does not go on."""

FLICKERS_US = 60 * 1_000_000
"""A work that is tried again runs for a moment before it fails again. That does not end what has been so."""


def failed_works(events: Iterable[Event], living: Mapping[str, int]) -> list[Finding]:
    """Finds the works whose newest event leaves them FAILED or DELAYED, in the order of their names.

    `events`: the WORK events of one cluster, oldest first. `living`: the processes that run something in it, each `HOST:PID`, and since when, in
    microseconds since 1970. An event of another process, or of one of before with the same name, tells nothing of now. Whoever runs the work next
    notes an event of its own.
    """
    newest, since_us, well_us = dict[str, Event](), dict[str, int | None](), dict[str, int]()
    for one in events:
        if one.subject not in newest and one.from_state in _HEALTH:
            since_us[one.subject] = None  # it was so before, and the event of that was not read
        newest[one.subject], at_us = one, in_us(one.at)
        if one.to_state not in _HEALTH:
            well_us.setdefault(one.subject, at_us)
        elif at_us - well_us.pop(one.subject, at_us) > FLICKERS_US or one.subject not in since_us:
            since_us[one.subject] = at_us
    return [
        _finding(one, since_us[subject])
        for subject, one in sorted(newest.items())
        if one.to_state in _HEALTH and _is_of_now(one, living)
    ]


def _is_of_now(one: Event, living: Mapping[str, int]) -> bool:
    """Tells whether a living process noted the event. `by` is `USER@HOST PID`; hosts' clocks differ by so much at most."""
    began_us = living.get(one.by.rpartition("@")[2].replace(" ", ":"))
    return began_us is not None and in_us(one.at) >= began_us - CLOCK_TOLERANCE_US


def _finding(one: Event, since_us: int | None) -> Finding:
    code = one.reason_code or Reason.OTHER
    do = code.do or "end its cause; it is tried again by itself, a work that FAILED after five minutes"
    return Finding(one.subject, None, None, _HEALTH[one.to_state], since_us, code, one.reason or "it failed", do)
