"""A topic of a link as a piece of work: who owns it, when its source is looked at, and what becomes of it after a fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from geo.crash import CrashPoint
from geo.errors import FencedError, RetryableError
from geo.faults import FAULTS
from geo.replication.link_state import LinkState
from geo.replication.link_table import read_links
from geo.replication.topic_link import TopicLink
from geo.streams.life import State
from geo.tables.cluster import ClusterTables
from geo.tables.history import CommitName
from geo.tables.ownership import Ownership, claim, release
from geo.tables.tail import REMOTE_LOOK_S

LOOK_INTERVAL_S, REMOTE_LOOK_INTERVAL_S = 60.0, 600.0
"""How often a topic gets a full look beside those by name, and beside its query: Delta's stream need not notice that an older
copy of the source was put back. On a local disk it is a matter of milliseconds."""

IDLE_S = 300.0
"""After so long without news a topic's query ends, and its source is looked at by name again: a process may follow thousands of
topics of which few are busy, and a query lists the source's log at each trigger."""


class LinkWork:
    """One topic of one link and its fate in this process.

    It is brought up by its start, and turns up to what the source has then. After that its source is looked at by name; the first
    news start a streaming query, which ends once there were none for long.
    """

    def __init__(self, link: TopicLink, trigger: Mapping[str, Any], *, take_over: bool = False) -> None:
        self.link, self._trigger, self.take_over = link, trigger, take_over
        self.ownership: Ownership | None = None
        self.replaced = False
        self._previous: Ownership | None = None
        """What it owned until a fault, while it owns nothing: if somebody took that over, it does not come back."""
        self._recorded: LinkState | None = None
        """The newest row of the link when it was claimed."""
        self._stuck = 0
        """Faults in a row behind the start, the cursor being `_stuck_at`."""
        self._stuck_at: CommitName | None = None
        self._looked_at = self._asked_at = self._moved_at = 0.0
        self._followed: CommitName | None = None
        """Where its query was seen last, at `_moved_at` for the first time."""
        self._in_doubt = False
        """What became of the last batch is not known."""
        self._is_left = False
        """Nobody waits for it any more: what it owns from now on is given back at once."""

    def __str__(self) -> str:
        return str(self.link)

    @property
    def is_owned(self) -> bool:
        return self.ownership is not None

    @property
    def how_far(self) -> CommitName | None:
        return self.link.cursor

    def bring_up(self, stopped: Callable[[], bool]) -> None:
        """Own the topic, start its link, and bring what the source has now."""
        self._is_left = False
        if self.ownership is None:
            self.link.look_for_source(self._recorded)
            if self._previous is not None:
                self._refuse_if_replaced(self._previous)
            self._previous = None
            own(self.link.target, [self])
        if (ownership := self.ownership) is None:
            raise RetryableError(f"{self}: it was left behind while it began.")
        self.link.prepare(ownership, self._recorded, failed_before=self._stuck)
        self.link.run_turns(stopped)
        self._looked_at, self._stuck = time.monotonic(), 0  # its turns have passed the place

    def _refuse_if_replaced(self, previous: Ownership) -> None:
        try:
            previous.refuse_if_replaced()
        except FencedError:
            self.replaced = True
            raise

    def follow(self) -> Callable[[], None] | None:
        """See whether its query has ended, and whether there is news. Raises what ended the query."""
        link, now = self.link, time.monotonic()
        is_due = now - self._looked_at > (LOOK_INTERVAL_S if link.source_is_local else REMOTE_LOOK_INTERVAL_S)
        if link.query is not None:
            if link.query.is_active:
                if link.cursor != self._followed:
                    self._followed, self._moved_at = link.cursor, now
                if now - self._moved_at > IDLE_S:
                    return self._rest
                return self._look_beside_the_query if is_due else None
            self._rest()
        if not link.source_is_local:
            return self._ask if now - self._asked_at >= REMOTE_LOOK_S else None
        if link.has_news():
            return self._bring_news
        return self._look if is_due else None

    def _bring_news(self) -> None:
        """In turns, while they are small; more is left to a query."""
        if not self.link.run_turns(lambda: False, only_small=True):
            self._start()

    def _ask(self) -> None:
        """Follow a source of which a look is a request."""
        self._asked_at = time.monotonic()
        if self.link.has_news():
            self._start()
        elif self._asked_at - self._looked_at > REMOTE_LOOK_INTERVAL_S:
            self._look()

    def _start(self) -> None:
        self._followed, self._moved_at = self.link.cursor, time.monotonic()
        self.link.start_stream(self._trigger)

    def _rest(self) -> None:
        """Its query ends, or has ended: the source is looked at by name."""
        if not self.end():
            raise RetryableError(f"{self}: its query was stopped in the middle of a batch.")

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        self.link.check_source()

    def _look_beside_the_query(self) -> None:
        try:
            self._look()
        except FAULTS:
            with suppress(*FAULTS):  # what the look found is the cause
                self.end()
            raise

    def end(self) -> bool:
        query = self.link.query
        if query is None:
            return True
        query.stop()
        ended_well, error = query.ended_well, query.error
        self._in_doubt = not ended_well
        self.link.stream_ended()
        if error is not None:
            raise error
        return ended_well

    def give_up(self, state: State, reason: str, error: BaseException) -> None:
        """Record why, and give the ownership up for one with a new token, before the cursor is read again. A changed source or
        schema is noticed before an append: then nothing is in flight, and who resolves it must be able to take it."""
        ownership, self.ownership = self.ownership, None
        assert ownership is not None
        self._previous, self.replaced = ownership, isinstance(error, FencedError)
        if (stood := self.link.cursor) is not None:
            self._stuck = self._stuck + 1 if stood == self._stuck_at else 1
            self._stuck_at = stood
        try:
            if not self.replaced:
                self.link.flush_failure(state, reason)
                if state is State.FAILED and not self._in_doubt:
                    release([ownership])
                    self._previous = None
        finally:
            ownership.abandon()

    def abandon(self) -> None:
        self._is_left = True
        ownership, self.ownership = self.ownership, None
        if ownership is not None:
            ownership.abandon()

    def owned_by(self, ownership: Ownership, recorded: LinkState | None) -> None:
        """It is owned now; `recorded` is its newest row, read since then."""
        self.ownership, self._recorded = ownership, recorded
        self.take_over = self._in_doubt = False
        if self._is_left:
            self.abandon()


def own(target: ClusterTables, works: Sequence[LinkWork]) -> None:
    """Claim works of one target in one commit, all or none."""
    take_over = any(work.take_over for work in works)
    owned = claim(target, [work.link.runners for work in works], take_over=take_over, point=CrashPoint.LINK_CLAIMED)
    try:
        known = read_links(target)  # since it is owned nobody else's row comes after these
    except BaseException:
        for ownership in owned:
            ownership.abandon()
        raise
    for work, ownership in zip(works, owned, strict=True):
        work.owned_by(ownership, known.get((work.link.link.source, str(work.link.topic))))
