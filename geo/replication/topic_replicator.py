"""One topic of one link: its start, which gathers facts, asks what they mean, and acts.

What a start does is decided in link_start, which is pure. The other parts have files of their own. The comparison of both logs (reconciliation),
what the link does after its start (running_link), what is appended to the target and seen there (link_target). So have the row in `system/links`
(link_row) and the turns (turns).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from geo.config.choices import Start
from geo.config.model import Config, Link
from geo.coordination.ownership import Ownership
from geo.coordination.runners import Runner, filling_runners, origin_runners
from geo.coordination.storage_clock import checked_now_us
from geo.crash import CrashPoint, reach
from geo.delta.history import CommitName
from geo.delta.table import Table
from geo.delta.versions import is_asked_by_name
from geo.errors import RetryableError
from geo.faults import FAULTS, Tried
from geo.journal.cluster import ClusterTables
from geo.log.promised_ends import SharedPromises, read_promises
from geo.log.promises import unaccepted
from geo.log.topic_log import user_columns
from geo.log.topics import deleted_topics, ensure_topic
from geo.names import Topic
from geo.reasons import Reason
from geo.replication.both_logs import BothLogs
from geo.replication.link_row import LinkRow
from geo.replication.link_start import Reconcile, StartFacts, begins_at, new_at_end, standing, start
from geo.replication.link_state import LinkState
from geo.replication.link_target import LinkTarget
from geo.replication.open_link import OpenLink
from geo.replication.reconciliation import Reconciliation, end_left
from geo.replication.rule import Rule
from geo.replication.running_link import RunningLink
from geo.replication.shape import shape_for
from geo.replication.source_history import Fault
from geo.replication.source_look import SourceLook, open_source_log
from geo.replication.turns import TopicTurns, Turns, Unshared
from geo.streams.life import State, Why
from geo.text import first_line

log = logging.getLogger(__name__)


class TopicReplicator:
    """Replicates one topic from a source cluster into a target cluster, exactly once per message and in ledger order.

    Each append carries the link's cursor in its own commit: the commit of the source up to which the target now holds everything. So rows and cursor
    are one atomic thing, and nothing else is needed to go on. A run does, in this order, with a named crash point after each arrow: 1. (the caller
    claimed the ownership) 2. create the topic in the target, fence it → 3. look at both logs, by what `system/links` and the target's commits say;
    FAILED, or go on 4. if a comparison is called for, reconcile at the source's newest version, in steps (each: → append →) and record the cursor
    (`Reconciliation`) → 5. replicate what is above the cursor: in turns, or by a stream (`RunningLink`). Each batch of either: look at the source's
    commits in it → append → the cursor moves, and now and then its row says so.

    A crash before an append loses nothing, a crash after it neither: the next start finds the cursor in the commit.
    """

    def __init__(
        self,
        target: ClusterTables,
        source: ClusterTables,
        config: Config,
        link: Link,
        topic: Topic,
        turns: Turns | None = None,
        promises: SharedPromises | None = None,
    ) -> None:
        """`turns`, `promises`: what it shares with the link's other topics."""
        self._shared_promises = promises or SharedPromises(partial(read_promises, source))
        self.target, self.source, self.config, self.link, self.topic = target, source, config, link, topic
        self.turns = TopicTurns(turns or Unshared(), topic, target)
        self.rule = Rule.of(link, config.policy(topic).message_ttl_s)
        self.row = LinkRow(target, link.source, topic, self.rule.origins)
        self._into: LinkTarget | None = None
        self.started: RunningLink | None = None
        """Link that its start came to; None before that, and where the start did not come to its end."""
        self._reconciliation: Reconciliation | None = None
        """Under way now, in step 4."""
        self._rests_at: CommitName | None = None
        """The place where it was stopped, if neither log is otherwise since then (`rests`)."""
        self.is_filling_left = False
        """True if by the table of owners a comparison is under way, or a backfill, though this link has not begun one."""

    def __str__(self) -> str:
        return f"{self.link.name} {self.topic}"

    @property
    def runners(self) -> list[Runner]:
        """Runners that it owns, in the target: the way of each of its origins into the topic."""
        return origin_runners(self.rule.origins, self.topic, self.link.target)

    @property
    def fillers(self) -> list[Runner]:
        """Runners that a comparison owns beside these."""
        return filling_runners(self.rule.origins, self.topic, self.link.target)

    @property
    def in_doubt(self) -> bool:
        """An append was begun of which nobody knows what became."""
        return self._into is not None and self._into.in_doubt

    @property
    def running(self) -> RunningLink:
        """The link as `started`. Raises RetryableError if it is not."""
        if (started := self.started) is None:
            raise RetryableError(f"{self}: it was stopped while it compared both logs; comparing them again.")
        return started

    @property
    def cursor(self) -> CommitName | None:
        """Up to where the target holds everything. None: its start did not come to its end."""
        return self._rests_at if (started := self.started) is None else started.cursor

    @property
    def behind(self) -> int | None:
        """Commits of the source that it has not replicated, at least. None: it has not started."""
        return None if (started := self.started) is None else started.behind

    def rests(self, recorded: LinkState | None) -> bool:
        """Tells whether its newest row says that it was stopped, and neither log is otherwise since then. There is nothing to replicate, and nobody
        has to own it to say so. Asked only where a start is many requests; a fault is a start's to tell.
        """
        if recorded is None or recorded.state is not State.STOPPED or frozenset(recorded.origins) != self.rule.origins:
            return False
        with Tried():
            if recorded.impossible is not None and all(
                _is_still(cluster.log(self.topic), at)
                for cluster, at in ((self.source, recorded.cursor), (self.target, recorded.target))
            ):
                self._rests_at = recorded.cursor
        return self._rests_at is not None

    # -- start -----------------------------------------------------------------------------------------------------

    def prepare(
        self,
        ownership: Ownership,
        recorded: LinkState | None,
        *,
        accept_source: bool = False,
        accept_type: bool = False,
        start_at: Start | datetime | None = None,
        failed_before: int = 0,
        stopped: Callable[[], bool] = lambda: False,
        take_over: bool = False,
    ) -> RunningLink | None:
        """Steps 2 to 4: after this it is `running`, and the target holds all of the source up to its cursor. None: it was `stopped` between two steps
        of a comparison.

        `recorded` is this link's newest row, read since the ownership was claimed. `accept_source` takes the source as it is now, whatever happened
        to it (`geo reconcile`); `accept_type` also where its columns are of other types (`geo.replication.shape`). With `start_at` the link begins
        there again (`geo links reset`): what is before is not fetched any more, what is there stays. `failed_before`: tries that failed in a row.
        `take_over`: a comparison replaces a backfill that runs. Raises SourceChangedError if the source changed in a way that must not be passed
        over, SchemaError, RetryableError, WrongClockError.
        """
        self.started = self._into = None
        self.row.begin(recorded, ownership.generation)
        opened, facts = self._gathered(
            ownership, recorded, accept_source=accept_source, accept_type=accept_type, failed_before=failed_before
        )
        decision = start(facts)
        if isinstance(decision, Fault):
            raise opened.refusal(decision, facts.stands.cursor)
        if isinstance(decision, Reconcile):
            begin = start_at or begins_at(recorded, self.link, self.topic)
            stands = replace(facts.stands, new=new_at_end(facts.stands, self.link, self.topic))
            self._reconciliation = reconciliation = Reconciliation(opened, self.fillers, decision, stands, begin)
            try:
                reconciliation.run(stopped, take_over=take_over)
            finally:
                self._reconciliation = None
                if reconciliation.reached is not None:
                    self.started = RunningLink(opened, reconciliation.reached)
        else:
            assert recorded is not None, "there is no cursor without a row"
            if self.is_filling_left:
                end_left(self.target, self.fillers)
            self.started = RunningLink(opened, decision.cursor)
            counted_now = recorded.impossible is None and self._count_impossible(opened.logs, decision.cursor)
            if decision.cursor != recorded.cursor or counted_now:
                self.row.append(self.row.following(State.RUNNING, None, decision.cursor, opened.into.seen))
                reach(CrashPoint.LINK_START_RECORDED)
        return self.started

    def _gathered(
        self, ownership: Ownership, recorded: LinkState | None, *, accept_source: bool, accept_type: bool, failed_before: int
    ) -> tuple[OpenLink, StartFacts]:
        """Steps 2 and 3: both logs, opened, and all that there is to look at, in this order."""
        ownership.refuse_if_lost()
        self._now_us()  # a host whose clock is wrong makes nothing and records nothing
        self.look_for_source(recorded)
        source, seen = open_source_log(self.source, self.topic, self.link, str(self))
        target, columns = self.target.log(self.topic), user_columns(seen.columns)
        there = ensure_topic(self.target, self.topic, columns)
        ownership.fence(target, CrashPoint.LINK_FENCED)
        source_name, updates = self.link.source, self.link.schema_updates
        shape = shape_for(target, there, columns, str(self), source_name, updates=updates, accept=accept_type)
        is_own = self.link.source in self.rule.origins  # its producers' promises are those of another link otherwise
        opened = OpenLink(
            self.target,
            self.topic,
            BothLogs(source, target, self.rule, str(self), self._now_us),
            SourceLook(
                source,
                self.rule.origins,
                str(self),
                lambda: unaccepted(self._shared_promises.of(self.topic), self.row.floors) if is_own else (),
            ),
            LinkTarget(self.link, self.topic, target, ownership, shape),
            self.row,
            self.turns,
            lambda: unaccepted(read_promises(self.source, [self.topic])[self.topic], self.row.floors) if is_own else (),
        )
        self._into = opened.into
        looked = opened.into.look(recorded.target) if recorded is not None and recorded.target is not None else None
        stands = standing(recorded, looked, self.link.name, self.rule.origins)
        judged = None if stands.cursor is None else opened.look.judged(stands.cursor)
        return opened, StartFacts(recorded, stands, judged, accept_source, failed_before)

    def _now_us(self) -> int:
        """Now: whatever is left out by it is left out for ever, so this host's clock is held against that of the target's storage.
        Raises WrongClockError."""
        return checked_now_us(self.target, f"{self}: nothing is replicated")

    def look_for_source(self, recorded: LinkState | None) -> None:
        """Raises RetryableError if the source's log, which this link has read, is not there now. To be asked before the link is
        owned, too."""
        if recorded is not None and recorded.cursor is not None and not self.source.log(self.topic).exists():
            raise RetryableError(f"{self}: the source's log {self.source.log(self.topic)} is not there.", code=Reason.SOURCE_GONE)

    def _count_impossible(self, logs: BothLogs, cursor: CommitName) -> bool:
        """Count what the row, an older program's, does not say: the rows up to the cursor that no producer can have written. Whether that
        could be done; if not, it stays unknown until the next start."""
        with Tried() as tried:
            self.row.counted(logs.count_impossible(cursor.version))
        if tried.fault is not None:
            log.warning(
                "%s: the rows up to version %d of %s that no producer can have written cannot be counted now, so that it is not in sync: %s",
                self, cursor.version, self.link.source, first_line(tried.fault),
            )  # fmt: skip
        return tried.fault is None

    # -- its end -----------------------------------------------------------------------------------------------------

    def is_deleted_at_source(self) -> bool:
        """Tells whether the source says that somebody deleted the topic there."""
        with suppress(*FAULTS):
            return self.topic in deleted_topics(self.source)
        return False

    def flush_failure(self, ownership: Ownership, state: State, why: Why) -> None:
        """Record that the link cannot go on, with the cursor as it was last known; nothing is looked at, for that may be what
        failed. Raises FencedError, RetryableError if it is owned no longer."""
        ownership.refuse_if_lost()
        self.row.append(self.row.failed(state, why))

    def leave(self) -> None:
        """It hangs, and another one goes on in its place. Nobody waits for its query or its turn, and what it compares is owned no longer."""
        self.turns.leave()
        if (reconciliation := self._reconciliation) is not None:
            reconciliation.leave()
        if (started := self.started) is not None and started.stream is not None:
            started.stream.leave()

    def fresh_copy(self) -> TopicReplicator:
        """Another one of the same link and topic, which has not begun, with the counts of this one."""
        fresh = TopicReplicator(
            self.target, self.source, self.config, self.link, self.topic, self.turns.shared, self._shared_promises
        )
        fresh.row.count_on(self.row)
        return fresh


def _is_still(log: Table, at: CommitName | None) -> bool:
    """Tells whether a log on a store where a look is a request has this commit as its newest."""
    if at is None or at.commit_id is None or not is_asked_by_name(log) or log.has_commit(at.version + 1):
        return False
    there = log.commit_at(at.version)
    return there is not None and there.commit_id == at.commit_id
