"""One run of a consumer: a streaming query over the local log, one over the acknowledgements, and what is published of them.

What a batch does is in `dispatcher.py`; this file names the queries and tables and runs the steps in order.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.crash import CrashPoint, reach
from geo.errors import AlreadyOwnedError, GeoError, UnsafeError, UsageError
from geo.faults import may_pass, of_spark
from geo.log.topic_log import PUBLISH_ORDER, is_message, open_log, user_columns
from geo.log.topics import partitions
from geo.streams.life import Event, Life
from geo.streams.query import BatchQuery
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import ACK_COLUMNS, read_known, received
from geo.subscription.acks.fold import Fold
from geo.subscription.acks.record import Refusal, key_of
from geo.subscription.acks.start_position import base_at
from geo.subscription.consumer.dispatcher import Dispatcher, Listener
from geo.subscription.consumer.flusher import Flusher
from geo.subscription.consumer.settings import Settings
from geo.tables.small_batch import hold_on_driver
from geo.tables.spark_checkpoint import forget
from geo.text import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

TRIGGER = "200 ms"
LOOK_INTERVAL_S = 60.0
"""How often a run looks whether the log is still the one that it reads: Delta's stream need not notice."""

STANDBY_INTERVAL_S = 2.0
"""How often a standby asks whether the subscription is free."""

_IDLE_S = 5.0
"""Between two looks whether there is a commit that a stream can begin at."""

_POLL_S = 0.05
_RESTARTS = 5
"""Of the queries in a row, none of which lived for a minute (geo.streams.life): after that their error is the user's to see."""


class _Version(NamedTuple):
    """Of the log."""

    table_id: str
    number: int


class Run:
    """One run of a consumer. `go`:

    1. owns the subscription in this cluster, as a standby once nobody else does;
    2. reads what is known of it, and creates it if that is nothing (then CONSUME_CREATED);
    3. delivers what the log holds at its newest version V, then streams from V. Per batch it
       a. with `max_redeliveries` notes what the user's function gets (then CONSUME_ATTEMPTED); calls it (then CONSUME_PROCESSED),
       b. adds what that acknowledged to the set that the flusher publishes within a second (ACKS_BEFORE_FLUSH, ACKS_AFTER_FLUSH),
       c. publishes dead letters (then CONSUME_DEAD_LETTERED) and acknowledges those.

    No position is stored: a start resumes with whatever is not acknowledged, so no checkpoint can be lost, too old, or of another
    table.
    """

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        stopped: threading.Event,
        *,
        trigger: str = TRIGGER,
        limit: int | None = None,
        for_s: float | None = None,
    ) -> None:
        self._settings, self._tables, self._topic, self._name = settings, settings.tables, settings.topic, settings.name
        self._stopped, self._limit = stopped, limit
        self._trigger, self._once = parse_trigger(trigger), trigger == AVAILABLE_NOW
        self._ends_at = None if for_s is None else time.monotonic() + for_s
        self.dispatcher = Dispatcher(settings, listener, limit, lambda: self._is_over() or self._reset_seen.is_set())
        self._reset_seen = threading.Event()
        """A record has reset the subscription: it begins elsewhere now."""
        self._flusher = Flusher(settings, self.dispatcher)

    def __str__(self) -> str:
        return str(self._settings)

    def go(self) -> None:
        """Raises as `Subscription.run`."""
        self._find_log()
        if not self._own():
            return
        self._open()
        tidy = True
        try:
            self.dispatcher.begin()
            self._flusher.flush()  # what the last run died on, before this one can
            self.dispatcher.has_begun()
            self._flusher.begin()
            self._run_on()
        except BaseException as error:
            # After a fault of this program nothing is tidied up.
            tidy = (
                error is self.dispatcher.failure
                or isinstance(error, (GeoError, KeyboardInterrupt, SystemExit))
                or of_spark(error)
            )
            raise
        finally:
            self.dispatcher.end()
            self._flusher.end()
            try:
                self._flusher.close(tidy=tidy)
            finally:
                self.dispatcher.close(clean=tidy)
        self._raise_failure()

    # -- start -----------------------------------------------------------------------------------------------------------

    def _find_log(self) -> None:
        if not self._tables.log(self._topic).exists():
            if parts := partitions(self._tables, self._topic):
                raise UsageError(f"{self._topic} is partitioned: consume {parts[0]} to {parts[-1].name} one by one.")
            raise UsageError(
                f"{self._topic}: has no log in cluster {self._tables.cluster.name}. Publish to it, or let a link bring it; "
                "`geo topics list` shows what is there."
            )

    def _own(self) -> bool:
        """Own the subscription in this cluster, as a standby once nobody else does. False: the run was over before."""
        waits = False
        while True:
            try:
                self._flusher.open()
            except AlreadyOwnedError as error:
                if not self._settings.standby:
                    raise
                if not waits:
                    log.info("%s: standing by: %s", self, first_line(error))
                waits = True
            else:
                return True
            left = math.inf if self._ends_at is None else self._ends_at - time.monotonic()
            if left <= 0 or self._stopped.wait(min(STANDBY_INTERVAL_S, left)):
                return False

    def _open(self) -> None:
        settings = self._settings
        try:
            self._open_log()
            state = self._read_known(in_spite=settings.ignore_unreadable)
            if state is None:
                state = AckState(base=base_at(settings.start, self._log))
                log.info("%s: there is no record of it yet, it begins at %s", self, settings.start)
                self._flusher.publish(state)
            reach(CrashPoint.CONSUME_CREATED)
            self.dispatcher.received(state)
        except BaseException:
            self._flusher.close(tidy=False)
            raise

    def _open_log(self) -> None:
        self._log, columns = open_log(self._tables, self._topic)
        self._typed = bool(user_columns(columns))

    def _read_known(self, *, in_spite: bool) -> AckState | None:
        """What is known of the subscription by now; None: nothing. The tail goes on from there. Raises UnsafeError as
        `Known.state_of`."""
        known = read_known(self._tables, self._topic, self._name)
        self._acks_version = known.version or 0  # the publisher has made the log; if it is gone by now the tail query says so
        return known.state_of(self._topic, self._name, in_spite=in_spite)

    def _refuse_deleted(self) -> None:
        state = self.dispatcher.state
        if state.deleted:
            raise UnsafeError(
                f"{self} was deleted (by {state.epoch.cluster}). Nothing is delivered. `geo subscriptions create` begins it anew."
            )

    # -- running ---------------------------------------------------------------------------------------------------------

    def _run_on(self) -> None:
        life, function, failed_at, again = Life(), Life(), None, False
        while not self._is_over():
            version = None
            self.dispatcher.take_delayed()
            self._reset_seen.clear()
            try:
                if again:
                    self._catch_up()
                again = True
                with self._tail() as tail:
                    version = self._version()
                    self.dispatcher.deliver_until(version.number)
                    if tail is None or self._is_over():
                        return
                    if version == failed_at:
                        self._await_another(version, tail)
                    else:
                        self._stream_from(version, tail)
            except Exception as error:
                self._raise_failure()
                delayed = self.dispatcher.take_delayed()
                if delayed is not None and self._once:
                    self.dispatcher.failure = delayed
                    raise delayed from None
                if delayed is None and not may_pass(error):
                    raise
                now = time.monotonic()
                if delayed is not None:
                    function = function.after(Event.FAULT, now=now, reason=first_line(delayed))
                    wait_s = function.again_at - now
                    log.warning("%s: the function fails on all messages, again in %.0f s: %s", self, wait_s, first_line(delayed))
                else:
                    # The log was restored, erased from, made anew: what is not acknowledged is found again.
                    life = life.after(Event.FAULT, now=now, reason=first_line(error))
                    wait_s = life.again_at - now
                    if life.tries > _RESTARTS:
                        raise
                    failed_at = version
                    log.warning("%s: a query ended, looking at the whole log again: %s", self, first_line(error))
                self._stopped.wait(max(0.0, wait_s if self._ends_at is None else min(wait_s, self._ends_at - now)))

    def _stream_from(self, version: _Version, tail: BatchQuery) -> None:
        """Deliver what comes after `version` until the run is over, the subscription begins elsewhere, or the log is another
        one."""
        # A version that exists, though it is delivered already: a number beyond the latest is refused.
        rows = self._log.read_stream({"startingVersion": str(version.number), "ignoreDeletes": "true"})
        with self._query(rows, f"geo consume {self}", "messages", self._on_batch, self._trigger) as query:
            seen = version

            def replaced(now: _Version) -> bool:
                nonlocal seen
                before, seen = seen, now
                if is_other := now.table_id != before.table_id or now.number < before.number:
                    log.warning("%s: the log was replaced, looking at the whole of it", self)
                return is_other

            self._redeliver_until(replaced, LOOK_INTERVAL_S, query, tail)

    def _await_another(self, version: _Version, tail: BatchQuery) -> None:
        """`version` is one that a stream does not begin at, as that of a RESTORE: until another one is the newest there is
        nothing to stream."""
        self._redeliver_until(lambda now: now != version, _IDLE_S, tail)

    def _redeliver_until(self, changed: Callable[[_Version], bool], every_s: float, *queries: BatchQuery) -> None:
        """Until the run is over, the subscription begins elsewhere, the log has `changed`, asked so often, or one of the queries
        ends: then its error is raised."""
        looked = time.monotonic()
        while all(query.is_active for query in queries) and not self._is_over() and not self._reset_seen.is_set():
            self.dispatcher.redeliver()
            time.sleep(_POLL_S)
            if time.monotonic() - looked > every_s:
                if changed(self._version()):
                    return
                looked = time.monotonic()
        self._raise_failure()
        for query in queries:
            if not query.is_active and (error := query.error) is not None:
                raise error

    def _version(self) -> _Version:
        return _Version(self._log.table_id(), self._log.latest_version())

    def _catch_up(self) -> None:
        """Take in the log as it is by now, and all that is known of the subscription."""
        if self._log.exists():  # if not, reading it says so
            self._open_log()
        if (state := self._read_known(in_spite=True)) is not None:  # a run goes on, as it does when its tail meets such records
            self.dispatcher.received(state)

    @contextmanager
    def _query(
        self, rows: DataFrame, name: str, part: str, each: Callable[[DataFrame, int], None], trigger: Mapping[str, Any]
    ) -> Iterator[BatchQuery]:
        """A query from now on, with a checkpoint that nobody reads again."""
        place = self._tables.checkpoint("consume", self._topic.path, self._name, f"{part}-{time.time_ns():x}")
        query = BatchQuery(rows, name, each, checkpoint=place, trigger=trigger)
        try:
            yield query
        finally:
            query.stop()
            forget(place)

    @contextmanager
    def _tail(self) -> Iterator[BatchQuery | None]:
        """Beside all else, take in the records of the subscription as they come, from this cluster and others."""
        if self._once:
            yield None
            return
        records = self._tables.log(self._topic.acks).read_stream(
            {"startingVersion": str(self._acks_version), "ignoreDeletes": "true"}
        )
        ours = (F.col("key") == key_of(self._topic, self._name)) & is_message()
        rows = records.where(ours).selectExpr(*ACK_COLUMNS)
        with self._query(rows, f"geo acknowledgements {self}", "acks", self._on_records, parse_trigger(TRIGGER)) as query:
            yield query

    def _on_records(self, rows: DataFrame, batch_id: int) -> None:
        records = [received(row) for row in rows.toArrow().to_pylist()]
        key = key_of(self._topic, self._name)
        fold = Fold({key: self.dispatcher.state})
        fold.add(records)
        if fold.refused:
            reasons = ", ".join(f"{count} {why.value}" for why, count in fold.refused.items())
            # After a reset what was acknowledged before it keeps coming for a while.
            usual = fold.refused.keys() <= {Refusal.OLDER_EPOCH}
            log.log(logging.INFO if usual else logging.WARNING, "%s: records refused: %s", self, reasons)
            self.dispatcher.refused(fold.refused.total())
        if self.dispatcher.received(fold.states[key]):
            log.info("%s: was reset (%s)", self, self.dispatcher.state.epoch)
            self._reset_seen.set()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        held = None if self._typed else hold_on_driver(rows, PUBLISH_ORDER)
        self.dispatcher.deliver(rows if held is None else held, held=held is not None)

    def _raise_failure(self) -> None:
        """What ends the run, in whichever thread it was met."""
        for failure in (self.dispatcher.failure, self._flusher.error):
            if failure is not None:
                raise failure

    def _is_over(self) -> bool:
        self._refuse_deleted()
        self._raise_failure()
        late = self._ends_at is not None and time.monotonic() >= self._ends_at
        return self._stopped.is_set() or late or (self._limit is not None and self.dispatcher.done.delivered >= self._limit)
