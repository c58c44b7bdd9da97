"""Reads a value of a JSON line for a column of a topic's own, by the column's type. Nothing is rounded to fit and nothing cut off, but
for what floating point and microseconds do not have.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import ROUND_DOWN, Context, Decimal
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from geo.times import from_iso, with_zone

Reads = Callable[[Any], Any]
"""A JSON value that is not null as Arrow takes it. Raises ValueError, which says what was expected and never the value."""

_NUMBER = re.compile(r"-?\d{1,99}(\.\d{1,99})?([eE][+-]?\d{1,4})?", re.ASCII)
_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no such numbers: they are text, in what is printed too."""

_MOST_DIGITS = 20
"""Digits of an integer of 64 bits, with room."""


@dataclass(frozen=True)
class OwnColumns:
    """The columns of a typed topic's own; of a bytes topic none. `beyond` are those of which JSON has no values (VARIANT, INTERVAL). May be
    sent to another process."""

    schema: pa.Schema
    beyond: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [*self.schema.names, *self.beyond]

    @cached_property
    def _reads(self) -> dict[str, Reads]:
        return {field.name: _of_field(field) for field in self.schema}

    def read(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Read the columns from the fields of a line. Raises ValueError with the column's name."""
        if given := [name for name in self.beyond if fields.get(name) is not None]:
            raise ValueError(f"{given[0]} cannot be given in JSON lines, by its type: publish a DataFrame")
        found = {}
        for name, reads in self._reads.items():
            try:
                found[name] = reads(fields.get(name))
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
        return found

    def arrays(self, rows: Sequence[Mapping[str, Any]]) -> list[pa.Array]:
        """Arrange what `read` gave of each row by column; NULL of a row that says nothing."""
        return [pa.array([row.get(field.name) for row in rows], field.type) for field in self.schema]


def _of_field(field: pa.Field) -> Reads:
    """Read a value as its type says, where null stays null, if it may."""
    reads, may_be_null = _of_type(field.type), field.nullable

    def read(value: Any) -> Any:
        if value is not None:
            return reads(value)
        if not may_be_null:
            raise ValueError("must be there and not null: the column is NOT NULL")
        return None

    return read


def _of_type(kind: pa.DataType) -> Reads:
    if pa.types.is_list(kind):
        return partial(_list, _of_field(kind.value_field))
    if pa.types.is_map(kind):
        return partial(_map, _of_type(kind.key_type), _of_field(kind.item_field))
    if pa.types.is_struct(kind):
        return partial(_struct, {kind[at].name: _of_field(kind[at]) for at in range(kind.num_fields)})
    if pa.types.is_decimal(kind):
        return partial(_decimal, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return instant if kind.tz is not None else _wall_clock
    if pa.types.is_integer(kind):
        return partial(_integer, kind.bit_width)
    return _SIMPLE[kind]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, this is {kind_of(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("has half of a surrogate pair, which is no text") from None
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, this is {kind_of(value)}")
    return value


def _number(value: Any) -> Decimal:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise ValueError(f"must be a number, or the text of one, this is {kind_of(value)}")
    return Decimal(value)


def _integer(bits: int, value: Any) -> int:
    number = _number(value)
    if number.adjusted() > _MOST_DIGITS or number != number.to_integral_value():
        raise ValueError("must be an integer")
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"must be an integer of {bits} bits, and is beyond them")
    return int(number)


def _decimal(precision: int, scale: int, value: Any) -> Decimal:
    number, of = _number(value), f"and the column is DECIMAL({precision},{scale})"
    if number and number.adjusted() >= precision - scale:
        raise ValueError(f"has more than {precision - scale} digits before the point, {of}")
    exact = number.quantize(Decimal(1).scaleb(-scale), ROUND_DOWN, Context(prec=precision + 1))
    if exact != number:
        raise ValueError(f"has more than {scale} digits behind the point, {of}")
    return exact


def _float(largest: float, value: Any) -> float:
    if isinstance(value, str) and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    number = float(_number(value))
    if abs(number) > largest:
        raise ValueError("is beyond what the column can hold")
    return number


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None


def _day(value: Any) -> date:
    try:
        if len(_text(value)) <= len("2013-01-01"):
            return from_iso(value).date()
    except ValueError:
        pass
    raise ValueError("must be a date such as 2013-01-01")


def instant(value: Any) -> datetime:
    """A time as ISO 8601 writes it, in UTC, which it is of if it has no zone. Raises ValueError."""
    try:
        return with_zone(_time(value, "2013-01-01T05:15:00Z")).astimezone(timezone.utc)
    except OverflowError:
        raise ValueError("must lie in the years 1 to 9999, as UTC") from None


def _wall_clock(value: Any) -> datetime:
    time = _time(value, "2013-01-01T05:15:00")
    if time.tzinfo is not None:
        raise ValueError("must be a time without a zone, such as 2013-01-01T05:15:00: the column is TIMESTAMP_NTZ")
    return time


def _time(value: Any, such: str) -> datetime:
    try:
        return from_iso(value)
    except (ValueError, TypeError):
        raise ValueError(f"must be ISO 8601, such as {such}") from None


def _list(reads: Reads, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, this is {kind_of(value)}")
    found = []
    for at, one in enumerate(value, 1):
        try:
            found.append(reads(one))
        except ValueError as error:
            raise ValueError(f"has an element, number {at}, that {error}") from None
    return found


def _map(reads_key: Reads, reads: Reads, value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, this is {kind_of(value)}")
    found = {}
    for key, one in value.items():
        try:
            found[reads_key(key)] = reads(one)
        except ValueError as error:
            raise ValueError(f"has an entry, number {len(found) + 1}, that {error}") from None
    if len(found) < len(value):
        raise ValueError("has two names that are one key")
    return list(found.items())


def _struct(fields: Mapping[str, Reads], value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, this is {kind_of(value)}")
    if unknown := sorted(value.keys() - fields.keys()):
        raise ValueError(f"has the unknown field {unknown[0][:100]!r}; known are {', '.join(fields)}")
    found = {}
    for name, reads in fields.items():
        try:
            found[name] = reads(value.get(name))
        except ValueError as error:
            raise ValueError(f"has {name}, which {error}") from None
    return found


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value, for people."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", Decimal: "a number"}
    return names.get(type(value), "null")


_SIMPLE: dict[pa.DataType, Reads] = {
    pa.string(): _text,
    pa.bool_(): _boolean,
    pa.binary(): _bytes,
    pa.date32(): _day,
    pa.float32(): partial(_float, 3.4028234663852886e38),
    pa.float64(): partial(_float, sys.float_info.max),
}
