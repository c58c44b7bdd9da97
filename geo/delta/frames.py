"""Rows of a table as DataFrames of Spark's: what versions added, a stream, files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from geo.delta.engines.spark.files import no_pattern
from geo.delta.protocol import is_mapped
from geo.delta.row_files import Written
from geo.errors import RetryableError
from geo.late import F, spark_sql, spark_types
from geo.session import own_session
from geo.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from geo.delta.table import Table

_FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def bytes_of(table: Table) -> int:
    """Bytes of its files at its newest version."""
    return int(table.delta().detail().collect()[0]["sizeInBytes"])


def read_inserts(table: Table, first: int, last: int) -> DataFrame:
    """The rows that the versions `first` to `last` added, by the change feed, with its columns `_change_type`,
    `_commit_version` and `_commit_timestamp`."""
    reader = table.spark.read.format("delta").option("readChangeFeed", "true")
    reader = reader.option("startingVersion", first).option("endingVersion", last)
    return table.by_spark.load(reader).where(F.col("_change_type") == "insert")


def read_added(table: Table, first: int, last: int) -> DataFrame:
    """Reads as `read_inserts`, with the columns of the table alone."""
    return read_inserts(table, first, last).drop(*_FEED_COLUMNS)


def read_stream(table: Table, options: Mapping[str, str], *, settings: Mapping[str, str] | None = None) -> DataFrame:
    """The rows as they are appended, in a session of their own if there are `settings` of it. A batch takes whole commits, however
    many files they have, so nobody sees a ledger with a hole in it for a moment."""
    spark = table.spark if settings is None else own_session(table.spark, settings)
    reader: DataStreamReader = spark.readStream.format("delta")
    reader = reader.options(**{"maxFilesPerTrigger": str(2**31 - 1), **options})
    return table.by_spark.load(reader)


def read_written(table: Table, written: Written) -> DataFrame:
    """The rows of files that were written and not committed, with all columns of the table: a file need not have each. Raises
    RetryableError where these have other names in files."""
    if is_mapped(table.properties()):
        raise RetryableError(
            f"{table}: rows were written and could not be committed by this program. Nothing was written. Try again."
        )
    return read_files(table, ((file.path, file.partition) for file in written.files))


def read_files(table: Table, files: Iterable[tuple[str, Mapping[str, str]]]) -> DataFrame:
    """Reads by Spark the rows of plain files in the folder of a table on a local disk, with all columns of the table. The files are given with
    their values of the partition columns.
    """
    columns, by_partition = table.require_snapshot().columns, dict[tuple[tuple[str, str], ...], list[str]]()
    for path, partition in files:
        by_partition.setdefault(tuple(partition.items()), []).append(no_pattern(f"{table.location}/{path}"))
    parts = []
    for values, paths in by_partition.items():
        inside = spark_types.StructType([field for field in columns if field.name not in dict(values)])
        rows = table.spark.read.schema(inside).parquet(*paths)
        told = {name: F.lit(value).cast(columns[name].dataType) for name, value in values}
        parts.append(rows.withColumns(told).select(*map(identifier, columns.names)))
    return reduce(spark_sql.DataFrame.unionByName, parts) if parts else table.spark.createDataFrame([], columns)
