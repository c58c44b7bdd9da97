"""Whether rows rise, whatever the blocks in which they come. A naive model beside it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from geo.log.numbering.order import Order

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

Row = tuple[int, tuple[Any, ...]]


def _sortable(offset: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((value is not None, value.encode() if isinstance(value, str) else value) for value in offset)


@st.composite
def _rows(draw: st.DrawFn) -> tuple[list[Row], list[pa.DataType], list[int]]:
    fields = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3))
    offsets = st.tuples(*(values for _, values in fields))
    rows = draw(st.lists(st.tuples(st.integers(1, 2), offsets), min_size=1, max_size=12))
    if draw(st.booleans()):
        rows = sorted({_sortable(row[1]): row for row in rows}.values(), key=lambda row: _sortable(row[1]))
    return rows, [kind for kind, _ in fields], draw(st.lists(st.integers(1, 4), max_size=6))


def _rises(rows: Sequence[Row], types: Sequence[pa.DataType], sizes: Sequence[int]) -> bool:
    order = Order()
    for begin, end in pairwise([0, *(cut for cut in accumulate(sizes) if cut < len(rows)), len(rows)]):
        block = rows[begin:end]
        columns = [pa.array([offset[at] for _, offset in block], kind) for at, kind in enumerate(types)]
        if not order.rises(pa.array([whose for whose, _ in block]), *columns):
            return False
    return True


@given(_rows())
def test_rows_rise_if_each_is_above_the_one_before_of_its_own(given_: tuple[list[Row], list[pa.DataType], list[int]]) -> None:
    own = [[_sortable(offset) for of, offset in given_[0] if of == whose] for whose in (1, 2)]
    assert _rises(*given_) == all(before < after for offsets in own for before, after in pairwise(offsets))
