"""Asks a table about its rows. `count_nulls`, `last_rows`, `summarise` and `rows_where` are answered by this process, where it reads the
table's files by itself and there is not much to read (`geo.delta.driver.Reads`), else by Spark; the answers are the same.

The others are answered without Spark or with None; their callers then ask Spark in a form of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from geo.delta.change import DataFileOf, files_of
from geo.delta.data_file import DataFile
from geo.delta.delta_state import DeltaState
from geo.delta.engine import Engine, Refused
from geo.delta.predicate import ANY_ROW, Predicate
from geo.delta.summary import Groups, Summary
from geo.delta.table import Table

T = TypeVar("T")


def count_nulls(table: Table, column: str) -> int:
    """Counts the rows that have NULL in a column now."""
    return table.ask(lambda engine: engine.count_nulls(column))


def last_rows(table: Table, columns: Sequence[str], order: Sequence[str], count: int, *, where_null: str) -> list[dict[str, Any]]:
    """The last `count` rows by the columns `order`, of which the first is a time, among those with NULL in one column: the last
    one first, these columns, those of `order` among them; times in UTC."""
    return table.ask(lambda engine: engine.last_rows(columns, order, count, where_null=where_null))


def summarise(table: Table, version: int, summary: Summary) -> Groups:
    """The answer to a question about the rows at a version."""
    return table.ask(lambda engine: engine.summarise(version, summary))


def rows_where(table: Table, version: int, columns: Sequence[str], where: Predicate) -> pa.Table:
    """The rows at a version that fulfil a condition, in no order, for conditions that few fulfil: these columns, times in UTC; where
    nothing was read, columns without a type."""
    return table.ask(lambda engine: engine.rows_where(version, columns, where))


def scan(
    table: Table,
    version: int,
    columns: Sequence[str],
    each: Callable[[pa.Table], T],
    *,
    where: Predicate = ANY_ROW,
    from_stats: Callable[[DataFile], T | None] = lambda file: None,
) -> list[T] | None:
    """Applies `each` to every batch of the rows at a version that fulfil `where`, in no order: these columns, times in UTC. A file of which
    `from_stats` gives something adds that, and nothing of it is read.

    None: Spark is to do it.
    """
    return _here(table, lambda engine: engine.scan(version, columns, each, where, from_stats))


def small_rows(table: Table, columns: tuple[str, ...], where: Predicate = ANY_ROW) -> list[dict[str, Any]] | None:
    """Reads the rows that a small table, of this program's own making, has now and that fulfil `where`, which is of these columns; times in
    UTC.

    None: they are many, or Spark is to read them.
    """
    return _here(table, lambda engine: engine.small_rows(columns, where))


def few_rows(table: Table, version: int) -> pa.Table | None:
    """Reads all rows at a version, with the columns that the table has now.

    None: they are many, or Spark is to read them.
    """
    return _here(table, lambda engine: engine.few_rows(version))


def data_files(table: Table, version: int) -> list[DataFile] | None:
    """Lists the files of a version of a table on a local disk.

    None: they cannot be listed without Spark.
    """
    return _here(table, lambda engine: engine.data_files(version))


def files_at(table: Table, state: DeltaState) -> list[DataFileOf] | None:
    """Lists the files of a version as its `add` actions have them.

    None: a file has no statistics, or a name that the log has in another form, and they cannot be told without Spark.
    """
    listed = data_files(table, state.version)
    return None if listed is None else files_of(listed, str(table.location), state)


def is_empty(table: Table, version: int) -> bool:
    """Whether a version is known to have no rows at all, without reading any."""
    return _here(table, lambda engine: engine.is_empty(version)) is True


def _here(table: Table, question: Callable[[Engine], T]) -> T | None:
    found = table.ask_here(question)
    return None if isinstance(found, Refused) else found
