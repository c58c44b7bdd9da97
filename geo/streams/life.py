"""The life of a piece of work that a supervisor runs: a topic of a link, a namespace's fold, a publisher's stream. Pure: no
Spark, clock or I/O.

States and events are one table, TRANSITIONS: what is not in it cannot happen. Times are seconds of any clock that does not go
back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from geo.reasons import Reason
from geo.streams import timetable

TRIES = 3
"""Faults in a row after which a run that ends leaves a piece of work alone."""


class State(str, Enum):
    """Kafka's fetcher states, per piece of work."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    """Not begun, or ended well."""
    DELAYED = "DELAYED"
    """A transient fault: tried again by itself."""
    FAILED = "FAILED"
    """Needs a person; the reason names range and verb."""
    PAUSED = "PAUSED"
    """Not wanted now, by a policy or because a person asked; continues by itself when it is wanted again."""


class WorkEvent(Enum):
    """Event in the life of a piece of work."""

    UP = auto()
    """It was started and follows its source."""
    DONE = auto()
    """Nothing is left to do, in a run that ends."""
    FAULT = auto()
    """It failed; trying again may help."""
    REFUSED = auto()
    """It failed, and goes on only once a person has acted."""
    RESOLVED = auto()
    """A person has acted."""
    LEFT_OUT = auto()
    """It is not wanted any more."""
    WANTED = auto()
    """It is wanted again."""
    RESTARTED = auto()
    """It was ended, to be started again at once."""
    STOP = auto()
    """The supervisor stops, or stopped it cleanly."""


_FAULTS = {WorkEvent.FAULT: State.DELAYED, WorkEvent.REFUSED: State.FAILED}
_ENDED = {WorkEvent.LEFT_OUT: State.PAUSED, WorkEvent.RESTARTED: State.STOPPED}
_ALIVE = {WorkEvent.UP: State.RUNNING, WorkEvent.DONE: State.STOPPED, **_ENDED, **_FAULTS}

TRANSITIONS: Mapping[State, Mapping[WorkEvent, State]] = {
    State.STOPPED: {**_ALIVE, WorkEvent.STOP: State.STOPPED},
    State.RUNNING: {**_ALIVE, WorkEvent.STOP: State.STOPPED},
    State.DELAYED: {**_ALIVE, WorkEvent.STOP: State.DELAYED},
    State.FAILED: {WorkEvent.RESOLVED: State.STOPPED, **_ENDED, WorkEvent.STOP: State.FAILED},
    State.PAUSED: {WorkEvent.WANTED: State.STOPPED, WorkEvent.STOP: State.PAUSED},
}


class Why(NamedTuple):
    """The reason why something is so: a sentence, and its code."""

    reason: str
    code: Reason


@dataclass(frozen=True, slots=True)
class Life:
    """The place where a piece of work is in its life."""

    state: State = State.STOPPED
    reason: str | None = None
    """Reason of DELAYED, FAILED and PAUSED."""
    code: Reason | None = None
    """Code of the reason."""
    error: BaseException | None = None
    """Error that was raised, of DELAYED and FAILED."""
    tries: int = 0
    """Faults in a row."""
    faulty_since: float = 0.0
    """The time when the first of them came."""
    again_at: float = 0.0
    """The time when DELAYED work is tried again."""
    done: bool = False
    """In a run that ends: it is not begun again."""

    def after(
        self,
        event: WorkEvent,
        *,
        now: float = 0.0,
        why: Why | None = None,
        error: BaseException | None = None,
        ends: bool = False,
        moved: bool = False,
    ) -> Life:
        """Its life after an event at `now`. `ends`: the run does, once all there is has been done. `moved`: it came further since
        its last fault. Raises KeyError for an event that cannot happen in this state."""
        state = TRANSITIONS[self.state][event]
        if event is WorkEvent.STOP and state is self.state:
            return self
        reason, code = (None, None) if why is None else why
        life = replace(self, state=state, reason=reason, code=code, error=error)
        if event in _FAULTS:
            steady = moved if ends else now - self.again_at > timetable.STEADY_S
            tries = 1 if steady else self.tries + 1
            done = ends and (event is WorkEvent.REFUSED or tries >= TRIES)
            since = now if tries == 1 else self.faulty_since
            return replace(life, tries=tries, faulty_since=since, again_at=now + backoff_s(tries), done=done)
        if event is WorkEvent.RESTARTED:
            life = replace(life, tries=0, again_at=now)
        return replace(life, done=event is WorkEvent.DONE or (ends and event is WorkEvent.LEFT_OUT))

    def is_ripe(self, now: float) -> bool:
        """Tells whether it is to be started now."""
        return self.state in (State.STOPPED, State.DELAYED) and not self.done and now >= self.again_at

    def is_hopeless(self, now: float) -> bool:
        """Tells whether a work that nobody supervises is to be given up."""
        return now - self.faulty_since > timetable.PATIENCE_S


def backoff_s(attempt: int) -> float:
    """Pause before try number `attempt` (from 1) of delayed work: 1 s doubling to timetable.MOST_BACKOFF_S, as Pulsar's replicator
    reads."""
    return min(timetable.MOST_BACKOFF_S, 2.0 ** min(attempt - 1, 6))
