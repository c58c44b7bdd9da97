"""A few rows as an Arrow table, a DataFrame or plain values. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from geo.late import F
from geo.late import spark_types as T
from geo.sql_text import identifier
from geo.times import with_zone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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


def arrow_type(kind: str) -> pa.DataType:
    """Of a column of our tables, by its SQL type."""
    return _ARROW[kind]


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


def with_times_in_utc(rows: pa.Table) -> pa.Table:
    """The rows, with those times of their columns that have a zone in microseconds, in UTC."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(at, field.name, rows[at].cast(pa.timestamp("us", "UTC"), safe=False))
    return rows


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows as plain values by column name: maps and structs as dict, binaries as bytes, times in UTC with their zone. A time
    that Python's cannot show, of the year 10000 or later, is text. Spark's `collect` has local times instead: it
    raises for some of the year 1, and its times lose their meaning in the hour that comes twice in autumn."""
    fields = list(rows.schema)
    if all(_is_plain(field.dataType) for field in fields):
        try:
            table = rows.toArrow()
            table = table.cast(pa.schema([pa.field(one.name, _in_utc(one.type)) for one in table.schema]))
            columns = [plain_values(column.to_pylist(), column.type) for column in table.columns]
            return [dict(zip(rows.columns, row, strict=True)) for row in zip(*columns, strict=True)]
        except (OverflowError, ValueError):  # a time beyond Python's
            rows = rows.select(*(_shown(field) for field in fields))
    found = (row.asDict(recursive=True) for row in rows.collect())
    return [{name: bytes(v) if isinstance(v, bytearray) else with_zone(v) for name, v in row.items()} for row in found]


def plain_values(values: list[Any], kind: pa.DataType) -> list[Any]:
    """Values as Arrow gives them, with dict for maps."""
    if pa.types.is_map(kind):
        return [None if one is None else dict(zip((k for k, _ in one), plain_values([v for _, v in one], kind.item_type), strict=True))
                for one in values]  # fmt: skip
    if pa.types.is_list(kind):
        return [None if one is None else plain_values(one, kind.value_type) for one in values]
    if pa.types.is_struct(kind):
        return [
            None if one is None else {part.name: plain_values([one[part.name]], part.type)[0] for part in kind.fields}
            for one in values
        ]
    return values


def _shown(field: T.StructField) -> Column:
    column = F.col(identifier(field.name))
    return column.cast("string").alias(field.name) if _has_times(field.dataType) else column


def _plain() -> tuple[type[T.DataType], ...]:
    """Types that are the same by way of Arrow as by `collect`, beside what is made of them."""
    return (
        T.StringType, T.BinaryType, T.BooleanType, T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType, T.NullType,
        T.DayTimeIntervalType,
    )  # fmt: skip


def parts_of(kind: T.DataType) -> list[T.DataType]:
    """The types of what a value of this type holds."""
    match kind:
        case T.StructType():
            return [field.dataType for field in kind]
        case T.ArrayType():
            return [kind.elementType]
        case T.MapType():
            return [kind.keyType, kind.valueType]
        case _:
            return []


def _is_plain(kind: T.DataType) -> bool:
    parts = parts_of(kind)
    return all(map(_is_plain, parts)) if parts else isinstance(kind, _plain())


def _has_times(kind: T.DataType) -> bool:
    return isinstance(kind, (T.DateType, T.TimestampType, T.TimestampNTZType)) or any(map(_has_times, parts_of(kind)))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The type with all times in it in UTC."""
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _in_utc(one.type)) for one in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    return pa.list_(_in_utc(kind.value_type)) if pa.types.is_list(kind) else kind
