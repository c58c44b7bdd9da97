"""Small batches are held on the driver: the fixed cost of Spark jobs dominates them, and this avoids most of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType

from geo.sql_text import identifier

FEW, LIGHT = 2_000, 16 * 1024
"""So many rows, if key, payload and properties of each have at most so many bytes."""

MOST_HELD_BYTES = FEW * LIGHT
"""Bytes of a batch that is held: 32 MB."""

_BODY = ("key", "payload", "properties")
_HEAVY = "_geo_heavy"


def octets(columns: Iterable[StructField]) -> str:
    """The size of these columns of a row in bytes, about, as SQL. A text or binary has its length, what has parts that of its JSON, anything else
    8."""
    return " + ".join(["0L", *map(_octets_of, columns)])


def _octets_of(column: StructField) -> str:
    name = identifier(column.name)
    if isinstance(column.dataType, (ArrayType, MapType, StructType)):
        name = f"to_json({name})"
    elif not isinstance(column.dataType, (StringType, BinaryType)):
        return "8"
    return f"coalesce(octet_length({name}), 0)"


_OCTETS = octets(
    [
        StructField("key", StringType()),
        StructField("payload", BinaryType()),
        StructField("properties", MapType(StringType(), StringType())),
    ]
)


def fetch_if_small(rows: DataFrame, columns: Sequence[str]) -> pa.Table | None:
    """These columns of the rows if they are few and light, otherwise None. Among them are key, payload and properties."""
    # As text: built by functions it is 300 calls into the JVM, which in a small batch is a third of the time.
    light = (f"if({_HEAVY}, NULL, {name}) AS {name}" if name in _BODY else identifier(name) for name in columns)
    table = rows.withColumn(_HEAVY, F.expr(f"{_OCTETS} > {LIGHT}")).selectExpr(*light, _HEAVY).limit(FEW + 1).toArrow()
    if table.num_rows > FEW or pc.any(table[_HEAVY]).as_py():
        return None
    return table.drop_columns([_HEAVY])


def hold_on_driver(rows: DataFrame, order: Sequence[str]) -> DataFrame | None:
    """The rows of a bytes log, held on the driver and sorted by the columns `order`, if they are few and light; otherwise
    None."""
    table = fetch_if_small(rows, rows.columns)
    if table is None:
        return None
    return rows.sparkSession.createDataFrame(table.sort_by([(name, "ascending") for name in order]), rows.schema)
