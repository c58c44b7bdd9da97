"""Rows with values in columns of any type."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from geo.delta.arrow_rows import plain_values
from geo.delta.local_state import own_state, why_left_to_spark
from geo.delta.table import Table
from tests.delta.logs import rows_of

ALL_TYPES = (
    "by TINYINT, sh SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(10,2), w DECIMAL(38,10), bo BOOLEAN, s STRING, b BINARY, da DATE, "
    "t TIMESTAMP, n TIMESTAMP_NTZ, st STRUCT<a: INT, b: STRUCT<c: TIMESTAMP_NTZ, d: ARRAY<STRUCT<x: DATE>>, e: TIMESTAMP>>, "
    "ls ARRAY<STRUCT<x: INT, y: STRING>>, ll ARRAY<ARRAY<BINARY>>, ln ARRAY<TIMESTAMP_NTZ>, ms MAP<STRING, STRUCT<x: DECIMAL(5,1)>>, "
    "mi MAP<INT, MAP<DATE, TIMESTAMP_NTZ>>"
)


def _value(kind: pa.DataType, number: int) -> Any:
    """A value of a type; every third one is NULL."""
    types = pa.types
    if number % 3 == 2:
        return None
    if types.is_struct(kind):
        return {field.name: _value(field.type, number + at) for at, field in enumerate(kind.fields)}
    if types.is_map(kind):
        return [(_value(kind.key_type, 3 * at), _value(kind.item_type, number + at)) for at in range(number % 3 + 1)]
    if types.is_list(kind):
        return [_value(kind.value_type, number + at) for at in range(3)]
    if types.is_timestamp(kind):
        return datetime(2026, 1, 1 + number % 28, 1, 2, 3, 456_789, None if kind.tz is None else timezone.utc)
    plain: list[tuple[bool, Any]] = [
        (types.is_integer(kind), number % 100),
        (types.is_floating(kind), number + 0.5),
        (types.is_decimal(kind), Decimal(f"{number % 100}.5")),
        (types.is_boolean(kind), number % 2 == 0),
        (types.is_string(kind), f"é{number}"),
        (types.is_binary(kind), bytes([number % 256])),
        (types.is_date(kind), date(2026, 1, 1 + number % 28)),
    ]
    return next(value for is_kind, value in plain if is_kind)


def rows_for(table: Table, first: int, end: int) -> pa.Table:
    """Rows with values in all columns of the table, as it has them now."""
    state = own_state(table)
    assert state is not None, why_left_to_spark(table)
    rows = rows_of(first, end)
    for field in state.schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field.name, pa.array([_value(field.type, one) for one in range(first, end)], field.type))
    return rows


def listed(rows: pa.Table, names: Sequence[str]) -> list[list[Any]]:
    """The values of these columns in the order of entries: whatever each reader calls its types, and where it keeps times."""
    entries = rows["entry_id"].to_pylist()
    columns = (plain_values(rows[name]) for name in names)
    return [[value for _, value in sorted(zip(entries, column, strict=True), key=lambda one: one[0])] for column in columns]
