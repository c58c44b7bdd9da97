"""Clusters that have answered the snapshots of this one, as the rows of their answers come: so that those to one round are handled together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass, field

from geo.config.model import MOST_PENDING
from geo.subscription.pip33.controller_rows import MarkerRow
from geo.subscription.pip33.markers import RefusedMarkerError, SnapshotResponse, decode

MOST_ROUNDS = 2 * (MOST_PENDING + 1)
"""Rounds of which it is noted who has answered, at most: two of each snapshot that can be under way at once."""


@dataclass(slots=True)
class Answers:
    """Those to the snapshots of the cluster `local`. Kept in memory alone: after a start an answer may wait for one that came before."""

    local: str
    _given: dict[tuple[str, int], set[str]] = field(default_factory=dict, init=False)

    def note(self, row: MarkerRow, asked: Collection[str]) -> Set[str]:
        """Names who of the clusters asked has answered the round that this row answers. Empty if it is no answer of one of them to us."""
        if row.kind != SnapshotResponse.kind.value:
            return frozenset()
        try:
            answer = decode(row.kind, row.payload)
        except RefusedMarkerError:
            return frozenset()
        if not isinstance(answer, SnapshotResponse) or (answer.source_cluster, answer.cluster) != (self.local, row.sender):
            return frozenset()
        if row.sender not in asked:
            return frozenset()
        given = self._given.setdefault((answer.snapshot_id, answer.round_number), set())
        given.add(answer.cluster)
        while len(self._given) > MOST_ROUNDS:
            del self._given[next(iter(self._given))]
        return given
