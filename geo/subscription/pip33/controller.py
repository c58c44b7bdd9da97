"""PIP-33 for one topic in one cluster: begins snapshots, answers those of others, and tells who may go on where. Pure.

It is a fold over the topic's rows of `system/markers`. The same rows give the same effects and the same state, wherever batches begin and end. A
request of its own counts once its row is read back, before which no answer does. A snapshot counts as soon as its last answer is heard, and its own
marker is for who begins without this state. No row makes it write a marker twice. No row of whatever content raises; one that is refused, forged or
too late is counted.

Invariants, which tests/model holds after every step of any schedule:
- A. For each snapshot in a cache: what is at or before `clusters[x]` in the log of x is at or before `local_position` here. (If routed to both.)
- B. An update is written only for a snapshot that the versions finished here have passed whole; each at most once.
- C. A subscription never moves backward, neither by what is finished here nor by an update.
- D. A snapshot that was begun before the end of the last void, or while one was open, is never used. Nor is one that was begun before a tick by which
a cluster is asked or comes that was not before. Nor is one begun before an answer that revealed a participant that was not asked.
- E. The state is bounded. It has `MAX_SUBSCRIPTIONS` of at most `max_cached` snapshots each, and as many of the topic itself. Pending are timeout /
frequency + 1 (at most 101), and of everything by cluster there are `MAX_CLUSTERS`. As JSON, of three clusters, 10,000 snapshots later (`./run bench
state`), it is 23 kB with 10 subscriptions. With 1,000 that all wait since before the first it is 380 kB. 2.5 MB with 1,000 that came one with each
snapshot: what a
  cache keeps depends on when it began, so together they keep all 10,000. 7 MB if no two caches had one in common.

Positions count by whole versions, as consumers of versions do. The rows of one commit stand in the order of their ids, which says nothing about what
came first. So
- an answer is the end of `read_to`, the newest version looked at when the request was copied. The answer is written later than that
  look, so in a later version, and all at or before it precedes it. (The version of the request itself would be as safe, and older.)
- the local position of a snapshot is the end of the version that holds the last answer. Of several that complete in one version each
  later one is placed behind that end by one more. So it follows the others in a cache. To a consumer it is the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from geo.config.model import Snapshots
from geo.errors import SchemaError
from geo.ids import Position
from geo.subscription.pip33.controller_rows import (
    Effect,
    FinishedUpTo,
    Invalidated,
    MarkerRow,
    Resnapshot,
    Row,
    Subscribed,
    Tick,
    Unsubscribed,
    WriteMarker,
)
from geo.subscription.pip33.happened import Counts, Happened
from geo.subscription.pip33.markers import (
    MAX_CLUSTERS,
    RefusedMarkerError,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    SubscriptionUpdate,
    decode,
)
from geo.subscription.pip33.snapshot_cache import Snapshot
from geo.subscription.pip33.snapshot_rounds import SnapshotRounds
from geo.subscription.pip33.subscription_cursors import SubscriptionCursors
from geo.subscription.pip33.voids import Voids

STATE_VERSION = 3

FOR_OTHERS = frozenset({SnapshotResponse.kind.value, SubscriptionUpdate.kind.value})
"""Markers on which the controller of the cluster that wrote them does nothing."""


def concerns(kind: str | None, sender: str | None, cluster: str) -> bool:
    """Tells whether the controller of a cluster must handle a marker row of its log."""
    return sender != cluster or kind not in FOR_OTHERS


def is_only_noted(kind: str | None, sender: str | None, cluster: str) -> bool:
    """Tells whether nothing follows from a marker row by itself. The controller notes that a request of its own is in the log, before it handles
    answers, or a snapshot that it knows.
    """
    return sender == cluster and kind in (SnapshotRequest.kind.value, SnapshotTaken.kind.value)


class TopicController:
    """Handles the rows in their order (`handle`). `counts` by the reason's text."""

    def __init__(self, cluster: str, topic: str, settings: Snapshots | None = None) -> None:
        self.cluster, self.topic, self.settings = cluster, topic, settings or Snapshots()
        self.counts, self._voids = Counts(), Voids()
        self._cursors = SubscriptionCursors(self.settings.max_cached, self.counts)
        self._rounds = SnapshotRounds(cluster, topic, self.settings, self.counts, self._voids, self._cursors)
        self._seq = 0
        self._table: str | None = None
        """Id of the table since the log was replaced; None: it never was."""
        self._read: Position | None = None
        """The place where the newest marker of the log stands."""
        self._answered_since: dict[str, int] | None = None
        """Time, by cluster, when the first snapshot was begun that it was answered here since the log was replaced; None: it never was."""

    # -- what it knows -----------------------------------------------------------------------------------------------

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The clusters because of which no snapshot is begun, and why. This one itself: a void that has not ended, or what keeps its markers out of
        its log. Empty: they go on."""
        return self._rounds.waits_for

    @property
    def refused(self) -> Mapping[str, int]:
        """Counts of markers that changed nothing and should have, by why."""
        return self.counts.refused

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return tuple(self._cursors)

    def finished(self, subscription: str) -> int | None:
        return self._cursors[subscription].finished

    def start(self, subscription: str) -> int | None:
        """The first version to read here by what was finished elsewhere; None if nothing is known of that."""
        return self._cursors[subscription].start

    def snapshots(self, subscription: str) -> tuple[Snapshot, ...]:
        return tuple(self._cursors[subscription].cache.snapshots)

    @property
    def rests(self) -> bool:
        """Tells whether another tick does nothing, however late, as long as it says the same but for the time. Who drives it need not write one.
        Every other row may end the rest.
        """
        return self._rounds.rests

    # -- what it hears -----------------------------------------------------------------------------------------------

    def handle(self, row: Row) -> list[Effect]:
        """The effects of a row. One whose number is not beyond the last has none."""
        if row.seq <= self._seq:
            return self.counts.nothing(Happened.REPEATED)
        self._seq = row.seq
        if self._is_of_another_table(row):
            return self.counts.nothing(Happened.OTHER_TABLE)
        if isinstance(row, MarkerRow):
            return self._on_marker(row)
        if isinstance(row, Tick):
            return self._rounds.on_tick(row)
        if isinstance(row, FinishedUpTo):
            return self._cursors.progress(row)
        if isinstance(row, Subscribed):
            effects, is_new = self._cursors.subscribed(row)
            if is_new:
                self._rounds.want_another()
            return effects
        if isinstance(row, Unsubscribed):
            return self._cursors.unsubscribed(row.subscription)
        if isinstance(row, Resnapshot):
            self._rounds.want_another()
            return []
        return self._on_void(row)

    def _is_of_another_table(self, row: Row) -> bool:
        if isinstance(row, (Unsubscribed, Invalidated, Resnapshot)) or row.table is None or self._table is None:
            return False
        return row.table != self._table

    def _on_void(self, row: Invalidated) -> list[Effect]:
        if not self._voids.handle(row):
            return []
        self._rounds.forget()
        if row.table is None:
            return []
        self._table, self._read, self._answered_since = row.table, None, {}
        self._rounds.forget_table()
        return self._cursors.forget_positions()

    # -- markers -----------------------------------------------------------------------------------------------------

    def _on_marker(self, row: MarkerRow) -> list[Effect]:
        if self._read is not None and row.position <= self._read:
            return self.counts.nothing(Happened.REPEATED)
        self._read = row.position
        effects = [] if row.moved is None else self._cursors.note_quiet(row.moved, row.position.version)
        try:
            marker = decode(row.kind, row.payload)
        except RefusedMarkerError as refused:
            self.counts[refused.reason.value] += 1
            return effects
        if isinstance(marker, SnapshotRequest):
            return effects + self._on_request(row, marker)
        if isinstance(marker, SnapshotResponse):
            return effects + self._on_response(row, marker)
        if isinstance(marker, SnapshotTaken):
            return effects + self._on_taken(row, marker)
        return effects + self._on_update(row, marker)

    def _on_request(self, row: MarkerRow, request: SnapshotRequest) -> list[Effect]:
        asker = request.source_cluster
        if asker != row.sender:
            return self.counts.nothing(Happened.FORGED)
        if asker == self.cluster:
            self._rounds.on_own_request(request)
            return []
        tick = self._rounds.tick
        if tick is None or (hubs := tick.ways.get(asker)) is None:
            return self.counts.nothing(Happened.UNREACHABLE)
        if self._answered_since is not None and request.round_number == 1 and len(self._answered_since) < MAX_CLUSTERS:
            self._answered_since.setdefault(asker, request.started_us)
        holds = tuple(sorted({*tick.comes} - {asker}))
        position = Position.end(row.read_to)
        answer = SnapshotResponse(request.snapshot_id, asker, self.cluster, position, request.round_number, holds)
        return [WriteMarker(answer, (asker, *(hub for hub in hubs if hub != asker)))]

    def _on_response(self, row: MarkerRow, answer: SnapshotResponse) -> list[Effect]:
        if answer.cluster != row.sender:
            return self.counts.nothing(Happened.FORGED)
        if answer.source_cluster != self.cluster:
            return []  # an answer of our own, or one that passes through
        return self._rounds.on_response(row, answer)

    def _on_taken(self, row: MarkerRow, taken: SnapshotTaken) -> list[Effect]:
        if row.sender != self.cluster:
            return self.counts.nothing(Happened.FORGED)
        return self._rounds.on_own_snapshot(taken)

    def _on_update(self, row: MarkerRow, update: SubscriptionUpdate) -> list[Effect]:
        position = update.clusters.get(self.cluster)
        if row.sender is None or row.sender == self.cluster or position is None:
            return []
        if position.next_version > row.read_to + 1:
            return self.counts.nothing(Happened.BEYOND)
        since = self._answered_since
        if since is not None and (row.sender not in since or update.started_us < since[row.sender]):
            return self.counts.nothing(Happened.VOID)  # its positions are of the log that was here before
        return self._cursors.moved_elsewhere(update, position.next_version, self.cluster, row.sender)

    # -- its state ---------------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """For JSON. Snapshots that several caches hold are written once."""
        return {
            "version": STATE_VERSION,
            "seq": self._seq,
            "table": self._table,
            "read": self._read,
            "answered_since": deepcopy(self._answered_since),
            **self._rounds.to_state(),
            **self._voids.to_state(),
            **self._cursors.to_state(),
            "counts": dict(self.counts),
        }

    @classmethod
    def from_state(cls, cluster: str, topic: str, state: Mapping[str, Any], settings: Snapshots | None = None) -> TopicController:
        """The inverse of `to_state`. Raises SchemaError for a state of another version: it is rebuilt from the journal."""
        if state.get("version") != STATE_VERSION:
            raise SchemaError(
                f"topic {topic} in {cluster}: state of version {state.get('version')}, this program has {STATE_VERSION}."
                " Without the folder of that state it is built anew from system/markers."
            )
        found = cls(cluster, topic, settings)
        found._seq, found._table = state["seq"], state["table"]
        found._read = None if state["read"] is None else Position(*state["read"])
        found._answered_since = deepcopy(state["answered_since"])
        found._rounds.restore(state)
        found._voids.restore(state)
        found._cursors.restore(state)
        found.counts.update(state["counts"])
        return found
