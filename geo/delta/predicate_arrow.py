"""Applies predicates (`predicate.py`) to rows that this process has at hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geo.delta.predicate import ANY_ROW, All, Among, Begins, Compare, Either, IsNull, Lists, Not, Predicate, TimeUs

_COMPARED = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def kept(predicate: Predicate, rows: pa.Table) -> pa.Table:
    """Keeps the rows that fulfil a predicate, in their order."""
    return rows if predicate == ANY_ROW else rows.filter(mask(predicate, rows))


def mask(predicate: Predicate, rows: pa.Table) -> Any:
    """Marks the rows that fulfil a predicate: BOOLEAN, never NULL, in the order of the rows. Times are in UTC, or without a zone."""
    match predicate:
        case All(parts):
            return _folded(parts, rows, pc.and_, True)
        case Either(parts):
            return _folded(parts, rows, pc.or_, False)
        case Not(part):
            return pc.invert(mask(part, rows))
        case IsNull(column):
            return rows[column].is_null()
        case Among(column, values):
            return pc.is_in(rows[column], value_set=pa.array(values, rows[column].type))
        case Begins(column, text):
            return pc.starts_with(rows[column], text).fill_null(False)
        case Lists(column, text):
            return _lists(rows[column], text)
        case Compare(column, by, value):
            at_hand = _micros(rows[column]) if isinstance(value, TimeUs) else rows[column]
            return _COMPARED[by](at_hand, value.in_64_bits if isinstance(value, TimeUs) else value).fill_null(False)
    raise AssertionError(predicate)


def _folded(parts: tuple[Predicate, ...], rows: pa.Table, join: Any, none: bool) -> Any:
    found = None
    for part in parts:
        found = mask(part, rows) if found is None else join(found, mask(part, rows))
    return pa.chunked_array([pa.repeat(pa.scalar(none), len(rows))]) if found is None else found


def _lists(column: pa.ChunkedArray, text: str) -> Any:
    lists = pc.fill_null(column.combine_chunks(), [])  # below a NULL there may be something
    named = pc.equal(pc.list_flatten(lists), text).fill_null(False)
    at = pc.list_parent_indices(lists).filter(named)
    return pc.is_in(pa.array(range(len(lists)), at.type), value_set=at)


def _micros(times: pa.ChunkedArray) -> Any:
    return times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
