"""The records of an `__acks` log as tables have them: which are in no cursor, and what they tell of each subscription. What that is:
`gathered.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from geo.delta.engine import Scan
from geo.delta.predicate import Among, AtLeast, Predicate
from geo.ids import LedgerId
from geo.log.conditions import HAS_ID, IS_MESSAGE, after
from geo.subscription.acks.fold import Received
from geo.subscription.acks.gathered import Gathered, Record, gather_all, joined
from geo.subscription.acks.subscription_state import SubscriptionState

RECORD = IS_MESSAGE & HAS_ID
"""The rows that are records."""

RECORD_COLUMNS = ("origin", "key", "payload", "publish_time", "ledger_id", "entry_id", "marker")
"""What is read of such a log, before it is known which rows are of interest."""

FOLD_COLUMNS = (*RECORD_COLUMNS, "event_time")
"""The same with the time before which a record was told, for who forgets."""


def in_no_cursor(folded: Mapping[str, Mapping[LedgerId, int]], key: str | None = None) -> Predicate:
    """Records, of one subscription or of all, that are not in the cursors: by key, `folded` says up to which entries of their ledgers they
    are. Of one subscription many files are told by their statistics to have none."""
    if key is not None:
        return RECORD & Among("key", frozenset({key})) & after(folded.get(key, {}))
    bounds = {f"{key}:{ledger}": end + 1 for key, ends in folded.items() for ledger, end in ends.items()}
    return RECORD & AtLeast("entry_id", ("key", "origin", "ledger_id"), bounds)


def news(
    cluster: str, before: Mapping[str, SubscriptionState], folded: Mapping[str, Mapping[LedgerId, int]], key: str | None = None
) -> Scan[dict[str, Gathered]]:
    """Asks a log for what its records tell, by the keys of subscriptions, that are not in the cursors: `before` as in `gather_all`, the others
    as in `in_no_cursor`."""
    return Scan(FOLD_COLUMNS, partial(gathered_rows, cluster, before), in_no_cursor(folded, key), joined, ("key",))


def keys_of(rows: pa.Table) -> set[str]:
    """The keys of records, those that are texts."""
    return {key for key in _with_texts(rows)["key"].unique().to_pylist() if key is not None}


def gathered_rows(cluster: str, before: Mapping[str, SubscriptionState], rows: pa.Table) -> dict[str, Gathered]:
    """What records, of FOLD_COLUMNS, tell, by the keys of subscriptions; `before` as in `gather_all`."""
    return gather_all(cluster, records_of(rows), before)


def records_of(rows: pa.Table) -> Iterator[Record]:
    """Rows of an `__acks` log, of FOLD_COLUMNS, as who folds takes them. A key that is no text is NULL; a row of which nobody can say where it
    lies is left out."""
    rows = _with_texts(rows, "origin")
    times = rows["event_time"].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    places = rows.select(["origin", "ledger_id", "entry_id"]).to_pylist()
    for row, place, event_us in zip(as_ack_columns(rows), places, times, strict=True):
        if _has_place(place):
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
