"""The records of an `__acks` log as tables and DataFrames have them: which are in no cursor, and what they tell of each subscription, gathered
by tasks where they are many. What that is: `gathered.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.ids import LedgerId
from geo.log.topic_log import END, after_listed
from geo.subscription.acks.cursor import ends_as_text, parse_ends
from geo.subscription.acks.fold import Received
from geo.subscription.acks.gathered import Gathered, Record, gather
from geo.subscription.acks.record import decode_all, encode_all

MOST_AT_ONCE = 10_000
"""Records that come to this process. More, as where nobody has folded for a long time, are gathered by tasks, of which the states come."""

RECORD_COLUMNS = ("origin", "key", "payload", "publish_time", "ledger_id", "entry_id", "marker")
"""What is read of such a log, before it is known which rows are of interest."""

FOLD_COLUMNS = (*RECORD_COLUMNS, "event_time")
"""The same with the time before which a record was told, for who forgets."""

_GATHERED = "key STRING, state BINARY, days STRING, ends STRING, unread STRING, refused STRING"
"""What tasks hand over of each subscription (`Gathered`)."""


def few(rows: DataFrame) -> pa.Table | None:
    """Records, if they are at most MOST_AT_ONCE; else None."""
    found = rows.limit(MOST_AT_ONCE + 1).toArrow()
    return found if len(found) <= MOST_AT_ONCE else None


def not_folded(rows: pa.Table, folded: Mapping[str, Mapping[LedgerId, int]]) -> pa.Table:
    """The records, of RECORD_COLUMNS or more, that are not in the cursors: by key, `folded` says up to which entries of their ledgers
    they are. A key that is no text is NULL; a row of which nobody can say where it lies is left out."""
    rows = _with_texts(_with_texts(rows), "origin")
    ids = rows.select(["key", "origin", "ledger_id", "entry_id"]).to_pylist()  # without payloads, which may be large
    ends = (folded.get(row["key"], {}).get(LedgerId(row["origin"], row["ledger_id"]), -1) for row in ids)
    wanted = [_has_place(row) and row["entry_id"] > end for row, end in zip(ids, ends, strict=True)]
    return rows.filter(pa.array(wanted, pa.bool_()))


def keys_of(rows: pa.Table) -> set[str]:
    """The keys of records, those that are texts."""
    return {key for key in _with_texts(rows)["key"].unique().to_pylist() if key is not None}


def newer_rows(rows: DataFrame, folded: Mapping[str, Mapping[LedgerId, int]]) -> DataFrame:
    """As `not_folded`. Columns as `rows`."""
    listed = [
        {"key": key, "origin": ledger.origin, "ledger_id": ledger.ledger_id, END: end}
        for key, ends in folded.items()
        for ledger, end in ends.items()
    ]
    return after_listed(rows, {"key": "STRING", "origin": "STRING", "ledger_id": "BIGINT"}, listed)


def gathered_by_tasks(cluster: str, rows: DataFrame) -> Iterator[Gathered]:
    """What records, of FOLD_COLUMNS, tell of each subscription: of one that is in several partitions several times."""
    found = rows.sortWithinPartitions("key").mapInArrow(partial(_by_task, cluster), _GATHERED)
    for row in found.toLocalIterator(prefetchPartitions=True):
        state = None if row["state"] is None else decode_all(bytes(row["state"]), limited=False)
        days, ends, unread = (parse_ends(json.loads(row[column])) for column in ("days", "ends", "unread"))
        yield Gathered(row["key"], state, days, ends, unread, json.loads(row["refused"]), len(row["state"] or b""))


def _by_task(cluster: str, blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row of each subscription, whose records follow one another."""
    records = (record for block in blocks for record in records_of(pa.Table.from_batches([block])))
    for key, some in groupby(records, lambda one: one.told.key or ""):
        found = gather(cluster, key, some)
        state = None if found.state is None else encode_all(found.state, limited=False)
        ends = {"days": found.days, "ends": found.ends, "unread": found.unread}
        texts = {name: [json.dumps(ends_as_text(each))] for name, each in ends.items()}
        refused = json.dumps(dict(found.refused))
        yield pa.RecordBatch.from_pydict({"key": [key], "state": pa.array([state], pa.binary()), **texts, "refused": [refused]})


def records_of(rows: pa.Table) -> Iterator[Record]:
    """Rows of an `__acks` log, of FOLD_COLUMNS, as who folds takes them."""
    times = rows["event_time"].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    places = rows.select(["origin", "ledger_id", "entry_id"]).to_pylist()
    for row, place, event_us in zip(as_ack_columns(rows), places, times, strict=True):
        told = received({**row, "event_time_us": event_us})
        yield Record(LedgerId(place["origin"], place["ledger_id"]), place["entry_id"], told)


def as_ack_columns(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows of an `__acks` log: origin, key, payload, and `publish_time_us` in microseconds since 1970. A time as a number: one that Python has
    no datetime for is refused, and stops nobody."""
    times = rows["publish_time"].cast(pa.int64())
    return list(_with_texts(rows.select(["origin", "key", "payload"])).append_column("publish_time_us", times).to_pylist())


def received(record: Mapping[str, object]) -> Received:
    """Such a row as the fold takes it."""
    payload, time_us = record["payload"], record["publish_time_us"]
    body = bytes(payload) if isinstance(payload, (bytes, bytearray)) else None
    event_us = record.get("event_time_us")
    # A row without a time: the fold refuses it as one of before 1970.
    time_us = time_us if isinstance(time_us, int) else -1
    return Received(str(record["origin"]), _text(record["key"]), body, time_us, event_us if isinstance(event_us, int) else None)


def _has_place(row: Mapping[str, Any]) -> bool:
    origin, ledger, entry = row["origin"], row["ledger_id"], row["entry_id"]
    return origin is not None and ":" not in origin and ledger is not None and entry is not None


def _with_texts(rows: pa.Table, column: str = "key") -> pa.Table:
    """The rows, with NULL for a key that is no UTF-8: no program of ours wrote it, and it is refused as a record without a key. The same of
    another column."""
    found = rows[column]
    try:
        found.validate(full=True)
        return rows
    except pa.ArrowInvalid:
        texts = pa.array([_decoded(one) for one in found.cast(pa.binary()).to_pylist()], pa.string())
        return rows.set_column(rows.schema.get_field_index(column), column, texts)


def _decoded(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
