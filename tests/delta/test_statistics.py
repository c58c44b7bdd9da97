"""Statistics of files that are written without Spark. No Spark."""

from __future__ import annotations

import json

import pyarrow as pa

from geo.delta.writer import statistics


def test_a_column_that_the_rows_lack_counts_as_null_in_each_so_that_nobody_opens_the_file_for_it() -> None:
    rows = pa.table({"entry_id": [3, 1, None], "payload": [b"a", b"b", b"c"]})
    told = json.loads(statistics(rows, {"entry_id", "marker"}))
    assert told == {
        "numRecords": 3, "minValues": {"entry_id": 1}, "maxValues": {"entry_id": 3}, "nullCount": {"entry_id": 1, "marker": 3},
    }  # fmt: skip
