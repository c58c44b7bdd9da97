"""Rows of journals as frozen dataclasses, and back, by the types of their fields. Pure.

A field is in the column of its name, or where `in_columns` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, astuple, fields
from enum import Enum
from functools import cache
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from geo.names import Topic

T = TypeVar("T")

Row = dict[str, Any]
"""A row by column name; its times are in UTC, with their zone."""

_COLUMNS = "columns"


def in_columns(*columns: str) -> dict[str, tuple[str, ...]]:
    """The metadata of a field that is in another column than that of its name. With several, of a dataclass, each of whose fields is in one."""
    return {_COLUMNS: columns}


def from_row(kind: type[T], row: Row) -> T:
    """The value of a row. NULL is the default of its field, or None without one. A dataclass in several columns is None if one of them is NULL
    whose field has no None. Raises ValueError for what no enum has, InvalidNameError for no name of a topic."""
    return kind(*[read(row) for _, _, read in _parts(kind)])


def as_row(value: Any) -> Row:
    """The inverse of `from_row`, by column name."""
    row: Row = {}
    for name, columns, _ in _parts(type(value)):
        found = getattr(value, name)
        if len(columns) > 1:
            row |= zip(columns, (None,) * len(columns) if found is None else astuple(found), strict=True)
        else:
            row[columns[0]] = str(found) if isinstance(found, Topic) else found
    return row


def _read_parts(kind: type) -> list[tuple[str, tuple[str, ...], Callable[[Row], Any]]]:
    """Return of each field its name, its columns and what makes it from a row."""
    hints = get_type_hints(kind)
    named = [(one, one.metadata.get(_COLUMNS, (one.name,))) for one in fields(kind)]
    return [(one.name, columns, _reader(one, columns, hints[one.name])) for one, columns in named]


_parts: Callable[[type], list[tuple[str, tuple[str, ...], Callable[[Row], Any]]]] = cache(_read_parts)


def _reader(one: Field[Any], columns: tuple[str, ...], hint: Any) -> Callable[[Row], Any]:
    if isinstance(hint, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    kind, default = get_origin(hint) or hint, None if one.default is MISSING else one.default
    get = itemgetter(*columns)
    if len(columns) > 1:
        parts = zip(columns, get_type_hints(kind).values(), strict=True)
        needed = [name for name, part in parts if not isinstance(part, UnionType)]
        return lambda row: default if any(row[name] is None for name in needed) else kind(*get(row))
    make = Topic.parse if kind is Topic else kind if kind is tuple or issubclass(kind, Enum) else None
    if make is not None:
        return lambda row: default if (found := get(row)) is None else make(found)
    return get if default is None else lambda row: default if (found := get(row)) is None else found
