"""A few rows as an Arrow table, a DataFrame or plain values. Nothing is written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from geo.late import F, arrow_types
from geo.late import spark_types as T
from geo.sql_text import identifier
from geo.times import any_day, any_time

if TYPE_CHECKING:
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


def arrow_type(kind: str) -> pa.DataType:
    """Type of a column of our tables, by its SQL type."""
    return _ARROW[kind]


def rows_table(types: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Rows given by column name, with `types` as column names and SQL types; what is not given is NULL."""
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
    return pa.Table.from_pylist([{n: _arrow(row.get(n)) for n in types} for row in rows], schema)


def rows_frame(spark: SparkSession, types: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> DataFrame:
    """Converts rows as `rows_table` into a DataFrame.

    By way of Arrow: `createDataFrame` of a list starts a Python worker in every job that reads it, seconds on a busy machine.
    """
    return spark.createDataFrame(rows_table(types, rows))


def columns_in(rows: pa.Table) -> T.StructType:
    """The columns of rows as Spark has them; a time without a zone stays one."""
    kinds = ((one.name, arrow_types.from_arrow_type(one.type, prefer_timestamp_ntz=True)) for one in rows.schema)
    return T.StructType([T.StructField(name, kind) for name, kind in kinds])


def map_in_arrow(
    rows: DataFrame, each: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], answers: str | T.StructType
) -> DataFrame:
    """Maps as `DataFrame.mapInArrow`, of columns with any names: Spark's takes a dot or a backtick in one for something else."""
    names = rows.columns

    def of_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return each(pa.RecordBatch.from_arrays(one.columns, names=names) for one in batches)

    return rows.toDF(*(f"_geo_{at}" for at in range(len(names)))).mapInArrow(of_partition, answers)


def _arrow(value: object) -> object:
    return list(value.items()) if isinstance(value, Mapping) else value


def with_times_in_utc(rows: pa.Table) -> pa.Table:
    """The rows, with those times of their columns that have a zone in microseconds, in UTC."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(at, field.name, rows[at].cast(pa.timestamp("us", "UTC"), safe=False))
    return rows


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows by column name, as `plain_values` has them; what is of a type that Arrow has not is text. Spark's `collect` has times in the zone of
    this process instead. It raises for some of the year 1, and they lose their meaning in the hour that comes twice in autumn."""
    names, others = rows.columns, [field.name for field in rows.schema if not _is_plain(field.dataType)]
    if others:
        rows = rows.withColumns({name: F.col(identifier(name)).cast("string") for name in others})
    return [dict(zip(names, row, strict=True)) for row in zip(*map(plain_values, rows.toArrow().columns), strict=True)]


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """Values as Python has them: structs and maps as dict, a map whose keys have parts as a list of `key` and `value`. Times are in UTC, and
    have that zone; those of a type without a zone have none. A time or a day of a year that Python has not is text (`geo.times.any_time`)."""
    kind = column.type
    if (numbers := _replaced(kind, _number)) != kind:
        column = column.cast(_replaced(kind, _in_microseconds), safe=False).cast(numbers)
    return _values(column.to_pylist(), kind)


def _values(found: list[Any], kind: pa.DataType) -> list[Any]:
    """Converts as `plain_values` what Arrow gives, in which times and days are numbers."""
    if pa.types.is_timestamp(kind):
        return [None if one is None else _time(one, has_zone=kind.tz is not None) for one in found]
    if pa.types.is_date32(kind):
        return [None if one is None else any_day(one) for one in found]
    if pa.types.is_list(kind):
        return [None if one is None else _values(one, kind.value_type) for one in found]
    if pa.types.is_map(kind):
        return [None if one is None else _map(one, kind) for one in found]
    if pa.types.is_struct(kind):
        parts = {of.name: _values([one and one[of.name] for one in found], of.type) for of in kind.fields}
        return [None if one is None else {name: part[at] for name, part in parts.items()} for at, one in enumerate(found)]
    return found


def _time(time_us: int, *, has_zone: bool) -> datetime | str:
    time = any_time(time_us)
    if has_zone:
        return time
    return time.removesuffix("Z") if isinstance(time, str) else time.replace(tzinfo=None)


def _map(pairs: list[tuple[Any, Any]], kind: pa.DataType) -> dict[Any, Any] | list[dict[str, Any]]:
    keys, values = _values([key for key, _ in pairs], kind.key_type), _values([value for _, value in pairs], kind.item_type)
    if pa.types.is_nested(kind.key_type):
        return [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
    return dict(zip(keys, values, strict=True))


def _replaced(kind: pa.DataType, by: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with others in the place of those in it that have no parts."""
    if pa.types.is_struct(kind):
        return pa.struct([of.with_type(_replaced(of.type, by)) for of in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(_replaced(kind.key_type, by), _replaced(kind.item_type, by))
    return pa.list_(_replaced(kind.value_type, by)) if pa.types.is_list(kind) else by(kind)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind


def _number(kind: pa.DataType) -> pa.DataType:
    """Type of the numbers of times in microseconds, and of days, since 1970."""
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date32(kind) else kind


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
