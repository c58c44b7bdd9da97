"""What groups of rows have together is the same at hand, in any parts, by a file's statistics and by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from geo.delta.data_file import DataFile
from geo.delta.disk_store import on_disk
from geo.delta.engines.native.summary import groups_from_stats, groups_of, joined
from geo.delta.engines.spark import summary as by_spark
from geo.delta.predicate import Among, Compare, IsNull
from geo.delta.predicate_arrow import kept
from geo.delta.summary import GroupedBy, Groups, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = pa.schema(
    [
        ("origin", pa.string()),
        ("ledger", pa.int64()),
        ("entry", pa.int64()),
        ("aims", pa.list_(pa.string())),
        ("marker", pa.string()),
    ]
)
AIMS: dict[tuple[str | None, int | None], list[str] | None] = {("us", 1): ["eu"], ("us", 2): [], (None, 1): ["ap", "eu"]}
"""All rows of a group have the same; of others none."""
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["us", "eu", None]),
        st.sampled_from([1, 2, None]),
        st.sampled_from([0, 1, 7, 2**62, None]),
        st.sampled_from([None, None, "SNAPSHOT"]),
    ),
    max_size=8,
)
SUMMARIES = [
    Summary(("origin", "ledger"), ("entry",), ("entry",), ("aims",), IsNull("marker")),
    Summary(("origin",), greatest=("entry", "ledger"), where=Among("origin", frozenset({"us"})) & Compare("entry", ">", 0)),
    Summary(("origin", "ledger"), least=("entry",), same=("aims",), where=~IsNull("entry"), summed="entry"),
]


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = ("origin", "ledger", "entry", "marker")
    return pa.Table.from_pylist([{**dict(zip(columns, row, strict=True)), "aims": AIMS.get(row[:2])} for row in rows], TYPES)


def _groups(summary: Summary, rows: pa.Table) -> Groups:
    return groups_of(summary, kept(summary.where, rows))


def test_of_a_few_rows() -> None:
    rows = _table(
        [("us", 1, 7, None), ("us", 1, None, None), ("us", 1, 9, "SNAPSHOT"), ("us", 2, None, None), (None, 1, 0, None)]
    )
    assert _groups(SUMMARIES[0], rows) == {
        ("us", 1): GroupedBy((7,), (7,), (["eu"],), 2),
        ("us", 2): GroupedBy((None,), (None,), ([],), 1),
        (None, 1): GroupedBy((0,), (0,), (["ap", "eu"],), 1),
    }
    assert _groups(SUMMARIES[2], _table([("us", 1, 7, None), ("us", 1, 2**62, None)]))["us", 1].sums == (2**62 + 7, 2**124 + 49)


def test_a_sum_that_is_too_large_stays_so() -> None:
    of_one, too_large = GroupedBy((1,), (), (), 1, (1, 1)), GroupedBy((2,), (), (), 1, (2, None))
    assert of_one.joined(too_large) == too_large.joined(of_one) == GroupedBy((1,), (), (), 2, (3, None))


@given(ROWS, st.integers(0, 8), st.sampled_from(SUMMARIES))
def test_parts_together_are_the_whole(rows: list[tuple[Any, ...]], at: int, summary: Summary) -> None:
    table = _table(rows)
    assert joined([_groups(summary, table.slice(0, at)), _groups(summary, table.slice(at))]) == _groups(summary, table)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS.filter(bool), st.frozensets(st.sampled_from(["origin", "ledger", "entry"])), st.sampled_from(SUMMARIES))
def test_what_statistics_say_is_what_the_rows_say(
    tmp_path: Path, rows: list[tuple[Any, ...]], silent: frozenset[str], summary: Summary
) -> None:
    table, path = _table(rows), tmp_path / "one.parquet"
    pq.write_table(table, path)
    statistics: dict[str, Any] = {"num_records": len(table)}
    for name in {"origin", "ledger", "entry"} - silent:
        values = [value for value in table[name].to_pylist() if value is not None]
        statistics[f"null_count.{name}"] = len(table) - len(values)
        statistics |= {f"{end.__name__}.{name}": end(values) for end in (min, max) if values}
    found = groups_from_stats(summary)(DataFile(on_disk(path), statistics))
    assert found is None or found == _groups(summary, table)


def test_a_file_of_one_ledger_is_told_by_its_statistics_and_of_the_next_one_nothing_is_read(tmp_path: Path) -> None:
    pq.write_table(_table([("us", 1, 3, None), ("us", 1, 4, None)]), tmp_path / "one.parquet")
    ends = {"min.origin": "us", "max.origin": "us", "min.ledger": 1, "max.ledger": 1, "min.entry": 3, "max.entry": 4}
    nulls = {f"null_count.{name}": count for name, count in {"origin": 0, "ledger": 0, "entry": 0, "marker": 2}.items()}
    told = groups_from_stats(SUMMARIES[0])
    for name in ("one.parquet", "is not there"):
        assert told(DataFile(on_disk(tmp_path / name), {**ends, **nulls, "num_records": 2})) == {
            ("us", 1): GroupedBy((3,), (4,), (["eu"],), 2)
        }
    with_marker = {**ends, **nulls, "null_count.marker": 1, "num_records": 2}
    assert told(DataFile(on_disk(tmp_path / "one.parquet"), with_marker)) is None


@pytest.mark.spark
@settings(max_examples=6, phases=[Phase.generate], deadline=None)
@given(ROWS)
def test_spark_says_the_same(spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    table = _table(rows)
    for summary in SUMMARIES:
        assert by_spark.groups_of(summary, spark.createDataFrame(table)) == _groups(summary, table)
