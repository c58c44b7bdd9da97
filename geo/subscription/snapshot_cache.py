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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
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


@dataclass(slots=True, eq=False)
class _Held:
    """A snapshot between its neighbours. Numbers count additions, so they ascend as positions do."""

    snapshot: Snapshot
    number: int
    gap: Any
    """How far it is from the neighbour before; None of the first."""
    before: _Held | None = None
    after: _Held | None = None

    @property
    def span(self) -> Any:
        """How far its two neighbours are from each other, by way of it; None of the first and the last."""
        return None if self.before is None or self.after is None else self.gap + self.after.gap


class SnapshotCache:
    """Bounded in `max_snapshots`, whatever is added. Adding one costs the logarithm of that: nothing is moved in a list."""

    def __init__(self, max_snapshots: int = MAX_SNAPSHOTS, distance: Distance = version_distance) -> None:
        """Raises ValueError for fewer than three."""
        if max_snapshots < LEAST_SNAPSHOTS:
            raise ValueError(f"max_snapshots {max_snapshots}; expected: at least {LEAST_SNAPSHOTS}")
        self._max, self._distance, self._next = max_snapshots, distance, 0
        self._clear()

    def _clear(self) -> None:
        self._held: dict[int, _Held] = {}
        """By number, in the order of their positions."""
        self._first: _Held | None = None
        self._last: _Held | None = None
        self._spans: list[tuple[Any, int]] = []
        """A heap of spans with their numbers. An entry whose span is not that of its number any more counts for nothing."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        """In the order of their positions."""
        return tuple(one.snapshot for one in self._held.values())

    @property
    def last(self) -> Snapshot | None:
        return None if self._last is None else self._last.snapshot

    def add(self, snapshot: Snapshot) -> None:
        gap = None
        if self._last is not None:
            last = self._last.snapshot.local_position
            if snapshot.local_position <= last:
                self._clear()
            else:
                gap = self._distance(last, snapshot.local_position)
        self._append(snapshot, gap)
        if len(self._held) > self._max:
            self._evict()

    def advance(self, position: Any) -> Snapshot | None:
        """Forget what is at or before the position. Returns the highest of it, or None."""
        found = None
        while (first := self._first) is not None and first.snapshot.local_position <= position:
            found = first.snapshot
            del self._held[first.number]
            self._first = first.after
        if self._first is None:
            self._clear()
        else:
            self._first.before = self._first.gap = None
        return found

    def to_state(self) -> list[list[Any]]:
        """Ids and distances, for JSON. The snapshots themselves, which many caches share, are not in it."""
        return [[one.snapshot.snapshot_id, one.gap] for one in self._held.values()]

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
        new = _Held(snapshot, self._next, gap, self._last)
        self._next += 1
        self._held[new.number] = new
        if self._last is None:
            self._first = new
        else:
            self._last.after = new
            self._note_span(self._last)
        self._last = new

    def _note_span(self, one: _Held) -> None:
        if (span := one.span) is None:
            return
        heappush(self._spans, (span, one.number))
        if len(self._spans) > 4 * self._max:  # three of four count for nothing: each counts once again
            self._spans = [(held.span, held.number) for held in self._held.values() if held.span is not None]
            heapify(self._spans)

    def _evict(self) -> None:
        """One goes, by rule B; the distances of its neighbours grow, by rule C."""
        while True:
            span, number = heappop(self._spans)
            one = self._held.get(number)
            if one is not None and one.span == span:
                break
        before, after = one.before, one.after
        assert before is not None, "the first has no span"
        assert after is not None, "the last has no span"
        del self._held[number]
        before.after, after.before = after, before
        after.gap += one.gap
        self._note_span(before)
        self._note_span(after)
