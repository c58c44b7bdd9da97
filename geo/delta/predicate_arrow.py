"""Applies predicates (`predicate.py`) to rows that this process has at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geo.delta.predicate import (
    ANY_ROW,
    LEAST,
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
)

_COMPARED = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def kept(predicate: Predicate, rows: pa.Table) -> pa.Table:
    """Keeps the rows that fulfil a predicate, in their order."""
    if predicate == ANY_ROW or (marked := mask(predicate, rows)).true_count == len(rows):
        return rows
    return rows.filter(marked)


def mask(predicate: Predicate, rows: pa.Table) -> pa.BooleanArray:
    """Marks the rows that fulfil a predicate: BOOLEAN, never NULL, in the order of the rows. Times are in UTC, or without a zone."""
    return _mask(predicate, {name: _whole(rows[name]) for name in columns_of(predicate)}, len(rows))


def _mask(predicate: Predicate, columns: Mapping[str, Any], count: int) -> Any:
    match predicate:
        case All(parts):
            return _folded(parts, columns, count, pc.and_, True)
        case Either(parts):
            return _folded(parts, columns, count, pc.or_, False)
        case Not(part):
            return pc.invert(_mask(part, columns, count))
        case IsNull(column):
            return columns[column].is_null()
        case Among(column, values):
            return pc.is_in(columns[column], value_set=pa.array(values, columns[column].type))
        case Begins(column, text):
            return _never_null(pc.starts_with(columns[column], text))
        case Lists(column, text):
            return _lists(columns[column], text)
        case AtLeast(column, by, bounds):
            keys = pc.binary_join_element_wise(*(columns[name].cast(pa.string()) for name in by), ":")
            at = pc.index_in(keys, value_set=pa.array(bounds, pa.string()))
            least = pa.array(bounds.values(), pa.int64()).take(at).fill_null(LEAST)
            return _never_null(pc.greater_equal(columns[column], least))
        case Compare(column, by, TimeUs() as moment):
            return _never_null(_COMPARED[by](_micros(columns[column]), moment.in_64_bits))
        case Compare(column, by, value):
            return _never_null(_COMPARED[by](columns[column], value))
    raise AssertionError(predicate)


def _folded(parts: tuple[Predicate, ...], columns: Mapping[str, Any], count: int, join: Any, none: bool) -> Any:
    """The masks of the parts, joined; `none` is that of no part. Once no row can change any more the rest is not asked."""
    found = None
    for part in parts:
        found = _mask(part, columns, count) if found is None else join(found, _mask(part, columns, count))
        if found.true_count == (0 if none else count):
            break
    return pa.repeat(pa.scalar(none), count) if found is None else found


def _lists(lists: Any, text: str) -> Any:
    lists = pc.fill_null(lists, [])  # below a NULL there may be something
    named = _never_null(pc.equal(pc.list_flatten(lists), text))
    at = pc.list_parent_indices(lists).filter(named)
    return pc.is_in(pa.array(range(len(lists)), at.type), value_set=at)


def _whole(column: pa.ChunkedArray) -> Any:
    """The column in one piece: a call on it takes half the time."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _never_null(marks: Any) -> Any:
    return marks.fill_null(False) if marks.null_count else marks


def _micros(times: Any) -> Any:
    return times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
