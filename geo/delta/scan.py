"""Answers questions about the rows of a table. `count_nulls`, `last_rows`, `summarise` and `rows_where` choose the engine: this process,
where it reads the table's files by itself and there is not much to read (`geo.delta.driver.Reads`), else Spark. The answers are the same.

The others answer without Spark or return None; their callers then ask Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F

from geo.delta.arrow_rows import collected
from geo.delta.data_file import DataFile
from geo.delta.driver import Reads
from geo.delta.engines.native import read
from geo.delta.engines.native.small_table import read_small
from geo.delta.engines.native.summary import groups_from_stats, groups_of, joined
from geo.delta.engines.spark import summary as by_spark
from geo.delta.predicate import ANY_ROW, IsNull, Predicate, columns_of, to_sql
from geo.delta.summary import Groups, Summary
from geo.delta.table import Table
from geo.sql_text import identifier

T = TypeVar("T")


def count_nulls(table: Table, column: str) -> int:
    """Counts the rows that have NULL in a column now."""
    count = read.count_where_null(table.read_folder, table.reads, column)
    return table.read().where(to_sql(IsNull(column))).count() if count is None else count


def last_rows(table: Table, columns: Sequence[str], order: Sequence[str], count: int, *, where_null: str) -> list[dict[str, Any]]:
    """The last `count` rows by the columns `order`, of which the first is a time, among those with NULL in one column: the last
    one first, these columns, those of `order` among them; times in UTC."""
    found = read.last_rows(table.read_folder, table.reads, columns, order, count, where_null=where_null)
    if found is not None:
        return found
    rows = table.read().where(to_sql(IsNull(where_null))).orderBy(*(F.desc(name) for name in order)).limit(count)
    return list(collected(rows.select(*map(identifier, columns))))


def summarise(table: Table, version: int, summary: Summary) -> Groups:
    """The answer to a question about the rows at a version."""
    each = scan(
        table,
        version,
        summary.columns,
        lambda rows: groups_of(summary, rows),
        where=summary.where,
        from_stats=groups_from_stats(summary),
    )
    return by_spark.groups_of(summary, table.read(version)) if each is None else joined(each)


def rows_where(table: Table, version: int, columns: Sequence[str], where: Predicate) -> pa.Table:
    """The rows at a version that fulfil a condition, in no order, for conditions that few fulfil: these columns, times in UTC; where
    nothing was read, columns without a type."""

    def each(rows: pa.Table) -> pa.Table:
        rows.validate(full=True)  # a text that is no UTF-8 is left to Spark
        return rows.select(columns)

    found = scan(table, version, tuple(dict.fromkeys((*columns, *columns_of(where)))), each, where=where)
    if found:
        with suppress(pa.ArrowException):  # files of types that do not go together are left to Spark
            return pa.concat_tables(found, promote_options="permissive")  # each writer has its own idea of what may be NULL
    elif found is not None:
        return pa.table({name: pa.nulls(0) for name in columns})
    return table.read(version).where(to_sql(where)).select(*columns).toArrow()


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
    return read.scan(table.read_folder, table.reads, version, columns, each, where, from_stats)


def small_rows(table: Table, columns: tuple[str, ...], where: Predicate = ANY_ROW) -> list[dict[str, Any]] | None:
    """Reads the rows that a small table, of this program's own making, has now and that fulfil `where`, which is of these columns; times in
    UTC.

    None: they are many, or Spark is to read them.
    """
    folder = table.read_folder
    return None if folder is None else read_small(folder, columns, where)


def few_rows(table: Table, version: int) -> pa.Table | None:
    """Reads all rows at a version, with the columns that the table has now.

    None: they are many, or Spark is to read them.
    """
    folder, state = table.log_folder, table.own_state()
    if folder is None or state is None or table.reads is Reads.NONE:
        return None
    return read.few_rows(folder, state, version)


def data_files(table: Table, version: int) -> list[DataFile] | None:
    """Lists the files of a version of a table on a local disk.

    None: they cannot be listed without Spark.
    """
    return None if table.log_folder is None else read.data_files(table.log_folder, version)


def is_empty(table: Table, version: int) -> bool:
    """Whether a version is known to have no rows at all, without reading any."""
    return read.is_empty(table.read_folder, table.reads, version)
