"""Rows in runs: whether they are, and their numbers, whatever the batches in which they come. A naive model beside it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.log.ledgers import Batch, LedgerKey, SourceEnd, Span
from geo.log.numbering.on_spark import Part, runs_of
from geo.log.numbering.runs import BEGINS, FALLS, NEXT, NOT_COUNTED, OTHER_ROWS, Run, numbers, steps

FIELDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.none() | st.integers(-2, 2)),
    (pa.string(), st.none() | st.sampled_from(["", "a", "B", "é", "\U0001f600", "\uffff"])),
    (pa.bool_(), st.none() | st.booleans()),
    (pa.decimal128(5, 2), st.none() | st.sampled_from([Decimal("-1.00"), Decimal("0.10"), Decimal("2.50")])),
    (pa.date32(), st.none() | st.sampled_from([datetime.date(1969, 1, 1), datetime.date(2026, 1, 1)])),
    (
        pa.timestamp("us", "UTC"),
        st.none()
        | st.datetimes(
            datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, 0, 0, 0, 5), timezones=st.just(datetime.timezone.utc)
        ),
    ),
]

Row = tuple[int | None, tuple[Any, ...]]


def _batches(
    rows: Sequence[Row], types: Sequence[pa.DataType], sizes: Sequence[int]
) -> Iterator[tuple[pa.Array, pa.StructArray]]:
    cuts = [0, *(cut for cut in accumulate(sizes) if cut < len(rows)), len(rows)]
    for begin, end in pairwise(cuts):
        part = rows[begin:end]
        columns = [pa.array([offset[i] for _, offset in part], kind) for i, kind in enumerate(types)]
        yield (
            pa.array([key for key, _ in part], pa.int64()),
            pa.StructArray.from_arrays(columns, [f"o{i}" for i in range(len(types))]),
        )


def _sortable(offset: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((value is not None, value.encode() if isinstance(value, str) else value) for value in offset)


@st.composite
def _rows(draw: st.DrawFn) -> tuple[list[Row], list[pa.DataType], list[int]]:
    fields = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3))
    offsets = st.tuples(*(values for _, values in fields))
    rows = draw(st.lists(st.tuples(st.none() | st.integers(1, 2), offsets), max_size=12))
    if draw(st.booleans()):
        rows.sort(key=lambda row: (row[0] or 0, _sortable(row[1])))
    return rows, [kind for kind, _ in fields], draw(st.lists(st.integers(0, 4), max_size=6))


@given(_rows(), st.booleans())
def test_each_row_is_told_from_the_one_before(given_: tuple[list[Row], list[pa.DataType], list[int]], unique: bool) -> None:
    rows, types, sizes = given_
    expected, before = [], None
    for row in rows:
        if row[0] is None:
            expected.append(NOT_COUNTED)
            continue
        if before is None or before[0] != row[0]:
            expected.append(BEGINS)
        else:
            expected.append(NEXT if not unique or _sortable(before[1]) < _sortable(row[1]) else FALLS)
        before = row
    assert [step for batch in steps(_batches(rows, types, sizes), unique=unique) for step in batch.to_pylist()] == expected


def _numbers(offsets: Sequence[int], runs: Sequence[Run], sizes: Sequence[int]) -> list[tuple[int, int]]:
    batches = (offset for _, offset in _batches([(1, (offset,)) for offset in offsets], [pa.int64()], sizes))
    return [tuple(row.values()) for batch in numbers(batches, runs) for row in batch.to_pylist()]


@given(st.lists(st.integers(1, 5), max_size=4), st.lists(st.integers(0, 4), max_size=8))
def test_rows_get_the_entries_of_their_runs(lengths: list[int], sizes: list[int]) -> None:
    runs = [Run(rows, 100 + number, 10 * number, (sum(lengths[: number + 1]),)) for number, rows in enumerate(lengths)]
    found = _numbers(range(1, sum(lengths) + 1), runs, sizes)
    assert found == [(run.ledger_id, run.first + i) for run in runs for i in range(run.rows)]


@pytest.mark.parametrize("offsets", [[], [1], [1, 2], [1, 2, 3, 4], [1, 2, 4], [1, 3, 2]])
def test_other_rows_than_were_counted_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match=OTHER_ROWS):
        _numbers(offsets, [Run(2, 7, 0, (2,)), Run(1, 8, 5, (3,))] if offsets[:2] == [1, 2] else [Run(3, 7, 0, (3,))], [2])


A, B = LedgerKey("a", None), LedgerKey("b", None)


def _part(partition: int, at: int, key: LedgerKey, first: int, last: int, *, is_run: bool = True) -> Part:
    return Part(
        partition=partition, at=at, key=key, bad=False, is_published=False, rows=last - first + 1, hash=0, first=(first,),
        last=(last,), last_text=(str(last),), is_run=is_run, falls=False,
    )  # fmt: skip


def _batch(**ends: int) -> Batch:
    spans = [Span(LedgerKey(source, None), 100 + at, 1000, 999 + rows) for at, (source, rows) in enumerate(ends.items())]
    return Batch("p", 0, tuple(spans), {source: SourceEnd("9", 9) for source in ends})


def test_runs_are_numbered_in_the_order_of_their_offsets_wherever_they_lie() -> None:
    parts = [_part(2, 20, A, 1, 3), _part(0, 0, A, 4, 9), _part(2, 23, B, 1, 1), _part(1, 10, B, 2, 5)]
    assert runs_of(parts, _batch(a=9, b=5), unique=True) == {
        0: [Run(6, 100, 1003, (9,))],
        1: [Run(4, 101, 1001, (5,))],
        2: [Run(3, 100, 1000, (3,)), Run(1, 101, 1000, (1,))],
    }


def test_rows_that_overlap_or_are_no_run_are_to_be_sorted() -> None:
    assert runs_of([_part(0, 0, A, 1, 3), _part(1, 10, A, 3, 5)], _batch(a=6), unique=True) is None
    assert runs_of([_part(0, 0, A, 1, 3, is_run=False)], _batch(a=3), unique=True) is None


def test_rows_without_an_order_of_their_own_are_numbered_as_they_lie() -> None:
    parts = [_part(1, 10, A, 0, 0), _part(0, 0, A, 0, 0)]
    assert runs_of(parts, _batch(a=2), unique=False) == {0: [Run(1, 100, 1000, (0,))], 1: [Run(1, 100, 1001, (0,))]}
