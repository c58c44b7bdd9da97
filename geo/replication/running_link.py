"""A topic of a link from its start on. It replicates what is above its cursor, turn by turn or by a stream, and says what to record.

Which rows cross is decided in rule, what the source's commits mean in source_history; both are pure.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from enum import Enum
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.crash import CrashPoint, reach
from geo.delta.appending import write_file_rows
from geo.delta.commits import Commit, Kind
from geo.delta.file_rows import FileRows
from geo.delta.frames import read_added
from geo.delta.history import CommitName, turn_of
from geo.delta.row_files import Written
from geo.delta.scan import added, keep_where
from geo.delta.tail import look_every_s
from geo.log.ledgers import Batch
from geo.reasons import Reason
from geo.replication.link_row import RENEW_COMMITS
from geo.replication.link_start import newer_of
from geo.replication.link_state import LinkRecord, LinkState
from geo.replication.link_stream import LinkStream
from geo.replication.link_target import ORDER
from geo.replication.open_link import OpenLink
from geo.replication.routing import crossing, verdict_column
from geo.replication.rule import AHEAD_US, LeftOut, Verdict, crosses
from geo.replication.source_history import brings, published_after
from geo.replication.turns import TURN_BYTES, within
from geo.streams import timetable
from geo.streams.checkpoint import forget
from geo.streams.life import State
from geo.text import counted

log = logging.getLogger(__name__)

TURN_COMMITS = 2_000
"""Small commits in a turn: each names a file or two, and planning a scan of thousands takes a second."""


class BatchPath(Enum):
    """Way in which the rows of a turn were replicated."""

    NOTHING = "NOTHING"
    """No row was of our origins."""
    HERE = "HERE"
    BY_SPARK = "BY_SPARK"


class RunningLink:
    """The target holds all of the source up to `cursor`, a commit of the source.

    A turn is three calls. `fetch` the rows of the next commits, which were looked at → `select` those that cross → `append` them, and the cursor
    moves. A crash before an append loses nothing, a crash after it neither: the next start finds the cursor in the commit.
    """

    def __init__(self, opened: OpenLink, cursor: CommitName) -> None:
        self.cursor = cursor
        self._seen = cursor.version
        """The newest version of the source that was met."""
        self.stream: LinkStream | None = None
        self._progressed_to, self._progressed_at = cursor, -math.inf
        """Place at the last look of `progressed`, and the time of that look (monotonic)."""
        self._open, self._row, self._into, self._turns = opened, opened.row, opened.into, opened.turns
        self._source, self._look, self._rule = opened.logs.source, opened.look, opened.logs.rule

    def __str__(self) -> str:
        return str(self._open)

    # -- what is above the cursor ------------------------------------------------------------------------------------

    @property
    def source_is_local(self) -> bool:
        """Tells whether a look at the source's commits is no request."""
        return self._look.is_local

    def has_news(self) -> bool:
        """Tells whether the source has a commit above the cursor. Raises as `SourceLook.has_news`."""
        if has := self._look.has_news(self.cursor):
            self._seen = max(self._seen, self.cursor.version + 1)
        return has

    @property
    def behind(self) -> int:
        """Commits of the source above the cursor, at least."""
        return max(0, self._seen - self.cursor.version)

    def check_source(self) -> None:
        """A full look at the source. Raises SourceChangedError, or RetryableError if both logs are to be compared."""
        self._open.refuse(self._look.judged(self.cursor), self.cursor)

    def run_turns(self, stopped: Callable[[], bool]) -> None:
        """Replicate everything that the source has now, turn by turn, or as far as it got when `stopped`. Raises as `take_turn`."""
        newest = self._source.latest_version()
        while self.cursor.version < newest and not stopped():
            self.take_turn(stopped, newest)

    def take_turn(
        self, stopped: Callable[[], bool], newest: int | None = None, rows: DataFrame | None = None
    ) -> BatchPath | None:
        """Replicate what the next of the source's commits have, up to `newest` or all that there are, in one append. These are whole commits, one
        at least, and no more than a turn may have. `rows`, if they are given, are those of all these commits.

        None: it was `stopped`, and nothing was done. Raises SourceChangedError, RetryableError, WrongClockError, FencedError.
        """
        with self._turns.turn(stopped) as has_turn:
            if not has_turn:
                return None
            newest = self._source.latest_version() if newest is None else newest
            self._seen = max(self._seen, newest)
            commits = self._next_commits(newest)
            self._turns.size = sum(commit.bytes for commit in commits)
            return self._replicate(commits, rows if commits and commits[-1].version == newest else None)

    def _next_commits(self, newest: int) -> list[Commit]:
        """The commits of the next turn, looked at before anything of them is appended."""
        first = self.cursor.version + 1
        if newest < first:
            return []
        taken = turn_of(self._source.commits(first, min(newest, first + TURN_COMMITS - 1)), TURN_BYTES)
        taken = within(taken, self._turns.most, self._brings)
        last = taken[-1].version if taken else first
        self._open.refuse(self._look.judged_commits(self.cursor, taken, last), self.cursor)
        return taken

    def _replicate(self, commits: Sequence[Commit], given: DataFrame | None) -> BatchPath:
        if not any(map(self._brings, commits)):
            if commits:  # what other links wrote into the source goes back nowhere; no append is planned for it
                self._into.ownership.refuse_if_lost()
                self.cursor = CommitName.of(self.cursor.table_id, commits[-1])
            return BatchPath.NOTHING
        before = self._row.replicated
        rows = self.fetch(commits, given)
        with nullcontext() if isinstance(rows, pa.Table) else self._turns.tagged():
            self.append(*self.select(rows, commits), commits[-1])
        self._turns.took(self._row.replicated - before, sum(commit.bytes for commit in commits if self._brings(commit)))
        return BatchPath.HERE if isinstance(rows, pa.Table) else BatchPath.BY_SPARK

    def _brings(self, commit: Commit) -> bool:
        return brings(commit, self._rule.origins, self._rule.source)

    def fetch(self, commits: Sequence[Commit], given: DataFrame | None = None) -> DataFrame | FileRows | pa.Table:
        """The rows that these commits added. A few come without Spark, many of a store in their files, else those that are `given`, or read by
        Spark."""
        first, last = commits[0].version, commits[-1].version
        here = added(self._source, first, last)
        if isinstance(here, pa.Table) or (here is not None and not self._source.is_near):
            return here
        with self._turns.tagged():
            return read_added(self._source, first, last) if given is None else given

    def select(
        self, rows: DataFrame | FileRows | pa.Table, commits: Sequence[Commit]
    ) -> tuple[DataFrame | FileRows | pa.Table, LeftOut]:
        """Those rows of the commits that cross, and how many are left out that are to be counted. Raises WrongClockError."""
        now = self._open.logs.clock()
        if isinstance(rows, pa.Table):
            return crossing(self._rule, self._row.floors, rows, now)
        left_out, where = self._left_out(rows, commits, now), crosses(self._rule, self._row.floors, now)
        return replace(rows, where=where) if isinstance(rows, FileRows) else keep_where(rows, where), left_out

    def append(self, rows: DataFrame | FileRows | pa.Table, left_out: LeftOut, last: Commit) -> None:
        """Append rows with the cursor of the last commit, up to which the target then holds everything. Raises as `LinkTarget.append`."""
        reach(CrashPoint.LINK_BEFORE_APPEND)
        if left_out.impossible:
            self._row.leave_out(left_out.impossible)
        cursor = CommitName.of(self.cursor.table_id, last)
        self._row.replicated += self._into.append(self._written(rows, last) if isinstance(rows, FileRows) else rows, cursor)
        reach(CrashPoint.LINK_AFTER_APPEND)
        self.cursor = cursor
        if left_out.expired:
            self._row.expired += left_out.expired
            log.warning("%s: %s had expired when they were read; left out", self, counted(left_out.expired, "message"))
        if left_out.impossible:
            log.warning(
                "%s: %s left out that no producer can have written: with ids or times that no message has, in versions up to %d of %s",
                self, counted(left_out.impossible, "row"), last.version, self._rule.source,
            )  # fmt: skip

    def _written(self, rows: FileRows, last: Commit) -> Written | DataFrame:
        """The rows beside the target, written by Spark's tasks; where they cannot, as Spark reads them."""
        self._into.ownership.refuse_if_lost()
        if (written := write_file_rows(self._into.log, rows, ORDER)) is None:
            return keep_where(read_added(self._source, self.cursor.version + 1, last.version), rows.where)
        reach(CrashPoint.APPEND_WRITTEN)
        return written

    def _left_out(self, rows: DataFrame | FileRows, commits: Sequence[Commit], now_us: int) -> LeftOut:
        """Count what is left out. Spark is asked only if a commit may hold something that old, or was written by neither a producer of ours nor a
        link. These write nothing impossible.
        """
        horizon_us = self._rule.expired_before_us(now_us)
        may_be_old = horizon_us is not None and not published_after(commits, horizon_us)
        if not may_be_old and all(_is_possible(commit, now_us) for commit in commits):
            return LeftOut()
        if isinstance(rows, FileRows):
            rows = read_added(self._source, commits[0].version, commits[-1].version)
        verdicts = rows.groupBy(verdict_column(self._rule, now_us).alias("verdict")).count().collect()
        return LeftOut.of({Verdict(row["verdict"]): row["count"] for row in verdicts})

    def look_every_s(self, said_s: float) -> float:
        """Seconds between two looks at its source, as `geo.delta.tail.look_every_s`."""
        return look_every_s(self._source, said_s)

    # -- its stream ----------------------------------------------------------------------------------------------------

    def start_stream(self, trigger: Mapping[str, Any]) -> None:
        """Follow the source from the first version above the cursor, which must be there (`has_news`), by a streaming query."""
        opened, ownership = self._open, self._into.ownership
        folder = opened.target_tables.run_checkpoint("replicate", self._rule.source, opened.topic.path)
        forget(folder)  # what a run that was killed has left
        place = f"{folder}/{ownership.generation}-{ownership.token}-{self.cursor.version}"
        # A query that hangs may be there for ever under its name.
        name = f"geo replicate {self}, generation {ownership.generation}"
        self.stream = LinkStream(self._source, self.cursor.version, self._take, name, checkpoint=place, trigger=trigger)

    def _take(self, stopped: Callable[[], bool], last: int, rows: DataFrame | None) -> int | None:
        """Take a turn for the query; the version that the target has come to, None if it was stopped."""
        return None if self.take_turn(stopped, last, rows) is None else self.cursor.version

    def end_stream(self) -> bool:
        """Let its query end after the turn it is in. Whether nothing is left open. Raises what ended it otherwise."""
        stream, self.stream = self.stream, None
        return stream is None or stream.end()

    # -- its row -----------------------------------------------------------------------------------------------------

    def progressed(self, state: State, code: Reason | None = None) -> LinkState | None:
        """The row to record now, after a look at the target's commits since the last look; None if the recorded one says as much.

        The cursor is taken first and the target looked at then, so the commit that the row names holds all up to its cursor. Of an append that
        landed between both, or of which its query has not heard yet, the commit itself says how far it came. A start looks only at what is above
        the commit that the row names. Raises RetryableError if the target is not what it was, so that the next start compares; FencedError.
        """
        ownership, seen, at = self._into.ownership, self._into.seen, time.monotonic()
        rests = state is State.RUNNING and self.cursor == self._progressed_to and not self._open.logs.target.is_near
        if rests and at - self._progressed_at < timetable.REMOTE_REST_S:
            return None
        ownership.refuse_if_lost()
        now = self._row.following(state, None, self.cursor, seen, code)
        if seen is not None and (self._row.is_due(now) or self._target_moved(seen)):
            looked = self._into.look_on(seen)
            now = replace(now, cursor=newer_of(now.cursor, looked.own, ownership.token), target=looked.newest)
            if self._row.is_due(now):
                return now  # it may not be recorded: then it is due again
        self._progressed_to, self._progressed_at = self.cursor, at
        return None

    def _target_moved(self, seen: CommitName) -> bool:
        """Tells whether the target is worth another look: on a local disk always, elsewhere after a while or many commits."""
        target = self._open.logs.target
        return target.is_near or self._row.is_old or target.has_commit(seen.version + RENEW_COMMITS)


def _is_possible(commit: Commit, now_us: int) -> bool:
    """Tells whether nothing impossible can be in the commit. Either it appended nothing, or it says that a link wrote it, or a producer of ours, and
    at a time that can be. (A producer's storage may have had a wrong clock.)
    """
    told = commit.user_metadata
    if commit.kind is not Kind.APPEND or LinkRecord.decode(told) is not None:
        return True
    batch = Batch.decode(told)
    return batch is not None and 0 <= batch.publish_time_us <= now_us + AHEAD_US
