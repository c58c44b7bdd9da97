"""Works that are to be done again and again, and were not for too long: comparing the regions, and keeping house. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from geo.journal.event_rate import Event, EventKind
from geo.ops.symptom import Symptom
from geo.reasons import Reason
from geo.times import from_us, in_us, shown_time

DUE_US = 8 * 86_400 * 1_000_000
"""A week, as who schedules it weekly does, and a day for a run that failed."""

CLEAN = "clean"
WHOLE = {EventKind.VERIFY: (CLEAN, "faults"), EventKind.MAINTAIN: ("done",)}
"""Endings of each that was of all topics; a verify that compares ends alone, and what is of some topics, end otherwise."""


def overdue(cluster: str, events: Iterable[Event], begun_us: int, now_us: int) -> Iterator[Symptom]:
    """Judges when a cluster was verified and maintained last, by its events. `begun_us`: since when it has a topic."""
    ended = dict.fromkeys((EventKind.VERIFY, EventKind.MAINTAIN), begun_us)
    done = set[EventKind]()
    found: Event | None = None
    for one in events:
        if one.to_state in WHOLE.get(one.kind, ()):
            ended[one.kind] = max(ended[one.kind], in_us(one.at))
            done.add(one.kind)
            found = one if one.kind is EventKind.VERIFY else found
    if found is not None and found.to_state != CLEAN:
        what = f"it was last compared at {shown_time(found.at)}, and that was not clean: {found.reason or ''}"
        yield Symptom("error", f"cluster {cluster}", what, "geo verify", Reason.OTHER, in_us(found.at))
    for kind, verb, past in (
        (EventKind.VERIFY, "geo verify", "compared with the others"),
        (EventKind.MAINTAIN, f"geo maintain --cluster {cluster}", "maintained"),
    ):
        where, at_us = f"cluster {cluster}", ended[kind]
        last = (
            f"it was last {past} at {shown_time(from_us(at_us))}"
            if kind in done
            else f"it was never {past}, as far as events tell"
        )
        if now_us - at_us > DUE_US:
            yield Symptom("warn", where, last, verb, Reason.OVERDUE, at_us + DUE_US)
        elif kind in done:
            yield Symptom("ok", where, last)
