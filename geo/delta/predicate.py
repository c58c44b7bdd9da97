"""Conditions on the rows of a table, each said once. Pure: no Spark, clock or I/O.

Tests hold four uses equal: on a row (`holds`), on a file (`may_hold`), in Spark (`to_sql`), on Arrow (`predicate_arrow.kept`). A
condition is true or false, never unknown: NULL fulfils only `IsNull`, as None is in no set. SQL gets no NOT above a comparison: Delta
could not skip files by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, Literal, TypeAlias

from geo.sql_text import identifier, literal
from geo.times import in_us, is_time

Comparison = Literal["<", "<=", ">", ">="]

ROUNDED_US = 1000
"""Statistics of a time are cut to milliseconds."""

LEAST = -(2**63)
"""The least whole number that a column can have."""

CUT_AT = 32
"""Statistics of a text are cut to so many characters."""


@dataclass(frozen=True, slots=True)
class TimeUs:
    """A moment, in microseconds since 1970, for columns of type TIMESTAMP; also one that no datetime can be. None of these columns has
    a time beyond 64 bits, so a moment further away counts as the last there is."""

    us: int

    @property
    def in_64_bits(self) -> int:
        return max(-(2**63), min(self.us, 2**63 - 1))


Value: TypeAlias = str | int | bytes | TimeUs


class Predicate:
    """A condition on a row."""

    __slots__ = ()

    def __and__(self, other: Predicate) -> Predicate:
        return All((self, other))

    def __or__(self, other: Predicate) -> Predicate:
        return Either((self, other))

    def __invert__(self) -> Predicate:
        return Not(self)


@dataclass(frozen=True, slots=True)
class Compare(Predicate):
    """The column is, say, less than the value."""

    column: str
    by: Comparison
    value: Value


@dataclass(frozen=True, slots=True)
class Among(Predicate):
    """The column is one of the values."""

    column: str
    values: frozenset[Any]
    """Texts, whole numbers or bytes: all of the column's type."""


@dataclass(frozen=True, slots=True)
class Begins(Predicate):
    """The text in the column begins with this one."""

    column: str
    text: str


@dataclass(frozen=True, slots=True)
class Lists(Predicate):
    """The list in the column has the text."""

    column: str
    text: str


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    column: str


@dataclass(frozen=True, slots=True)
class AtLeast(Predicate):
    """The whole number in the column is no less than the bound of the values in the columns `by`. These are texts and whole numbers, joined by
    colons. Where `bounds` has none any number is."""

    column: str
    by: tuple[str, ...]
    bounds: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    part: Predicate


@dataclass(frozen=True, slots=True)
class All(Predicate):
    """All of the parts; without any it is fulfilled."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Either(Predicate):
    """One of the parts at least; without any it is not fulfilled."""

    parts: tuple[Predicate, ...]


ANY_ROW = All(())


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Lists the columns that a predicate reads."""
    if isinstance(predicate, (All, Either)):
        return frozenset[str]().union(*map(columns_of, predicate.parts))
    if isinstance(predicate, Not):
        return columns_of(predicate.part)
    if isinstance(predicate, AtLeast):
        return frozenset({predicate.column, *predicate.by})
    assert isinstance(predicate, (Compare, Among, Begins, Lists, IsNull))
    return frozenset({predicate.column})


def holds(predicate: Predicate, row: Mapping[str, Any]) -> bool:
    """Tests one row: values by column, times in microseconds since 1970, NULL as None."""
    match predicate:
        case All(parts):
            return all(holds(part, row) for part in parts)
        case Either(parts):
            return any(holds(part, row) for part in parts)
        case Not(part):
            return not holds(part, row)
        case IsNull(column):
            return row[column] is None
        case Among(column, values):
            return row[column] in values
        case Begins(column, text):
            return row[column] is not None and str(row[column]).startswith(text)
        case Lists(column, text):
            return row[column] is not None and text in row[column]
        case AtLeast(column, by, bounds):
            return row[column] is not None and row[column] >= _bound(bounds, [row[name] for name in by])
        case Compare(column, by, value):
            return row[column] is not None and bool(_COMPARED[by](row[column], _plain(value)))
    raise AssertionError(predicate)


def may_hold(predicate: Predicate, statistics: Mapping[str, Any]) -> bool:
    """Tests a file by what Delta's log says of it: whether it may have a row that fulfils the predicate. `statistics`: `num_records`,
    and `min.COLUMN`, `max.COLUMN` and `null_count.COLUMN` of some columns. What is missing excludes nothing."""
    return _may_hold(_positive(predicate), statistics)


def _may_hold(positive: Predicate, statistics: Mapping[str, Any]) -> bool:
    match positive:
        case All(parts):
            return all(_may_hold(part, statistics) for part in parts)
        case Either(parts):
            return any(_may_hold(part, statistics) for part in parts)
        case IsNull(column):
            return bool(statistics.get(f"null_count.{column}", 1) != 0)
        case Not(IsNull(column)):
            nulls = statistics.get(f"null_count.{column}")
            return bool(nulls is None or nulls != statistics.get("num_records"))
        case Not(Among(column, values)):
            return constant(statistics, column) not in values
        case Among(column, values):
            least, most = _bounds(column, statistics)
            return any((least is None or least <= value) and (most is None or value <= most) for value in values)
        case Compare(column, "<" | "<=" as by, value):
            least, _ = _bounds(column, statistics)
            return least is None or bool(_COMPARED[by](least, _plain(value)))
        case AtLeast(column, by, bounds):
            most = statistics.get(f"max.{column}")
            return most is None or bool(most >= _bound(bounds, [constant(statistics, name) for name in by]))
        case Compare(column, by, value):
            _, most = _bounds(column, statistics)
            return most is None or bool(_COMPARED[by](most, _plain(value)))
    return True


def constant(statistics: Mapping[str, Any], column: str) -> Any:
    """The value that all rows of a file have, by its statistics.

    None: that is not known.
    """
    least = statistics.get(f"min.{column}")
    if least is None or statistics.get(f"null_count.{column}") != 0 or least != statistics.get(f"max.{column}"):
        return None
    return None if isinstance(least, str) and len(least) >= CUT_AT else least


def to_sql(predicate: Predicate) -> str:
    """Writes a predicate as SQL. It is true for exactly the rows that fulfil it; for others it may be NULL as well as false."""
    return _sql(_positive(predicate))


def _sql(positive: Predicate) -> str:
    match positive:
        case All(parts):
            return " AND ".join(f"({_sql(part)})" for part in parts) or "true"
        case Either(parts):
            return " OR ".join(f"({_sql(part)})" for part in parts) or "false"
        case IsNull(column):
            return f"{identifier(column)} IS NULL"
        case Not(IsNull(column)):
            return f"{identifier(column)} IS NOT NULL"
        case Among(column, values):
            return f"{identifier(column)} IN ({_listed(values)})" if values else "false"
        case Not(Among(column, values)):
            return f"{identifier(column)} IS NULL OR {identifier(column)} NOT IN ({_listed(values)})" if values else "true"
        case Begins(column, text):
            return f"startswith({identifier(column)}, {literal(text)})"
        case Not(Begins(column, text)):
            return f"{identifier(column)} IS NULL OR NOT startswith({identifier(column)}, {literal(text)})"
        case Lists(column, text):
            return f"array_contains({identifier(column)}, {literal(text)})"
        case Not(Lists(column, text)):
            return f"NOT coalesce(array_contains({identifier(column)}, {literal(text)}), false)"
        case AtLeast(column, by, bounds):
            # One literal however many bounds there are; Spark reads it once.
            listed = f"from_json({literal(json.dumps(dict(bounds)))}, 'map<string, bigint>')"
            key = ", ':', ".join(f"CAST({identifier(name)} AS STRING)" for name in by)
            return f"{identifier(column)} >= coalesce({listed}[concat({key})], CAST('{LEAST}' AS BIGINT))"
        case Not(AtLeast() as part):
            return f"NOT coalesce({_sql(part)}, false)"
        case Compare(column, by, value):
            return f"{identifier(column)} {by} {_sql_of(value)}"
    raise AssertionError(positive)


_COMPARED: Mapping[Comparison, Callable[[Any, Any], Any]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_OPPOSITE: Mapping[Comparison, Comparison] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _bound(bounds: Mapping[str, int], values: Sequence[Any]) -> int:
    return LEAST if None in values else bounds.get(":".join(map(str, values)), LEAST)


def _positive(predicate: Predicate, *, negated: bool = False) -> Predicate:
    """The same condition with NOT only before a condition on one column that has no opposite."""
    match predicate:
        case Not(part):
            return _positive(part, negated=not negated)
        case All(parts) | Either(parts):
            inner = tuple(_positive(part, negated=negated) for part in parts)
            return All(inner) if isinstance(predicate, All) != negated else Either(inner)
        case Compare(column, by, value) if negated:
            return Either((IsNull(column), Compare(column, _OPPOSITE[by], value)))
    return Not(predicate) if negated else predicate


def _bounds(column: str, statistics: Mapping[str, Any]) -> tuple[Any, Any]:
    """Bounds of a column's values, times in microseconds and so far out as they may have been rounded; None: that is not known."""
    least, most = statistics.get(f"min.{column}"), statistics.get(f"max.{column}")
    if is_time(least) and is_time(most):
        has_zone = least.tzinfo is not None and most.tzinfo is not None
        return (in_us(least), in_us(most) + ROUNDED_US) if has_zone else (None, None)
    return least, None if isinstance(most, str) and len(most) >= CUT_AT else most


def _plain(value: Any) -> Any:
    return value.in_64_bits if isinstance(value, TimeUs) else value


def _sql_of(value: Value) -> str:
    match value:
        case TimeUs():
            return f"timestamp_micros({value.in_64_bits}L)"
        case bytes():
            return f"X'{value.hex()}'"
        case int():
            return f"{value}L"
    return literal(value)


def _listed(values: Collection[Any]) -> str:
    return ", ".join(map(_sql_of, sorted(values)))
