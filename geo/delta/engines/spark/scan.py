"""Picks rows of a DataFrame, and applies a function to them in Spark's tasks, where they are read. What it makes of them comes to this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from geo.delta.arrow_rows import map_in_arrow, with_times_in_utc
from geo.delta.engine import Scan
from geo.delta.predicate import All, Among, AtLeast, Compare, Either, IsNull, Predicate, to_sql
from geo.late import F, spark_types
from geo.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


MOST_CONDITIONS = 64
"""So many bounds are told to Spark as conditions, by which Delta skips files, each some milliseconds of planning. Of 200 the code that it makes is
too large to be compiled. All of more as a table that is joined too."""


def filtered(rows: DataFrame, where: Predicate) -> DataFrame:
    """The rows that fulfil a condition. Columns as `rows`."""
    bounds, others = list[AtLeast](), list[Predicate]()
    for part in _parts(where):
        bounds.append(part) if isinstance(part, AtLeast) else others.append(part)
    return reduce(_bounded, bounds, rows.where(to_sql(All(tuple(others)))))


def _parts(where: Predicate) -> Iterator[Predicate]:
    if isinstance(where, All):
        for part in where.parts:
            yield from _parts(part)
    else:
        yield where


def _bounded(rows: DataFrame, bounds: AtLeast) -> DataFrame:
    """Filters by bounds. As SQL alone Spark would look each row's bound up in a map, entry by entry."""
    conditions: list[Predicate] = [~IsNull(bounds.column)]
    for listed, bound in sorted(bounds.bounds.items())[:MOST_CONDITIONS]:
        values = zip(bounds.by, listed.rsplit(":", len(bounds.by) - 1), strict=True)
        others = (~_equals(rows, *one) for one in reversed(list(values)))  # numbers, which differ soonest, first
        conditions.append(Either((*others, Compare(bounds.column, ">=", bound))))
    rows = rows.where(to_sql(All(tuple(conditions))))
    if len(bounds.bounds) <= MOST_CONDITIONS:
        return rows
    table = pa.table({"_geo_by": list(bounds.bounds), "_geo_bound": pa.array(bounds.bounds.values(), pa.int64())})
    by = ", ':', ".join(f"CAST({identifier(name)} AS STRING)" for name in bounds.by)  # NULL where one of them is
    keyed = rows.withColumn("_geo_by", F.expr(f"concat({by})")).join(
        F.broadcast(rows.sparkSession.createDataFrame(table)), "_geo_by", "left"
    )
    is_beyond = f"_geo_bound IS NULL OR {identifier(bounds.column)} >= _geo_bound"
    return keyed.where(is_beyond).select(*map(identifier, rows.columns))


def _equals(rows: DataFrame, column: str, text: str) -> Predicate:
    is_text = isinstance(rows.schema[column].dataType, spark_types.StringType)
    return Among(column, frozenset({text if is_text else int(text)}))


def scanned(rows: DataFrame, asked: Scan[T]) -> list[T]:
    """Scans as `Engine.scan` the rows of a DataFrame."""
    by, combine = asked.by, asked.combine
    rows = filtered(rows, asked.where).select(*map(identifier, asked.columns))
    rows = rows.repartition(*map(identifier, by)) if by else rows
    told = map_in_arrow(rows, partial(_by_task, asked.each, combine), "answer BINARY")
    # Of one task at a time where they may be large: together Spark refuses more than a gigabyte.
    answers = told.toLocalIterator(prefetchPartitions=True) if by else told.collect()
    found: list[T] = [pickle.loads(row["answer"]) for row in answers]  # noqa: S301  # of this program's own tasks
    return [combine(found)] if combine is not None and found else found


def _by_task(
    each: Callable[[pa.Table], T], combine: Callable[[Iterable[T]], T] | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A row for each answer."""
    found = (each(with_times_in_utc(pa.Table.from_batches([batch]))) for batch in batches)
    for one in found if combine is None else [combine(found)]:
        yield pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(one)], pa.binary())})
