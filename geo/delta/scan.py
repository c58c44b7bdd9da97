"""Asks a table about its rows. `count_nulls`, `last_rows`, `summarise`, `rows_where` and `scan` are answered by this process, or by Spark; the
answers are the same. This process answers where it reads the table's files by itself and there is not much to read (`geo.delta.driver.Reads`).

Of the others None means that this process does not know, or that it is much: their callers then ask Spark, or leave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import pyarrow as pa

from geo.delta.change import DataFileOf
from geo.delta.data_file import DataFile
from geo.delta.delta_state import DeltaState
from geo.delta.engine import Scan
from geo.delta.engines.native.rows import as_collected
from geo.delta.engines.spark.scan import filtered
from geo.delta.engines.spark.summary import groups_of
from geo.delta.file_rows import FileRows
from geo.delta.predicate import ANY_ROW, Predicate
from geo.delta.predicate_arrow import kept
from geo.delta.summary import Groups, Summary
from geo.delta.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


def count_nulls(table: Table, version: int, column: str) -> int:
    """Counts as `Engine.count_nulls`."""
    return table.ask(lambda engine: engine.count_nulls(version, column))


def last_rows(table: Table, columns: Sequence[str], order: Sequence[str], count: int, *, where_null: str) -> list[dict[str, Any]]:
    """Reads as `Engine.last_rows`; times in UTC."""
    return table.ask(lambda engine: engine.last_rows(columns, order, count, where_null=where_null))


def summarise(table: Table, version: int, summary: Summary) -> Groups:
    """Summarises as `Engine.summarise`."""
    return table.ask(lambda engine: engine.summarise(version, summary))


def summarise_rows(rows: DataFrame, summary: Summary) -> Groups:
    """Summarises as `Engine.summarise` the rows of a DataFrame."""
    return groups_of(summary, rows)


def rows_where(table: Table, version: int, columns: Sequence[str], where: Predicate) -> pa.Table:
    """Reads as `Engine.rows_where`, for conditions that few fulfil: times in UTC; where nothing was read, columns without a type."""
    return table.ask(lambda engine: engine.rows_where(version, columns, where))


def keep_where(rows: DataFrame, where: Predicate) -> DataFrame:
    """The rows of a DataFrame that fulfil a condition. Columns as `rows`."""
    return filtered(rows, where)


def read_where(table: Table, version: int, where: Predicate) -> DataFrame:
    """The rows at a version that fulfil a condition, for Spark."""
    return filtered(table.read(version), where)


def scan(table: Table, version: int, asked: Scan[T]) -> list[T]:
    """Applies `each` to every batch of the rows at a version that fulfil `where`, in no order: the `columns` asked for, times in UTC.

    Spark applies `each` in tasks of its own, on copies of it and of all that it refers to. It hands over what `each` returns, which has to be small.
    `combine` makes one answer of those that are there, so that what many batches tell is one answer a task, and one here. `by`: columns of which one
    task has all rows with equal values, for large answers about such groups. No two tasks speak of one then.
    """
    return table.ask(lambda engine: engine.scan(version, asked))


def scan_here(table: Table, version: int, asked: Scan[T]) -> list[T] | None:
    """Scans as `scan`, by this process.

    None: Spark is to do it.
    """
    return table.ask_here(lambda engine: engine.scan(version, asked))


def small_rows(table: Table, columns: tuple[str, ...], where: Predicate = ANY_ROW) -> list[dict[str, Any]] | None:
    """Reads the rows that a small table, of this program's own making, has now and that fulfil `where`, which is of these columns. Times in UTC.

    None: they are many, or Spark is to read them.
    """
    return table.ask_here(lambda engine: engine.small_rows(columns, where))


def collected_where(rows: pa.Table, columns: Sequence[str], where: Predicate) -> list[dict[str, Any]]:
    """Those of some rows that fulfil `where`, as `small_rows` has them."""
    return as_collected(kept(where, rows), columns)


def few_rows(table: Table, version: int) -> pa.Table | None:
    """Reads all rows at a version, with the columns that the table has now.

    None: they are many, or Spark is to read them.
    """
    return table.ask_here(lambda engine: engine.few_rows(version))


def few_added(table: Table, first: int, last: int) -> pa.Table | None:
    """Reads the rows that the versions `first` to `last` added.

    None: they are many, or Spark is to read them.
    """
    return table.ask_here(lambda engine: engine.few_added(first, last))


def added(table: Table, first: int, last: int) -> pa.Table | FileRows | None:
    """Reads as `few_added`; rows that are many are left in their files.

    None: Spark is to read them.
    """
    return table.ask_here(lambda engine: engine.added(first, last))


def added_where(table: Table, version: int, column: str, columns: Sequence[str]) -> tuple[pa.Table, bool] | None:
    """Reads those of the rows that a version added which have a value in a column, and whether it added others.

    None: Spark is to read them.
    """
    return table.ask_here(lambda engine: engine.added_where(version, column, columns))


def data_files(table: Table, version: int) -> list[DataFile] | None:
    """Lists the files of a version of a table at a path of the port.

    None: they cannot be listed without Spark.
    """
    return table.ask_here(lambda engine: engine.data_files(version))


def files_at(table: Table, state: DeltaState) -> list[DataFileOf] | None:
    """Lists the files of a version as its `add` actions have them.

    None: a file has no statistics, or a name that the log has in another form, and they cannot be told without Spark.
    """
    folder, listed = table.log_folder, data_files(table, state.version)
    if folder is None or listed is None:
        return None
    found = []
    for file in listed:
        rows, size = file.statistics.get("num_records"), file.statistics.get("size_bytes")
        path = str(file.path).removeprefix(f"{folder.parent}/")
        if path == str(file.path):  # of another table, as in a clone
            return None
        if rows is None or size is None or quote(path, safe="/=:-_.") != path:
            return None
        found.append(DataFileOf(path, {name: file.partition(name) for name in state.partition_by}, int(size), int(rows)))
    return found


def is_empty(table: Table, version: int) -> bool:
    """Tells whether a version is known to have no rows at all, without reading any."""
    return table.ask_here(lambda engine: engine.is_empty(version)) is True
