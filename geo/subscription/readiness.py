"""Readiness of a subscription: what another cluster would repeat or skip if one were lost now, and how long a backlog lasts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.message_set import MessageSet

RATE_S = 300
"""Over so long acknowledgements are counted: some batches of a consumer by interval, and not yesterday's."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """A failover to `target`, if what the tables of the lost cluster say is all. `repeated` are messages that it has done with and `target` would
    deliver. `skipped` are those that it still has to deliver and `target` takes for done. `missing` are those that wait there and are not in the log
    of `target`. None: nobody knows, and `why` says why not.
    """

    target: str
    repeated: int | None = None
    skipped: int | None = None
    missing: int | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A subscription in one cluster: its state there (None: there is no record of it), and what of a log lies before the state's base."""

    state: AckState | None
    before: MessageSet

    def of(self, messages: MessageSet) -> MessageSet:
        """The messages that it does not deliver."""
        return messages & (self.before if self.state is None else self.state.acked | self.before)


def readiness(target: str, here: Done, there: Done, waiting: MessageSet, present: MessageSet) -> Readiness:
    """Derives what a failover from here to there would do. `there`: what `target` knows, `here`: what this cluster knows, both with what of the log
    of `target` lies before their bases. `present` is that log, `waiting` what is still to be delivered here.

    Of one epoch what `target` has done and this cluster has not was acknowledged elsewhere: a link has still to replicate it. What it did in an epoch
    of before was reset since.
    """
    done_here, done_there = here.of(present), there.of(present)
    is_older = there.state is not None and here.state is not None and there.state.rank < here.state.rank
    skipped = (done_there - done_here).size if is_older else 0
    return Readiness(target, (done_here - done_there).size, skipped, (waiting - present).size)


def drained_in_s(backlog: int, acknowledged: int, arrived: int, over_s: float) -> float | None:
    """Seconds that a backlog lasts, if messages go on to be acknowledged and to arrive as in the last `over_s` seconds. None: it does not get less."""
    if not backlog:
        return 0.0
    less = acknowledged - arrived
    return backlog * over_s / less if less > 0 else None
