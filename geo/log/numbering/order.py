"""Checks that rows come in the order of their offsets. Spark's own expressions cannot see the row before: here rows are blocks of Arrow, one after
the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class Order:
    """Tracks that the rows of each source, or of each ledger key, come in the order of their offsets, a block after the other."""

    def __init__(self) -> None:
        self._last: dict[Any, tuple[Any, ...]] = {}
        """The last offset of each, as `ordered`."""

    def rises(self, of: pa.Array, *offsets: pa.Array) -> bool:
        """True if those of the next block rise too. One row at least. `of`: whose rows they are, a source or a KEY."""
        if pc.any(pc.and_(pc.equal(*_neighbours(of)), pc.invert(_are_above(offsets)))).as_py():
            return False
        for first, end in pairwise(begins_of([of])):
            whose = of[first].as_py()
            before = self._last.get(whose)
            if before is not None and before >= ordered(row_of(offsets, first)):
                return False
            self._last[whose] = ordered(row_of(offsets, end - 1))
        return True


def begins_of(columns: Sequence[pa.Array]) -> list[int]:
    """Tells where rows begin that have other values than the row before in any of the columns, which have a value everywhere; and their end."""
    if not (count := len(columns[0])):
        return []
    other = reduce(pc.or_, (pc.not_equal(*_neighbours(column)) for column in columns))
    return [0, *(at + 1 for at in pc.indices_nonzero(other).to_pylist()), count]


def _neighbours(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The values of all rows but the last, and those of the rows that follow them."""
    return column.slice(0, len(column) - 1), column.slice(1)


def _are_above(offsets: Sequence[pa.Array]) -> pa.Array:
    """Compare the offset of each row but the first with that of the row before: true where it is above."""
    above: pa.Array = pa.array([False] * (len(offsets[0]) - 1), pa.bool_())
    for before, after in map(_neighbours, reversed(offsets)):
        above = pc.or_(_less(before, after), pc.and_(_equal(before, after), above))
    return above


def _less(before: pa.Array, after: pa.Array) -> pa.Array:
    if pa.types.is_boolean(before.type):
        before, after = before.cast(pa.int8()), after.cast(pa.int8())
    return pc.or_(pc.and_(before.is_null(), after.is_valid()), pc.fill_null(pc.less(before, after), False))


def _equal(before: pa.Array, after: pa.Array) -> pa.Array:
    return pc.or_(pc.and_(before.is_null(), after.is_null()), pc.fill_null(pc.equal(before, after), False))


def ordered(offset: Sequence[Any]) -> tuple[Any, ...]:
    """An offset by which to sort: NULL comes first, as Spark orders it."""
    return tuple((part is not None, part) for part in offset)


def row_of(columns: Sequence[pa.Array], at: int) -> tuple[Any, ...]:
    """The values of a row."""
    return tuple(column[at].as_py() for column in columns)
