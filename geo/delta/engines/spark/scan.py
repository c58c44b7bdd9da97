"""Applies a function to rows in Spark's tasks, where they are read; what it makes of them comes to this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.delta.arrow_rows import with_times_in_utc

T = TypeVar("T")


def scanned(rows: DataFrame, each: Callable[[pa.Table], T], combine: Callable[[Iterable[T]], T] | None) -> list[T]:
    """As `Engine.scan`, of the rows of a DataFrame."""
    told = rows.mapInArrow(partial(_by_task, each, combine), "answer BINARY").collect()
    found: list[T] = [pickle.loads(row["answer"]) for row in told]  # noqa: S301  # of this program's own tasks
    return [combine(found)] if combine is not None and found else found


def _by_task(
    each: Callable[[pa.Table], T], combine: Callable[[Iterable[T]], T] | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A row for each answer."""
    found = (each(with_times_in_utc(pa.Table.from_batches([batch]))) for batch in batches)
    for one in found if combine is None else [combine(found)]:
        yield pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(one)], pa.binary())})
