"""A link's row of one topic in `system/links`: the newest that was recorded, and what the next one says."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from geo.crash import CrashPoint, reach
from geo.delta.history import CommitName
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import EventKind
from geo.journal.events import events_of
from geo.names import Topic
from geo.now import utc_now
from geo.reasons import Reason
from geo.replication.link_state import LinkState, accepted_of
from geo.replication.link_table import append_links
from geo.streams.life import State, Why
from geo.text import counted

RENEW_COMMITS, RENEW_S = 1_000, 3600.0
"""The time when the row of an idle link names another commit of its target. A start looks at a thousand in a tenth of a second, and the target's
log keeps them for a day."""


class LinkRow:
    """The row of one link and topic, while this process owns it. `begin` comes first."""

    def __init__(self, target: ClusterTables, source: str, topic: Topic, origins: Iterable[str]) -> None:
        self._target, self._source, self._topic, self._origins = target, source, str(topic), tuple(sorted(origins))
        self.recorded: LinkState | None = None
        self.floors: Mapping[str, int] | None = None
        self.replicated = 0
        """Messages that this run replicated."""
        self.expired = 0
        """Messages that this run left out because they had expired."""
        self._expired_recorded = 0
        self.impossible = 0
        """Rows that this run left out since no producer can have written them."""
        self._impossible: int | None = 0
        """Impossible rows of the source up to the cursor; None: nobody has counted them, and it stays so until somebody does. It may count some twice
        after a crash, and misses none.
        """
        self._accepted = 0
        """Those of them that somebody has accepted."""
        self._was_failed = False
        self._impossible_since: datetime | None = None
        """Since when there are others; None: there are none, or nobody knows."""
        self._generation = 0
        self._unrecorded: tuple[State, Reason | None, datetime] | None = None
        """A state and code that were to be recorded, and since when they are."""
        self._noted_at = -math.inf

    def begin(self, recorded: LinkState | None, generation: int) -> None:
        """`recorded` is the newest row, read since the link was claimed with this generation."""
        # A table of owners that was lost begins at 1 again; what is written now must count all the same.
        self.recorded, self._generation = recorded, max(generation, recorded.generation if recorded is not None else 0)
        self.floors = recorded.floors if recorded is not None else None
        self._impossible = recorded.impossible if recorded is not None else 0
        self._accepted = (recorded.impossible_accepted or 0) if recorded is not None else 0
        self._was_failed = recorded is not None and recorded.state is State.FAILED
        self._impossible_since = recorded.impossible_since if recorded is not None else None

    def count_on(self, before: LinkRow) -> None:
        """Go on with what another one of the same run has counted."""
        self.replicated, self.expired, self.impossible = before.replicated, before.expired, before.impossible
        self._expired_recorded = before._expired_recorded

    def following(
        self,
        state: State,
        reason: str | None,
        cursor: CommitName | None,
        target: CommitName | None,
        code: Reason | None = None,
    ) -> LinkState:
        """The row to record next: what this run counted is added to what the recorded one says. Its state is since when it was while state and code
        stay. Of a state that a program recorded which knew neither that is not known."""
        recorded = self.recorded
        if recorded is not None and recorded.state is state and recorded.reason_code in (code, None):
            since = recorded.state_since
        else:
            if self._unrecorded is None or self._unrecorded[:2] != (state, code):
                self._unrecorded = state, code, utc_now()
            since = self._unrecorded[2]
        return LinkState(
            source=self._source,
            topic=self._topic,
            state=state,
            reason=reason,
            generation=self._generation,
            origins=self._origins,
            cursor=cursor,
            target=target,
            floors=self.floors,
            expired=self._all_expired,
            sequence=(recorded.sequence if recorded is not None else 0) + 1,
            impossible=self._impossible,
            state_since=since,
            reason_code=code,
            impossible_accepted=self._accepted or None,
            impossible_since=self._impossible_since,
        )

    @property
    def _all_expired(self) -> int:
        """All that were counted as expired, by this run and by those before it."""
        return (self.recorded.expired if self.recorded is not None else 0) + self.expired - self._expired_recorded

    def leave_out(self, impossible: int) -> None:
        """Record that so many rows are left out since no producer can have written them, before the cursor passes them."""
        self.impossible += impossible
        if self._impossible == self._accepted:
            self._impossible_since = utc_now()
        self._impossible = None if self._impossible is None else self._impossible + impossible
        self._append_counts()

    def accept(self) -> None:
        """Record that a person has accepted all that is left out since no producer can have written it. Who calls it has told how many rows
        these are."""
        if left_out := self.not_accepted:
            self._accepted, self._impossible_since = self._accepted + left_out, None
            self._append_counts()
            self._note_rejected("accepted", left_out)

    def _append_counts(self) -> None:
        """Record what is counted now. For the rest the row says what the recorded one says."""
        if (recorded := self.recorded) is not None:
            now = self.following(recorded.state, recorded.reason, recorded.cursor, recorded.target, recorded.reason_code)
            self.append(replace(now, origins=recorded.origins))

    def counted(self, impossible: int) -> None:
        """The source has so many such rows up to the cursor, which runs before this one left out."""
        self._impossible = impossible

    def found(self, impossible: int, expired: int) -> None:
        """Both logs were compared. The source has so many rows that no producer can have written. So many messages were left out because they had
        expired, of which some may be counted already. 0: nobody can tell."""
        self.expired += max(0, expired - self._all_expired)
        self.impossible += max(0, impossible - (self._impossible or 0))
        knew = self._impossible is not None and self._impossible > self._accepted
        self._accepted = accepted_of(impossible, self._accepted, self.not_accepted, was_failed=self._was_failed)
        self._impossible = impossible
        if impossible == self._accepted:
            self._impossible_since = None
        elif not knew:
            self._impossible_since = utc_now()

    @property
    def not_accepted(self) -> int | None:
        """Impossible rows that nobody has accepted, as of a `LinkState`."""
        return None if self._impossible is None else self._impossible - self._accepted

    def failed(self, state: State, why: Why) -> LinkState:
        """The row of a link that cannot go on: but for that it says what the recorded one says. What needs a person still does
        after a transient fault."""
        recorded, reason, code = self.recorded, why.reason, why.code
        if recorded is None:
            return self.following(state, reason, None, None, code)
        if recorded.state is State.FAILED and state is State.DELAYED:
            state, reason, code = recorded.state, recorded.reason or reason, recorded.reason_code or code
        now = self.following(state, reason, recorded.cursor, recorded.target, code)
        return replace(now, origins=recorded.origins, floors=recorded.floors)

    def is_due(self, now: LinkState) -> bool:
        """Tells whether this row is worth recording. The recorded one says something else, or names a commit of the target that is long ago, for a
        start looks at all above it.
        """
        recorded = self.recorded
        if recorded is None or now != replace(recorded, sequence=now.sequence, generation=now.generation, target=now.target):
            return True
        if now.target is None or now.target == recorded.target:
            return False
        moved = now.target.version - recorded.target.version if recorded.target is not None else RENEW_COMMITS
        return now.state is not State.RUNNING or moved >= RENEW_COMMITS or self.is_old

    @property
    def is_old(self) -> bool:
        """Tells whether the row was recorded long ago."""
        return time.monotonic() - self._noted_at >= RENEW_S

    def append(self, now: LinkState) -> None:
        append_links(self._target, [now])
        self.note(now)
        reach(CrashPoint.LINK_STATE_RECORDED)

    def note(self, now: LinkState) -> None:
        """`now` was recorded, by whoever records many rows in one commit."""
        before = (self.recorded.not_accepted or 0) if self.recorded is not None else 0
        if (left_out := now.not_accepted or 0) > before:
            self._note_rejected("left out", left_out)
        self.recorded, self._expired_recorded, self._noted_at = now, self.expired, time.monotonic()
        self._unrecorded = None

    def _note_rejected(self, what: str, impossible: int) -> None:
        events_of(self._target).note(
            EventKind.REJECT, f"{self._source}->{self._target.cluster.name} {self._topic}", what, topic=self._topic,
            code=Reason.IMPOSSIBLE_ROWS, reason=f"{counted(impossible, 'row')} that no producer can have written",
        )  # fmt: skip
