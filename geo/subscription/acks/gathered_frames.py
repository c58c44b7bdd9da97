"""The records of an `__acks` log as tables have them: which are in no cursor, and what they tell of each subscription. What that is:
`gathered.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa

from geo.delta.engine import Scan
from geo.delta.predicate import Among, AtLeast, Predicate
from geo.ids import LedgerId
from geo.journal.rows import Row
from geo.log.conditions import HAS_ID, IS_MESSAGE, after
from geo.subscription.acks.cursor import parse_ends
from geo.subscription.acks.fold import Received
from geo.subscription.acks.gathered import Gathered, gather_all, joined
from geo.subscription.acks.record import decode_epochs, is_newer
from geo.subscription.acks.subscription_state import SubscriptionState

RECORD = IS_MESSAGE & HAS_ID
"""The rows that are records."""

RECORD_COLUMNS = ("origin", "key", "payload", "publish_time", "ledger_id", "entry_id", "marker", "event_time")
"""Columns that are read of such a log, before it is known which rows are of interest."""


def in_no_cursor(folded: Mapping[str, Mapping[LedgerId, int]], key: str | None = None) -> Predicate:
    """Records, of one subscription or of all, that are not in the cursors. By key, `folded` says up to which entries of their ledgers they are. Of
    one subscription many files are told by their statistics to have none."""
    if key is not None:
        return RECORD & Among("key", frozenset({key})) & after(folded.get(key, {}))
    bounds = {f"{key}:{ledger}": end + 1 for key, ends in folded.items() for ledger, end in ends.items()}
    return RECORD & AtLeast("entry_id", ("key", "origin", "ledger_id"), bounds)


def news(cluster: str, cursors: Mapping[str, Row], key: str | None = None) -> Scan[dict[str, Gathered]]:
    """Asks a log for what its records, of one subscription or of all, tell that are in none of the cursors, which are by key."""
    folded = {one: parse_ends(row["folded"]) for one, row in cursors.items()}
    states = {one: bytes(row["state"]) for one, row in cursors.items()}
    before = {one: decode_epochs(state) for one, state in states.items() if not is_newer(state)}
    return Scan(RECORD_COLUMNS, partial(_gathered, cluster, before), in_no_cursor(folded, key), joined, ("key",))


def _gathered(cluster: str, before: Mapping[str, SubscriptionState], rows: pa.Table) -> dict[str, Gathered]:
    return gather_all(cluster, records_of(rows), before)


def keys_of(rows: pa.Table) -> set[str]:
    """The keys of records, those that are texts."""
    return {key for key in _with_texts(rows, "key")["key"].unique().to_pylist() if key is not None}


def records_of(rows: pa.Table) -> Iterator[Received]:
    """Rows of an `__acks` log, of RECORD_COLUMNS. A key that is no text is NULL; a row of which nobody can say where it lies is left out.
    Times as numbers: one that Python has no datetime for is refused, and stops nobody."""
    rows = _with_texts(_with_texts(rows, "key"), "origin")
    published = rows["publish_time"].cast(pa.int64()).to_pylist()
    told_before = rows["event_time"].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    columns = [rows[name].to_pylist() for name in ("origin", "ledger_id", "entry_id", "key", "payload")]
    for origin, ledger_id, entry, key, payload, published_us, before_us in zip(*columns, published, told_before, strict=True):
        if origin is not None and ":" not in origin and ledger_id is not None and entry is not None:
            # A row without a time: the fold refuses it as one of before 1970.
            published_us = -1 if published_us is None else published_us
            yield Received(LedgerId(origin, ledger_id), entry, key, payload, published_us, before_us)


def _with_texts(rows: pa.Table, column: str) -> pa.Table:
    """The rows, with NULL in a column for what is no UTF-8. No program of ours wrote it, and a record is refused as one without a key."""
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
