"""The snapshots that one subscription has before it: bounded, and as useful behind a long backlog as near its end. Pure.

The rules are those of Pulsar's ReplicatedSubscriptionSnapshotCache as it is since #25044. Before, it dropped the oldest, so that a subscription with
a backlog never met a snapshot (#24300).
- A. Positions ascend. One that is not beyond the last says that the log is read again: all that was there goes.
- B. Of more than there may be one goes from between the first and the last: that whose two neighbours are nearest, of equals the lowest. The first is
  the next to be of use, the last the newest, and neither goes.
- C. How many versions it is to the neighbour before is asked once, when a snapshot is added. Where one went, the two distances add up.
- D. `advance` takes out what is at or before a position and returns the highest of it: no snapshot is used twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, attrgetter
from typing import Any

from geo.errors import UsageError
from geo.ids import Position


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Position here for positions elsewhere. What is at or before `clusters[x]` in the log of x, and was routed to both, is at or before
    `local_position` in the log here.

    `started_us`: when it was asked for, in microseconds since 1970; nothing here reads it.
    """

    snapshot_id: str
    local_position: Position
    clusters: Mapping[str, Position]
    started_us: int = 0


class SnapshotCache:
    """Bounded in `most`, three at least, whatever is added. With the 300 that a configuration allows adding one takes some ten microseconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[Snapshot] = []
        """In the order of their positions."""
        self._gaps: list[Any] = []
        """Distances, in versions, of each to the neighbour before; None of the first."""

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        """In the order of their positions."""
        return tuple(self._held)

    def add(self, snapshot: Snapshot) -> None:
        gap = None
        if self._held:
            last = self._held[-1].local_position
            if snapshot.local_position <= last:
                self._held, self._gaps = [], []
            else:
                gap = snapshot.local_position.version - last.version
        self._append(snapshot, gap)

    def advance(self, position: Position) -> Snapshot | None:
        """Forget what is at or before the position. Returns the highest of it, or None."""
        passed = bisect_right(self._held, position, key=attrgetter("local_position"))
        if not passed:
            return None
        found = self._held[passed - 1]
        del self._held[:passed], self._gaps[:passed]
        if self._gaps:
            self._gaps[0] = None
        return found

    def to_state(self) -> list[list[Any]]:
        """Ids and distances, for JSON. The snapshots themselves, which many caches share, are not in it."""
        return [[one.snapshot_id, gap] for one, gap in zip(self._held, self._gaps, strict=True)]

    @classmethod
    def from_state(cls, state: Iterable[Sequence[Any]], snapshots: Mapping[Any, Snapshot], most: int) -> SnapshotCache:
        """`snapshots`: those that it names, by id. Raises UsageError if one is not among them. One that was kept with a larger limit is cut to
        this one."""
        cache = cls(most)
        for snapshot_id, gap in state:
            if snapshot_id not in snapshots:
                raise UsageError(f"snapshot {snapshot_id}: a cache names it, and it is not there")
            cache._append(snapshots[snapshot_id], gap)
        return cache

    def _append(self, snapshot: Snapshot, gap: int | None) -> None:
        """Adds a snapshot. Of too many one goes, by rule B; the distance of the one behind it grows, by rule C."""
        self._held.append(snapshot)
        self._gaps.append(gap)
        if len(self._held) > self._most:
            spans = [*map(add, self._gaps[1:-1], self._gaps[2:])]  # between the neighbours of each but the first and the last
            at = spans.index(min(spans)) + 1
            self._gaps[at + 1] += self._gaps[at]
            del self._held[at], self._gaps[at]
