"""One set-up on one place: it goes well, is broken, is told, and is mended by what was told."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass

from geo.journal.events import flush_all
from tests.broken.place import Place
from tests.broken.screens import SCREENS, Found
from tests.broken.set_ups import DOCTOR, LINKS, SetUp, Told

APART_S = 10.0
"""So far from when it happened is what is told of that at most."""


@dataclass(frozen=True)
class Shown:
    """What was shown of a set-up: which screens told it; whether they told since when; whether an event did; what was done then."""

    screens: tuple[str, ...]
    since: bool
    event: bool
    done: str


def check(set_up: SetUp, place: Place) -> Shown:
    """Raises AssertionError with what is not so."""
    place.publish(10)
    place.replicate()
    _assert_fine(place, "before")
    tells = set_up.on_s3 if place.s3 is not None and set_up.on_s3 is not None else set_up.tells
    with contextmanager(set_up.make)(place) as since:
        found = {screen: _told(place, screen, told, since) for screen, told in tells.items()}
        if set_up.event is not None:
            _assert_event(place, set_up)
        fix = next((found[screen].fix for screen in (LINKS, DOCTOR) if screen in found and found[screen].fix), "")
        if set_up.mend is not None:
            set_up.mend(place, fix)
            if not set_up.is_asked:
                _assert_fine(place, "afterwards")
    if set_up.mend is None:
        place.replicate()
    _assert_fine(place, "in the end")
    is_since_told = bool(found) and since is not None and all(one.since is not None for one in found.values())
    return Shown(tuple(tells), is_since_told, set_up.event is not None, fix if set_up.mend is not None else "what broke it ends")


def _assert_fine(place: Place, when: str) -> None:
    for name, look in SCREENS.items():
        screen = look(place)
        assert (screen.code, screen.found) == (0, ()), f"{when}: {name}: {screen.text}"


def _told(place: Place, name: str, told: Told, since: float | None) -> Found:
    screen = SCREENS[name](place)
    assert screen.code == 1, f"{name}: {screen.code}\n{screen.text}"
    matching = [one for one in screen.found if told.where in one.where and one.code == told.code.value]
    assert len(matching) == 1, f"{name}: {screen.found}"
    (found,) = matching
    assert re.search(told.fix, found.fix), f"{name}: {found}"
    if since is not None and found.since is not None:
        assert abs(found.since - since) <= APART_S, f"{name}: {found.since - since} s apart: {found}"
    return found


def _assert_event(place: Place, set_up: SetUp) -> None:
    assert set_up.event is not None
    code = next(iter(set_up.tells.values())).code.value
    flush_all()  # they are written a second later
    said = place.geo("events", "--since", "7d", "-o", "json")
    told = {(one["kind"], one["code"]) for one in said.data}
    assert (set_up.event.value, code) in told, said.text
