"""Rows of a log by sets of messages."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from geo.ids import LedgerId, MessageId
from geo.subscription.acks import message_set_frames
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.message_set_frames import without

pytestmark = pytest.mark.spark

LEDGERS = [LedgerId("eu", 1), LedgerId("eu", 2), LedgerId("us", 1)]


@pytest.mark.parametrize(("seed", "most"), [(1, 200_000), (2, 200_000), (3, 4), (4, 1)])
def test_what_is_done_is_left_out_however_its_gaps_lie(
    spark: SparkSession, seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few and many ranges, gaps of one entry and of thousands, over the borders of buckets and wider than they are."""
    monkeypatch.setattr(message_set_frames, "MOST_BUCKETS", most)
    random = Random(seed)
    ranges: dict[LedgerId, tuple[tuple[int, int], ...]] = {}
    for ledger in LEDGERS[:2]:
        edges = sorted(random.sample(range(10_000), 40))
        pairs = list(zip(edges[::2], edges[1::2], strict=True))
        ranges[ledger] = tuple((a, b) for (a, b), (c, _) in zip(pairs, [*pairs[1:], (10**9, 0)], strict=True) if b + 1 < c)
    done = MessageSet(ranges)
    there = [MessageId(*ledger, entry) for ledger in LEDGERS for entry in range(0, 12_000, 7)]
    there += [
        MessageId(*ledger, at) for ledger, found in ranges.items() for edge in found for at in (edge[0] - 1, *edge, edge[1] + 1)
    ]
    rows = spark.createDataFrame(
        pa.table(
            {
                "origin": [one.origin for one in there] + [None, "eu"],
                "ledger_id": [one.ledger_id for one in there] + [None, 1],
                "entry_id": [one.entry_id for one in there] + [None, None],
                "key": ["k"] * (len(there) + 2),
            }
        )
    )
    left = without(rows, done).collect()
    found = sorted(MessageId(*row[:3]) for row in left if row["entry_id"] is not None)
    assert found == sorted(one for one in there if one not in done)
    assert len(left) == len(found) + 2, "what has no id is not done"
    assert without(rows, done).columns == rows.columns
