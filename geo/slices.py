"""Cutting many things into few lists. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def slices(found: Iterable[T], size_of: Callable[[T], int], most: int, most_of: float = math.inf) -> Iterator[list[T]]:
    """In their order, lists of things that have the size `most` together, and are `most_of`, at most; or one thing."""
    held: list[T] = []
    size = 0
    for one in found:
        more = size_of(one)
        if held and (len(held) == most_of or size + more > most):
            yield held
            held, size = [], 0
        held.append(one)
        size += more
    if held:
        yield held
