"""One run of a consumer: a streaming query over the local log, and the acknowledgements that come of it.

What is delivered when is decided in `delivery.py`; this file names the queries and tables and runs the steps in order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.config_tree import Config, Start
from geo.crash import CrashPoint, reach
from geo.errors import UnsafeError, UsageError, first_line
from geo.log.checkpoints import forget
from geo.log.few import brought
from geo.log.message_id import MessageId
from geo.log.names import Topic
from geo.log.tables import ClusterTables, open_log, user_columns
from geo.log.topics import partitions
from geo.streams import stop_between_batches
from geo.subscription.acks import RECORD, AckPublisher, consumer_name, read_known, received
from geo.subscription.dead_letters import DeadLetters, dead_letter_topic
from geo.subscription.delivery import Delivery
from geo.subscription.fold import Fold
from geo.subscription.message_set import Ledger, MessageSet
from geo.subscription.places import base_at
from geo.subscription.record import Refusal, key_of
from geo.subscription.rows import ID, PUBLISH_ORDER, among, beyond, counted, ids_of, message_set, only
from geo.subscription.state import Epoch, State
from geo.trigger import AVAILABLE_NOW, parse_trigger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

Process = Callable[[DataFrame], DataFrame | None]
"""The user's function: gets messages, returns those of them that are done. The same DataFrame: all; None: none."""

TRIGGER = "200 ms"
FLUSH_INTERVAL_S = 1.0
"""Between two records of one consumer. What was acknowledged after the last one is repeated if the process is killed."""

COUNTS_INTERVAL_S = 5.0
"""Between two records that tell only of redeliveries. After a kill as much of the counts is forgotten."""

FEW = 10_000
"""So many messages come in one partition: sorting them needs no shuffle, and one that writes them writes one file."""

_POLL_S = 0.05
_RESTARTS = 5
"""Of the query in a row without a batch: after that its error is the user's to see."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a run did. `redelivered`: how many of those delivered had been delivered before, in vain. `refused`: acknowledgements
    of messages that do not exist, and records that changed nothing for another reason than being known."""

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    dead_lettered: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """Of whom a consumer takes what, and how: see `geo.subscription.consumer.Subscription`."""

    tables: ClusterTables
    config: Config
    topic: Topic
    name: str
    start: Start | datetime
    redelivery_delay_s: float
    max_redeliveries: int | None
    batch_rows: int
    take_over: bool

    def __post_init__(self) -> None:
        if self.topic.is_system:
            raise UsageError(f"{self.topic} is not for consuming: names that start with __ are for what delta-geo itself writes.")
        if self.start not in ("earliest", "latest") and not isinstance(self.start, datetime):
            raise UsageError(f"{self}: start is {self.start!r}; expected earliest, latest or a datetime.")
        for option, least in (("batch_rows", 1), ("redelivery_delay_s", 0), ("max_redeliveries", 0)):
            value = getattr(self, option)
            if value is not None and value < least:
                raise UsageError(f"{self}: {option} is {value}; expected {least} or more.")
        if self.max_redeliveries is not None:
            dead_letter_topic(self.topic, self.name)  # its name may be too long

    def __str__(self) -> str:
        return f"subscription {self.name} of {self.topic} in {self.tables.cluster.name}"


class Run:
    """One run of a consumer. `go` does, in this order, with a named crash point after each arrow:
    1. own the subscription in this cluster 2. read what is known of it; if nothing, create it → 3. deliver what the log holds
    at its newest version V, then stream from V. A batch: the user's function → dead letters → the acknowledged set, which is
    published once a second (→ before, → after). Nothing else is kept: where a start goes on is what is not acknowledged, so no
    checkpoint can be lost, too old, or of another table.

    Three threads work on it: the streaming query's, with one batch at a time; the acknowledgements' query's; the flusher's.
    """

    def __init__(
        self,
        options: Options,
        process: Process,
        stopped: threading.Event,
        *,
        trigger: str = TRIGGER,
        limit: int | None = None,
        for_s: float | None = None,
    ) -> None:
        self._options, self._tables, self._topic, self._name = options, options.tables, options.topic, options.name
        self._process, self._stopped, self._limit = process, stopped, limit
        self._trigger, self._once = parse_trigger(trigger), trigger == AVAILABLE_NOW
        self._ends_at = None if for_s is None else time.monotonic() + for_s
        self.done = Consumed()
        self._delivery = self._of(State())
        self._goes_on = False
        """Between start and end: what is acknowledged then will be published."""
        self._anew = threading.Event()
        """The subscription begins elsewhere now."""
        self._told = threading.Event()
        self._ended = threading.Event()
        """Of the flusher."""
        self._failure: BaseException | None = None
        self._of_function: BaseException | None = None
        """The failure, if it is the user's function's."""
        self._turn = threading.RLock()
        """One batch at a time, whichever thread it comes from."""
        self._known = threading.RLock()
        """Of `_delivery` and `done`."""

    def __str__(self) -> str:
        return str(self._options)

    @property
    def state(self) -> State:
        return self._delivery.state

    def go(self) -> None:
        """Raises as `Subscription.run`."""
        self._open()
        flusher = threading.Thread(target=self._flush_on, name=f"geo-acks-{self._name}", daemon=True)
        flusher.start()
        clean = False
        try:
            try:
                self._goes_on = True
                self._run_on()
            finally:
                with self._known:
                    self._goes_on = False
                self._ended.set()
                self._told.set()
                flusher.join()
            self._raise_failure()
            self._flush()
            clean = True
        except BaseException as error:
            if error is self._of_function:  # what was acknowledged before is as it was
                self._flush()
                clean = True
            raise
        finally:
            try:
                self._publisher.close(clean=clean)
            finally:
                if self._dead_letters is not None:
                    self._dead_letters.close(clean=clean)

    def acknowledge(self, ids: Iterable[MessageId]) -> int:
        """As `Subscription.acknowledge`."""
        with self._known:
            self._refuse_over()
            epoch = self.state.epoch
        existing = self._existing(MessageSet.of(ids))
        with self._known:
            self._refuse_over()  # it may have ended meanwhile
            self._settle(MessageSet(), existing, epoch)
        return existing.size

    def _refuse_over(self) -> None:
        if not self._goes_on:
            raise UsageError(f"{self}: no run goes on that could publish an acknowledgement. Acknowledge while it runs.")

    # -- start -----------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        options = self._options
        if not self._tables.log(self._topic).exists() and (parts := partitions(self._tables, self._topic)):
            raise UsageError(f"{self._topic} is partitioned: consume {parts[0]} to {parts[-1].name} one by one.")
        self._open_log()
        self._dead_letters = None
        if options.max_redeliveries is not None:
            self._dead_letters = DeadLetters(
                self._tables, options.config, self._topic, self._name, options.max_redeliveries, take_over=options.take_over
            )
        self._publisher = AckPublisher(
            self._tables, options.config, self._topic, consumer_name(self._topic, self._name), take_over=options.take_over
        )
        try:
            known = self._read_known()
            state = known.get(key_of(self._topic, self._name))
            if state is None:
                state = State(base=base_at(options.start, self._log.read()))
                self._publisher.publish([(self._topic, self._name, state)])
            reach(CrashPoint.CONSUME_CREATED)
            self._delivery = self._of(state)
            self._refuse_deleted()
        except BaseException:
            self._publisher.close(clean=False)
            raise

    def _open_log(self) -> None:
        self._log, columns = open_log(self._tables, self._topic)
        self._typed = bool(user_columns(columns))

    def _of(self, state: State) -> Delivery:
        return Delivery(state, self._options.redelivery_delay_s, self._options.max_redeliveries)

    def _read_known(self) -> dict[str, State]:
        """What is known of the subscription by now. The tail goes on from there."""
        known = read_known(self._tables, self._options.config, self._topic, self._name)
        self._acks_version = known.version or 0  # the publisher has made the log; if it is gone by now the tail says so
        return known.states

    def _refuse_deleted(self) -> None:
        if self.state.deleted:
            raise UnsafeError(
                f"{self} was deleted (by {self.state.epoch.cluster}). Nothing is delivered. "
                f"`geo subscriptions create` begins it anew."
            )

    # -- running ---------------------------------------------------------------------------------------------------------

    def _run_on(self) -> None:
        restarts = 0
        while not self._is_over():
            before = self.done.delivered
            self._anew.clear()
            try:
                with self._tail() as tail:
                    version = self._log.latest_version()
                    self._deliver(self._log.read(version).where(beyond(self._prefixes())))
                    if tail is None or self._is_over():
                        return
                    self._stream_from(version, tail)
            except PySparkException as error:
                # The log was restored, erased from, made anew: what is not acknowledged is found again.
                restarts = 0 if self.done.delivered > before else restarts + 1
                if self._failure is not None or restarts > _RESTARTS:
                    raise
                log.warning("%s: a query ended, looking at the whole log again: %s", self, first_line(error))
                self._stopped.wait(min(restarts, 10))
                self._catch_up()

    def _stream_from(self, version: int, tail: StreamingQuery) -> None:
        """Deliver what comes after `version` until the run is over or the subscription begins elsewhere."""
        # A version that exists, though it is delivered already: a number beyond the latest is refused.
        rows = self._log.read_stream({"startingVersion": str(version), "ignoreDeletes": "true"})
        with self._query(rows, f"geo consume {self}", "messages", self._on_batch, self._trigger) as query:
            while query.isActive and tail.isActive and not self._is_over() and not self._anew.is_set():
                self._redeliver()
                time.sleep(_POLL_S)
            self._raise_failure()
            for one in (query, tail):
                if not one.isActive and (error := one.exception()) is not None:
                    raise error

    def _catch_up(self) -> None:
        """Take in the log as it is by now, and all that is known of the subscription."""
        if self._log.exists():  # if not, reading it says so
            self._open_log()
        for state in self._read_known().values():
            with self._known:
                self._delivery.received(state)

    @contextmanager
    def _query(
        self, rows: DataFrame, name: str, part: str, each: Callable[[DataFrame, int], None], trigger: Mapping[str, Any]
    ) -> Iterator[StreamingQuery]:
        """A query from now on, with a checkpoint that nobody reads again."""
        place = self._tables.checkpoint("consume", self._topic.path, self._name, f"{part}-{time.time_ns():x}")
        writer = rows.writeStream.queryName(name).foreachBatch(each).option("checkpointLocation", place)
        query = writer.trigger(**trigger).start()
        try:
            yield query
        finally:
            if query.isActive:
                stop_between_batches(query)
            forget(place)

    @contextmanager
    def _tail(self) -> Iterator[StreamingQuery | None]:
        """Beside all else, take in the records of the subscription as they come, from this cluster and others."""
        if self._once:
            yield None
            return
        records = self._tables.log(self._topic.acks).read_stream(
            {"startingVersion": str(self._acks_version), "ignoreDeletes": "true"}
        )
        ours = (F.col("key") == key_of(self._topic, self._name)) & F.col("marker").isNull()
        rows = records.where(ours).select(*RECORD)
        with self._query(rows, f"geo acknowledgements {self}", "acks", self._on_records, parse_trigger(TRIGGER)) as query:
            yield query

    def _on_records(self, rows: DataFrame, batch_id: int) -> None:
        records = [received(row) for row in rows.toArrow().to_pylist()]
        with self._known:
            key = key_of(self._topic, self._name)
            fold = Fold(self._options.config.clusters, {key: self.state})
            fold.add(records)
            if fold.refused:
                told = ", ".join(f"{count} {why.value}" for why, count in fold.refused.items())
                # After a reset what was acknowledged before it keeps coming for a while.
                usual = fold.refused.keys() <= {Refusal.OLDER_EPOCH}
                log.log(logging.INFO if usual else logging.WARNING, "%s: records refused: %s", self, told)
                self.done = replace(self.done, refused=self.done.refused + fold.refused.total())
            if self._delivery.received(fold.states[key]):
                log.info("%s: begins at another place now (%s)", self, self.state.epoch)
                self._anew.set()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        try:
            held = None if self._typed else brought(rows, PUBLISH_ORDER)
            self._deliver(rows if held is None else held, held=held is not None)
        except PySparkException:
            raise  # of the user's function: it is noted; of reading the log: it is looked at again
        except BaseException as error:
            self._failure = error
            raise

    def _raise_failure(self) -> None:
        """Of the user's function or of publishing, in whichever thread it was met."""
        if self._failure is not None:
            raise self._failure

    def _is_over(self) -> bool:
        self._refuse_deleted()
        self._raise_failure()
        late = self._ends_at is not None and time.monotonic() >= self._ends_at
        return self._stopped.is_set() or late or (self._limit is not None and self.done.delivered >= self._limit)

    # -- delivering ------------------------------------------------------------------------------------------------------

    def _deliver(self, rows: DataFrame, *, held: bool = False) -> None:
        """Hand out what of `rows`, of the columns of the log, is wanted: in publish order, at most `batch_rows` at once. With `held`
        they are on the driver, in that order."""
        with self._turn:
            rows = rows.where(F.col("marker").isNull())
            base = self.state.base
            if base is not None and base.time_us is not None:
                begin = F.timestamp_micros(F.lit(base.time_us))
                rows = rows.where((F.col("publish_time") >= begin) & (F.col("publish_date") >= F.to_date(begin)))
            ids = ids_of(rows)
            if ids.num_rows > self._options.batch_rows or self._limit is not None:
                ids = ids.sort_by([(name, "ascending") for name in PUBLISH_ORDER])
            whole = message_set(ids)
            each_once = whole.size == ids.num_rows
            pick, held = (among, held) if each_once else (only, False)
            for at in range(0, ids.num_rows, self._options.batch_rows):
                if self._is_over() or self._anew.is_set():
                    return
                part = ids.slice(at, self._options.batch_rows)
                present = whole if part.num_rows == ids.num_rows else message_set(part)
                wanted = self._within_limit(self._delivery.wanted(present), part)
                if not wanted:
                    continue
                if wanted.size == ids.num_rows:
                    self._hand_out(rows, wanted, held=held)
                else:
                    self._hand_out(pick(_between(rows, part), wanted), wanted, held=held)

    def _prefixes(self) -> dict[Ledger, int]:
        """The entry up to which nothing of a ledger is wanted, so that files of it need not be read."""
        base = self.state.base
        done = self.state.acked | base.below_floors if base is not None else self.state.acked
        marks = {ledger: done.mark_delete(ledger) for ledger in done.ledgers}
        return {ledger: end for ledger, end in marks.items() if end >= 0}

    def _within_limit(self, wanted: MessageSet, ids: pa.Table) -> MessageSet:
        """The first of them in publish order, as many as may still be delivered."""
        if self._limit is None or wanted.size <= (left := self._limit - self.done.delivered):
            return wanted
        first: list[MessageId] = []
        for row in ids.to_pylist():
            one = MessageId(row["origin"], row["ledger_id"], row["entry_id"])
            if one in wanted and len(first) < left:
                first.append(one)
        return MessageSet.of(first)

    def _redeliver(self) -> None:
        with self._turn:
            with self._known:
                ripe = self._delivery.due(time.monotonic())
            if ripe:
                # At one version: what a restore takes away meanwhile must not count as delivered unseen.
                self._deliver(among(self._log.read(self._log.latest_version()), ripe))

    def _hand_out(self, rows: DataFrame, wanted: MessageSet, *, held: bool) -> None:
        """One batch. `rows` are exactly the messages `wanted`, with the columns of the log."""
        with self._known:
            state = self.state
            dead = self._delivery.given_up(wanted)
        live = wanted - dead
        acked = MessageSet()
        counts = {one: state.redelivery_count(one) for one in (live & state.redelivered[0])} if state.redelivered else {}
        if live:
            shown = counted((among(rows, live) if dead else rows).drop("marker", "publish_date"), counts)
            if held and not counts:
                acked = self._acknowledged(shown.coalesce(1), live)
            else:
                if live.size <= FEW:
                    messages = shown.coalesce(1).sortWithinPartitions(*PUBLISH_ORDER).persist()
                else:
                    messages = shown.orderBy(*PUBLISH_ORDER).persist()
                try:
                    acked = self._acknowledged(messages, live)
                finally:
                    messages.unpersist()
        reach(CrashPoint.CONSUME_PROCESSED)
        if dead:
            assert self._dead_letters is not None, "only with max_redeliveries a message is given up"
            self._dead_letters.publish(among(rows, dead))
            reach(CrashPoint.CONSUME_DEAD_LETTERED)
        with self._known:
            self.done = replace(
                self.done,
                delivered=self.done.delivered + live.size,
                redelivered=self.done.redelivered + len(counts),
                dead_lettered=self.done.dead_lettered + dead.size,
            )
        self._settle(wanted, acked | dead, state.epoch)

    def _acknowledged(self, messages: DataFrame, live: MessageSet) -> MessageSet:
        """Call the user's function. Returns what it acknowledges."""
        try:
            return self._named(self._process(messages), messages, live)
        except BaseException as error:
            self._failure = self._of_function = error
            raise

    def _named(self, returned: object, messages: DataFrame, live: MessageSet) -> MessageSet:
        if returned is messages:
            return live
        if returned is None:
            return MessageSet()
        if not isinstance(returned, DataFrame) or any(name not in returned.columns for name in ID):
            raise UsageError(
                f"{self}: the function returned {type(returned).__name__}; expected: its messages, a DataFrame of some of them "
                f"with the columns {', '.join(ID)}, or None for none. Nothing of this batch is acknowledged."
            )
        ids = returned.select(*ID).toArrow()
        if any(ids[name].null_count for name in ID):
            raise UsageError(f"{self}: the function returned rows without a message id. Nothing of this batch is acknowledged.")
        found = message_set(ids)
        named = found & live
        if other := found - live:
            named = named | self._existing(other)
        return named

    def _existing(self, ids: MessageSet) -> MessageSet:
        """Those of the messages that are in the log, or are acknowledged already. The others are refused."""
        with self._known:
            known = ids & (self._delivery.waiting | self.state.acked)
        if unknown := ids - known:
            known = known | message_set(among(self._log.read(), unknown).select(*ID).toArrow())
        if refused := ids - known:
            log.warning("%s: %d acknowledgements refused, no such messages: %.200s", self, refused.size, refused)
            with self._known:
                self.done = replace(self.done, refused=self.done.refused + refused.size)
        return known

    def _settle(self, delivered: MessageSet, acked: MessageSet, epoch: Epoch) -> None:
        with self._known:
            news = (acked - self.state.acked).size if epoch == self.state.epoch else 0
            self._delivery.settle(delivered, acked, epoch, time.monotonic())
            self.done = replace(self.done, acknowledged=self.done.acknowledged + news)
        if acked:
            self._told.set()

    # -- publishing --------------------------------------------------------------------------------------------------------

    def _flush_on(self) -> None:
        """Publish what was acknowledged: at once when the last time is long ago, else once in FLUSH_INTERVAL_S. Counts of
        redeliveries go along, or each COUNTS_INTERVAL_S."""
        try:
            while not self._ended.is_set():
                self._told.wait(COUNTS_INTERVAL_S)
                self._told.clear()
                begun = time.monotonic()
                self._flush()
                self._ended.wait(max(0.0, FLUSH_INTERVAL_S - (time.monotonic() - begun)))
        except BaseException as error:
            self._failure = error

    def _flush(self) -> None:
        with self._known:
            told = self._delivery.take_told()
        if told is not None:
            self._publisher.publish([(self._topic, self._name, told)])


def _between(rows: DataFrame, ids: pa.Table) -> DataFrame:
    """The rows of the time that `ids` spans, so that files can be skipped."""
    times = pc.min_max(ids["publish_time"]).as_py()
    first, last = (time.replace(tzinfo=time.tzinfo or timezone.utc) for time in (times["min"], times["max"]))
    return rows.where(F.col("publish_time").between(F.lit(first), F.lit(last)))
