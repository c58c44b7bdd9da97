"""The folding query: a stateful stream over one namespace's `__acks` that keeps each subscription's state in `system/cursors`.

With it a consumer starts from one row and the newest records however long the history is, old records can expire, and a cluster
that joins late lacks nothing: now and then all of a state is published again as compact records, which are records like any
other. What has expired is left out of state and records (`forgetting.py`). Nothing depends on it running. What a record means is
decided in `fold.py`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from geo.config.model import Config
from geo.coordination.storage_clock import checked_now_us
from geo.crash import CrashPoint, reach
from geo.faults import FAULTS
from geo.ids import LedgerId
from geo.journal.cluster import ClusterTables
from geo.log.ledger_parts import ledger_parts
from geo.log.log_cutter import fold_checkpoint
from geo.log.topic_log import is_message
from geo.names import Topic
from geo.now import utc_now
from geo.streams import timetable
from geo.streams.query import BatchQuery
from geo.streams.query_work import QueryWork
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.subscription.acks.ack_publisher import AckPublisher
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import TOLD_COLUMNS, ends_as_text, parse_ends, read_after
from geo.subscription.acks.fold_processor import OUTPUT, Processor
from geo.subscription.acks.forgetting import DAY_US, Remembered, days_of
from geo.subscription.acks.record import decode_all, encode_all, key_of
from geo.text import first_line
from geo.times import utc
from schemas import CURSORS, TOPIC_LOG

log = logging.getLogger(__name__)

FOLD = "fold"
"""The producer of the compact records; owning it makes a process the only one that folds this namespace here."""

SLICE, SLICE_BYTES = 100, 16 * 1024 * 1024
"""Subscriptions whose cursors are made anew at once. Their states have so many bytes at most, unless a single one has more."""

MOST_PARTITIONS = 4
"""Of the states, some kilobytes each: every one is a task and a commit of a state store in each batch. With Spark's 200, as on a
cluster, a fold of two records took half a minute on two cores. Frozen into a checkpoint at its creation."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What a run did."""

    cursors: int = 0
    compacted: int = 0
    unfinished: Mapping[str, str] = field(default_factory=dict)
    """By `__acks` topic: state and reason of a namespace that could not be folded to its end."""


@dataclass(frozen=True, slots=True)
class OpenFold:
    """A fold's query that was begun, and the producer of its compact records."""

    publisher: AckPublisher
    running: BatchQuery

    def close(self, *, clean: bool) -> None:
        self.publisher.close(clean=clean)

    def abandon(self) -> None:
        self.publisher.abandon()

    def refuse_if_replaced(self) -> None:
        self.publisher.refuse_if_replaced()


class NamespaceFold(QueryWork[OpenFold]):
    """The query of one namespace, as a piece of work. A batch: fold → compact records that are due → the cursors' rows → the
    checkpoint. A replay folds the same again, which changes nothing."""

    def __init__(self, tables: ClusterTables, config: Config, acks: Topic, trigger: str, *, take_over: bool = False) -> None:
        super().__init__(self._open, once=trigger == AVAILABLE_NOW, take_over=take_over)
        self._tables, self._config, self.acks = tables, config, acks
        self._trigger = parse_trigger(trigger)
        self.done = Folded()
        self._publisher: AckPublisher | None = None
        self._ttl_s = config.policy(acks).message_ttl_s
        self._one_at_a_time = threading.Lock()
        """A batch, or the states that are due by the clock."""
        self._uncompacted: set[str] = set()
        """Keys of states that changed since they were last published as a whole."""
        self._refreshed_at = time.monotonic()
        self._held: dict[Topic, tuple[int, frozenset[LedgerId] | None]] = {}
        """The ledgers that logs held on a day; None: not known."""

    def __str__(self) -> str:
        return f"fold of {self.acks} in {self._tables.cluster.name}"

    @property
    def how_far(self) -> int | None:
        return self.done.cursors or None

    def follow(self) -> Callable[[], None] | None:
        """The states that are due by the clock, once in timetable.COMPACT_S. Raises what ended its query."""
        super().follow()
        return self._refresh if time.monotonic() - self._refreshed_at >= timetable.COMPACT_S else None

    def _open(self, take_over: bool) -> OpenFold:
        """Raises AlreadyOwnedError if another process folds this namespace here."""
        publisher = self._publisher = AckPublisher(self._tables, self._config, self.acks, FOLD, take_over=take_over)
        try:
            return OpenFold(publisher, self._query())
        except BaseException:
            publisher.close(clean=False)
            raise

    def _query(self) -> BatchQuery:
        table = self._tables.log(self.acks)
        self._refresh()
        parts = F.regexp_extract("key", "^(.*)/([^/]*)$", 1), F.regexp_extract("key", "^(.*)/([^/]*)$", 2)
        partitions = min(MOST_PARTITIONS, int(self._tables.spark.conf.get("spark.sql.shuffle.partitions") or MOST_PARTITIONS))
        settings = {"spark.sql.shuffle.partitions": str(partitions)}
        rows = table.read_stream({"ignoreDeletes": "true"}, settings=settings).where(is_message())
        named = rows.withColumns({"topic": F.coalesce(parts[0], F.lit("")), "subscription": F.coalesce(parts[1], F.lit(""))})
        keyed = named.selectExpr("topic", "subscription", "ledger_id", "entry_id", *TOLD_COLUMNS)
        states = keyed.groupBy("topic", "subscription").transformWithState(
            statefulProcessor=Processor(self._tables.cluster.name),
            outputStructType=OUTPUT,
            outputMode="append",
            timeMode="none",
        )
        place = fold_checkpoint(self._tables, self.acks, table.table_id())
        return BatchQuery(states, f"geo fold {self.acks}", self._on_batch, checkpoint=place, trigger=self._trigger)

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        with self._one_at_a_time:
            # A partition at a time comes to the driver while the next one is made.
            for some in slices(rows.toLocalIterator(prefetchPartitions=True)):
                reach(CrashPoint.FOLD_FOLDED)
                self._fold_slice(some)
            reach(CrashPoint.FOLD_CURSORS_WRITTEN)

    def _fold_slice(self, rows: Sequence[Row]) -> None:
        known = self._cursors({row["topic"] for row in rows})
        now, today = utc_now(), self._today()
        fresh: list[dict[str, Any]] = []
        due: list[tuple[Topic, str, Remembered]] = []
        for row in rows:
            key = f"{row['topic']}/{row['subscription']}"
            if row["state"] is None:
                log.warning("%s: records of %.200s refused: %s", self.acks, ascii(key), row["refused"])
                continue
            topic, cursor = Topic.parse(row["topic"]), known.get(key)
            before = Remembered() if cursor is None else self._remembered(topic, cursor, today)
            told = self._told(topic, row, {} if cursor is None else cursor["folded"], today)
            state, folded = self._dated(topic, before | told, today), json.loads(row["folded"])
            if cursor is not None:
                folded = {**cursor["folded"], **{name: max(end, cursor["folded"].get(name, -1)) for name, end in folded.items()}}
            compacted_at = utc(cursor["compacted_at"]) if cursor is not None and cursor["compacted_at"] is not None else None
            if cursor is None or state.is_news(before, today, self._ttl_days(topic)):
                self._uncompacted.add(key)
            if key in self._uncompacted and _is_long_ago(compacted_at, now, timetable.COMPACT_S):
                state = self._forgetting(topic, state, today)
                due.append((topic, row["subscription"], state))
                compacted_at = now
                self._uncompacted.discard(key)
            sequence = cursor["sequence"] if cursor else 0
            fresh.append(_cursor(row, state, folded, json.loads(row["refused"]), compacted_at, sequence, now))
        self._publish(due, today)
        if fresh:
            self._tables.journal(CURSORS).append(fresh)
            self.done = replace(self.done, cursors=self.done.cursors + len(fresh))

    def _told(self, topic: Topic, row: Row, folded: Mapping[str, int], today: int) -> Remembered:
        """What a row of the query tells. Where the cursor knows less than was folded before, as when an older copy of it was put back,
        with what lies between, which is read from the log."""
        told = Remembered(decode_all(bytes(row["state"]), limited=False), parse_ends(json.loads(row["named_on"])))
        if all(end <= folded.get(name, -1) for name, end in json.loads(row["began"]).items()):
            return told
        missed = read_after(self._tables, topic, row["subscription"], parse_ends(folded))
        return told if missed is None else told | self._dated(topic, Remembered(missed), today)

    def _refresh(self) -> None:
        """Publish anew what would expire, a state whose compact records have half of their time behind them, and what has changed
        since and was not touched again."""
        with self._one_at_a_time:
            self._refreshed_at = time.monotonic()
            now = utc_now()
            old = [
                row
                for key, row in self._cursors().items()
                if (self._ttl_s is not None and _is_long_ago(row["compacted_at"], now, self._ttl_s / 2))
                or (key in self._uncompacted and _is_long_ago(row["compacted_at"], now, timetable.COMPACT_S))
            ]
            if not old:
                return
            today = self._today()
            read = [(row, Topic.parse(row["topic"])) for row in old]
            states = [(row, topic, self._forgetting(topic, self._remembered(topic, row, today), today)) for row, topic in read]
            self._publish([(topic, row["subscription"], state) for row, topic, state in states], today)
            cursors = [_cursor(row, state, row["folded"], row["refused"], now, row["sequence"], now) for row, _, state in states]
            self._tables.journal(CURSORS).append(cursors)
            self._uncompacted -= {key_of(topic, row["subscription"]) for row, topic, _ in states}

    def _publish(self, states: Sequence[tuple[Topic, str, Remembered]], today: int) -> None:
        if states:
            assert self._publisher is not None
            self._publisher.publish_aged(
                (topic, subscription, state.by_age(today, self._ttl_days(topic))) for topic, subscription, state in states
            )
            self.done = replace(self.done, compacted=self.done.compacted + len(states))
            reach(CrashPoint.FOLD_COMPACTED)

    # -- forgetting ------------------------------------------------------------------------------------------------------

    def _today(self) -> int:
        """The day since 1970. Raises WrongClockError."""
        return checked_now_us(self._tables, f"{self}: nothing is folded") // DAY_US

    def _ttl_days(self, topic: Topic) -> int | None:
        ttl_s = self._config.policy(topic).message_ttl_s
        return None if ttl_s is None else days_of(ttl_s)

    def _remembered(self, topic: Topic, cursor: Row, today: int) -> Remembered:
        """What a cursor says."""
        state, days = decode_all(bytes(cursor["state"]), limited=False), parse_ends(cursor["named_on"] or {})
        return self._dated(topic, Remembered(state, days), today)

    def _dated(self, topic: Topic, state: Remembered, today: int) -> Remembered:
        """Where nothing expires, days are of no use."""
        return Remembered(state.state) if self._ttl_days(topic) is None else state.dated(today)

    def _forgetting(self, topic: Topic, state: Remembered, today: int) -> Remembered:
        ttl_days = self._ttl_days(topic)
        if ttl_days is None or not state.old(today, ttl_days) or (held := self._held_on(topic, today)) is None:
            return state
        return state.forgetting(held, today, ttl_days)

    def _held_on(self, topic: Topic, today: int) -> frozenset[LedgerId] | None:
        """The ledgers that the log here held on this day, when it was first asked; None: that cannot be told. What has come since is
        younger than the TTL."""
        day, held = self._held.get(topic, (None, None))
        if day != today:
            try:
                log_table = self._tables.log(topic)
                there = log_table.find(TOPIC_LOG) is not None
                held = frozenset(ledger_parts(log_table, log_table.latest_version())) if there else None
            except FAULTS as error:
                log.warning("%s: nothing of %s is forgotten, its log cannot be read: %s", self, topic, first_line(error))
                held = None
            self._held = {**{one: known for one, known in self._held.items() if known[0] == today}, topic: (today, held)}
        return held

    def _cursors(self, topics: Collection[str] | None = None) -> dict[str, Row]:
        """Those of the namespace, or of these topics of it, by the keys of their subscriptions."""
        mine = ("topic", f"persistent://{self.acks.tenant}/{self.acks.namespace}/")
        rows = self._tables.journal(CURSORS).newest(mine, **({} if topics is None else {"topic": topics}))
        return {key_of(Topic.parse(row["topic"]), row["subscription"]): row for row in rows}


def slices(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """What is folded at once, of rows with states: as many as SLICE and SLICE_BYTES allow, one at least."""
    held: list[Row] = []
    size = 0
    for row in rows:
        more = len(row["state"] or b"")
        if held and (len(held) == SLICE or size + more > SLICE_BYTES):
            yield held
            held, size = [], 0
        held.append(row)
        size += more
    if held:
        yield held


def _is_long_ago(compacted_at: datetime | None, now: datetime, most_s: float) -> bool:
    return compacted_at is None or (now - utc(compacted_at)).total_seconds() >= most_s


def _cursor(
    row: Row,
    remembered: Remembered,
    folded: Mapping[str, int],
    refused: Mapping[str, int],
    compacted_at: datetime | None,
    sequence: int,
    now: datetime,
) -> dict[str, Any]:
    known = remembered.state
    state = known.here or AckState()
    return {
        "topic": row["topic"],
        "subscription": row["subscription"],
        "epoch": state.epoch.counter,
        "epoch_cluster": state.epoch.cluster,
        "deleted": state.deleted,
        "acknowledged": state.acked.size,
        "mark_delete": ends_as_text({ledger: state.acked.mark_delete(ledger) for ledger in state.acked.ledgers}),
        "ranges": state.acked.range_count,
        "state": encode_all(known, limited=False),
        "folded": folded,
        "refused": refused,
        "compacted_at": compacted_at,
        "sequence": sequence + 1,
        "updated_at": now,
        "replicated": not known.is_regional,
        "named_on": ends_as_text(remembered.days),
    }
