"""Sets of entries of one ledger as ranges: ascending, disjoint, not touching, both ends belong to them. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def of_entries(entries: Iterable[int]) -> Ranges:
    """The ranges of any entries, in any order, repeated or not."""
    return joined((entry, entry) for entry in sorted(entries))


def joined(ascending: Iterable[Range]) -> Ranges:
    """Ranges that may overlap or touch, ordered by their first entries, as one set."""
    found: list[Range] = []
    for first, last in ascending:
        if found and first <= found[-1][1] + 1:
            if last > found[-1][1]:
                found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)


def union(*sets: Ranges) -> Ranges:
    if len(sets) == 1:
        return sets[0]
    if len(sets) > 2:
        return joined(sorted(chain.from_iterable(sets)))
    one, other = sets
    if not one or not other or one == other:
        return one or other
    if other[0][0] > one[-1][1] + 1:  # most acknowledgements name what is new
        return one + other
    if other[0][0] > one[-1][0]:  # or it goes on where what is known ends
        return one[:-1] + joined((one[-1], *other))
    return joined(merge(one, other))


def difference(one: Ranges, other: Ranges) -> Ranges:
    """Subtracts `other` from `one`."""
    return tuple(_without(one, other))


def _without(one: Ranges, other: Ranges) -> Iterator[Range]:
    cuts, at = other, 0
    for first, last in one:
        while at < len(cuts) and cuts[at][1] < first:
            at += 1
        here = at
        while here < len(cuts) and cuts[here][0] <= last:
            if cuts[here][0] > first:
                yield first, cuts[here][0] - 1
            first = cuts[here][1] + 1
            here += 1
        if first <= last:
            yield first, last


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """Intersects both."""
    return difference(one, difference(one, other)) if one and other else ()


def contains(ranges: Ranges, entry: int) -> bool:
    at = bisect_right(ranges, entry, key=lambda one: one[0]) - 1
    return at >= 0 and entry <= ranges[at][1]


def size(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def mark_delete(ranges: Ranges, begin: int = 0) -> int:
    """The last entry up to which all from `begin` on are in the set; `begin` - 1 if not even that is (Pulsar's mark-delete)."""
    at = bisect_right(ranges, begin, key=lambda one: one[0]) - 1
    return ranges[at][1] if at >= 0 and ranges[at][1] >= begin else begin - 1
