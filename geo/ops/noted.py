"""What events of regions tell of how these and their links were doing, and since when. Reads only."""

from __future__ import annotations

from collections.abc import Iterable

from geo.faults import Tried
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import Event, EventKind
from geo.journal.events import KEPT, is_of_this_host, read_events
from geo.now import utc_now
from geo.ops.problems import THIS_HOST, Noted
from geo.times import in_us


def events_told(tables: ClusterTables, *kinds: EventKind) -> list[Event]:
    """The events of these kinds that are kept, oldest first. Of a region that cannot be read, and of a later program's, there are none."""
    with Tried():
        return read_events(tables, utc_now() - KEPT, *kinds)
    return []


def noted_since(events: Iterable[Event]) -> Noted:
    """Since when each subject has been as the newest of its events of health say. Of a host only its own events tell."""
    newest = {}
    for one in sorted(events, key=lambda one: one.at):
        if one.kind is EventKind.HEALTH and (one.subject != THIS_HOST or is_of_this_host(one)):
            newest[one.subject] = one
    return {(one.subject, one.reason_code): in_us(one.at) for one in newest.values() if one.reason_code is not None}
