"""Whether rows come in the order of their offsets. What Spark's own expressions cannot see is the row before: here rows are blocks of
Arrow, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NEXT, BEGINS, FALLS = 0, 1, 2
"""What a row is: the next of those before; the first row of another source or ledger; one whose offset is not above that of the row
before."""


class Order:
    """Whether the rows of each source, or of each ledger key, come in the order of their offsets, a block after the other."""

    def __init__(self) -> None:
        self._last: dict[Any, tuple[Any, ...]] = {}
        """The last offset of each, as `ordered`."""

    def rises(self, of: pa.Array, *offsets: pa.Array) -> bool:
        """Whether those of the next block rise too. One row at least. `of`: whose rows they are, a source or a KEY."""
        steps = steps_between([of, *offsets])
        if pc.any(pc.equal(steps, FALLS)).as_py():
            return False
        begins = [0, *(at + 1 for at in pc.indices_nonzero(pc.not_equal(steps, NEXT)).to_pylist()), len(of)]
        for first, end in pairwise(begins):
            whose = of[first].as_py()
            before = self._last.get(whose)
            if before is not None and before >= ordered(row_of(offsets, first)):
                return False
            self._last[whose] = ordered(row_of(offsets, end - 1))
        return True


def steps_between(columns: Sequence[pa.Array]) -> pa.Array:
    """The step from each row to the next: one less than there are rows."""
    pairs = [(column.slice(0, len(column) - 1), column.slice(1)) for column in columns]
    same = pc.equal(*pairs[0])
    rises: pa.Array = pa.array([False] * len(same), pa.bool_())
    for before, after in reversed(pairs[1:]):
        rises = pc.or_(_less(before, after), pc.and_(_equal(before, after), rises))
    return pc.if_else(same, pc.if_else(rises, NEXT, FALLS), BEGINS)


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
