"""Records as tables have them."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa

from geo.delta.predicate_arrow import kept
from geo.ids import LedgerId
from geo.subscription.acks.gathered_frames import RECORD_COLUMNS, in_no_cursor, records_of

AT = datetime(2026, 11, 29, tzinfo=timezone.utc)


def _rows(keys: pa.Array) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "origin": ["eu"] * count,
            "key": keys,
            "payload": pa.array([b"\x01"] * count, pa.binary()),
            "publish_time": pa.array([AT] * count, pa.timestamp("us", "UTC")),
            "ledger_id": [7] * count,
            "entry_id": list(range(count)),
            "marker": pa.nulls(count, pa.string()),
            "event_time": pa.nulls(count, pa.timestamp("us", "UTC")),
        }
    ).select(RECORD_COLUMNS)


def test_records_are_taken_that_are_in_no_cursor() -> None:
    where = in_no_cursor({"a": {LedgerId("eu", 7): 1}, "b": {LedgerId("us", 7): 9}})
    rows = kept(where, _rows(pa.array(["a", "b", "a", None])))
    assert [(one.key, one.ledger, one.entry) for one in records_of(rows)] == [
        ("b", LedgerId("eu", 7), 1),
        ("a", LedgerId("eu", 7), 2),
        (None, LedgerId("eu", 7), 3),
    ]
    assert {one.publish_time_us for one in records_of(rows)} == {int(AT.timestamp()) * 1_000_000}


def test_a_key_that_is_no_text_is_a_record_without_a_key() -> None:
    offsets, text = pa.array([0, 1, 3], pa.int32()), b"a\xff\xfe"
    keys = pa.Array.from_buffers(pa.string(), 2, [None, offsets.buffers()[1], pa.py_buffer(text)])
    assert [one.key for one in records_of(kept(in_no_cursor({}), _rows(keys)))] == ["a", None]
