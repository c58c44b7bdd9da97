"""The folding query: a stateful stream over a namespace's `__acks` that keeps each subscription's state in `system/cursors`.

With it a consumer starts from one row and the newest records however long the history is, old records can expire, and a cluster
that joins late lacks nothing: now and then all of a state is published again as compact records, which are records like any
other. Nothing depends on it running. What a record means is decided in `fold.py`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from geo.config_tree import Config
from geo.crash import CrashPoint, reach
from geo.errors import GeoError, first_line
from geo.log.names import Topic
from geo.log.tables import ClusterTables
from geo.log.topics import registered_topics
from geo.replication.link_state import backoff_s
from geo.session import require_delta
from geo.streams import stop_between_batches
from geo.subscription.acks import RECORD, AckPublisher, received, tell_ends
from geo.subscription.fold import Fold, Received
from geo.subscription.record import decode, encode, key_of
from geo.subscription.state import State
from geo.times import utc
from geo.trigger import AVAILABLE_NOW, parse_trigger
from schemas import CURSORS

log = logging.getLogger(__name__)

FOLD = "fold"
"""The producer of the compact records; owning it makes a process the only one that folds this namespace here."""

COMPACT_INTERVAL_S = 3600.0
"""At most so often a subscription that changed is published as a whole."""

DISCOVERY_INTERVAL_S = 10.0
_TICK_S = 0.2

_OUTPUT = "topic STRING, subscription STRING, state BINARY, folded STRING, refused STRING, changed BOOLEAN"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True)
class Folded:
    """What a run did."""

    cursors: int = 0
    compacted: int = 0


class Processor(StatefulProcessor):
    """The state of one subscription (key: topic, subscription). Emits it whenever records came."""

    def __init__(self, clusters: Sequence[str]) -> None:
        self._clusters = list(clusters)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("subscription", "state BINARY, folded STRING, refused STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # Spark's names
        topic, subscription = key
        name = f"{topic}/{subscription}"
        kept = self._kept.get() or (None, "{}", "{}")
        fold = Fold(self._clusters, {} if kept[0] is None else {name: decode(bytes(kept[0]), limited=False)})
        folded: dict[str, int] = json.loads(kept[1])
        found: list[Received] = []
        for row in rows:
            ledger = f"{row['origin']}:{row['ledger_id']}"
            folded[ledger] = max(row["entry_id"], folded.get(ledger, -1))
            found.append(received({column: row[column] for column in RECORD}))
        changed = fold.add(found)
        refused = json.loads(kept[2])
        for reason, count in fold.refused.items():
            refused[reason.value] = refused.get(reason.value, 0) + count
        state = encode(fold.states[name], limited=False) if name in fold.states else None
        ends, reasons = json.dumps(folded, sort_keys=True), json.dumps(refused, sort_keys=True)
        if state is not None:  # what was never a subscription leaves nothing behind
            self._kept.update((state, ends, reasons))
        yield Row(
            topic=topic, subscription=subscription, state=state, folded=ends, refused=reasons, changed=bool(changed)
        )  # fmt: skip

    def close(self) -> None:
        pass


class NamespaceFold:
    """The query of one namespace. A batch: fold → compact records that are due → the cursors' rows → the checkpoint. A replay folds
    the same again, which changes nothing."""

    def __init__(self, tables: ClusterTables, config: Config, acks: Topic, *, take_over: bool) -> None:
        self._tables, self._config, self.acks = tables, config, acks
        self.done = Folded()
        self.failure: Exception | None = None
        self.query: StreamingQuery | None = None
        self._publisher = AckPublisher(tables, config, acks, FOLD, take_over=take_over)
        self._ttl_s = config.policy(acks).message_ttl_s

    def start(self, trigger: Mapping[str, Any]) -> None:
        table = self._tables.log(self.acks)
        self._refresh()
        parts = F.regexp_extract("key", "^(.*)/([^/]*)$", 1), F.regexp_extract("key", "^(.*)/([^/]*)$", 2)
        rows = table.read_stream({"ignoreDeletes": "true"}).where(F.col("marker").isNull())
        keyed = rows.select(
            F.coalesce(parts[0], F.lit("")).alias("topic"),
            F.coalesce(parts[1], F.lit("")).alias("subscription"),
            "ledger_id",
            "entry_id",
            *RECORD,
        )
        states = keyed.groupBy("topic", "subscription").transformWithState(
            statefulProcessor=Processor(sorted(self._config.clusters)),
            outputStructType=_OUTPUT,
            outputMode="append",
            timeMode="none",
        )
        # Another table has another checkpoint: what the cursors say is kept, and all of the log is folded into it.
        place = self._tables.checkpoint("fold", self.acks.path, table.table_id())
        writer = states.writeStream.queryName(f"geo fold {self.acks}").outputMode("append")
        self.query = writer.foreachBatch(self._on_batch).option("checkpointLocation", place).trigger(**trigger).start()

    def close(self) -> None:
        """Stop; what is in flight is left to the next start if something failed."""
        if self.query is not None and self.query.isActive:
            stop_between_batches(self.query)
        self._publisher.close(clean=self.failure is None)

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        try:
            self._record(rows.collect())
        except Exception as error:
            self.failure = error
            raise

    def _record(self, rows: Sequence[Row]) -> None:
        reach(CrashPoint.FOLD_FOLDED)
        known = self._cursors()
        now = datetime.now(timezone.utc)
        fresh: list[dict[str, Any]] = []
        due: list[tuple[Topic, str, State]] = []
        for row in rows:
            key = f"{row['topic']}/{row['subscription']}"
            if row["state"] is None:
                log.warning("%s: records of %.200s refused: %s", self.acks, ascii(key), row["refused"])
                continue
            before = known.get(key)
            state, folded = decode(bytes(row["state"]), limited=False), json.loads(row["folded"])
            if before is not None:
                state |= decode(bytes(before["state"]), limited=False)
                folded = {**before["folded"], **{name: max(end, before["folded"].get(name, -1)) for name, end in folded.items()}}
            compacted_at = utc(before["compacted_at"]) if before is not None and before["compacted_at"] is not None else None
            if row["changed"] and (compacted_at is None or (now - compacted_at).total_seconds() >= COMPACT_INTERVAL_S):
                due.append((Topic.parse(row["topic"]), row["subscription"], state))
                compacted_at = now
            fresh.append(
                _cursor(row, state, folded, json.loads(row["refused"]), compacted_at, before["sequence"] if before else 0, now)
            )
        self._publish(due)
        if fresh:
            self._tables.journal(CURSORS).append(fresh)
            self.done = replace(self.done, cursors=self.done.cursors + len(fresh))
        reach(CrashPoint.FOLD_CURSORS_WRITTEN)

    def _refresh(self) -> None:
        """Publish anew what would expire: a state whose compact records have half of their time behind them."""
        if self._ttl_s is None:
            return
        now = datetime.now(timezone.utc)
        old = [
            row
            for row in self._cursors().values()
            if row["compacted_at"] is None or now - utc(row["compacted_at"]) > timedelta(seconds=self._ttl_s / 2)
        ]
        states = [(row, decode(bytes(row["state"]), limited=False)) for row in old]
        self._publish([(Topic.parse(row["topic"]), row["subscription"], state) for row, state in states])
        if states:
            self._tables.journal(CURSORS).append(
                [_cursor(row, state, row["folded"], row["refused"], now, row["sequence"], now) for row, state in states]
            )

    def _publish(self, states: Iterable[tuple[Topic, str, State]]) -> None:
        states = list(states)
        if states:
            self._publisher.publish(states)
            self.done = replace(self.done, compacted=self.done.compacted + len(states))
            reach(CrashPoint.FOLD_COMPACTED)

    def _cursors(self) -> dict[str, Row]:
        mine = ("topic", f"persistent://{self.acks.tenant}/{self.acks.namespace}/")
        return {key_of(Topic.parse(r["topic"]), r["subscription"]): r for r in self._tables.journal(CURSORS).newest(mine)}


def _cursor(
    row: Row,
    state: State,
    folded: Mapping[str, int],
    refused: Mapping[str, int],
    compacted_at: datetime | None,
    sequence: int,
    now: datetime,
) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "subscription": row["subscription"],
        "epoch": state.epoch.counter,
        "epoch_cluster": state.epoch.cluster,
        "deleted": state.deleted,
        "acknowledged": state.acked.size,
        "mark_delete": tell_ends({ledger: state.acked.mark_delete(ledger) for ledger in state.acked.ledgers}),
        "ranges": state.acked.range_count,
        "state": encode(state, limited=False),
        "folded": folded,
        "refused": refused,
        "compacted_at": compacted_at,
        "sequence": sequence + 1,
        "updated_at": now,
    }


class Folding:
    """Folds the acknowledgements of every namespace of a cluster; `run` until done or stopped."""

    def __init__(
        self, spark: SparkSession, config: Config, cluster: str, *, trigger: str = AVAILABLE_NOW, take_over: bool = False
    ) -> None:
        require_delta(spark)
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        self._config, self._take_over = config, take_over
        self._tables = ClusterTables(spark, config.cluster(cluster)).open_for_writing(config)
        self._trigger, self._once = parse_trigger(trigger), trigger == AVAILABLE_NOW
        self._stop = threading.Event()
        self._folds: dict[Topic, NamespaceFold] = {}
        self._again: dict[Topic, tuple[int, float]] = {}
        """Of a namespace whose query failed: how often, and when it is tried again."""
        self._done = Folded()

    def stop(self) -> None:
        """Let running batches end, then stop; callable from a signal handler."""
        self._stop.set()

    def run(self) -> Folded:
        """Fold until stopped, or with the available-now trigger what is there. Raises AlreadyOwnedError, and what failed."""
        try:
            self._discover()
            discovered = time.monotonic()
            while self._folds and not self._stop.wait(_TICK_S):
                self._look_after()
                if not self._once and time.monotonic() - discovered >= DISCOVERY_INTERVAL_S:
                    self._discover()
                    discovered = time.monotonic()
        finally:
            for fold in list(self._folds.values()):
                self._end(fold)
        return self._done

    def _discover(self) -> None:
        """Take up the namespaces that have acknowledgements."""
        for acks in (one.topic for one in registered_topics(self._tables) if one.topic == one.topic.acks):
            tries, again_at = self._again.get(acks, (0, 0.0))
            if acks not in self._folds and time.monotonic() >= again_at:
                fold = NamespaceFold(self._tables, self._config, acks, take_over=self._take_over and not tries)
                self._folds[acks] = fold
                fold.start(self._trigger)

    def _look_after(self) -> None:
        for acks, fold in list(self._folds.items()):
            assert fold.query is not None
            if fold.query.isActive:
                continue
            error = fold.query.exception()
            self._end(fold)
            if error is None:
                continue
            failure = fold.failure if fold.failure is not None else error
            if self._once or not isinstance(failure, (GeoError, PySparkException)):
                raise failure
            tries = self._again.get(acks, (0, 0.0))[0] + 1
            self._again[acks] = (tries, time.monotonic() + backoff_s(tries))
            log.warning("%s: folding failed, trying again in %.0f s: %s", acks, backoff_s(tries), first_line(failure))

    def _end(self, fold: NamespaceFold) -> None:
        del self._folds[fold.acks]
        fold.close()
        self._done = Folded(self._done.cursors + fold.done.cursors, self._done.compacted + fold.done.compacted)
