"""A subscription in one region. It is what its records there and the log have of it, and what a failover from one region to another would do by
that. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from geo.delta.table import Table
from geo.faults import Tried
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.start_position import split_at
from geo.subscription.readiness import Done, Readiness, readiness
from geo.text import first_line

Unreadable = str
"""The reason why something cannot be read."""


@dataclass(frozen=True, slots=True)
class InRegion:
    """A subscription of one topic. `state`: by the records of the region; None: there are none. `present`: all messages of its log there at `version`
    (None: there is no log), `before`: what lies before the state's base."""

    state: AckState | None
    is_regional: bool
    log: Table
    version: int | None
    present: MessageSet
    before: MessageSet

    @property
    def waiting(self) -> MessageSet:
        """Messages that are still to be delivered."""
        return self.present - Done(self.state, self.before).of(self.present)


def in_region(state: AckState | None, log: Table, version: int | None, *, is_regional: bool) -> InRegion:
    """State of the subscription as the log has it at that version."""
    present, before = (MessageSet(), MessageSet()) if version is None else _split(state, log, version)
    return InRegion(state, is_regional, log, version, present, before)


def ready(here: InRegion, there: InRegion | Unreadable, target: str) -> Readiness:
    """Derives what a failover to `target` would do if `here` were lost now."""
    if here.is_regional:
        return Readiness(target, why="it is of this region only")
    if isinstance(there, Unreadable):
        return Readiness(target, why=f"{target} cannot be read: {there}")
    if there.version is None:
        return Readiness(target, why=f"{target} does not have the topic")
    if there.is_regional:
        return Readiness(target, why=f"{target} has one of its own region only")
    same = here.state is not None and there.state is not None and here.state.base == there.state.base
    with Tried() as tried:
        before = there.before if same else _split(here.state, there.log, there.version)[1]
        return readiness(target, Done(here.state, before), Done(there.state, there.before), here.waiting, there.present)
    assert tried.fault is not None
    return Readiness(target, why=f"{target} cannot be read: {first_line(tried.fault)}")


def _split(state: AckState | None, log: Table, version: int) -> tuple[MessageSet, MessageSet]:
    return split_at(None if state is None else state.base, log, version)
