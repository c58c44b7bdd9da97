"""The newest records of a subscription in a cluster's `__acks`: of each region's the last one, who moved it, and what was acknowledged lately.
Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from geo.delta.engine import Scan
from geo.delta.predicate import Among, Compare, IsNull, TimeUs
from geo.delta.scan import scan
from geo.ids import MessageId
from geo.journal.cluster import ClusterTables
from geo.log.conditions import IS_POSSIBLE
from geo.log.topic_log import PUBLISH_ORDER
from geo.names import Topic
from geo.now import now_us
from geo.subscription.acks.acks_topic import ADMIN, MOVED, Known
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import RefusedRecordError, decode_all, key_of
from geo.subscription.readiness import RATE_S

Newest = tuple[dict[str, tuple[datetime, MessageId]], tuple[datetime, str] | None]
"""Newest record of each origin, and the newest failover."""


def newest_records(
    tables: ClusterTables, known: Known, topics: Sequence[Topic], subscription: str
) -> tuple[dict[str, Newest], dict[str, MessageSet]]:
    """Finds, by the keys of a subscription of these topics: of each cluster the newest record here that is for all, and the newest failover. And
    what records of the last RATE_S acknowledge, but for those that say again what is known.
    """
    if known.version is None:
        return {}, {}
    log, keys = tables.log(topics[0].acks), frozenset(key_of(topic, subscription) for topic in topics)
    of_it = IS_POSSIBLE & Among("key", keys)
    asked = Scan(["key", *PUBLISH_ORDER, "properties"], _newest_by_key, of_it & IsNull("replicate_to"), _joined_newest)
    newest = _joined_newest(scan(log, known.version, asked))
    since = Compare("publish_time", ">=", TimeUs(now_us() - RATE_S * 1_000_000))
    told = of_it & since & IsNull("event_time") & ~Among("producer", frozenset({ADMIN}))
    lately: dict[str, MessageSet] = {}
    for part in scan(log, known.version, Scan(["key", "payload"], _acked_by_key, told)):
        lately |= {key: more | lately.get(key, MessageSet()) for key, more in part.items()}
    return newest, lately


def _newest_by_key(rows: pa.Table) -> dict[str, Newest]:
    keys = rows["key"]
    return {key: _newest_of(rows.filter(pc.equal(keys, key))) for key in pc.unique(keys).to_pylist() if key is not None}


def _joined_newest(parts: Iterable[dict[str, Newest]]) -> dict[str, Newest]:
    by_key: dict[str, list[Newest]] = {}
    for part in parts:
        for key, one in part.items():
            by_key.setdefault(key, []).append(one)
    return {key: _newest(found) for key, found in by_key.items()}


def _acked_by_key(rows: pa.Table) -> dict[str, MessageSet]:
    """Messages that records acknowledge; those that are refused acknowledge nothing."""
    found: dict[str, MessageSet] = {}
    for key, payload in zip(rows["key"].to_pylist(), rows["payload"].to_pylist(), strict=True):
        with suppress(RefusedRecordError):
            acked = [state.acked for state in decode_all(payload or b"").states]
            found[key] = MessageSet.union([found.get(key, MessageSet()), *acked])
    return found


def _newest_of(rows: pa.Table) -> Newest:
    ids = rows.select(PUBLISH_ORDER).drop_null().to_pylist()
    each = ((row["origin"], (row["publish_time"], MessageId(row["origin"], row["ledger_id"], row["entry_id"]))) for row in ids)
    moves = zip(rows["publish_time"].to_pylist(), pc.map_lookup(rows["properties"], MOVED, "last").to_pylist(), strict=True)
    last = max(((time, move) for time, move in moves if move is not None), default=None)
    return _newest([*(({origin: one}, None) for origin, one in each), ({}, last)])


def _newest(parts: Iterable[Newest]) -> Newest:
    """The newest of all parts."""
    found: dict[str, tuple[datetime, MessageId]] = {}
    moves = []
    for newest, move in parts:
        found |= {origin: max(one, found.get(origin, one)) for origin, one in newest.items()}
        moves += [] if move is None else [move]
    return found, max(moves, default=None)
