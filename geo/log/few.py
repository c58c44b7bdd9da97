"""A few light rows are held on the driver: the jobs that they are spared are most of the time that a small batch takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FEW, LIGHT = 2_000, 16 * 1024
"""So many rows, if key, payload and properties of each have at most so many bytes: up to 32 MB."""

_BODY = ("key", "payload", "properties")
_HEAVY = "_geo_heavy"


def brought(rows: DataFrame, order: Sequence[str] = ()) -> tuple[DataFrame, int | None]:
    """The same rows, which have the columns of a log of bytes, and how many they are; held on the driver, sorted by the columns
    `order`, if they are few and light. Otherwise they are as they were, and not counted: None."""
    heavy = octets() > LIGHT
    light = [F.when(~heavy, F.col(name)).alias(name) if name in _BODY else F.col(name) for name in rows.columns]
    table = rows.select(*light, heavy.alias(_HEAVY)).limit(FEW + 1).toArrow()
    if table.num_rows > FEW or pc.any(table[_HEAVY]).as_py():
        return rows, None
    if order:
        table = table.sort_by([(name, "ascending") for name in order])
    return rows.sparkSession.createDataFrame(table.drop_columns([_HEAVY]), rows.schema), table.num_rows


def octets() -> Column:
    """Bytes of key, payload and properties of a row."""
    parts = (F.octet_length("key"), F.octet_length("payload"), F.octet_length(F.to_json("properties")))
    return reduce(add, (F.coalesce(part, F.lit(0)) for part in parts))
