"""A question about all rows of a table: what those that fulfil a condition have together, in groups. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from geo.delta.predicate import ANY_ROW, Predicate, columns_of


@dataclass(frozen=True, slots=True)
class Summary:
    """Asks of the rows that fulfil `where`, in groups with equal values of the columns `by`:

    - the `least` and the `greatest` of some columns of whole numbers;
    - of others the value that all rows of a group have (`same`);
    - how many rows there are;
    - of one column of whole numbers, which is NULL in none of them, their sum and that of their squares (`summed`).
    """

    by: tuple[str, ...]
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    where: Predicate = ANY_ROW
    summed: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        summed = () if self.summed is None else (self.summed,)
        return tuple(dict.fromkeys((*self.by, *self.least, *self.greatest, *self.same, *summed, *columns_of(self.where))))


@dataclass(frozen=True, slots=True)
class GroupedBy:
    """The answer for one group, in the order of the question's columns. None where all rows have NULL, and for a sum that is too large a number."""

    least: tuple[Any, ...]
    greatest: tuple[Any, ...]
    same: tuple[Any, ...]
    count: int
    sums: tuple[int | None, int | None] = (0, 0)

    def joined(self, other: GroupedBy) -> GroupedBy:
        """This part of a group and another one."""
        return GroupedBy(
            tuple(map(_either(min), self.least, other.least)),
            tuple(map(_either(max), self.greatest, other.greatest)),
            tuple(theirs if ours is None else ours for ours, theirs in zip(self.same, other.same, strict=True)),
            self.count + other.count,
            (_sum(self.sums[0], other.sums[0]), _sum(self.sums[1], other.sums[1])),
        )


Groups: TypeAlias = dict[tuple[Any, ...], GroupedBy]
"""Groups by the values of the columns `by`."""


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _either(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def chosen(one: Any, other: Any) -> Any:
        return other if one is None else one if other is None else choose(one, other)

    return chosen
