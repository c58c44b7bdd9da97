"""What the log says of a file that is written without Spark, and what is known of a file by it. No Spark."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from geo.delta.disk_store import on_disk
from geo.delta.engine import UnsupportedError
from geo.delta.engines.native.active_files import described
from geo.delta.row_files import statistics

KINDS = {"n": "long", "s": "string", "d": "date", "t": "timestamp", "f": "double", "day": "date"}
COLUMNS = {name: {"type": kind} for name, kind in KINDS.items()} | {"x": {"type": {"type": "struct", "fields": []}}}


def _file(stats: str | None) -> dict[str, Any]:
    return {"path": "a%20b", "size": 7, "partitionValues": {"day": "2026-11-29"}, "stats": stats}


def test_a_column_that_the_rows_lack_counts_as_null_in_each_so_that_nobody_opens_the_file_for_it() -> None:
    rows = pa.table({"entry_id": [3, 1, None], "payload": [b"a", b"b", b"c"]})
    told = json.loads(statistics(rows, {"entry_id", "marker"}))
    assert told == {
        "numRecords": 3, "minValues": {"entry_id": 1}, "maxValues": {"entry_id": 3}, "nullCount": {"entry_id": 1, "marker": 3},
    }  # fmt: skip


def test_what_is_said_of_a_file_is_known_as_rows_have_it_and_in_another_form_is_not_known(tmp_path: Path) -> None:
    least = {"n": 1, "s": "a", "d": "2026-11-29", "t": "2026-11-29T01:00:00.123+01:00", "f": 1.5, "x": {"y": 1}}
    greatest = {"n": "2", "s": 3, "d": "10000-01-01", "t": "2026-11-29T00:00:00", "other": 1}
    stats = {"numRecords": 3, "minValues": least, "maxValues": greatest, "nullCount": {"n": 0, "x": {"y": 0}}}
    (file,) = described(on_disk(tmp_path) / "_delta_log", [_file(json.dumps(stats))], COLUMNS)
    assert str(file.path) == str(tmp_path / "a b")
    assert file.statistics == {
        "num_records": 3, "size_bytes": 7, "partition.day": date(2026, 11, 29), "null_count.n": 0, "min.n": 1, "min.s": "a",
        "min.d": date(2026, 11, 29), "min.t": datetime(2026, 11, 29, 0, 0, 0, 123_000, timezone.utc),
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "expected"), [("string", "1", "1"), ("date", None, None), ("string", None, None)])
def test_the_value_of_a_partition_is_known_as_rows_have_it(
    tmp_path: Path, kind: str, value: str | None, expected: str | None
) -> None:
    (file,) = described(on_disk(tmp_path), [_file(None) | {"partitionValues": {"day": value}}], {"day": {"type": kind}})
    assert file.constant("day") == expected


def test_a_table_is_left_to_spark_that_is_partitioned_by_a_column_of_another_type(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="partitioned by a column of type long"):
        described(on_disk(tmp_path), [_file(None)], {"day": {"type": "long"}})


def test_of_a_file_of_which_nothing_is_said_its_size_is_known_and_what_is_no_json_is_refused(tmp_path: Path) -> None:
    (file,) = described(on_disk(tmp_path), [_file(None)], COLUMNS)
    assert file.statistics == {"num_records": None, "size_bytes": 7, "partition.day": date(2026, 11, 29)}
    with pytest.raises(UnsupportedError, match="cannot be read"):
        described(on_disk(tmp_path), [_file("{")], COLUMNS)
