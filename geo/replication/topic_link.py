"""One topic of one link: the thin layer that reads facts, asks what they mean, and appends.

The decisions are elsewhere and pure: which rows cross (rule), what the source's commits mean (source_history), where the link
stands and what a start does (link_start), what may be missing (gaps), who may write (geo.coordination.claims). Files of their own have
the comparison of both logs (reconciliation), what is appended to the target and seen there (link_target), the row in
`system/links` (link_row) and the turns (topic_turns).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.config.model import Config, Link, Start
from geo.coordination.ownership import Ownership, Runner, filling_runners, origin_runners
from geo.coordination.storage_clock import checked_now_us
from geo.crash import CrashPoint, reach
from geo.delta.commits import Commit, Kind
from geo.delta.history import CommitName, turn_of
from geo.delta.scan import few_added
from geo.errors import RetryableError, SourceChangedError
from geo.faults import FAULTS, session_is_gone
from geo.journal.cluster import ClusterTables
from geo.log.ledgers import Batch
from geo.log.promised_ends import SharedPromises, read_promises
from geo.log.promises import Promise, accepted_end, told_range
from geo.log.topic_log import user_columns
from geo.log.topics import deleted_topics, ensure_topic, grow
from geo.names import Topic
from geo.replication import missing_rows
from geo.replication.both_logs import BothLogs
from geo.replication.link_row import RENEW_COMMITS, LinkRow
from geo.replication.link_start import Reconcile, Standing, begins_at, new_at_end, newer_of, standing, start
from geo.replication.link_state import LinkRecord, LinkState
from geo.replication.link_stream import LinkStream
from geo.replication.link_target import LinkTarget
from geo.replication.reconciliation import Preview, Reconciliation, end_left, preview
from geo.replication.routing import crossing, verdict_column
from geo.replication.rule import AHEAD_US, LeftOut, Rule, Verdict
from geo.replication.source_history import Compare, Fault, brings, published_after
from geo.replication.source_log import open_source_log
from geo.replication.source_look import SourceLook
from geo.replication.topic_turns import TopicTurns
from geo.replication.turns import TURN_BYTES, Turns, Unshared, within
from geo.streams.checkpoint import forget
from geo.streams.life import State
from geo.text import counted, first_line

log = logging.getLogger(__name__)

TURN_COMMITS = 2_000
"""Small commits in a turn: each names a file or two, and planning a scan of thousands takes a second."""


class Brought(Enum):
    """How the rows of a turn were brought."""

    NOTHING = "NOTHING"
    """No row was of our origins."""
    HERE = "HERE"
    BY_SPARK = "BY_SPARK"


class TopicLink:
    """Replicates one topic from a source cluster into a target cluster, exactly once per message and in ledger order.

    Each append carries the link's cursor in its own commit: the commit of the source up to which the target now holds
    everything. So rows and cursor are one atomic thing, and nothing else is needed to go on. A run does, in this order, with a
    named crash point after each arrow:
    1. (the caller claimed the ownership) 2. create the topic in the target, fence it → 3. look at both logs, by what
    `system/links` and the target's commits say; FAILED, or go on 4. if a comparison is called for, reconcile at the source's
    newest version, in steps (each: → append →) and record the cursor (`Reconciliation`) → 5. bring what is above the cursor: in turns (`run_turns`),
    or by a stream. Each batch of either: look at the source's commits in it → append → the cursor moves. Now and then `flush` → .

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
        self.stream: LinkStream | None = None
        self.row = LinkRow(target, link.source, topic, self.rule.origins)
        self.into = LinkTarget(link, topic)
        self.cursor: CommitName | None = None
        self._reconciliation: Reconciliation | None = None
        """Under way now, in step 4."""
        self.is_filling_left = False
        """By the table of owners a comparison is under way, or a backfill, though this link has not begun one."""

    def __str__(self) -> str:
        return f"{self.link.name} {self.topic}"

    @property
    def runners(self) -> list[Runner]:
        """What it owns, in the target: the way of each of its origins into the topic."""
        return origin_runners(self.rule.origins, self.topic, self.link.target)

    @property
    def fillers(self) -> list[Runner]:
        """What a comparison owns beside these."""
        return filling_runners(self.rule.origins, self.topic, self.link.target)

    @property
    def replicated(self) -> int:
        """Messages that this run brought."""
        return self.into.replicated

    @property
    def in_doubt(self) -> bool:
        """An append was begun of which nobody knows what became."""
        return self.into.in_doubt

    @property
    def _logs(self) -> BothLogs:
        return BothLogs(self._source_log, self.into.log, self.rule, str(self), self._now_us)

    def _now_us(self) -> int:
        """Now: whatever is left out by it is left out for ever, so this host's clock is held against that of the target's storage.
        Raises WrongClockError."""
        return checked_now_us(self.target, f"{self}: nothing is replicated")

    # -- start -----------------------------------------------------------------------------------------------------

    def prepare(
        self,
        ownership: Ownership,
        recorded: LinkState | None,
        *,
        accept_source: bool = False,
        start_at: Start | datetime | None = None,
        failed_before: int = 0,
        stopped: Callable[[], bool] = lambda: False,
        take_over: bool = False,
    ) -> None:
        """Steps 2 to 4: after this the target holds all of the source up to `cursor`, which is None if it was `stopped` between
        two steps of a comparison.

        `recorded` is this link's newest row, read since the ownership was claimed. `accept_source` takes the source as it is now,
        whatever happened to it (`geo reconcile`). With `start_at` the link begins there anew (`geo links reset`): what is before
        is not fetched any more, what is there stays. `failed_before`: tries that failed in a row. `take_over`: a comparison
        replaces a backfill that runs. Raises SourceChangedError if the source changed in a way that must not be passed over,
        SchemaError, RetryableError, WrongClockError.
        """
        self._ownership, self.stream, self.cursor = ownership, None, None
        self.row.begin(recorded, ownership.generation)
        self.into.begin(self.target.log(self.topic), ownership)
        ownership.refuse_if_lost()
        self._now_us()  # a host whose clock is wrong makes nothing and records nothing
        self.look_for_source(recorded)
        self._source_log, columns = open_source_log(self.source, self.topic, self.link, str(self))
        self._source_look = SourceLook(self._source_log, self.rule.origins, str(self))
        target = ensure_topic(self.target, self.topic, user_columns(columns))
        ownership.fence(self.into.log, CrashPoint.LINK_FENCED)
        self.into.columns = grow(self.into.log, target, user_columns(columns), str(self))

        looked = self.into.look(recorded.target) if recorded is not None and recorded.target is not None else None
        stands = standing(recorded, looked, self.link.name, self.rule.origins)
        judged = self._judged(stands.cursor) if stands.cursor is not None else None
        decision = start(recorded, stands, judged, accept_source=accept_source, failed_before=failed_before)
        if isinstance(decision, Fault):
            raise self._refusal(decision, stands)
        if isinstance(decision, Reconcile):
            begin = start_at or begins_at(recorded, self.link, self.topic)
            stands = replace(stands, new=new_at_end(stands, self.link, self.topic))
            self._compare(decision, stands, begin, stopped, take_over=take_over)
        else:
            assert looked is not None, "there is no cursor without a row that names a commit of the target"
            if self.is_filling_left:
                end_left(self.target, self.fillers)
            self.cursor, self.into.seen = decision.cursor, looked.newest
            self.into.watch_from(looked.newest)
            counted_now = self.row.is_uncounted and self._count_impossible(decision.cursor)
            if recorded is not None and (self.cursor != recorded.cursor or counted_now):
                self.row.append(self.row.following(State.RUNNING, None, self.cursor, looked.newest))
                reach(CrashPoint.LINK_START_RECORDED)

    def _compare(
        self,
        decision: Reconcile,
        stands: Standing,
        start_at: Start | datetime | None,
        stopped: Callable[[], bool],
        *,
        take_over: bool,
    ) -> None:
        """Step 4: compare both logs. The cursor is the source's newest commit then, or None if it is `stopped` before the end."""
        self._reconciliation = reconciliation = Reconciliation(
            self.target, self._logs, self._promises, self.row, self.into, self.turns, self.fillers
        )
        try:
            reconciliation.run(decision, stands, start_at, stopped, take_over=take_over)
        finally:
            self.cursor, self._reconciliation = reconciliation.reached, None

    def look_for_source(self, recorded: LinkState | None) -> None:
        """Raises RetryableError if the source's log, which this link has read, is not there now. To be asked before the link is
        owned, too."""
        if recorded is not None and recorded.cursor is not None and not self.source.log(self.topic).exists():
            raise RetryableError(f"{self}: the source's log {self.source.log(self.topic)} is not there.")

    def _count_impossible(self, cursor: CommitName) -> bool:
        """Count what the row, an older program's, does not say: the rows up to the cursor that no producer can have written. Whether that
        could be done; if not, it stays unknown until the next start."""
        try:
            self.row.counted(self._logs.count_impossible(cursor.version))
        except FAULTS as error:
            if session_is_gone(error):
                raise
            log.warning(
                "%s: the rows up to version %d of %s that no producer can have written cannot be counted now, so that it is not in sync: %s",
                self, cursor.version, self.link.source, first_line(error),
            )  # fmt: skip
            return False
        return True

    def is_deleted_at_source(self) -> bool:
        """Whether the source says that somebody deleted the topic there."""
        with suppress(*FAULTS):
            return self.topic in deleted_topics(self.source)
        return False

    def _refusal(self, fault: Fault, stands: Standing | None = None) -> SourceChangedError:
        """The error of a fault, with the messages that are no longer in the source."""
        cursor = stands.cursor if stands is not None else self.cursor
        if not fault.lost:
            # What it held and has no more, and what it would never get to hold.
            promises, version = self._promises(), self._source_log.latest_version()
            lost = [*self._logs.gone_from_source(), *self._logs.lost(version, self.row.floors)]
            unkept = self._logs.unkept(version, self.row.floors, promises, None if cursor is None else cursor.version)
            lost += [told_range(*one) for one in unkept.items()]
            is_new = cursor is not None and cursor.table_id != self._source_log.table_id()
            fault = replace(fault, lost=lost[:10], beside=self._logs.beside(version) if is_new else 0)
        return SourceChangedError(fault.message(self.link.source, self.link.target, str(self.topic), cursor))

    def preview(self, recorded: LinkState | None, start_at: Start | datetime | None = None) -> Preview:
        """What a comparison would do now. Writes nothing. Raises RetryableError if it would be refused."""
        clock = partial(checked_now_us, self.target, f"{self}: nothing is compared", writes=False)
        source_log, _ = open_source_log(self.source, self.topic, self.link, str(self))
        logs = BothLogs(source_log, self.target.log(self.topic), self.rule, str(self), clock)
        return preview(logs, recorded, start_at or begins_at(recorded, self.link, self.topic))

    # -- what is above the cursor ------------------------------------------------------------------------------------

    @property
    def source_is_local(self) -> bool:
        """Whether a look at the source's commits is no request."""
        return self._source_look.is_local

    def has_news(self) -> bool:
        """Whether the source has a commit above the cursor. Raises as `SourceLook.has_news`."""
        assert self.cursor is not None
        return self._source_look.has_news(self.cursor)

    def check_source(self) -> None:
        """A full look at the source. Raises SourceChangedError, or RetryableError if both logs are to be compared."""
        assert self.cursor is not None
        self._refuse(self._judged(self.cursor))

    def _judged(self, cursor: CommitName) -> Fault | Compare | None:
        """What a full look at the source says. On a local disk, where a power cut may take the newest commits away, the commits that its
        producers recorded are looked for too, as they were some seconds ago at most; elsewhere only comparisons hold what they recorded
        against the log."""
        promises = self._promises_of(self._shared_promises.of) if self.source_is_local else ()
        return self._source_look.judged(cursor) or self._source_look.undone(cursor, promises)

    def _promises(self) -> Sequence[Promise]:
        """The ends that the source's own producers recorded, but for what a person accepted as lost. To be read before its log."""
        return self._promises_of(lambda topic: read_promises(self.source, [topic])[topic])

    def _promises_of(self, read: Callable[[Topic], Sequence[Promise]]) -> Sequence[Promise]:
        found = read(self.topic) if self.link.source in self.rule.origins else ()
        return [promise for promise in found if accepted_end(promise, self.row.floors) < promise.end]

    def _refuse(self, judged: Fault | Compare | None) -> None:
        """Raises SourceChangedError for what must not be passed over, RetryableError if both logs are to be compared."""
        if isinstance(judged, Fault):
            raise self._refusal(judged)
        if judged is not None:
            raise RetryableError(f"{self}: {judged.why}; comparing both logs.")

    def may_bring(self) -> bool:
        """Whether its rate lets it bring more, and it is its turn."""
        return self.turns.may_begin()

    def run_turns(self, stopped: Callable[[], bool]) -> None:
        """Bring everything that the source has now, turn by turn, or as far as it got when `stopped`. Raises as `prepare`."""
        newest = self._source_log.latest_version()
        while self.cursor is not None and self.cursor.version < newest and not stopped():
            self.take_turn(stopped, newest)

    def take_turn(self, stopped: Callable[[], bool], newest: int | None = None, rows: DataFrame | None = None) -> Brought | None:
        """Bring what the next of the source's commits have, up to `newest` or all that there are, in one append: whole commits,
        one at least, and no more than a turn is to bring. `rows`, if they are given, are those of all these commits. None, and
        nothing was done, if it was `stopped`. Raises as `prepare`."""
        with self.turns.turn(stopped) as has_turn:
            if not has_turn:
                return None
            newest = self._source_log.latest_version() if newest is None else newest
            commits = self._next_commits(newest)
            self.turns.size = sum(commit.bytes for commit in commits)
            return self._bring_commits(commits, rows if commits and commits[-1].version == newest else None)

    def _bring_commits(self, commits: Sequence[Commit], rows: DataFrame | None = None) -> Brought:
        """Bring what these commits, which were looked at, have: nothing, a few rows without Spark, or `rows`, which are read if
        they are not given."""
        if not commits:
            return Brought.NOTHING
        before = self.replicated
        if not any(map(self._brings, commits)):
            self._move_to(commits[-1])
            return Brought.NOTHING
        if (few := self._few_crossing(commits)) is not None:
            self._bring_few(*few, commits[-1])
        else:
            with self.turns.tagged():
                self._bring(
                    self._source_log.read_added(commits[0].version, commits[-1].version) if rows is None else rows, commits
                )
        self.turns.took(self.replicated - before, sum(commit.bytes for commit in commits if self._brings(commit)))
        return Brought.HERE if few is not None else Brought.BY_SPARK

    def _next_commits(self, newest: int) -> list[Commit]:
        """The commits of the next turn, looked at."""
        assert self.cursor is not None
        first = self.cursor.version + 1
        if newest < first:
            return []
        taken = turn_of(self._source_log.commits(first, min(newest, first + TURN_COMMITS - 1)), TURN_BYTES)
        taken = within(taken, self.turns.most, self._brings)
        self._look(taken, taken[-1].version if taken else first)
        return taken

    def _brings(self, commit: Commit) -> bool:
        return brings(commit, self.rule.origins, self.link.source)

    def start_stream(self, trigger: Mapping[str, Any]) -> None:
        """Follow the source from the first version above the cursor, which must be there (`has_news`), by a streaming query."""
        assert self.cursor is not None
        folder = self.target.checkpoint("replicate", self.link.source, self.topic.path)
        forget(folder)  # what a run that was killed has left
        place = f"{folder}/{self._ownership.generation}-{self._ownership.token}-{self.cursor.version}"
        # A query that hangs may be there for ever under its name.
        name = f"geo replicate {self}, generation {self._ownership.generation}"
        self.stream = LinkStream(self._source_log, self.cursor.version, self._take, name, checkpoint=place, trigger=trigger)

    def _take(self, stopped: Callable[[], bool], last: int, rows: DataFrame | None) -> int | None:
        """Take a turn for the query; the version that the target has come to, None if it was stopped."""
        brought = self.take_turn(stopped, last, rows)
        return None if brought is None or self.cursor is None else self.cursor.version

    def end_stream(self) -> bool:
        """Let its query end after the turn it is in. Whether nothing is left open. Raises what ended it otherwise."""
        stream, self.stream = self.stream, None
        return stream is None or stream.end()

    def leave(self) -> None:
        """It hangs, and another one goes on in its place: nobody waits for its query or its turn, and what it compares is owned
        no longer."""
        self.turns.leave()
        if (reconciliation := self._reconciliation) is not None:
            reconciliation.leave()
        if self.stream is not None:
            self.stream.leave()

    def anew(self) -> TopicLink:
        """Another one of the same link and topic, which has not begun, with the counts of this one."""
        fresh = TopicLink(self.target, self.source, self.config, self.link, self.topic, self.turns.shared, self._shared_promises)
        fresh.into.replicated = self.replicated
        fresh.row.count_on(self.row)
        return fresh

    def _look(self, commits: Sequence[Commit], last: int) -> None:
        """Look at the commits of the source above the cursor, up to version `last`, before anything of them is appended. Raises
        as `_refuse`."""
        assert self.cursor is not None
        self._refuse(self._source_look.judged_commits(self.cursor, commits, last))

    def _bring(self, rows: DataFrame, commits: Sequence[Commit]) -> None:
        """Append what of the rows crosses, with the cursor of the last commit."""
        now = self._now_us()
        reach(CrashPoint.LINK_BEFORE_APPEND)
        left_out = self._left_out(rows, commits, now)
        crosses = rows.where(missing_rows.wanted(self.rule, self.row.floors, now))
        self._brought(crosses, commits[-1], left_out)

    def _few_crossing(self, commits: Sequence[Commit]) -> tuple[pa.Table, LeftOut] | None:
        """The rows of the commits that cross, and what is left out, found without Spark; None if Spark is to do it."""
        rows = few_added(self._source_log, commits[0].version, commits[-1].version)
        if rows is None:
            return None
        with suppress(UnicodeDecodeError):  # a text that Python does not read
            return crossing(self.rule, self.row.floors, rows, self._now_us())
        return None

    def _bring_few(self, rows: pa.Table, left_out: LeftOut, last: Commit) -> None:
        """Append rows that are at hand, with the cursor of the last commit."""
        reach(CrashPoint.LINK_BEFORE_APPEND)
        self._brought(rows, last, left_out)

    def _brought(self, rows: DataFrame | pa.Table, last: Commit, left_out: LeftOut) -> None:
        assert self.cursor is not None
        if left_out.impossible:
            self.row.leave_out(left_out.impossible)
        cursor = CommitName.of(self.cursor.table_id, last)
        self.into.append(rows, cursor)
        reach(CrashPoint.LINK_AFTER_APPEND)
        self.cursor = cursor
        if left_out.expired:
            self.row.expired += left_out.expired
            log.warning("%s: %s had expired when they were read; left out", self, counted(left_out.expired, "message"))
        if left_out.impossible:
            log.warning(
                "%s: %s left out that no producer can have written: with ids or times that no message has, in versions up to %d of %s",
                self, counted(left_out.impossible, "row"), last.version, self.link.source,
            )  # fmt: skip

    def _move_to(self, commit: Commit) -> None:
        """Nothing of our origins came: what other links wrote into the source goes back nowhere. No append is planned for it."""
        assert self.cursor is not None
        self._ownership.refuse_if_lost()
        self.cursor = CommitName.of(self.cursor.table_id, commit)

    def _left_out(self, rows: DataFrame, commits: Sequence[Commit], now_us: int) -> LeftOut:
        """Count what is left out. Spark is asked only if a commit may hold something that old, or neither a producer of ours nor
        a link wrote it, which write nothing impossible."""
        horizon_us = self.rule.expired_before_us(now_us)
        may_be_old = horizon_us is not None and not published_after(commits, horizon_us)
        if not may_be_old and all(_is_possible(commit, now_us) for commit in commits):
            return LeftOut()
        verdicts = rows.groupBy(verdict_column(self.rule, now_us).alias("verdict")).count().collect()
        return LeftOut.of({Verdict(row["verdict"]): row["count"] for row in verdicts})

    # -- its row -----------------------------------------------------------------------------------------------------

    def progressed(self, state: State) -> LinkState | None:
        """The row to record now, after a look at the target's commits since the last look; None if the recorded one says as much.

        The cursor is taken first and the target looked at then, so the commit that the row names holds all up to its cursor. Of
        an append that landed between both, or of which its query has not heard yet, the commit itself says how far it came: a
        start looks only at what is above the commit that the row names. Raises RetryableError if the target is not what it was,
        so that the next start compares; FencedError.
        """
        self._ownership.refuse_if_lost()
        seen = self.into.seen
        now = self.row.following(state, None, self.cursor, seen)
        if seen is None or not (self.row.is_due(now) or self._target_moved(seen)):
            return None
        looked = self.into.look_on(seen)
        now = replace(now, cursor=newer_of(now.cursor, looked.own, self._ownership.token), target=looked.newest)
        return now if self.row.is_due(now) else None

    def _target_moved(self, seen: CommitName) -> bool:
        """Whether the target is worth another look: on a local disk always, elsewhere after a while or many commits."""
        log = self.into.log
        return log.is_near or self.row.is_old or log.has_commit(seen.version + RENEW_COMMITS)

    def flush(self, state: State) -> None:
        """Record the link's row now."""
        if now := self.progressed(state):
            self.row.append(now)

    def flush_failure(self, state: State, reason: str) -> None:
        """Record that the link cannot go on, with the cursor as it was last known; nothing is looked at, for that may be what
        failed."""
        self._ownership.refuse_if_lost()
        self.row.append(self.row.failed(state, reason))


def _is_possible(commit: Commit, now_us: int) -> bool:
    """Whether nothing impossible can be in it: it brought nothing, or says that a link wrote it, or a producer of ours, and at a time
    that can be. (A producer's storage may have had a wrong clock.)"""
    told = commit.user_metadata
    if commit.kind is not Kind.APPEND or LinkRecord.decode(told) is not None:
        return True
    batch = Batch.decode(told)
    return batch is not None and 0 <= batch.publish_time_us <= now_us + AHEAD_US
