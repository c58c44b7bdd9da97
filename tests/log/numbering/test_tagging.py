"""What a row of a source of ours is said to be, in Arrow as by Spark's columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.log.admission import ERROR, MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, Routes, prepared, row_error
from geo.log.ledgers import SourceEnd
from geo.log.numbering.holding import KEY
from geo.log.numbering.tagging import Tagging
from geo.log.source_identity import PUBLISHED, SOURCE, by_columns
from geo.log.sources.json_line import BYTES
from geo.log.sources.jsonl import FILE, LINE, block_of
from geo.schemas import TOPIC_LOG

ROUTES = Routes("eu", {"us": (), "far": ("hub",), "hub": (), "lost": None})
ENDS = {"a": 4, "b": -1, "gone": 100}
COLUMNS = ("key", "payload", "properties", "replicate_to", "event_time")

_AIMS = st.none() | st.lists(st.sampled_from(["eu", "us", "far", "hub", "lost", "mars", None, "é"]), max_size=4)
_ROWS = st.fixed_dictionaries(
    {
        FILE: st.sampled_from(["a", "a", "b", "c d/é"]),
        LINE: st.integers(0, 9),
        "key": st.none() | st.text(max_size=3),
        "payload": st.none() | st.binary(max_size=3),
        "properties": st.none() | st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=2), max_size=2),
        "replicate_to": _AIMS,
        "event_time": st.none(),
        ERROR: st.sampled_from([None, None, None, "no line"]),
    }
)


def _generated() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    @settings(max_examples=600, phases=[Phase.generate], derandomize=True, database=None)
    @given(_ROWS)
    def collect(row: dict[str, Any]) -> None:
        rows.append(row)

    collect()
    return rows


def _row(**given: Any) -> dict[str, Any]:
    return {field.name: None for field in block_of(BYTES)} | {FILE: "a", LINE: 7} | given


def _at_the_limits() -> list[dict[str, Any]]:
    """Rows just below and just above what is allowed, with texts that JSON writes otherwise."""
    rows = [_row(payload=b"x" * (MAX_PAYLOAD_BYTES + more)) for more in (0, 1)]
    for part in ("x", '"', "\\", "\n", "\x01", "é", "\U0001f600", "\x7f", "/"):
        one = len(json.dumps(part, ensure_ascii=False).encode()) - 2
        for more in (-1, 0, 1, 2):
            count = (MAX_HEADER_BYTES - len(b'{"k":"","n":null}') - 3) // one
            left = MAX_HEADER_BYTES - len(b'{"k":"","n":null}') - count * one
            rows.append(_row(properties={"k": part * count, "n": None}, key="x" * max(0, left + more)))
    return rows


@pytest.mark.spark
def test_arrow_says_of_every_row_what_spark_says(spark: SparkSession) -> None:
    rows = [*_generated(), *_at_the_limits()]
    listed = [{n: list(v.items()) if isinstance(v, dict) else v for n, v in row.items()} for row in rows]
    given = pa.RecordBatch.from_pylist(listed, block_of(BYTES))
    tagging = Tagging(FILE, LINE, COLUMNS, ENDS, ROUTES)
    blocks = [tagging.tagged(given.slice(at, 37)) for at in range(0, len(rows), 37)]  # slices, as blocks are sometimes
    ours = pa.Table.from_batches(blocks).to_pylist()

    frame = spark.createDataFrame(pa.Table.from_batches([given])).withColumn("_n", F.monotonically_increasing_id())
    log = spark.createDataFrame([], TOPIC_LOG.ddl).schema
    ready = frame.withColumns({name: F.expr(sql) for name, sql in prepared(frame.schema, log, "eu").items()})
    refused = row_error(frame.columns, ROUTES)
    identity = by_columns(FILE, LINE)
    ends = {name: SourceEnd(identity.encode(name, [str(end)]), 1) for name, end in ENDS.items()}
    tagged = identity.tag(ready.withColumn(ERROR, F.expr(f"coalesce({ERROR}, {refused})")), log)
    found = identity.mark_published(spark, tagged, ends).orderBy("_n").toArrow().to_pylist()

    keys: dict[tuple[str, Any], int] = {}
    assert len(ours) == len(found) == len(rows)
    for mine, theirs in zip(ours, found, strict=True):
        assert mine[ERROR] == theirs[ERROR]
        assert (mine[SOURCE], mine[PUBLISHED], mine["_geo_o0"], mine["_geo_t0"]) == (
            theirs[SOURCE], theirs[PUBLISHED], theirs["_geo_offset"]["o0"], str(theirs["_geo_offset"]["o0"]),
        )  # fmt: skip
        assert [mine[name] for name in COLUMNS] == [theirs[name] for name in COLUMNS]
        ledger = (mine[SOURCE], None if mine["replicate_to"] is None else tuple(mine["replicate_to"]))
        assert keys.setdefault(ledger, mine[KEY]) == mine[KEY]
    assert len(set(keys.values())) == len(keys), "rows of different ledgers have different numbers"
    assert {row[ERROR] is None for row in ours} == {True, False}
    assert sum(bool(row[ERROR] and row[ERROR].startswith("key and properties have")) for row in ours) >= 9


def test_rows_for_all_clusters_are_tagged_without_looking_at_each() -> None:
    rows = [_row(**{LINE: number, "key": f"k{number}"}) for number in range(5)]
    tagged = Tagging(FILE, LINE, COLUMNS, {"a": 2}, ROUTES).tagged(pa.RecordBatch.from_pylist(rows, block_of(BYTES)))
    assert tagged[PUBLISHED].to_pylist() == [True, True, True, False, False]
    assert tagged[ERROR].null_count == 5
    assert len(set(tagged[KEY].to_pylist())) == 1
