"""Changes in the lives of works, as events of their cluster."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from geo.journal.event_rate import EventKind
from geo.journal.events import Events
from geo.names import Topic
from geo.reasons import Reason
from geo.streams.life import Life, State
from geo.streams.work import Group, Work

Was = tuple[State, Reason | None]
"""A state and its code."""


class LifeEvents:
    """Notes each change of state or code. What ends well and was not known to run before is none."""

    def __init__(self, events: Events) -> None:
        self._events, self._known = events, dict[Hashable, Was]()

    def note_work(self, group: Group[Any], work: Work | None, life: Life) -> None:
        """Notes a change of a work that is no link, as `on_change` of a supervisor."""
        self.note(EventKind.WORK, str(group if work is None else work), None if work is None else work.topic, life)

    def note(self, kind: EventKind, subject: str, topic: Topic | None, life: Life, recorded: Was | None = None) -> None:
        """`recorded`: what a table says of it that was written before this process had it. None: nothing does."""
        was, now = self._known.get(subject, recorded), (life.state, life.code)
        self._known[subject] = now
        if was == now or (was is None and life.state is State.STOPPED):
            return
        from_state = None if was is None else was[0].value
        self._events.note(kind, subject, life.state.value, topic=topic, from_state=from_state, code=life.code, reason=life.reason)
