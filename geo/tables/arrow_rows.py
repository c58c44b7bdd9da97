"""A few rows of this program's own, as an Arrow table or a DataFrame. Nothing is read or written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

_ARROW = {
    "BIGINT": pa.int64(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "ARRAY<BIGINT>": pa.list_(pa.int64()),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "MAP<STRING, BIGINT>": pa.map_(pa.string(), pa.int64()),
}


def rows_table(types: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Rows given by column name, with `types` as column names and SQL types; what is not given is NULL."""
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
    return pa.Table.from_pylist([{n: _arrow(row.get(n)) for n in types} for row in rows], schema)


def rows_frame(spark: SparkSession, types: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> DataFrame:
    """As `rows_table`, as a DataFrame.

    By way of Arrow: `createDataFrame` of a list starts a Python worker in every job that reads it, seconds on a busy machine.
    """
    return spark.createDataFrame(rows_table(types, rows))


def _arrow(value: object) -> object:
    return list(value.items()) if isinstance(value, Mapping) else value
