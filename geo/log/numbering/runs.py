"""Rows in runs: whether those of a Spark partition come in order, and their numbers if they do.

A run is the rows of one ledger that follow each other in one Spark partition, in the order of their offsets. What Spark's own
expressions cannot see is the row before: these functions are handed a partition's rows in batches, one after the other (Spark's
scalar iterator UDFs), and only what is needed of them, some bytes a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

OTHER_ROWS = "GEO_OTHER_ROWS"

NEXT, BEGINS, FALLS, NOT_COUNTED = 0, 1, 2, 3
"""What a row is: the next of its run; the first row of a run; one whose offset is not above that of the row before; of no run."""

_STEP = pa.int8()
_IDS = "struct<ledger_id: bigint, entry_id: bigint>"


@dataclass(frozen=True, slots=True)
class Run:
    """Entries `first` to `first + rows - 1` of a ledger. `last` is the offset of the last one."""

    rows: int
    ledger_id: int
    first: int
    last: tuple[Any, ...]


def step(key: Column, offset: Column, *, unique: bool) -> Column:
    """What each row is: NEXT, BEGINS, FALLS (never, unless offsets are `unique`), or NOT_COUNTED where `key` (BIGINT) is NULL.
    `offset` is a struct; NULL comes first in it, as Spark orders it."""

    def of_partition(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return steps(batches, unique=unique)

    return _iterating(of_partition, "tinyint", key, offset)


def numbered(offset: Column, runs: Mapping[int, Sequence[Run]]) -> Column:
    """Ledger and entry of each row (struct of two BIGINT), of the rows of a DataFrame whose Spark partitions consist of these
    runs, in this order. Evaluating it raises an error with OTHER_ROWS unless they do: as many rows, with these last offsets."""

    def of_partition(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        context = TaskContext.get()
        assert context is not None
        return numbers(batches, runs.get(context.partitionId(), ()))

    return _iterating(of_partition, _IDS, offset)


def steps(batches: Iterator[tuple[pa.Array, ...]], *, unique: bool) -> Iterator[pa.Array]:
    """`step` of one Spark partition's rows, a batch after the other. Pure."""
    before: list[pa.Array] | None = None
    """The last row that was counted."""
    for keys, offsets in batches:
        counted = keys.is_valid()
        rows = [column.filter(counted) for column in (keys, *(offsets.flatten() if unique else ()))]
        if not len(rows[0]):
            yield pa.array([NOT_COUNTED] * len(keys), _STEP)
            continue
        if before is None:
            found = pa.concat_arrays([pa.array([BEGINS], _STEP), steps_between(rows)])
        else:
            found = steps_between([pa.concat_arrays([b, row]) for b, row in zip(before, rows, strict=True)])
        before = [column.slice(len(column) - 1) for column in rows]
        others = pa.array([NOT_COUNTED] * len(keys), _STEP)
        yield found if len(found) == len(keys) else pc.replace_with_mask(others, counted, found)


def numbers(batches: Iterator[pa.StructArray], runs: Sequence[Run]) -> Iterator[pa.StructArray]:
    """`numbered` of one Spark partition's rows, a batch after the other. Pure. Raises ValueError with OTHER_ROWS."""
    left = [(run.rows, run) for run in reversed(runs)]
    for offsets in batches:
        ledgers, entries, at = [pa.array([], pa.int64())], [pa.array([], pa.int64())], 0
        while at < len(offsets):
            if not left:
                raise ValueError(OTHER_ROWS)
            rest, run = left.pop()
            taken = min(rest, len(offsets) - at)
            first = run.first + run.rows - rest
            ledgers.append(pa.repeat(pa.scalar(run.ledger_id, pa.int64()), taken))
            entries.append(pa.array(range(first, first + taken), pa.int64()))
            at += taken
            if taken < rest:
                left.append((rest - taken, run))
            elif tuple(offsets[at - 1].as_py().values()) != run.last:
                raise ValueError(OTHER_ROWS)
        yield pa.StructArray.from_arrays([pa.concat_arrays(ledgers), pa.concat_arrays(entries)], ["ledger_id", "entry_id"])
    if left:
        raise ValueError(OTHER_ROWS)


def steps_between(columns: Sequence[pa.Array]) -> pa.Array:
    """The step from each row to the next: one less than there are rows."""
    pairs = [(column.slice(0, len(column) - 1), column.slice(1)) for column in columns]
    same = pc.equal(*pairs[0])
    rises: pa.Array = pa.array([len(columns) == 1] * len(same), pa.bool_())
    for before, after in reversed(pairs[1:]):
        rises = pc.or_(_less(before, after), pc.and_(_equal(before, after), rises))
    return pc.if_else(same, pc.if_else(rises, NEXT, FALLS), BEGINS).cast(_STEP)


def _less(before: pa.Array, after: pa.Array) -> pa.Array:
    if pa.types.is_boolean(before.type):
        before, after = before.cast(pa.int8()), after.cast(pa.int8())
    return pc.or_(pc.and_(before.is_null(), after.is_valid()), pc.fill_null(pc.less(before, after), False))


def _equal(before: pa.Array, after: pa.Array) -> pa.Array:
    return pc.or_(pc.and_(before.is_null(), after.is_null()), pc.fill_null(pc.equal(before, after), False))


def _iterating(function: Callable[..., Iterator[pa.Array]], returns: str, *columns: Column) -> Column:
    # Spark takes its kind from its type hints. Not deterministic: what it says depends on the rows before, so it is neither
    # repeated nor moved.
    udf = cast(Any, arrow_udf)(function, returns)
    found: Column = udf.asNondeterministic()(*columns)
    return found
