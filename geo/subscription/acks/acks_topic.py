"""The `__acks` topic of a namespace: what its records tell of subscriptions, and publishing records to it.

What is known of a subscription in a cluster is `system/cursors`, as far as they were folded, and all newer records; both
together are right whether or not a fold runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.delta.data_file import DataFile
from geo.delta.predicate import Among, to_sql
from geo.delta.scan import scan
from geo.delta.table import Table
from geo.errors import UnsafeError
from geo.ids import LedgerId
from geo.journal.cluster import ClusterTables
from geo.log.conditions import IS_MESSAGE
from geo.log.ledger_parts import only_ledger
from geo.log.topic_log import END, after_listed
from geo.names import Topic, check_subscription
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.fold import Fold, Received
from geo.subscription.acks.gathered import Record
from geo.subscription.acks.message_set_frames import after
from geo.subscription.acks.record import Refusal, decode_all, encode_all, key_of, told_unreadable
from geo.subscription.acks.subscription_state import SubscriptionState
from schemas import CURSORS, TOPIC_LOG

log = logging.getLogger(__name__)

ACK_COLUMNS = ("origin", "key", "payload", "unix_micros(publish_time) AS publish_time_us")
"""What `received` reads of an `__acks` log, as SQL. A time as a number: one that Python has no datetime for is refused, and stops
nobody."""

MOST_AT_ONCE = 10_000
"""Records that come to this process. More, as where nobody has folded for a long time, are read again and folded by tasks, of which the
states come."""

RECORD_COLUMNS = ("origin", "key", "payload", "publish_time", "ledger_id", "entry_id", "marker")
"""What is read of such a log without Spark, before it is known which rows are of interest."""

FOLD_COLUMNS = (*RECORD_COLUMNS, "event_time")
"""The same with the time before which a record was told, for who forgets."""


@dataclass(slots=True)
class Known:
    """What a cluster knows of the subscriptions of one namespace. By their records' key (`topic/subscription`)."""

    fold: Fold
    version: int | None
    """Of the `__acks` log up to which it was read; None: there is none."""

    @property
    def states(self) -> dict[str, AckState]:
        """The subscriptions as they are in this region."""
        return self.fold.states

    def all_of(self, topic: Topic, subscription: str) -> SubscriptionState:
        """All that is known of the subscription, without a look at what cannot be read."""
        return self.fold.known.get(key_of(topic, subscription), SubscriptionState())

    def state_of(self, topic: Topic, subscription: str, *, in_spite: bool = False) -> AckState | None:
        """The subscription as it is in this region; None: there is no record of it.

        Raises UnsafeError where some of its records are of a newer program, or none can be read: beginning it anew would skip or
        repeat what they tell. `in_spite`: whoever asks wants that. Other records that cannot be read beside those that can are
        logged.
        """
        key = key_of(topic, subscription)
        state, refused = self.all_of(topic, subscription).here, self.fold.refused_of(key)
        reasons = told_unreadable(refused)
        if not reasons:
            return state
        of = f"subscription {subscription} of {topic}: records in {topic.acks} cannot be read ({reasons})"
        if not in_spite and (state is None or Refusal.NEWER_ENCODING in refused):
            raise UnsafeError(
                f"{of}. Run the delta-geo that wrote them. A consumer begins in spite of them with `geo consume --ignore-unreadable`: "
                "then what they acknowledge is delivered again."
            )
        log.warning("%s; they change nothing", of)
        return state


def read_known(tables: ClusterTables, topic: Topic, subscription: str | None = None) -> Known:
    """What the cluster of `tables` knows of `subscription` of `topic`, or of all subscriptions of the topic's namespace."""
    key = None if subscription is None else key_of(topic, check_subscription(subscription))
    log_table = tables.log(topic.acks)
    if log_table.find(TOPIC_LOG) is None:
        return Known(Fold(tables.cluster.name), None)
    version = log_table.latest_version()  # before the cursors: they may know more, never less
    states: dict[str, SubscriptionState] = {}
    folded: dict[str, Mapping[LedgerId, int]] = {}
    cursors = tables.journal(CURSORS)
    if subscription is None:
        cursor_rows = cursors.newest(("topic", f"persistent://{topic.tenant}/{topic.namespace}/"))
    else:
        cursor_rows = cursors.newest(topic=str(topic), subscription=subscription)
    for row in cursor_rows:
        one = f"{row['topic']}/{row['subscription']}"
        states[one] = decode_all(bytes(row["state"]), limited=False)
        folded[one] = parse_ends(row["folded"])
    return Known(_with_newer(Fold(tables.cluster.name, states), log_table, version, key, folded), version)


def _with_newer(
    fold: Fold,
    log_table: Table,
    version: int,
    key: str | None,
    folded: Mapping[str, Mapping[LedgerId, int]],
) -> Fold:
    """The fold of the cursors, with the records, of one subscription or of all, that are not in them."""

    def from_stats(file: DataFile) -> bool | None:
        """True if all of the file's records are in the subscription's cursor; None: it is to be read."""
        if key is None or (only := only_ledger(file)) is None:
            return None
        ledger, _, last = only
        return last <= folded.get(key, {}).get(ledger, -1) or None

    by_itself = Fold(fold.cluster, dict(fold.known))
    wanted = IS_MESSAGE if key is None else IS_MESSAGE & Among("key", frozenset({key}))

    def take(rows: pa.Table) -> bool:
        return bool(by_itself.add(map(received, as_ack_columns(not_folded(rows, folded)))))

    if scan(log_table, version, RECORD_COLUMNS, take, where=wanted, from_stats=from_stats) is not None:
        return by_itself
    rows = log_table.read(version).where(to_sql(wanted))
    newer = newer_rows(rows, folded) if key is None else rows.where(after(folded.get(key, {})))
    records = newer.selectExpr(*ACK_COLUMNS)
    few = records.limit(MOST_AT_ONCE + 1).toArrow()
    if len(few) <= MOST_AT_ONCE:
        fold.add(map(received, few.to_pylist()))
        return fold
    by_task = partial(_fold_by_task, fold.cluster)
    for row in records.mapInArrow(by_task, "key STRING, state BINARY, refused STRING").toLocalIterator():
        state = None if row["state"] is None else decode_all(bytes(row["state"]), limited=False)
        fold.join(row["key"], state, {Refusal(reason): count for reason, count in json.loads(row["refused"]).items()})
    return fold


def _fold_by_task(cluster: str, blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each subscription of which a task has records: ACK_COLUMNS in, what `Fold.join` takes out."""
    fold = Fold(cluster)
    for block in blocks:
        fold.add(map(received, block.to_pylist()))
    for key, state, refused in fold.found():
        made = None if state is None else encode_all(state, limited=False)
        reasons = json.dumps({reason.value: count for reason, count in refused.items()})
        yield pa.RecordBatch.from_pydict({"key": [key], "state": pa.array([made], pa.binary()), "refused": [reasons]})


def not_folded(rows: pa.Table, folded: Mapping[str, Mapping[LedgerId, int]]) -> pa.Table:
    """The records, of RECORD_COLUMNS or more, that are not in the cursors: by key, `folded` says up to which entries of their ledgers they are."""
    ids = rows.select(["key", "origin", "ledger_id", "entry_id"]).to_pylist()  # without payloads, which may be large
    ends = (folded.get(row["key"], {}).get(LedgerId(row["origin"], row["ledger_id"]), -1) for row in ids)
    wanted = [row["entry_id"] > end for row, end in zip(ids, ends, strict=True)]
    return rows.filter(pa.array(wanted, pa.bool_()))


def records_of(rows: pa.Table) -> Iterator[Record]:
    """Rows of an `__acks` log, of FOLD_COLUMNS, as who folds takes them."""
    times = rows["event_time"].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    places = rows.select(["origin", "ledger_id", "entry_id"]).to_pylist()
    for row, place, event_us in zip(as_ack_columns(rows), places, times, strict=True):
        yield Record(
            LedgerId(place["origin"], place["ledger_id"]), place["entry_id"], received({**row, "event_time_us": event_us})
        )


def as_ack_columns(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows of an `__acks` log, as ACK_COLUMNS."""
    times = rows["publish_time"].cast(pa.int64())
    return list(rows.select(["origin", "key", "payload"]).append_column("publish_time_us", times).to_pylist())


def received(record: Mapping[str, object]) -> Received:
    """A row of an `__acks` log, as ACK_COLUMNS, as the fold takes it."""
    payload, time_us = record["payload"], record["publish_time_us"]
    body = bytes(payload) if isinstance(payload, (bytes, bytearray)) else None
    event_us = record.get("event_time_us")
    # A row without a time: the fold refuses it as one of before 1970.
    time_us = time_us if isinstance(time_us, int) else -1
    return Received(str(record["origin"]), _text(record["key"]), body, time_us, event_us if isinstance(event_us, int) else None)


def parse_ends(folded: Mapping[str, int]) -> dict[LedgerId, int]:
    """`origin:ledger` → entry, as tables have it, by ledger."""
    return {LedgerId.parse(name): end for name, end in folded.items()}


def ends_as_text(ends: Mapping[LedgerId, int]) -> dict[str, int]:
    """The inverse of `parse_ends`."""
    return {str(ledger): end for ledger, end in sorted(ends.items())}


def newer_rows(rows: DataFrame, folded: Mapping[str, Mapping[LedgerId, int]]) -> DataFrame:
    """Records that are not in the cursors. Columns as `rows`."""
    listed = [
        {"key": key, "origin": ledger.origin, "ledger_id": ledger.ledger_id, END: end}
        for key, ends in folded.items()
        for ledger, end in ends.items()
    ]
    return after_listed(rows, {"key": "STRING", "origin": "STRING", "ledger_id": "BIGINT"}, listed)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
