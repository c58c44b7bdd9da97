"""Small batches are held on the driver: the fixed cost of Spark jobs dominates them, and this avoids most of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FEW, LIGHT = 2_000, 16 * 1024
"""So many rows, if key, payload and properties of each have at most so many bytes: up to 32 MB."""

_BODY = ("key", "payload", "properties")
_HEAVY = "_geo_heavy"


def fetch_if_small(rows: DataFrame) -> pa.Table | None:
    """The rows if they are few and light, otherwise None. Among their columns are key, payload and properties."""
    heavy = _octets() > LIGHT
    light = [F.when(~heavy, F.col(name)).alias(name) if name in _BODY else F.col(name) for name in rows.columns]
    table = rows.select(*light, heavy.alias(_HEAVY)).limit(FEW + 1).toArrow()
    if table.num_rows > FEW or pc.any(table[_HEAVY]).as_py():
        return None
    return table.drop_columns([_HEAVY])


def hold_on_driver(rows: DataFrame, order: Sequence[str]) -> DataFrame | None:
    """The rows of a bytes log, held on the driver and sorted by the columns `order`, if they are few and light; otherwise None."""
    table = fetch_if_small(rows)
    if table is None:
        return None
    return rows.sparkSession.createDataFrame(table.sort_by([(name, "ascending") for name in order]), rows.schema)


def _octets() -> Column:
    """Bytes of key, payload and properties of a row."""
    parts = (F.octet_length("key"), F.octet_length("payload"), F.octet_length(F.to_json("properties")))
    return reduce(add, (F.coalesce(part, F.lit(0)) for part in parts))
