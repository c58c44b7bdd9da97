"""Health of regions and their links as their events tell it, and since when. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from geo.errors import NoSparkError
from geo.faults import Tried
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import Event, EventKind
from geo.journal.events import KEPT, is_of_this_host, read_events
from geo.now import utc_now
from geo.ops.health import Health
from geo.ops.problems import THIS_HOST, Noted
from geo.reasons import Reason
from geo.times import from_us, in_us


def events_told(tables: ClusterTables, *kinds: EventKind) -> list[Event]:
    """The events of these kinds that are kept, oldest first. Of a region that cannot be read, and of a later program's, there are none."""
    with Tried():
        return read_events(tables, utc_now() - KEPT, *kinds)
    return []


def works_told(tables: ClusterTables, since_us: int) -> list[Event]:
    """The events of works since a time, oldest first. Where these are more than are read without Spark, and it is not to be started, those of the last
    day. Of a region that cannot be read, and of a later program's, there are none."""
    now = utc_now()
    with Tried():
        try:
            return read_events(tables, max(from_us(since_us), now - KEPT), EventKind.WORK)
        except NoSparkError:
            return read_events(tables, now - timedelta(days=1), EventKind.WORK)
    return []


def noted_since(events: Iterable[Event]) -> Noted:
    """Since when what goes on has been so, as its events say (`goes_on`)."""
    return {(one.subject, one.reason_code): in_us(one.at) for one in goes_on(events).values() if one.reason_code is not None}


def goes_on(events: Iterable[Event]) -> dict[tuple[str, Reason | None], Event]:
    """The newest event of health of all that is not OK, by subject and cause (`Event.cause`). An OK without a cause ends all of its subject. Of a
    host only its own events tell."""
    found: dict[tuple[str, Reason | None], Event] = {}
    for one in sorted(events, key=lambda one: one.at):
        if one.kind is not EventKind.HEALTH or (one.subject == THIS_HOST and not is_of_this_host(one)):
            continue
        if one.to_state != Health.OK.value:
            found[one.subject, one.cause] = one
        else:
            found = {key: was for key, was in found.items() if key[0] != one.subject or one.cause not in (None, key[1])}
    return found
