"""A few rows of this program's own as a DataFrame. Nothing is read or written here."""

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
    "ARRAY<STRING>": pa.list_(pa.string()),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "MAP<STRING, BIGINT>": pa.map_(pa.string(), pa.int64()),
}


def rows_frame(spark: SparkSession, types: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> DataFrame:
    """Rows given by column name, with `types` as column names and SQL types; what is not given is NULL.

    By way of Arrow: `createDataFrame` of a list starts a Python worker in every job that reads it, seconds on a busy machine.
    """
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
    return spark.createDataFrame(pa.Table.from_pylist([{n: _arrow(row.get(n)) for n in types} for row in rows], schema))


def _arrow(value: object) -> object:
    return list(value.items()) if isinstance(value, Mapping) else value
