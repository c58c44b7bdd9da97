"""Cursors of the subscriptions of a topic in one cluster, and the snapshots that each has before it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from geo.ids import Position
from geo.subscription.pip33.controller_rows import Effect, FinishedUpTo, MayStart, StateDropped, Subscribed, WriteMarker
from geo.subscription.pip33.happened import Counts, Happened
from geo.subscription.pip33.markers import SubscriptionUpdate, read_snapshot
from geo.subscription.pip33.snapshot_cache import Snapshot, SnapshotCache

MAX_SUBSCRIPTIONS = 1_000
"""Subscriptions of a topic, at most. One that an update would create beyond it is counted and not created: anybody who shares the topic can write
one.
"""


@dataclass(slots=True)
class SubscriptionCursor:
    """Place of one subscription: by its consumers here, and by what other clusters have told of theirs."""

    cache: SnapshotCache
    finished: int | None = None
    """The newest version that a consumer here has finished, and all before it."""
    start: int | None = None
    """The place where one may begin here, by what a consumer elsewhere has finished."""
    used_here: bool = False
    """Somebody created it here or reads here."""
    created_us: int | None = None
    """The time when that was."""

    @property
    def next_here(self) -> int:
        """The first version that no consumer here has finished."""
        return 0 if self.finished is None else self.finished + 1

    @property
    def leads(self) -> bool:
        """Snapshots of this cluster are of use to it. They are not where nobody reads, and not as long as a consumer elsewhere is further on, whose
        cluster takes its own. So of a consumer that moved, the cluster it left takes none."""
        return self.used_here and self.next_here >= (self.start or 0)


class SubscriptionCursors:
    """The cursors of at most MAX_SUBSCRIPTIONS subscriptions, by name; a cursor never moves backward."""

    def __init__(self, most_cached: int, counts: Counts) -> None:
        self._most, self._counts = most_cached, counts
        self._cache = SnapshotCache(most_cached)
        """All snapshots that count, whoever has passed them: a subscription that begins later finds there those of its backlog."""
        self._each: dict[str, SubscriptionCursor] = {}
        self._quiet: tuple[int | None, int] | None = None
        """The newest version with a message (None: there is none) as of another one: nothing between the two is a message."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._each)

    def __getitem__(self, name: str) -> SubscriptionCursor:
        return self._each[name]

    @property
    def need_snapshots(self) -> bool:
        """Tells whether snapshots of this cluster are of use to any of them."""
        return any(one.leads for one in self._each.values())

    def subscribed(self, row: Subscribed) -> tuple[list[Effect], bool]:
        """Handles that somebody created a subscription here. Returns the effects, and whether it is a new one, which needs a snapshot of a topic at
        rest too.
        """
        before, effects = self._each.get(row.subscription), list[Effect]()
        if before is not None and before.created_us not in (None, row.created_us):
            effects += self.unsubscribed(row.subscription)
        if (one := self._made(row.subscription, here=True)) is None:
            return effects, False
        is_new = one.created_us != row.created_us
        one.used_here, one.created_us = True, row.created_us
        if row.version is not None:
            effects += self._finish(row.subscription, one, row.version)
        return effects, is_new

    def unsubscribed(self, name: str) -> list[Effect]:
        """Forgets a subscription; what other clusters told of it stays."""
        if (one := self._each.pop(name, None)) is None:
            return []
        if one.start is not None:
            self._each[name] = SubscriptionCursor(self._copied_cache(), start=one.start)
        return [StateDropped(name, here_too=False)]

    def progress(self, row: FinishedUpTo) -> list[Effect]:
        """Handles what a consumer here has finished."""
        if (one := self._each.get(row.subscription)) is None:
            return self._counts.nothing(Happened.UNKNOWN_SUBSCRIPTION)
        one.used_here = True
        return self._finish(row.subscription, one, row.version)

    def moved_elsewhere(self, update: SubscriptionUpdate, start: int, cluster: str, sender: str | None) -> list[Effect]:
        """Handles from another cluster at which version a consumer may begin in this one, `cluster`."""
        is_known = update.subscription in self._each
        if (one := self._made(update.subscription)) is None:
            return []
        if is_known and start <= max(one.start or 0, one.next_here):
            return []
        one.start = start
        return [MayStart(update.subscription, update.snapshot_id, update.started_us, {cluster: start}, sender)]

    def note_quiet(self, moved: int | None, looked: int) -> list[Effect]:
        """Handles that nothing after the version `moved`, up to `looked`, is a message."""
        if self._quiet is None or self._quiet[1] <= looked:
            self._quiet = moved, looked
        effects: list[Effect] = []
        for name, one in self._each.items():
            if one.finished is not None:
                effects += self._finish(name, one, one.finished)
        return effects

    def add(self, snapshot: Snapshot) -> list[Effect]:
        """Adds a snapshot that counts from now on."""
        effects: list[Effect] = []
        self._cache.add(snapshot)
        for name, one in self._each.items():
            one.cache.add(snapshot)
            effects += self._passed(name, one)
        return effects

    def forget_snapshots(self) -> None:
        """No snapshot counts any more."""
        self._cache = SnapshotCache(self._most)
        for one in self._each.values():
            one.cache = SnapshotCache(self._most)

    def forget_positions(self) -> list[Effect]:
        """Versions are those of another table from now on."""
        self._quiet = None
        for one in self._each.values():
            one.finished = one.start = None
        return [StateDropped(name, here_too=True) for name in self._each]

    def _made(self, name: str, *, here: bool = False) -> SubscriptionCursor | None:
        """It; None if there is no room for it. One that is used `here` takes that of one that is not."""
        if (found := self._each.get(name)) is not None:
            return found
        if len(self._each) >= MAX_SUBSCRIPTIONS:
            self._counts.nothing(Happened.FULL)
            unused = [each for each, one in self._each.items() if not one.used_here]
            if not here or not unused:
                return None
            del self._each[unused[0]]
        return self._each.setdefault(name, SubscriptionCursor(self._copied_cache()))

    def _copied_cache(self) -> SnapshotCache:
        known = {snapshot.snapshot_id: snapshot for snapshot in self._cache.snapshots}
        return SnapshotCache.from_state(self._cache.to_state(), known, self._most)

    def _finish(self, name: str, one: SubscriptionCursor, version: int) -> list[Effect]:
        version = self._with_markers_behind(version)
        if one.finished is not None and version <= one.finished:
            return []
        one.finished = version
        return self._passed(name, one)

    def _with_markers_behind(self, version: int) -> int:
        """Whoever has finished every message has finished the markers behind them. No consumer has to come by for those, and a topic that rests is
        in step (Pulsar's #19551)."""
        if self._quiet is None:
            return version
        moved, looked = self._quiet
        return max(version, looked) if moved is None or moved <= version else version

    def _passed(self, name: str, one: SubscriptionCursor) -> list[Effect]:
        """Derives what follows from the snapshots that lie in what is finished.

        What an update of another cluster has moved does not count as finished here. That one tells all clusters itself; and of what is routed here
        and to x, but not to it, nobody there has finished anything.
        """
        if one.finished is None:
            return []
        snapshot = one.cache.advance(Position.before(one.next_here))
        if snapshot is None:
            return []
        update = SubscriptionUpdate(name, snapshot.snapshot_id, snapshot.started_us, snapshot.clusters)
        starts = {cluster: position.next_version for cluster, position in sorted(snapshot.clusters.items())}
        return [WriteMarker(update, update.replicate_to), MayStart(name, snapshot.snapshot_id, snapshot.started_us, starts)]

    # -- their state -------------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Their part of the controller's state, for JSON. Snapshots that several caches hold are in it once."""
        caches = [self._cache, *(one.cache for one in self._each.values())]
        shared = {snapshot.snapshot_id: snapshot for cache in caches for snapshot in cache.snapshots}
        place = {snapshot_id: at for at, snapshot_id in enumerate(shared)}

        def places(cache: SnapshotCache) -> list[list[Any]]:
            return [[place[snapshot_id], gap] for snapshot_id, gap in cache.to_state()]

        return {
            "quiet": self._quiet,
            "snapshots": [asdict(one) for one in shared.values()],
            "cache": places(self._cache),
            "subscriptions": {
                name: {
                    "cache": places(one.cache),
                    "finished": one.finished,
                    "start": one.start,
                    "used_here": one.used_here,
                    "created_us": one.created_us,
                }
                for name, one in self._each.items()
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes what `to_state` gave."""
        snapshots = dict(enumerate(map(read_snapshot, state["snapshots"])))
        self._quiet = state["quiet"] and tuple(state["quiet"])
        self._cache = SnapshotCache.from_state(state.get("cache", []), snapshots, self._most)  # states of before have none
        self._each = {
            name: SubscriptionCursor(**{**one, "cache": SnapshotCache.from_state(one["cache"], snapshots, self._most)})
            for name, one in state["subscriptions"].items()
        }
