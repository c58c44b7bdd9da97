"""One snapshot while it is being made: whom it waits for, and what it will say. Pure.

As Pulsar's ReplicatedSubscriptionsSnapshotBuilder (`facts/pulsar.md`, 2.4):
- All remote clusters are asked, and of each the first answer of a round counts.
- With more than one there is a second round: what one of them held when it answered may have come from another, and is surely
  before that one's second answer. The positions stay those of the first round; the second is a barrier only.
- The local position is that of the last answer of the last round.
- It is timed out strictly later than its start plus the timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geo.ids import Position
from geo.subscription.markers import SnapshotRequest
from geo.subscription.snapshot_cache import Snapshot

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """This marker is to be written to the log here."""

    marker: SnapshotRequest


@dataclass(frozen=True, slots=True)
class SnapshotCompleted:
    """All have answered."""

    snapshot: Snapshot


Effect = WriteRequest | SnapshotCompleted


def in_us(seconds: float) -> int:
    """Seconds since 1970 as markers have them."""
    return round(seconds * MICROSECONDS)


class SnapshotBuilder:
    """Begun by `start`; ended once it has completed, after which nothing changes it."""

    def __init__(self, local_cluster: str, remote_clusters: Iterable[str], timeout_s: float, snapshot_id: str) -> None:
        self._local, self._remotes = local_cluster, tuple(sorted(set(remote_clusters)))
        self._timeout_s, self.snapshot_id = timeout_s, snapshot_id
        self.started = 0.0
        self.round_number = 0
        """0 before the start and after the end."""
        self.missing: set[str] = set()
        """Whose answer of this round is not there."""
        self._positions: dict[str, Any] = {}

    def start(self, now: float) -> list[Effect]:
        """Ask. `now` in seconds since 1970."""
        self.started = now
        return self._ask(1)

    def on_response(self, cluster: str, position: Any, local_position: Any, now: float) -> list[Effect]:
        """`position`: how far the log of the cluster went; `local_position`: where its answer stands in the log here. One of a cluster
        that was not asked, that has answered, or after the end changes nothing; whether one is too late is for `is_timed_out`."""
        if cluster not in self.missing:
            return []
        self.missing.remove(cluster)
        self._positions.setdefault(cluster, position)
        if self.missing:
            return []
        if self.round_number == 1 and len(self._remotes) > 1:
            return self._ask(2)
        self.round_number = 0
        return [SnapshotCompleted(Snapshot(self.snapshot_id, local_position, dict(self._positions), self.started_us))]

    def is_timed_out(self, now: float) -> bool:
        return now > self.started + self._timeout_s

    @property
    def started_us(self) -> int:
        return in_us(self.started)

    def _ask(self, round_number: int) -> list[Effect]:
        self.round_number, self.missing = round_number, set(self._remotes)
        return [WriteRequest(SnapshotRequest(self.snapshot_id, self._local, self.started_us, round_number))]

    def to_state(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "snapshot_id": self.snapshot_id,
            "remotes": list(self._remotes),
            "started": self.started,
            "round": self.round_number,
            "missing": sorted(self.missing),
            "positions": {name: list(position) for name, position in sorted(self._positions.items())},
        }

    @classmethod
    def from_state(cls, local_cluster: str, timeout_s: float, state: Mapping[str, Any]) -> SnapshotBuilder:
        """Positions are `Position`."""
        found = cls(local_cluster, state["remotes"], timeout_s, state["snapshot_id"])
        found.started, found.round_number, found.missing = state["started"], state["round"], set(state["missing"])
        found._positions = {name: Position(*position) for name, position in state["positions"].items()}
        return found
