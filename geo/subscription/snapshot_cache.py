"""The snapshots that one subscription has before it: bounded, and as useful behind a long backlog as near its end. Pure.

The rules are those of Pulsar's ReplicatedSubscriptionSnapshotCache as it is since #25044 (`facts/pulsar.md`, 2.5). Before, it dropped
the oldest, so that a subscription with a backlog never met a snapshot (#24300).
- A. Positions ascend. One that is not beyond the last says that the log is read anew: all that was there goes.
- B. Of more than `max_snapshots` one goes from between the first and the last: that whose two neighbours are nearest, of equals the
  lowest. The first is the next to be of use, the last the newest, and neither goes.
- C. How far it is to the neighbour before is asked once, when a snapshot is added. Where one went, the two distances add up.
- D. `advance` takes out what is at or before a position and returns the highest of it: no snapshot is used twice.

Positions are anything with a total order: numbers, tuples, `geo.ids.Position`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geo.errors import UsageError

MAX_SNAPSHOTS = 30
"""Pulsar's: with a snapshot each ten seconds five minutes at their full density, and any backlog at less."""

LEAST_SNAPSHOTS = 3
"""With fewer nothing is between the first and the last."""

Distance = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is at or before `clusters[x]` in the log of x, and was routed to both, is at or before `local_position` in the log here.

    `started_us`: when it was asked for, in microseconds since 1970; nothing here reads it.
    """

    snapshot_id: str
    local_position: Any
    clusters: Mapping[str, Any]
    started_us: int = 0


def version_distance(lower: Any, upper: Any) -> Any:
    """How many versions lie between two positions; of numbers, their difference."""
    return upper[0] - lower[0] if isinstance(lower, tuple) else upper - lower


class SnapshotCache:
    """Bounded in `max_snapshots`, whatever is added. An addition costs the same behind a million others."""

    def __init__(self, max_snapshots: int = MAX_SNAPSHOTS, distance: Distance = version_distance) -> None:
        """Raises ValueError for fewer than three."""
        if max_snapshots < LEAST_SNAPSHOTS:
            raise ValueError(f"max_snapshots {max_snapshots}; expected: at least {LEAST_SNAPSHOTS}")
        self._max, self._distance = max_snapshots, distance
        self._clear()

    def _clear(self) -> None:
        self._snapshots: list[Snapshot] = []
        self._gaps: list[Any] = []
        """By place, how far it is from the neighbour before; None of the first."""
        self._numbers: list[int] = []
        """By place, as the how manieth it came: they ascend as positions do, and stay when places shift."""
        self._between: list[tuple[Any, int]] = []
        """Of each between the first and the last: how far its neighbours are from it, and its number. Sorted."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._snapshots)

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        """In the order of their positions."""
        return tuple(self._snapshots)

    @property
    def last(self) -> Snapshot | None:
        return self._snapshots[-1] if self._snapshots else None

    def add(self, snapshot: Snapshot) -> None:
        gap = None
        if self._snapshots:
            last = self._snapshots[-1].local_position
            if snapshot.local_position <= last:
                self._clear()
            else:
                gap = self._distance(last, snapshot.local_position)
        self._append(snapshot, gap)
        if len(self._snapshots) > self._max:
            self._evict()

    def advance(self, position: Any) -> Snapshot | None:
        """Forget what is at or before the position. Returns the highest of it, or None."""
        count = bisect_right(self._snapshots, position, key=lambda one: one.local_position)
        if not count:
            return None
        found = self._snapshots[count - 1]
        # The new first is between no longer.
        for place in range(1, min(count + 1, len(self._snapshots) - 1)):
            self._forget_between(place)
        del self._snapshots[:count], self._gaps[:count], self._numbers[:count]
        if self._gaps:
            self._gaps[0] = None
        return found

    def to_state(self) -> list[list[Any]]:
        """Ids and distances, for JSON. The snapshots themselves, which many caches share, are not in it."""
        return [[one.snapshot_id, gap] for one, gap in zip(self._snapshots, self._gaps, strict=True)]

    @classmethod
    def from_state(
        cls,
        state: Iterable[Sequence[Any]],
        snapshots: Mapping[Any, Snapshot],
        max_snapshots: int = MAX_SNAPSHOTS,
        distance: Distance = version_distance,
    ) -> SnapshotCache:
        """`snapshots`: those that it names, by id. Raises UsageError if one is not among them."""
        cache = cls(max_snapshots, distance)
        for snapshot_id, gap in state:
            if snapshot_id not in snapshots:
                raise UsageError(f"snapshot {snapshot_id}: a cache names it, and it is not there")
            cache._append(snapshots[snapshot_id], gap)
            if len(cache) > max_snapshots:  # kept with a larger limit
                cache._evict()
        return cache

    def _append(self, snapshot: Snapshot, gap: Any) -> None:
        self._snapshots.append(snapshot)
        self._gaps.append(gap)
        self._numbers.append(self._next)
        self._next += 1
        if len(self._snapshots) > 2:
            insort(self._between, self._entry(len(self._snapshots) - 2))

    def _entry(self, place: int) -> tuple[Any, int]:
        return self._gaps[place] + self._gaps[place + 1], self._numbers[place]

    def _forget_between(self, place: int) -> None:
        del self._between[bisect_left(self._between, self._entry(place))]

    def _evict(self) -> None:
        """One goes, by rule B; the distances of its neighbours grow, by rule C."""
        place = bisect_left(self._numbers, self._between.pop(0)[1])
        last = len(self._snapshots) - 1
        neighbours = [one for one in (place - 1, place + 1) if 0 < one < last]
        for one in neighbours:
            self._forget_between(one)
        self._gaps[place + 1] += self._gaps[place]
        del self._snapshots[place], self._gaps[place], self._numbers[place]
        for one in neighbours:
            insort(self._between, self._entry(one if one < place else place))
