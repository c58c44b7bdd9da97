"""A question about all rows of a table: what those that fulfil a condition have together, in groups. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from geo.delta.predicate import ANY_ROW, Predicate, columns_of


@dataclass(frozen=True, slots=True)
class Summary:
    """Asks of the rows that fulfil `where`, in groups with equal values of the columns `by`: the `least` and the `greatest` of
    some columns of whole numbers, of others the value that all rows of a group have (`same`), and how many rows there are."""

    by: tuple[str, ...]
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    where: Predicate = ANY_ROW

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        return tuple(dict.fromkeys((*self.by, *self.least, *self.greatest, *self.same, *columns_of(self.where))))


@dataclass(frozen=True, slots=True)
class Group:
    """The answer for one group, in the order of the question's columns; None where all rows have NULL."""

    least: tuple[Any, ...]
    greatest: tuple[Any, ...]
    same: tuple[Any, ...]
    count: int

    def joined(self, other: Group) -> Group:
        """This part of a group and another one."""
        return Group(
            tuple(map(_either(min), self.least, other.least)),
            tuple(map(_either(max), self.greatest, other.greatest)),
            tuple(theirs if ours is None else ours for ours, theirs in zip(self.same, other.same, strict=True)),
            self.count + other.count,
        )


Groups: TypeAlias = dict[tuple[Any, ...], Group]
"""By the values of the columns `by`."""


def _either(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def chosen(one: Any, other: Any) -> Any:
        return other if one is None else one if other is None else choose(one, other)

    return chosen
