"""One set-up on one place: it goes well, is broken, is told, and is mended by what was told."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field

from geo.journal.events import flush_all
from tests.broken.place import Place
from tests.broken.screens import SCREENS, Found, since_of
from tests.broken.set_ups import DOCTOR, STATUS, SetUp, Tells, Told

APART_S = 10.0
"""So far from when it happened is what is told of that at most."""

EVENT = "event"

FLUSH_S = 60.0


@dataclass
class Shown:
    """What was shown of a set-up: by screen, and by an event, the cause; how far from when it happened what is told of that is, at most, in seconds; what
    was typed, or done; `lacks`: what is not so."""

    health: str = ""
    code: str = ""
    told: dict[str, bool] = field(default_factory=dict)
    apart_s: float = 0.0
    done: str = ""
    is_mended: bool = False
    lacks: list[str] = field(default_factory=list)


def check(set_up: SetUp, place: Place) -> Shown:
    """Raises AssertionError where it cannot even be made, or undone."""
    place.publish(10)
    place.replicate()
    assert (why := _why_not_fine(place)) is None, why
    shown = Shown()
    tells = set_up.on_s3 if place.s3 is not None and set_up.on_s3 is not None else set_up.tells
    with contextmanager(set_up.make)(place) as since:
        if set_up.noted is not None:
            set_up.noted(place)
        found = {screen: one for screen, told in tells.items() if (one := _told(place, screen, told, since, shown)) is not None}
        shown.done = next((found[screen].fix for screen in (STATUS, DOCTOR) if screen in found and found[screen].fix), "")
        if set_up.noted is not None:
            _note_event(place, tells, since, shown)
        if set_up.mend is not None:
            set_up.mend(place, shown.done)
            if set_up.noted is None:
                _note_event(place, tells, since, shown)
            if not set_up.is_asked:
                _note_mended(place, shown)
    if set_up.mend is None:
        place.replicate()
    _note_mended(place, shown)
    return shown


def _why_not_fine(place: Place) -> str | None:
    for name, look in SCREENS.items():
        screen = look(place)
        if (screen.code, screen.found) != (0, ()):
            return f"{name}: exit code {screen.code}: {screen.found}"
    return None


def _note_mended(place: Place, shown: Shown) -> None:
    why = _why_not_fine(place)
    shown.is_mended = why is None
    shown.lacks += [] if why is None else [f"after it was mended: {why}"]


def _told(place: Place, name: str, told: Told, since: float, shown: Shown) -> Found | None:
    screen = SCREENS[name](place)
    matching = [one for one in screen.found if told.where in one.where and one.code == told.code.value]
    shown.told[name] = screen.code == 1 and len(matching) == 1 and re.search(told.fix, matching[0].fix) is not None
    if not shown.told[name]:
        shown.lacks.append(f"{name}: exit code {screen.code}: {screen.found}")
        return None
    (found,) = matching
    shown.code, shown.health = told.code.value, found.health or shown.health
    if found.since is None:
        shown.told[name] = False
        shown.lacks.append(f"{name} does not tell since when: {found}")
        return found
    _note_since(name, found.since - since, shown)
    return found


def _note_since(who: str, apart_s: float, shown: Shown) -> None:
    shown.apart_s = max(shown.apart_s, apart_s, key=abs)
    if abs(apart_s) > APART_S:
        shown.told[who] = False
        shown.lacks.append(f"{who}: since {apart_s:.0f} s apart")


_SINCE = re.compile(r"since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")


def _note_event(place: Place, tells: Tells, since: float, shown: Shown) -> None:
    """Whether one names the cause, since when, and the fix: in its sentence, or by its own time."""
    flush_all(FLUSH_S)  # they are written a second later
    said = place.geo("events", "--since", "7d", "-o", "json")
    told = next(iter(tells.values()))
    apart, events = [], [one for one in said.data if "cannot_be_read" not in one]
    for one in events:
        if one["code"] == told.code.value and re.search(told.fix, one["reason"] or ""):
            named = _SINCE.search(one["reason"])
            apart.append(since_of(one["at"] if named is None else named[1]) - since)
    shown.told[EVENT] = bool(apart)
    if apart:
        _note_since(EVENT, min(apart, key=abs), shown)
    else:
        of_code = [one for one in events if one["code"] == told.code.value]
        shown.lacks.append(f"no event names {told.code.value} and {told.fix}: {of_code or events}")
