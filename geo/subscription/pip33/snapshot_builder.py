"""One snapshot while it is being made: whom it waits for, and what it will say. Pure.

As Pulsar's ReplicatedSubscriptionsSnapshotBuilder (`facts/pulsar.md`, 2.4):
- All remote clusters are asked, and of each the first answer of a round counts.
- With more than one there is a second round. What one of them held when it answered may have come from another, and is surely
  before that one's second answer. The positions stay those of the first round; the second is a barrier only.
- The local position is that of the last answer of the last round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geo.ids import Position
from geo.subscription.pip33.markers import SnapshotRequest
from geo.subscription.pip33.snapshot_cache import Snapshot

MICROSECONDS = 1_000_000


def in_us(seconds: float) -> int:
    """Seconds since 1970 as markers have them."""
    return round(seconds * MICROSECONDS)


@dataclass(slots=True)
class SnapshotBuilder:
    """Begun by `begin`; ended once it has completed, after which nothing changes it. For JSON its state is its fields."""

    snapshot_id: str
    remotes: list[str]
    started: float
    """In seconds since 1970."""
    round: int
    """0 after the end."""
    missing: list[str]
    """The one whose answer of this round is not there."""
    positions: dict[str, Position]

    def request(self, local_cluster: str) -> SnapshotRequest:
        """Request for the answers of this round."""
        return SnapshotRequest(self.snapshot_id, local_cluster, in_us(self.started), self.round)

    def on_response(self, cluster: str, position: Position, local_position: Position) -> Snapshot | None:
        """`position`: how far the log of the cluster went; `local_position`: where its answer stands in the log here. One of a cluster that was not
        asked, that has answered, or after the end changes nothing. Whether one is too late is the caller's matter.

        None: answers are missing, those of the second round if it is that now, which is to be asked for.
        """
        if cluster not in self.missing:
            return None
        self.missing.remove(cluster)
        self.positions.setdefault(cluster, position)
        if self.missing:
            return None
        if self.round == 1 and len(self.remotes) > 1:
            self.round, self.missing = 2, [*self.remotes]
            return None
        self.round = 0
        return Snapshot(self.snapshot_id, local_position, dict(self.positions), in_us(self.started))


def begin(snapshot_id: str, remotes: Iterable[str], now: float) -> SnapshotBuilder:
    """The first round, of all these clusters, is to be asked for. `now` in seconds since 1970."""
    asked = sorted(set(remotes))
    return SnapshotBuilder(snapshot_id, asked, now, 1, [*asked], {})


def read_builder(state: Mapping[str, Any]) -> SnapshotBuilder:
    """One whose fields JSON has."""
    positions = {name: Position(*position) for name, position in state["positions"].items()}
    return SnapshotBuilder(**{**state, "positions": positions})
