"""One producer's ledgers in a topic's log: owned, looked after, recorded, and appended to, a batch a commit.

Where a batch's rows come from is geo.log.publisher's, which entries they get is decided in geo.log.ledgers.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from geo.config.model import Config
from geo.coordination.claiming import claim
from geo.coordination.clock import Stamp, jumped, refuse, why_wrong
from geo.coordination.ownership import Ownership, Rows, release
from geo.coordination.runners import producer_runner
from geo.crash import CrashPoint, reach
from geo.delta.table import Table
from geo.delta.versions import committed_at
from geo.errors import SourceChangedError, UnknownAnswerError, UnsafeError
from geo.journal.cluster import ClusterTables
from geo.journal.journal import Journal
from geo.log.finished import recall
from geo.log.ledger_table import LedgerTable
from geo.log.ledgers import (
    LEDGER_RANDOM_BITS,
    Batch,
    Ledger,
    LedgerKey,
    ProducerProgress,
    RowsOfKey,
    SourceEnd,
    ledger_id,
    new_keys,
    plan,
)
from geo.names import Topic
from geo.now import steady_us
from geo.reasons import Reason
from geo.streams import timetable
from geo.text import first_line
from geo.times import in_us

log = logging.getLogger(__name__)

IDLE_US = 86_400 * 1_000_000
"""A ledger that rested for so long is recorded before its next commit: sooner than its source counts as ended (geo.log.finished)."""


class LedgerWriter:
    """The ledgers of one producer, owned by this process from its construction to `close`. Calls of several threads wait for each
    other.

    Each batch is committed in this order, and each arrow is a named crash point:
    1. new ledgers are recorded in `system/ledgers` with end -1, and before the first batch of a run that there will be more; 2.
    rows and the batch's record are appended to the log in one commit; 3. now and then (timetable.RECORD_ENDS_S) the log's commits since the last
    look are looked at, and the ends are recorded in `system/ledgers`; 4. the caller's stream commits its checkpoint. A start
    folds the batches committed since the newest record, so a death anywhere repeats and skips nothing.

    Raises AlreadyOwnedError, UnsafeError. `clock` says the time, in microseconds since 1970.
    """

    def __init__(
        self,
        tables: ClusterTables,
        config: Config,
        topic: Topic,
        producer: str,
        log_table: Table,
        *,
        clock: Callable[[], int],
        take_over: bool,
    ) -> None:
        self._tables, self._topic, self._producer, self._log, self._clock = tables, topic, producer, log_table, clock
        self._changed: set[LedgerKey] = set()
        self._appended: tuple[Batch, int] | None = None
        """The last batch since the last look at the log, and what the clock said just before."""
        self._unsure = False
        """An append was begun of which it is not known whether it landed."""
        self._began: tuple[int, int] | None = None
        """The clock and a steady one when this run was recorded as begun and the clock was found right; None: not yet."""
        self._recorded_at = self._looked_at = time.monotonic()
        self._mutex = threading.RLock()
        self._is_open = True
        self._later: threading.Timer | None = None
        runner = producer_runner(tables, topic, producer)
        self._ownership: Ownership = claim(tables, [[runner]], take_over=take_over, point=CrashPoint.PUBLISH_CLAIMED)[0]
        try:
            self._ownership.fence(log_table)
            self.ledgers = LedgerTable(tables, config, topic, producer, log_table, self._ownership.generation)
            seen = log_table.snapshot()
            if seen is None:
                raise SourceChangedError(
                    f"{topic}: its log in {tables.cluster.name} went away. Nothing was published.", code=Reason.TARGET_GONE
                )
            self._check_clock(in_us(committed_at(log_table, seen.version)))
            self._progress: ProducerProgress
            self._progress, self._changed = self.ledgers.resume(seen, clock())
        except BaseException:
            self._ownership.abandon()
            raise

    @property
    def ends(self) -> dict[LedgerKey, Ledger]:
        """The newest ledger of each key, and how far it reaches."""
        return dict(self._progress.ledgers)

    @property
    def sources(self) -> dict[str, SourceEnd]:
        """The end up to which each source partition is published."""
        return dict(self._progress.sources)

    def recall(self, sources: Collection[str]) -> dict[str, SourceEnd]:
        """The ends of those of these sources that ended long ago; from now on they are among `sources`. To be asked before the first row of a
        source is published that is not among them."""
        with self._mutex:
            new = [name for name in sources if name not in self._progress.sources]
            found = recall(self._tables, self._topic, self._producer, new)
            if found:
                self._progress = replace(self._progress, sources={**self._progress.sources, **found})
            return found

    def close(self, *, clean: bool = True) -> None:
        """Record the ends and give the ownership back. After an error (`clean=False`), or if it is not known of an append whether it landed, leave
        both to the next start. The second time it does nothing. Raises SourceChangedError as `record_ends`."""
        if not clean:
            self.abandon()
            return
        with self._mutex:
            if not self._is_open:
                return
            self._is_open = False
            try:
                if not self._unsure:
                    if self._changed or self._began or not self.ledgers.complete:
                        self._look()
                        self._record_ends(complete=True)
                        reach(CrashPoint.PUBLISH_ENDS_RECORDED)
                    release([self._ownership])
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close as `close(clean=False)` does, without waiting for an append that is under way."""
        self._is_open = False
        if self._later is not None:
            self._later.cancel()
        self._ownership.abandon()

    def append_to(self, journal: Journal, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append to a system table in one commit, if the producer is still owned. Raises as `Ownership.append`."""
        journal.append(rows, self._ownership.append)

    def refuse_if_replaced(self) -> None:
        """Raises FencedError if another process took the producer over."""
        self._ownership.refuse_if_replaced()

    def record_ends(self) -> None:
        """Look at the log, and record the ends of the ledgers that changed (step 3).

        Raises SourceChangedError, with nothing recorded, if the log is not what it was.
        """
        with self._mutex:
            self._look()
            self._record_ends()
            reach(CrashPoint.PUBLISH_ENDS_RECORDED)

    def record_ends_if_due(self, interval_s: float | None = None) -> None:
        """`interval_s` None: as is due for messages."""
        with self._mutex:
            if interval_s is None:
                interval_s = timetable.RECORD_ENDS_S if self._log.is_near else timetable.REMOTE_RECORD_ENDS_S
            if self._changed and time.monotonic() - self._recorded_at >= interval_s:
                self.record_ends()

    def append(self, counted: Sequence[RowsOfKey], ends: Mapping[str, str], entries: Callable[[Batch], Rows]) -> None:
        """Give the counted rows their ledgers and entries, and append what `entries` makes of that with its record.

        `ends` are the offsets of the source partitions afterwards. Raises FencedError, SourceChangedError if the log is not what it was,
        UnsafeError if the clock is wrong, and what evaluating the entries raises. Then nothing was published.
        """
        with self._mutex:
            if not self._is_open:
                raise UnsafeError(f"{self._topic}: producer {self._producer} was closed. Nothing was published. Open it again.")
            look_s = timetable.LOG_LOOK_S if self._log.is_near else timetable.REMOTE_LOG_LOOK_S
            if self._unsure or time.monotonic() - self._looked_at >= look_s:
                if self._unsure:  # what may still come is to come before the look, or not at all
                    self._ownership.fence(self._log)
                self._look()
                if self._changed:
                    # Any row says that all ends are exact up to where the last look came: the row of a new ledger would, next.
                    self._record_ends()
            ids = self._new_ledger_ids(len(new_keys(self._progress, counted)))
            batch = plan(self._progress, self._producer, counted, ends, self._clock(), ids)
            self._open_ledgers(batch)
            self._keep_idle(batch)
            self.ledgers.refuse_older(ends.values())
            reach(CrashPoint.PUBLISH_LEDGERS_OPENED)
            rows = entries(batch)
            reach(CrashPoint.PUBLISH_BEFORE_APPEND)
            before_us, self._unsure = self._clock(), True
            try:
                self._ownership.append(self._log, rows, batch.encode())
            except UnknownAnswerError:
                self._ownership.in_flight = True
                raise
            reach(CrashPoint.PUBLISH_AFTER_APPEND)
            self._progress, self._unsure = self._progress.after(batch), False
            self._changed |= {span.key for span in batch.spans}
            self._appended = batch, before_us
            self._record_later()

    # -- its steps -----------------------------------------------------------------------------------------------------

    def _new_ledger_ids(self, count: int) -> list[int]:
        """Distinct ids that no ledger of the cluster has."""
        drawn: set[int] = set()
        while len(drawn) < count:
            while len(drawn) < count:
                drawn.add(ledger_id(self._clock() // 1_000_000, secrets.randbits(LEDGER_RANDOM_BITS)))
            drawn -= self.ledgers.taken(drawn)
        return sorted(drawn)

    def _open_ledgers(self, batch: Batch) -> None:
        """Step 1."""
        before = self._clock(), steady_us()
        opened = self._progress.opened(batch, self.ledgers.away)
        new = opened.ledgers.keys() - self._progress.ledgers.keys()
        self._progress = opened
        if self._began is not None and not jumped(self._began, before):
            if new:
                self.ledgers.record_ends(opened, new)
            return
        if self._appended is not None:
            self._look()
        self._changed |= new
        self._record_ends()
        came_us = self.ledgers.recorded_us()
        self._check_clock(came_us, Stamp.of(before[0], came_us))
        self._began = before

    def _keep_idle(self, batch: Batch) -> None:
        """Record the ends of ledgers that rested for long, before a commit goes on with them. Whoever moves sources that ended away
        (geo.log.finished) leaves what was recorded lately."""
        idle_us = batch.publish_time_us - IDLE_US
        keys = {span.key for span in batch.spans if span.first - 1 > -1 and self._progress.ledgers[span.key].time_us < idle_us}
        if keys:
            self.ledgers.record_ends(self._progress, keys)

    def _record_ends(self, *, complete: bool = False) -> None:
        # One row is enough to say how far all of them are exact.
        keys = self._changed or set(list(self._progress.ledgers)[:1])
        if keys:
            self.ledgers.record_ends(self._progress, keys, complete=complete)
        self._changed, self._recorded_at = set(), time.monotonic()

    def _record_later(self) -> None:
        """See to it that the ends are recorded though no further batch may come."""
        if self._later is None or not self._later.is_alive():
            self._later = threading.Timer(timetable.RECORD_IDLE_ENDS_S, self._record_idle)
            self._later.daemon = True
            self._later.start()

    def _record_idle(self) -> None:
        with self._mutex:
            try:
                if self._is_open and self._changed:
                    self.record_ends()
            except Exception as error:  # the next batch, or the close, meets it again
                log.warning(
                    "%s: the ends of producer %s could not be recorded: %s", self._topic, self._producer, first_line(error)
                )

    def _look(self) -> None:
        """Look at the log's commits since the last look. Raises SourceChangedError, UnsafeError for a wrong clock."""
        newest = self.ledgers.look(self._progress, self._appended[0] if self._appended else None)
        newest_us, stamp = in_us(committed_at(self._log, newest)), None
        if self._appended is not None:
            own = self.ledgers.exact_to.version
            came_us = newest_us if own == newest else in_us(committed_at(self._log, own))
            stamp = Stamp.of(self._appended[1], came_us)
        self._appended, self._unsure, self._looked_at = None, False, time.monotonic()
        self._check_clock(newest_us, stamp)

    def _check_clock(self, newest_us: int | None, stamp: Stamp | None = None) -> None:
        who = f"{self._topic} in {self._tables.cluster.name}: producer {self._producer} does not publish"
        way_out = f" If the storage's was wrong, any later commit to {self._log} sets it right."
        try:
            refuse(who, why_wrong(self._clock(), newest_us, stamp), way_out)
        except UnsafeError:
            self._began = None  # the next batch holds it against the storage's before anything else
            raise
