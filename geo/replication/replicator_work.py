"""A topic of a link as a piece of work. It decides who owns it, when its source is looked at, and what becomes of it after a fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from geo.coordination.claiming import claim
from geo.coordination.owners import owned_now
from geo.coordination.ownership import Ownership, release
from geo.crash import CrashPoint
from geo.delta.history import CommitName
from geo.delta.tail import REMOTE_LOOK_S
from geo.errors import NoProgressError, RetryableError
from geo.faults import FAULTS
from geo.journal.cluster import ClusterTables
from geo.names import Topic
from geo.reasons import Reason
from geo.replication.link_state import LinkState
from geo.replication.link_table import read_links
from geo.replication.running_link import BatchPath
from geo.replication.topic_replicator import TopicReplicator
from geo.streams import timetable
from geo.streams.lease import Lease
from geo.streams.life import State, Why
from geo.streams.trigger import interval_s, parse_trigger
from geo.text import counted

_NOWHERE = object()

BUSY_TURNS = 3
"""Turns in a row after which a topic is busy, that were more than this process replicates by itself. Then a query takes it up: that takes a second to
begin, and a batch of it then less than a turn.
"""


class ReplicatorWork:
    """One topic of one link and its fate in this process.

    It comes up by its start. After that its source is looked at by name, and news get a turn. Those of a busy topic a streaming query, which ends
    once there were none for long. In a run that ends it comes up by turns up to what the source has then.
    """

    def __init__(self, replicator: TopicReplicator, trigger: str, *, take_over: bool = False) -> None:
        self.replicator, self._trigger = replicator, trigger
        self.lease = Lease[Ownership](take_over=take_over)
        every_s = interval_s(trigger)
        self._once = every_s is None
        self._every_s = every_s or 0.0
        self._stopped: Callable[[], bool] = lambda: False
        """True if the work is to end after the turn it is in."""
        self._busy = 0
        """Turns in a row that Spark did."""
        self._has_caught_up = False
        """Nothing was left after the last turn."""
        self.begun_anew = 0
        """Restarts because it hung."""
        self._hung_at: CommitName | object | None = _NOWHERE
        """The place where that was last: at a cursor, or (None) while both logs were compared."""
        self.recorded: LinkState | None = None
        """The newest row of the link when it was claimed."""
        self._stuck = 0
        """Faults in a row behind the start, the cursor being `_stuck_at`."""
        self._stuck_at: CommitName | None = None
        self._looked_at = self._moved_at = 0.0
        self._ask_at = 0.0
        """The time when a source of which a look is a request is asked next."""
        self._followed: CommitName | None = None
        """The place where its query was seen last, at `_moved_at` for the first time."""
        self._rest_began: float | None = None
        """The time when its query was told to end, and has not ended yet."""

    def __str__(self) -> str:
        return str(self.replicator)

    @property
    def was(self) -> tuple[State, Reason | None] | None:
        """State and code of the row that was the newest when it was claimed; None: there was none, or it was not claimed."""
        return None if self.recorded is None else (self.recorded.state, self.recorded.reason_code)

    @property
    def topic(self) -> Topic:
        return self.replicator.topic

    @property
    def progress_marker(self) -> CommitName | None:
        return self.replicator.cursor

    @property
    def is_behind(self) -> bool:
        """Tells whether its source has, or may have, what it has not replicated. No request is made for it."""
        if (started := self.replicator.started) is None:
            return True
        return started.has_news() if started.source_is_local else not self._has_caught_up

    def own(self, stopped: Callable[[], bool]) -> None:
        self.replicator.look_for_source(self.recorded)
        own(self.replicator.target, [self])

    def start(self, owned: Ownership, stopped: Callable[[], bool]) -> None:
        """Start the topic's link; in a run that ends, replicate what the source has now."""
        self._stopped, self._busy, self._rest_began = stopped, 0, None
        # Where it replaced an owner that lived, as a person asked, its comparison replaces whoever compares or backfills.
        take_over = self.lease.takes_over
        running = self.replicator.prepare(owned, self.recorded, failed_before=self._stuck, stopped=stopped, take_over=take_over)
        if self._once:
            if running is not None:
                running.run_turns(stopped)
            self._stuck = 0  # its turns have passed the place
        elif running is not None:
            self._has_caught_up = not running.has_news()
        self._looked_at, self._ask_at = time.monotonic(), 0.0

    def follow(self) -> Callable[[], None] | None:
        """See whether its query has ended, and whether there is news. Raises what ended the query."""
        running, now = self.replicator.running, time.monotonic()
        is_local = running.source_is_local
        is_due = now - self._looked_at > (timetable.SOURCE_LOOK_S if is_local else timetable.REMOTE_SOURCE_LOOK_S)
        if running.stream is not None:
            if running.stream.is_active:
                if running.cursor != self._followed:
                    self._followed, self._moved_at = running.cursor, now
                if now - self._moved_at > timetable.QUERY_IDLE_S:
                    return self._rest
                return self._look_beside_the_query if is_due else None
            self._rest()
        if not is_local:
            return self._ask if now >= self._ask_at else None
        if running.has_news():
            return self._replicate_news if self.replicator.turns.may_begin() else None
        return self._look if is_due else None

    def _replicate_news(self) -> None:
        """Take a turn; or, for a busy topic that has caught up, start its query: the first batch is all that there is."""
        running = self.replicator.running
        if self._busy >= BUSY_TURNS and self._has_caught_up:
            running.start_stream(parse_trigger(self._trigger))
            self._followed, self._moved_at = running.cursor, time.monotonic()  # once it runs: a start may take a while
            return
        if (path := running.take_turn(self._stopped)) is not None:
            self._stuck = 0  # it has passed the place
        self._busy = self._busy + 1 if path is BatchPath.BY_SPARK else 0
        self._has_caught_up = not running.has_news()

    def _ask(self) -> None:
        """Follow a source of which a look is a request."""
        now, every_s = time.monotonic(), self.replicator.running.look_every_s(self._every_s)
        self._ask_at = now + every_s
        if self.replicator.running.has_news():
            self._ask_at = now + min(REMOTE_LOOK_S, every_s)  # its turn, or its rate, may come sooner than the next look
            if self.replicator.turns.may_begin():
                self._replicate_news()
                self._ask_at = now + every_s if self._has_caught_up else now
        elif now - self._looked_at > timetable.REMOTE_SOURCE_LOOK_S:
            self._look()

    def _rest(self) -> None:
        """Its query ends, or has ended: the source is looked at by name."""
        self._rest_began = time.monotonic()
        try:
            if not self.end():
                raise RetryableError(f"{self}: its query was stopped in the middle of a batch.")
        finally:
            self._rest_began = None

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        self.replicator.running.check_source()

    def _look_beside_the_query(self) -> None:
        try:
            self._look()
        except FAULTS:
            with suppress(*FAULTS):  # what the look found is the cause
                self.end()
            raise

    def replacement(self) -> tuple[ReplicatorWork, BaseException] | None:
        """Replaces a turn that hangs: one that takes ten minutes, and a second for each of its megabytes. The topic is begun again, and if it then
        hangs at the same place it is a person's.
        """
        began, cursor = self.replicator.turns.began or self._rest_began, self.replicator.cursor
        if began is None or self.lease.is_left:
            return None
        took_s = time.monotonic() - began
        if took_s < timetable.HANGS_S + self.replicator.turns.size / timetable.HANGS_BYTES_PER_S:
            return None
        self.replicator.leave()
        fresh = ReplicatorWork(self.replicator.fresh_copy(), self._trigger)
        fresh.begun_anew, fresh._hung_at = self.begun_anew + 1, cursor
        at = (
            "while both logs were compared"
            if cursor is None
            else f"behind version {cursor.version} of {self.replicator.link.source}"
        )
        what = f"{self}: no progress for {took_s:.0f} s, {at}"
        if cursor == self._hung_at:
            ends = (
                f"--source {self.replicator.link.source} --target {self.replicator.link.target} --topic '{self.replicator.topic}'"
            )
            return fresh, NoProgressError(
                f"{what}, the second time there; nothing was skipped. Once the cause is gone: geo links restart {ends}"
            )
        return fresh, RetryableError(f"{what}; restarted, {counted(fresh.begun_anew, 'time')} by now.", code=Reason.NOT_MOVING)

    def end(self) -> bool:
        self._busy = 0
        return (started := self.replicator.started) is None or started.end_stream()

    def give_up(self, owned: Ownership, state: State, why: Why) -> None:
        """Record why, and give the ownership up for one with a new token, before the cursor is read again. A changed source or
        schema is noticed before an append: then nothing is in flight, and who resolves it must be able to take it."""
        if (cursor := self.replicator.cursor) is not None:
            self._stuck = self._stuck + 1 if cursor == self._stuck_at else 1
            self._stuck_at = cursor
        try:
            if not self.lease.is_replaced:
                if self.replicator.is_deleted_at_source():  # while it ran: nobody waits for it
                    state, why = State.PAUSED, Why(f"it was deleted in {self.replicator.link.source}", Reason.DELETED)
                self.replicator.flush_failure(owned, state, why)
                if state is State.FAILED and not self.replicator.in_doubt:
                    release([owned])
                    self.lease.give_back()
        finally:
            owned.abandon()


def own(target: ClusterTables, works: Sequence[ReplicatorWork]) -> None:
    """Claim works of one target in one commit, all or none."""
    take_over = [runner for work in works if work.lease.start_claim() for runner in work.replicator.runners]
    owned = claim(target, [work.replicator.runners for work in works], take_over=take_over, point=CrashPoint.LINK_CLAIMED)
    try:
        known = read_links(target)  # since it is owned nobody else's row comes after these
        held = {one.runner for one in owned_now(target)}
    except BaseException:
        for ownership in owned:
            ownership.abandon()
        raise
    for work, ownership in zip(works, owned, strict=True):
        work.replicator.is_filling_left = any(runner.name in held for runner in work.replicator.fillers)
        work.recorded = known.get((work.replicator.link.source, str(work.replicator.topic)))
        work.lease.hold(ownership)
