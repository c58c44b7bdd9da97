"""`geo backfill`: appends to a target what it lacks of what its link has passed, beside the link, in bounded steps.

A reconcile (geo.replication.missing) that no link waits for: scheduled, throttled, begun again after any end. What is missing is derived from both
logs each time, so nothing of an earlier run needs to be known.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cache, partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from geo.config import read
from geo.config.model import Config, DispatchRate, Link
from geo.coordination.claiming import claim
from geo.coordination.ownership import Ownership, giving_back
from geo.coordination.runners import Runner, filling_runners, origin_runners
from geo.coordination.storage_clock import checked_now_us
from geo.crash import CrashPoint, reach
from geo.delta.commits import Kind
from geo.delta.ddl import find_checked
from geo.delta.engine import TableSnapshot
from geo.delta.history import CommitName
from geo.delta.mirror import LOOKED_S, may_be_old
from geo.delta.predicate import Compare, Predicate, TimeUs
from geo.delta.scan import is_empty, read_where
from geo.delta.store import meanwhile
from geo.errors import AlreadyOwnedError, GeoError, RetryableError, SourceChangedError, UsageError
from geo.faults import Tried
from geo.fleet.offset_checkpoint import OffsetCheckpoint
from geo.fleet.rate import Allowance
from geo.fleet.turns import most_of, wait_for_rate
from geo.journal.cluster import ClusterTables, connect
from geo.log.conditions import published_since
from geo.log.housekeeping import open_for_writing
from geo.log.ledger_parts import count_where
from geo.log.topic_log import user_columns
from geo.log.topics import create_topic, ensure_topic
from geo.names import ALL_TOPICS, Topic
from geo.progress import Progress, set_step
from geo.reasons import Reason
from geo.replication.both_logs import BothLogs
from geo.replication.gaps import STEP_ROWS, Gap, gaps, steps
from geo.replication.link_state import backfill_record
from geo.replication.link_status import stands_at
from geo.replication.link_table import read_links
from geo.replication.link_target import TargetWatch, newest_commit
from geo.replication.missing import extents, missing
from geo.replication.repair import carried_topics
from geo.replication.rule import Rule, messages_wanted
from geo.replication.shape import shape_for
from geo.replication.source_history import Fault
from geo.replication.source_look import SourceLook, open_source_log
from geo.replication.whole_files import Ahead, Whole, all_files, copied, look_ahead, plain_state, whole_files, without
from geo.schemas import TOPIC_LOG
from geo.session import require_delta
from geo.slices import slices
from geo.text import first_line
from geo.times import in_us, with_zone

log = logging.getLogger(__name__)


class Mode(str, Enum):
    """Way in which messages are copied."""

    ROWS = "rows"
    FILES = "files"
    """Files of which every row is wanted are copied as they are; of the rest, rows are."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Result of a backfill of one topic, or what it has done by now.

    `total`: messages that the target may lack, `messages`: that were appended. Of these `by_file` came in files that were copied, with `size` bytes
    in all, as far as the source's files tell. `source_version`: what was compared with. `complete`: the target lacks nothing of it now. In a dry
    run `messages` is how many would be appended.
    """

    link: str
    topic: str
    source_version: int
    total: int = 0
    messages: int = 0
    by_file: int = 0
    size: int = 0
    steps: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Backfill:
    """Extent of a backfill: messages published from `since` on and before `until`; None: any. `bytes_per_second` None: as fast as can be."""

    since: datetime | None = None
    until: datetime | None = None
    mode: Mode = Mode.ROWS
    bytes_per_second: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", Mode(self.mode))
        for name in ("since", "until"):  # as the command line has them: without a zone they are of UTC
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, with_zone(given))
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError(f"from {self.since} to {self.until} is no time: the first is to be before the second.")

    @property
    def published(self) -> Predicate:
        """Condition that a row was published in that time."""
        found = published_since(None if self.since is None else in_us(self.since))
        return found if self.until is None else found & Compare("publish_time", "<", TimeUs(in_us(self.until)))


def backfill(
    spark: SparkSession,
    config: Config | str | Path,
    source: str,
    target: str,
    *,
    topics: str | Topic = ALL_TOPICS,
    what: Backfill = Backfill(),
    checkpoint: OffsetCheckpoint | None = None,
    dry_run: bool = False,
    stopped: threading.Event | None = None,
    on_step: Callable[[Filled], None] = lambda filled: None,
) -> tuple[list[Filled], dict[str, str]]:
    """Append what `target` lacks of `source`, as the link between them would, whether or not that runs.

    What the link has still to read is left to it: the source is read at the commit of the link's cursor. Where that is not known (it has never run,
    or its next start compares both logs) the link must not run meanwhile. The link's floors (`start: latest`) do not count. Idempotent: after a kill
    at any point the next run appends what is left. `stopped` ends it between two steps. With `checkpoint` the version after the one that a topic was
    compared with is written there once it is complete.

    Returns what was done, and by topic why others were not. Raises UsageError for a link or topic that is not there, OffsetFileError for a checkpoint
    that cannot be read.
    """
    require_delta(spark)
    config = read(config)
    link = config.link(source, target)
    there, here = connect(spark, config.cluster(source)), connect(spark, config.cluster(target))
    open_for_writing(here, config, rehearsal=dry_run)
    if checkpoint is not None and (what.since is not None or what.until is not None):
        raise UsageError("a checkpoint says from where on all is there: leave it out of a backfill by time.")
    offsets = {} if checkpoint is None else checkpoint.read()
    allowance = Allowance(DispatchRate(bytes_per_second=what.bytes_per_second), time.monotonic())
    stopped = stopped or threading.Event()
    done: list[Filled] = []
    not_done: dict[str, str] = {}
    for topic in carried_topics(config, link, there, here, str(topics)):
        if stopped.is_set():
            break
        set_step(f"compares both logs of {topic}")
        with Tried() as tried:
            filling = _Filling(here, there, config, link, topic, what, allowance, stopped, on_step, dry_run=dry_run)
            done.append(filling.preview() if dry_run else filling.run())
        if tried.fault is not None:
            not_done[str(topic)] = first_line(tried.fault)
            continue
        if checkpoint is not None and done[-1].complete:
            offsets[str(topic.partitioned or topic), topic.partition or 0] = done[-1].source_version + 1
            checkpoint.write(offsets)
    return done, not_done


class _Filling:
    """The backfill of one topic. It goes in this order, with a crash point after each arrow.

    Claim, make the log if it is missing, fence → find the link's cursor, pin both logs, derive what lacks. Then each step: (copy files →) append →. A
    crash loses nothing: the next run derives it again. Who is
    refused makes nothing; whoever deletes the topic owns its filling, so nobody makes it again before that ends.

    Where a look is a request files are looked at, for a log that is not there, beside the claim.
    """

    def __init__(
        self,
        target: ClusterTables,
        source: ClusterTables,
        config: Config,
        link: Link,
        topic: Topic,
        what: Backfill,
        allowance: Allowance,
        stopped: threading.Event,
        on_step: Callable[[Filled], None],
        *,
        dry_run: bool,
    ) -> None:
        """Raises WrongClockError: what has expired is decided by this host's clock."""
        self._target, self._source, self._link, self._topic, self._what = target, source, link, topic, what
        self._allowance, self._stopped, self._on_step = allowance, stopped, on_step
        self._rule = Rule.of(link, config.policy(topic).message_ttl_s)
        self._log = target.log(topic)
        self._now_us = checked_now_us(target, f"{self}: nothing is brought", writes=not dry_run)
        """One moment for the whole run: what expires meanwhile counts in both logs, or in neither."""
        self._watch: TargetWatch | None = None
        self._ahead: Ahead | None = None
        self._done = Filled(link.name, str(topic), -1)

    def __str__(self) -> str:
        return f"backfill {self._link.name} {self._topic}"

    def preview(self) -> Filled:
        """Rehearses a run. Writes nothing."""
        self._source_log, _ = open_source_log(self._source, self._topic, self._link, str(self))
        if find_checked(self._log, TOPIC_LOG) is None:
            newest = newest_commit(self._source_log, str(self))
            count = count_where(self._source_log, newest.version, self._wanted)
            return replace(self._done, source_version=newest.version, total=count, messages=count)
        target, at = self._pinned()
        at = at or newest_commit(self._source_log, str(self))
        there, here = self._rows_at(at, target)
        found, files = self._missing(there, here, at, target)
        by_file, size = sum(one.rows for one in files), sum(one.size for one in files)
        left = steps(without(found, files), STEP_ROWS)
        messages = by_file + sum(missing(there(), here(), step).count() for step in left)
        total = sum(gap.size for gap in found)
        return replace(self._done, source_version=at.version, total=total, messages=messages, by_file=by_file, size=size)

    def run(self) -> Filled:
        """Append it. Raises AlreadyOwnedError while another backfill or a comparison of both logs runs, SourceChangedError and RetryableError where
        the link has to see to something first.
        """
        with meanwhile(self._target.port) as begin:
            found = begin(partial(find_checked, self._log, TOPIC_LOG))
            self._source_log, source = open_source_log(self._source, self._topic, self._link, str(self))
            begin(lambda: self._look_ahead(source) if found() is None else None)
            owned = self._claimed()
        filling, columns = owned[0], user_columns(source.columns)
        # Also after a fault, unless an append is in doubt: so that the link, or whoever resolves it, can have it.
        with giving_back(owned, lambda error: self._watch is None or not self._watch.in_doubt):
            self._shape = shape_for(
                self._log, self._made(found(), columns), columns, str(self), self._link.source, updates=self._link.schema_updates
            )
            filling.fence(self._log, CrashPoint.BACKFILL_FENCED)
            with ExitStack() as held:
                if is_instead := len(owned) > 1:
                    owned[1].fence(self._log)
                    held.enter_context(filling.besides(owned[1]))
                target, at = self._pinned()
                if at is None and not is_instead:
                    owned += self._instead_of_the_link()
                    held.enter_context(filling.besides(owned[-1]))
                    target, at = self._pinned()
                self._fill(filling, at or newest_commit(self._source_log, str(self), source), target)
        return self._done

    def _made(self, found: TableSnapshot | None, columns: Sequence[StructField]) -> StructType:
        """The columns of the target's log, of which this was found; it is made if it is missing."""
        if found is None:
            return create_topic(self._target, self._topic, columns)
        return ensure_topic(self._target, self._topic, columns, seen=found)

    def _look_ahead(self, source: TableSnapshot) -> None:
        """Looks at files ahead. What is in the way is said where the files are wanted."""
        if self._what.mode is Mode.FILES:
            with suppress(GeoError, OSError):
                self._ahead = look_ahead(self._source_log, source.version, self._wanted)

    def _claimed(self) -> list[Ownership]:
        """Own the filling; of a link that has never run also what it would own, in the same commit."""
        with may_be_old(LOOKED_S):
            has_run = (self._link.source, str(self._topic)) in read_links(self._target)
        if not has_run:
            with suppress(AlreadyOwnedError):  # if it still is then, it is said of what
                return self._owned(filling_runners, origin_runners)
        return self._owned(filling_runners)

    def _owned(self, *ways: Callable[[Set[str], Topic, str], list[Runner]]) -> list[Ownership]:
        return claim(self._target, [way(self._rule.origins, self._topic, self._link.target) for way in ways])

    def _instead_of_the_link(self) -> list[Ownership]:
        """Own what the link would: nobody knows where it stands, so it must not run meanwhile."""
        try:
            (ownership,) = owned = self._owned(origin_runners)
        except AlreadyOwnedError as error:
            raise AlreadyOwnedError(
                f"{self}: the link is at a comparison of both logs, or about to begin one, and somebody runs it. Run this again once that is done. {error}"
            ) from None
        ownership.fence(self._log)
        return owned

    def _pinned(self) -> tuple[CommitName, CommitName | None]:
        """The newest commit of the target, and that of the source at which the link stands in it; None if that is not known. Raises
        what is in the way of reading the source there."""
        # The row is read first: what it says is of the commit that is pinned then, or of one before.
        row = read_links(self._target).get((self._link.source, str(self._topic)))
        target = newest_commit(self._log, str(self))
        stands = stands_at(row, self._link, self._log, target.version)
        if stands.why is not None or (cursor := stands.cursor) is None:
            return target, None
        judged = SourceLook(self._source_log, self._rule.origins, str(self)).judged(cursor)
        if isinstance(judged, Fault):
            told = judged.message(self._link.source, self._link.target, str(self._topic), cursor)
            raise SourceChangedError(told, code=judged.code)
        if judged is not None and judged.unseen:
            raise RetryableError(
                f"{self}: {judged.why}. Let the link run first: its next start compares both logs.", code=Reason.STALE_CURSOR
            )
        return target, cursor

    def _rows_at(self, at: CommitName, target: CommitName) -> tuple[Callable[[], DataFrame], Callable[[], DataFrame]]:
        """The wanted rows of both logs. Made when they are first asked for: Spark reads a log for it, which files that are copied do not
        need."""
        logs = ((self._source_log, at), (self._log, target))
        there, here = (cache(partial(read_where, log, commit.version, self._wanted)) for log, commit in logs)
        return there, here

    def _missing(
        self, there: Callable[[], DataFrame], here: Callable[[], DataFrame], at: CommitName, target: CommitName
    ) -> tuple[list[Gap], list[Whole]]:
        """Finds what the target may lack, and the files of it that are taken whole."""
        has_nothing = is_empty(self._log, target.version)
        if self._what.mode is Mode.FILES and has_nothing:
            files = all_files(self._source_log, at.version, self._log, self._wanted, self._ahead)
            if files is not None:
                return [Gap(one.ledger, one.first, one.last) for one in files], files
        found = gaps(extents(there()), {} if has_nothing else extents(here()))
        if self._what.mode is Mode.ROWS:
            return found, []
        return found, whole_files(self._source_log, at.version, self._log, self._wanted, found)

    def _fill(self, ownership: Ownership, at: CommitName, target: CommitName) -> None:
        self._watch = watch = TargetWatch(self._log, target, self._shape, str(self))
        seen = at.version

        def refuse() -> None:
            nonlocal seen
            watch.refuse_if_put_back()
            seen = self._unchanged_to(seen)

        there, here = self._rows_at(at, target)
        found, files = self._missing(there, here, at, target)
        self._done = replace(self._done, source_version=at.version, total=sum(gap.size for gap in found))
        progress = Progress(log, str(self), "messages", self._done.total)
        record = backfill_record(self._link.name, self._rule.origins, at)
        most_bytes = most_of(self._allowance).size
        for part in slices(files, lambda one: one.size, most_bytes):
            if not self._may_go_on():
                return
            written = copied(part, self._log, plain_state(self._log, "target"))
            reach(CrashPoint.BACKFILL_COPIED)
            with watch.appending():
                ownership.append(self._log, written, record, refuse)
            rows = sum(one.rows for one in part)
            self._step(progress, rows, rows, sum(one.size for one in part), by_file=rows)
        left = list(without(found, files))
        row_bytes = (
            BothLogs(self._source_log, self._log, self._rule, str(self), lambda: self._now_us).row_bytes() if left else 1.0
        )
        for step in steps(left, max(1, min(STEP_ROWS, int(most_bytes / row_bytes)))):
            if not self._may_go_on():
                return
            rows = watch.append(ownership, missing(there(), here(), step), record, refuse)
            self._step(progress, sum(gap.size for gap in step), rows, round(rows * row_bytes))
        self._done = replace(self._done, complete=True)

    def _unchanged_to(self, seen: int) -> int:
        """The newest version of the source, which is read as it was. What is erased or undone in it since must not come into the target. Raises
        RetryableError if messages were erased, changed or removed after version `seen`."""
        newest = self._source_log.latest_version()
        for commit in self._source_log.commits(seen + 1, newest):
            if commit.kind in (Kind.ERASURE, Kind.RESTORE, Kind.REWRITE):
                raise RetryableError(
                    f"{self}: version {commit.version} of the source changed messages ({commit.what}), and the link has "
                    "not passed it yet. Nothing more was brought. Run this again once it has."
                )
        return max(seen, newest)

    @property
    def _wanted(self) -> Predicate:
        return messages_wanted(self._rule, None, self._now_us) & self._what.published

    def _may_go_on(self) -> bool:
        """Wait until the rate allows a step. False: it is stopped."""
        return wait_for_rate(lambda: self._allowance.wait_s(time.monotonic()), self._stopped.is_set)

    def _step(self, progress: Progress, compared: int, rows: int, size: int, *, by_file: int = 0) -> None:
        """Count a step that was appended, and report it."""
        reach(CrashPoint.BACKFILL_APPENDED)
        self._allowance.took(rows, size, time.monotonic())
        done = self._done
        self._done = replace(
            done, messages=done.messages + rows, by_file=done.by_file + by_file, size=done.size + size, steps=done.steps + 1
        )
        progress.add(compared)
        self._on_step(self._done)
