"""One condition, four ways to hold it against rows: a row, Arrow, SQL (with Spark), and what a file's statistics say. They agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from geo.delta.predicate import (
    ANY_ROW,
    All,
    Among,
    AtLeast,
    Begins,
    Compare,
    Either,
    IsNull,
    Lists,
    Not,
    Predicate,
    TimeUs,
    columns_of,
    holds,
    may_hold,
    to_sql,
)
from geo.delta.predicate_arrow import kept, mask
from geo.times import from_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("eu", "us", "${spark.app.name}", "us'", "US", "", "u\\", "a" * 33)
NUMBERS = (-1, 0, 1, 7, 2**63 - 1)
TIMES_US = (-1, 0, 1, 1_700_000_000_123_456, 1_700_000_000_123_457)
ROWS = st.fixed_dictionaries(
    {
        "name": st.none() | st.sampled_from(NAMES),
        "number": st.none() | st.sampled_from(NUMBERS),
        "time": st.none() | st.sampled_from(TIMES_US),
        "names": st.none() | st.lists(st.none() | st.sampled_from(NAMES), max_size=3),
        "bytes": st.none() | st.sampled_from([b"", b"\x00", b"ab"]),
    }
)
COMPARISONS = st.sampled_from(["<", "<=", ">", ">="])
LEAVES = st.one_of(
    st.builds(Compare, st.just("name"), COMPARISONS, st.sampled_from(NAMES)),
    st.builds(Compare, st.just("number"), COMPARISONS, st.sampled_from(NUMBERS)),
    st.builds(Compare, st.just("time"), COMPARISONS, st.sampled_from((*TIMES_US, -(10**19), 10**19)).map(TimeUs)),
    st.builds(Among, st.just("name"), st.frozensets(st.sampled_from(NAMES), max_size=3)),
    st.builds(Among, st.just("number"), st.frozensets(st.sampled_from(NUMBERS), max_size=3)),
    st.builds(Among, st.just("bytes"), st.frozensets(st.sampled_from([b"", b"ab"]), max_size=2)),
    st.builds(
        AtLeast,
        st.just("number"),
        st.just(("name", "number")),
        st.dictionaries(
            st.builds("{}:{}".format, st.sampled_from(NAMES), st.sampled_from(NUMBERS)), st.sampled_from(NUMBERS), max_size=3
        ),
    ),
    st.builds(
        AtLeast,
        st.just("number"),
        st.just(("name",)),
        st.dictionaries(st.sampled_from(NAMES), st.sampled_from(NUMBERS), max_size=3),
    ),
    st.builds(Begins, st.just("name"), st.sampled_from(["", "u", "us'"])),
    st.builds(Lists, st.just("names"), st.sampled_from(NAMES)),
    st.builds(IsNull, st.sampled_from(["name", "number", "time", "names", "bytes"])),
)
PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(All, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Either, st.lists(parts, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)
TYPES = pa.schema(
    [
        ("at", pa.int64()),
        ("name", pa.string()),
        ("number", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("names", pa.list_(pa.string())),
        ("bytes", pa.binary()),
    ]
)


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{**row, "at": at} for at, row in enumerate(rows)], TYPES)


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        (ANY_ROW, [0, 1, 2]),
        (Either(()), []),
        (IsNull("name"), [2]),
        (~IsNull("name"), [0, 1]),
        (Among("name", frozenset({"us"})), [0]),
        (~Among("name", frozenset({"us"})), [1, 2]),
        (Among("name", frozenset()), []),
        (Compare("number", ">", 0), [1]),
        (~Compare("number", ">", 0), [0, 2]),
        (Compare("time", ">=", TimeUs(1)) | IsNull("time"), [1, 2]),
        (Lists("names", "eu"), [0]),
        (~Lists("names", "eu") & ~IsNull("names"), [1]),
        (Begins("name", "e"), [1]),
        (AtLeast("number", ("name",), {"us": 1, "eu": 1}), [1]),
        (~AtLeast("number", ("name",), {"us": 1}), [0, 2]),
    ],
)
def test_a_null_fulfils_only_what_asks_for_it(predicate: Predicate, wanted: list[int]) -> None:
    rows: list[dict[str, Any]] = [
        {"name": "us", "number": 0, "time": 0, "names": [None, "eu"]},
        {"name": "eu", "number": 1, "time": 1, "names": []},
        {"name": None, "number": None, "time": None, "names": None},
    ]
    assert [at for at, row in enumerate(rows) if holds(predicate, row)] == wanted
    assert kept(predicate, _table(rows))["at"].to_pylist() == wanted


@given(PREDICATES, st.lists(ROWS, min_size=1, max_size=8), st.integers(0, 3))
def test_arrow_keeps_the_rows_that_fulfil_it_also_of_a_slice(
    predicate: Predicate, rows: list[dict[str, Any]], first: int
) -> None:
    wanted = [holds(predicate, row) for row in rows]
    assert mask(predicate, _table(rows)).to_pylist() == wanted
    assert mask(predicate, _table(rows).slice(first)).to_pylist() == wanted[first:]
    assert mask(predicate, pa.concat_tables([_table(rows), _table(rows)])).to_pylist() == wanted * 2


@given(PREDICATES, st.lists(ROWS, min_size=1, max_size=4), st.frozensets(st.sampled_from(TYPES.names)))
def test_no_file_is_passed_over_that_has_a_row(predicate: Predicate, rows: list[dict[str, Any]], silent: frozenset[str]) -> None:
    """Whatever its writer says of which columns; of a time no more than milliseconds, and of a long text no more than its begin."""
    statistics: dict[str, Any] = {"num_records": len(rows)}
    for name in {"name", "number", "time", "names", "bytes"} - silent:
        values = [row[name] for row in rows if row[name] is not None]
        statistics[f"null_count.{name}"] = len(rows) - len(values)
        if name in {"name", "number"} and values:
            statistics |= {f"min.{name}": _begin(min(values)), f"max.{name}": _begin(max(values))}
        if name == "time" and values:
            statistics |= {f"{end.__name__}.time": from_us(end(values) // 1000 * 1000) for end in (min, max)}
    assert may_hold(predicate, statistics) or not any(holds(predicate, row) for row in rows)


def _begin(value: Any) -> Any:
    return value[:32] if isinstance(value, str) else value


_TOLD = {
    "num_records": 3, "min.number": 2, "max.number": 5, "null_count.number": 0, "min.some": 2, "max.some": 5, "null_count.some": 1,
    "null_count.none": 3, "min.name": "us", "max.name": "us", "null_count.name": 0, "min.long": "a" * 32, "max.long": "a" * 32,
    "null_count.long": 0, "min.time": from_us(1_000_000), "max.time": from_us(1_000_000),
}  # fmt: skip
"""What the log says of a file: of times no more than milliseconds, of long texts no more than their begin."""


@pytest.mark.parametrize(
    ("predicate", "may"),
    [
        (Compare("number", ">=", 5), True), (Compare("number", ">", 5), False), (Compare("number", "<", 2), False),
        (~Compare("number", ">=", 2), False), (Among("number", frozenset({1, 6})), False), (Among("number", frozenset({1, 3})), True),
        (IsNull("number"), False), (IsNull("other"), True), (Compare("other", ">", 0), True), (ANY_ROW, True), (Either(()), False),
        (IsNull("number") | Compare("number", ">", 4), True), (Compare("number", ">", 2) & IsNull("number"), False),
        (~Compare("some", ">=", 2), True), (Compare("some", "<", 2), False), (~IsNull("some"), True),
        (~IsNull("none"), False), (IsNull("none") & ~Among("name", frozenset({"us"})), False),
        (~(IsNull("none") & Among("name", frozenset({"us"}))), False), (~Among("name", frozenset({"eu"})), True),
        (~Among("long", frozenset({"a" * 32})), True), (~Among("some", frozenset({2, 5})), True),
        (Compare("time", ">", TimeUs(1_000_999)), True), (Compare("time", ">", TimeUs(1_001_000)), False),
        (AtLeast("number", ("name",), {"us": 6}), False), (AtLeast("number", ("name",), {"us": 5, "eu": 6}), True),
        (AtLeast("number", ("long",), {"a" * 32: 6}), True), (AtLeast("number", ("name", "none"), {"us:": 6}), True),
        (Compare("time", "<", TimeUs(1_000_000)), False), (Compare("time", "<=", TimeUs(1_000_000)), True),
    ],
)  # fmt: skip
def test_a_file_is_passed_over_by_its_statistics_where_no_row_can_fulfil_it(predicate: Predicate, may: bool) -> None:
    assert may_hold(predicate, _TOLD) is may


def test_what_a_writer_does_not_say_excludes_nothing() -> None:
    """Of a file without statistics beside others that have some, and of times without a zone."""
    nothing = dict.fromkeys(("num_records", "min.a", "max.a", "null_count.a"))
    one = Among("a", frozenset({1}))
    for predicate in (~IsNull("a"), IsNull("a"), one, ~one, Compare("a", "<", 0), ~Compare("a", "<", 0)):
        assert may_hold(predicate, nothing)
    without_zone = {f"{end}.a": from_us(0).replace(tzinfo=None) for end in ("min", "max")}
    assert may_hold(Compare("a", ">", TimeUs(10**15)), without_zone)


def test_a_list_that_is_null_has_nothing_whatever_lies_below_it() -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), pa.array(["us", "us"]), mask=pa.array([True, False]))
    assert mask(Lists("names", "us"), pa.table({"names": lists})).to_pylist() == [False, True]


def test_the_columns_that_it_reads_are_known() -> None:
    assert columns_of(~(IsNull("a") | Lists("b", "x")) & Compare("c", "<", 1) & AtLeast("d", ("a", "e"), {})) == {
        "a",
        "b",
        "c",
        "d",
        "e",
    }


@pytest.mark.spark
@settings(max_examples=12, phases=[Phase.generate], deadline=None)
@given(st.lists(PREDICATES, min_size=40, max_size=40), st.lists(ROWS, min_size=1, max_size=8))
def test_sql_is_true_for_the_rows_that_fulfil_it(
    spark: SparkSession, predicates: list[Predicate], rows: list[dict[str, Any]]
) -> None:
    frame = spark.createDataFrame(_table(rows))
    told = frame.selectExpr("at", *(f"coalesce({to_sql(one)}, false)" for one in predicates)).collect()
    assert [list(row)[1:] for row in sorted(told)] == [[holds(one, row) for one in predicates] for row in rows]
