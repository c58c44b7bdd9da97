"""The `__acks` topic of a namespace: what its records tell of subscriptions, and publishing records to it.

What is known of a subscription in a cluster is `system/cursors`, as far as they were folded, and all newer records; both
together are right whether or not the folding query runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from hashlib import sha256
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from geo.config_tree import Config
from geo.crash import CrashPoint, reach
from geo.log.frames import rows_frame
from geo.log.names import Topic, check_subscription
from geo.log.ownership import owned_now, producer_runner
from geo.log.process import Process
from geo.log.publisher import Publisher
from geo.log.tables import ClusterTables
from geo.subscription.fold import Fold, Received
from geo.subscription.message_set import Ledger
from geo.subscription.record import decode, encode, key_of, split
from geo.subscription.rows import beyond
from geo.subscription.state import State
from geo.times import in_us, utc
from schemas import CURSORS, TOPIC_LOG

log = logging.getLogger(__name__)

MOVED = "geo.moved"
"""Property of the record of a failover: `from->to`."""

ADMIN = "subscriptions"
"""The producer under which operators' changes are published."""

RECORD_INTERVAL_S = 60.0
"""How often the end of its ledger is recorded: a second in which nothing is flushed. A start after a crash reads the commits since."""

RECORD = ("origin", "key", "payload", "publish_time")
"""Columns of an `__acks` log that `received` reads."""


@dataclass(slots=True)
class Known:
    """What a cluster knows of the subscriptions of one namespace. By their records' key (`topic/subscription`)."""

    fold: Fold
    version: int | None
    """Of the `__acks` log up to which it was read; None: there is none."""

    @property
    def states(self) -> dict[str, State]:
        return self.fold.states


def read_known(tables: ClusterTables, config: Config, topic: Topic, subscription: str | None = None) -> Known:
    """What the cluster of `tables` knows of `subscription` of `topic`, or of all subscriptions of the topic's namespace."""
    key = None if subscription is None else key_of(topic, check_subscription(subscription))
    known = Known(Fold(config.clusters), None)
    log_table = tables.log(topic.acks)
    if log_table.find(TOPIC_LOG) is None:
        return known
    known.version = log_table.latest_version()  # before the cursors: they may know more, never less
    folded: dict[str, Mapping[Ledger, int]] = {}
    cursors = tables.journal(CURSORS)
    if subscription is None:
        cursor_rows = cursors.newest(("topic", f"persistent://{topic.tenant}/{topic.namespace}/"))
    else:
        cursor_rows = cursors.newest(topic=str(topic), subscription=subscription)
    for row in cursor_rows:
        one = f"{row['topic']}/{row['subscription']}"
        known.states[one] = decode(bytes(row["state"]), limited=False)
        folded[one] = parse_ends(row["folded"])
    rows = log_table.read(known.version).where(F.col("marker").isNull())
    newer = _newer(folded) if key is None else (F.col("key") == key) & beyond(folded.get(key, {}))
    known.fold.add(map(received, rows.where(newer).select(*RECORD).toArrow().to_pylist()))
    return known


def received(record: Mapping[str, object]) -> Received:
    """A row of an `__acks` log as the fold takes it."""
    payload, time = record["payload"], record["publish_time"]
    assert isinstance(time, datetime)
    body = bytes(payload) if isinstance(payload, (bytes, bytearray)) else None
    return Received(str(record["origin"]), _text(record["key"]), body, in_us(utc(time)))


def parse_ends(folded: Mapping[str, int]) -> dict[Ledger, int]:
    """`origin:ledger` → entry, as tables have it, by ledger."""
    parts = ((name.partition(":"), end) for name, end in folded.items())
    return {(origin, int(ledger)): end for (origin, _, ledger), end in parts}


def tell_ends(ends: Mapping[Ledger, int]) -> dict[str, int]:
    """The inverse of `parse_ends`."""
    return {f"{origin}:{ledger_id}": end for (origin, ledger_id), end in sorted(ends.items())}


class AckPublisher:
    """Publishes records of subscriptions of one namespace, as one producer that this process owns from here to `close`.

    Raises AlreadyOwnedError if another process is it.
    """

    def __init__(self, tables: ClusterTables, config: Config, topic: Topic, producer: str, *, take_over: bool = False) -> None:
        self._publisher = Publisher(tables, config, topic.acks, producer)
        columns = {"key": "STRING", "payload": "BINARY"}
        self._publisher.open(rows_frame(tables.spark, columns, []), take_over=take_over)

    def publish(self, states: Iterable[tuple[Topic, str, State]], properties: Mapping[str, str] | None = None) -> None:
        """Publish what states of (topic, subscription) tell, in one commit."""
        rows = [
            {"key": key_of(topic, subscription), "payload": encode(part), "properties": properties}
            for topic, subscription, state in states
            for part in split(state)
        ]
        if rows:
            reach(CrashPoint.ACKS_BEFORE_FLUSH)
            self._publisher.publish_rows(rows)
            reach(CrashPoint.ACKS_AFTER_FLUSH)
            self._publisher.record_if_due(RECORD_INTERVAL_S)

    def close(self, *, clean: bool = True) -> None:
        self._publisher.close(clean=clean)


def publish_once(
    tables: ClusterTables,
    config: Config,
    topic: Topic,
    subscription: str,
    state: State,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Publish what an operator has decided. Raises AlreadyOwnedError if another operator does the same now."""
    publisher = AckPublisher(tables, config, topic, ADMIN)
    try:
        publisher.publish([(topic, subscription, state)], properties)
    except BaseException:
        publisher.close(clean=False)
        raise
    publisher.close()


def running_consumer(tables: ClusterTables, topic: Topic, subscription: str) -> Process | None:
    """Who consumes the subscription in this cluster, or did and ended without a word; None: nobody."""
    runner = producer_runner(tables, topic.acks, consumer_name(topic, subscription)).name
    return next((Process.decode(row["holder"]) for row in owned_now(tables) if row["runner"] == runner), None)


def consumer_name(topic: Topic, subscription: str) -> str:
    """The producer under which a consumer of the subscription acknowledges; owning it makes it the only one of its cluster."""
    return f"acks-{subscription[:40]}-{sha256(key_of(topic, subscription).encode()).hexdigest()[:16]}"


def _newer(folded: Mapping[str, Mapping[Ledger, int]]) -> Column:
    """Records that are not in the cursors."""
    if not folded:
        return F.lit(True)
    others = ~F.coalesce(F.col("key").isin(*folded), F.lit(False))
    return reduce(or_, ((F.col("key") == key) & beyond(ends) for key, ends in folded.items()), others)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
