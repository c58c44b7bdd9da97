"""PIP-33 for one topic in one cluster: begins snapshots, answers those of others, and tells who may go on where. Pure.

It is a fold over the topic's rows of `system/markers`: the same rows give the same effects and the same state, wherever batches
begin and end. A request of its own counts once its row is read back, before which no answer does; a snapshot counts as soon as its last
answer is heard, and its own marker is for who begins without this state. No row makes it write a marker twice. No row of whatever content raises; one that is refused, forged or too late is counted.

Invariants, which tests/model holds after every step of any schedule:
- A. For each snapshot in a cache, what is at or before `clusters[x]` in the log of x and was routed to both is at or before
  `local_position` here.
- B. An update is written only for a snapshot that the versions finished here have passed whole; each at most once.
- C. A subscription never moves backward, neither by what is finished here nor by an update.
- D. A snapshot that was begun before the end of the last void, or while one was open, is never used; nor is one that was begun before a
  tick by which a cluster is asked or comes that was not before, or before an answer out of which one must be asked that is not.
- E. The state is bounded: `MAX_SUBSCRIPTIONS` of at most `max_cached` snapshots each, as many of the topic itself, timeout / frequency + 1 (at most 101) pending,
  `MAX_CLUSTERS` of everything by cluster. As JSON, of three clusters, 10,000 snapshots later (`./run bench state`): 23 kB with 10
  subscriptions, 380 kB with 1,000 that all wait since before the first. 2.5 MB with 1,000 that came one with each snapshot: what a
  cache keeps depends on when it began, so together they keep all 10,000. 7 MB if no two caches had one in common.

Positions count by whole versions, as consumers of versions do: the rows of one commit stand in the order of their ids, which says
nothing about what came first. So
- an answer is the end of `read_to`, the newest version looked at when the request was copied: the answer is written later than that
  look, so in a later version, and all at or before it precedes it. (The version of the request itself would be as safe, and older.)
- the local position of a snapshot is the end of the version that holds the last answer. Of several that complete in one version each
  later one is placed behind that end by one more, so that it follows the others in a cache; to a consumer it is the same place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from geo.config.model import MOST_PENDING, Snapshots
from geo.errors import SchemaError
from geo.ids import Position
from geo.subscription.controller_rows import (
    Again,
    Effect,
    FinishedUpTo,
    Forgotten,
    GivenUp,
    MarkerRow,
    MayStart,
    Row,
    Subscribed,
    Tick,
    Unsubscribed,
    Void,
    WriteMarker,
)
from geo.subscription.markers import (
    MAX_CLUSTERS,
    MarkerRefusal,
    RefusedMarkerError,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    SubscriptionUpdate,
    decode,
    read_snapshot,
)
from geo.subscription.snapshot_builder import SnapshotBuilder, begin, in_us, read_builder
from geo.subscription.snapshot_cache import Snapshot, SnapshotCache

STATE_VERSION = 3

SILENT_AFTER = 3
"""A cluster that lacked in so many snapshots in a row is waited for, and asked ever more rarely: after the timeout, twice that, and so on,
up to 32 times."""

MAX_SUBSCRIPTIONS = 1_000
"""Of a topic. One that an update would create beyond it is counted and not created: anybody who shares the topic can write one."""


class Happened(str, Enum):
    """What happened, and what was passed over without a change, beside the refusals of `markers`."""

    STARTED = "snapshots begun"
    COMPLETED = "snapshots completed"
    GIVEN_UP = "snapshots given up"
    REPEATED = "heard before"
    OTHER_TABLE = "of a table that is gone"
    FORGED = "not of the cluster it names"
    UNREACHABLE = "asked by a cluster that no answer reaches"
    LATE = "answers nothing that is waited for"
    VOID = "of a snapshot that is void"
    OVERTAKEN = "a snapshot behind one that counts"
    NOT_ASKED = "holds messages of a cluster that was not asked"
    BEYOND = "beyond the end of this log"
    FULL = "subscriptions beyond the limit"
    UNKNOWN_SUBSCRIPTION = "progress of an unknown subscription"


_REFUSED = {why.value for why in (*MarkerRefusal, Happened.FORGED, Happened.LATE, Happened.VOID, Happened.BEYOND, Happened.FULL)}
"""UNREACHABLE is not among them: a link that leads one way brings such requests all the time, and nothing is wrong; nor is OVERTAKEN: a
controller that begins in the midst of its markers hears such rows, and lacks nothing; nor NOT_ASKED, which passes by itself."""


FOR_OTHERS = frozenset({SnapshotResponse.kind.value, SubscriptionUpdate.kind.value})
"""Markers on which the controller of the cluster that wrote them does nothing."""


def concerns(kind: str | None, sender: str | None, cluster: str) -> bool:
    """Whether the controller of a cluster must hear of a marker row of its log."""
    return sender != cluster or kind not in FOR_OTHERS


def is_only_noted(kind: str | None, sender: str | None, cluster: str) -> bool:
    """Whether nothing follows from a marker row by itself: the controller notes that a request of its own is in the log, before it hears answers,
    or a snapshot that it knows."""
    return sender == cluster and kind in (SnapshotRequest.kind.value, SnapshotTaken.kind.value)


@dataclass(slots=True)
class _Pending:
    """A snapshot that lacks answers."""

    builder: SnapshotBuilder
    begun: int
    """The number of the tick that began it."""
    moved: int
    """What that tick said."""
    requested: int = 0
    """The newest round whose request is in the log."""


@dataclass(slots=True)
class _Subscription:
    cache: SnapshotCache
    finished: int | None = None
    """The newest version that a consumer here has finished, and all before it."""
    start: int | None = None
    """Where one may begin here, by what a consumer elsewhere has finished."""
    used_here: bool = False
    """Somebody created it here or reads here."""
    created_us: int | None = None
    """When that was."""

    @property
    def next_here(self) -> int:
        """The first version that no consumer here has finished."""
        return 0 if self.finished is None else self.finished + 1

    @property
    def leads(self) -> bool:
        """Snapshots of this cluster are of use to it. They are not where nobody reads, and not as long as a consumer elsewhere is further
        on, whose cluster takes its own: so of a consumer that moved, the cluster it left takes none."""
        return self.used_here and self.next_here >= (self.start or 0)


_AS_THEY_ARE = (
    "seq", "table", "read", "quiet", "started", "completed", "covered", "ever_completed", "last_place", "voided", "answered_since",
    "waits_for", "unanswered", "at_odds",
)  # fmt: skip
"""What the state of a controller has of it as it is, by name."""


class TopicController:
    """`hear` the rows in their order. `counts` by the reason's text."""

    def __init__(self, cluster: str, topic: str, settings: Snapshots | None = None) -> None:
        self.cluster, self.topic, self.settings = cluster, topic, settings or Snapshots()
        self.counts: Counter[str] = Counter()
        self._seq = 0
        self._table: str | None = None
        """Which one it is since it was replaced; None: it never was."""
        self._read: Position | None = None
        """Where the newest marker of the log stands."""
        self._tick: Tick | None = None
        self._quiet: tuple[int | None, int] | None = None
        """The newest version with a message (None: there is none) as of another one: nothing between the two is a message."""
        self._started: float | None = None
        """When the newest snapshot was begun."""
        self._pending: list[_Pending] = []
        self._completed: list[str] = []
        """Ids of snapshots that count, of which the own marker was not read back yet."""
        self._covered: int | None = None
        """The newest version with a message when the last snapshot that completed was begun; None: there is none, or it is void."""
        self._ever_completed = False
        self._last_place: Position | None = None
        """The local position of the last snapshot that completed."""
        self._cache = self._new_cache()
        """Of all snapshots that count, whoever has passed them: a subscription that begins later finds there those of its backlog."""
        self._subscriptions: dict[str, _Subscription] = {}
        self._open_voids: set[str] = set()
        self._voided = 0
        """A snapshot begun before the row of this number does not count: a void began or ended there, or others were to be asked."""
        self._answered_since: dict[str, int] | None = None
        """Of each cluster, when the first snapshot was begun that it was answered here since the log was replaced; None: it never was."""
        self._waits_for: dict[str, str] = {}
        self._unanswered: dict[str, int] = {}
        """Of each cluster that was asked, in how many snapshots in a row its answer lacked or was of no use; of this one, of how many the request
        did not come into the log, so that nobody could answer."""
        self._at_odds: dict[str, str] = {}
        """Of each cluster whose answer was of no use, whose messages it holds that was to be asked too."""

    # -- what it knows -----------------------------------------------------------------------------------------------

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The clusters because of which no snapshot is begun, and why; this one itself: a void that has not ended, or what keeps its
        markers out of its log. None: they go on."""
        return dict(self._waits_for)

    @property
    def refused(self) -> Mapping[str, int]:
        """How many markers changed nothing that should have, by why."""
        return {why: count for why, count in sorted(self.counts.items()) if why in _REFUSED}

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return tuple(self._subscriptions)

    def finished(self, subscription: str) -> int | None:
        return self._subscriptions[subscription].finished

    def start(self, subscription: str) -> int | None:
        """The first version to read here by what was finished elsewhere; None if nothing is known of that."""
        return self._subscriptions[subscription].start

    def snapshots(self, subscription: str) -> tuple[Snapshot, ...]:
        return tuple(self._subscriptions[subscription].cache.snapshots)

    @property
    def rests(self) -> bool:
        """Whether another tick does nothing, however late, as long as it says the same but for the time: who drives it need not write one.
        Every other row may end the rest."""
        tick = self._tick
        if tick is None or self._pending or self._whom_it_waits_for(tick) != self._waits_for:
            return False
        return tick.moved is None or not self._is_wanted(tick, tick.moved)

    # -- what it hears -----------------------------------------------------------------------------------------------

    def hear(self, row: Row) -> list[Effect]:
        """The effects of a row. One whose number is not beyond the last has none."""
        if row.seq <= self._seq:
            return self._nothing(Happened.REPEATED)
        self._seq = row.seq
        if self._is_of_another_table(row):
            return self._nothing(Happened.OTHER_TABLE)
        if isinstance(row, MarkerRow):
            return self._on_marker(row)
        if isinstance(row, Tick):
            return self._on_tick(row)
        if isinstance(row, FinishedUpTo):
            return self._on_progress(row)
        if isinstance(row, Subscribed):
            return self._on_subscribed(row)
        if isinstance(row, Unsubscribed):
            return self._on_unsubscribed(row.subscription)
        if isinstance(row, Again):
            self._covered = None
            return []
        return self._on_void(row)

    def _is_of_another_table(self, row: Row) -> bool:
        if isinstance(row, (Unsubscribed, Void, Again)) or row.table is None or self._table is None:
            return False
        return row.table != self._table

    def _nothing(self, why: Happened) -> list[Effect]:
        self.counts[why.value] += 1
        return []

    # -- ticks: begin, give up, say who is missing -------------------------------------------------------------------

    def _on_tick(self, tick: Tick) -> list[Effect]:
        before, self._tick = self._tick, tick
        if before is None or set(before.asked) != set(tick.asked):
            self._voided = tick.seq  # before the first one there may be a void that is not known any more
        if before is not None and (set(before.asked), set(before.comes)) != (set(tick.asked), set(tick.comes)):
            self._unanswered = {name: count for name, count in self._unanswered.items() if name not in self._at_odds}
            self._at_odds = {}
            # Whoever is asked from now on, or comes and may have to be asked, may bring here what it had brought to the others before.
            if {*tick.asked, *tick.comes} - {*before.asked, *before.comes} or {*tick.asked} - {*before.asked}:
                self._voided = tick.seq
                self._forget_snapshots()
        effects = self._give_up(tick)
        if tick.looked is not None:
            effects += self._note_quiet(tick.moved, tick.looked)
        self._waits_for = self._whom_it_waits_for(tick)
        is_soon = self._started is not None and self._started <= tick.now < self._started + self._pause_s
        if tick.moved is not None and self._is_wanted(tick, tick.moved) and not is_soon:
            effects += self._begin(tick, tick.moved)
        return effects

    def _whom_it_waits_for(self, tick: Tick) -> dict[str, str]:
        if not self._is_of_use:
            return {}
        found = {name: f"it has not answered the last {self._unanswered[name]} snapshots" for name in self._silent(tick)}
        for name in found.keys() & self._at_odds.keys():
            found[name] = (
                f"it holds messages of {self._at_odds[name]}, which by the links and policies known here is not to be asked"
            )
        if self.cluster in found:
            count = self._unanswered[self.cluster]
            found[self.cluster] = f"its last {count} requests did not come into the log; whoever runs version sync there logs why"
        found |= {name: tick.unable[name] for name in tick.asked if name in tick.unable}
        if self._open_voids:
            found[self.cluster] = f"{min(self._open_voids)} has begun and not ended"
        return found

    def _silent(self, tick: Tick) -> list[str]:
        return [name for name in (self.cluster, *tick.asked) if self._unanswered.get(name, 0) >= SILENT_AFTER]

    @property
    def _pause_s(self) -> float:
        """Between two snapshots."""
        most = max(self._unanswered.values(), default=0) - SILENT_AFTER
        return self.settings.frequency_s if most < 0 else self.settings.timeout_s * 2 ** min(most, 5)

    def _give_up(self, tick: Tick) -> list[Effect]:
        """What takes too long, and what was begun when others were to be asked. A clock that was put back cannot say how long it has
        been: that is given up too."""
        kept, effects = [], list[Effect]()
        self._unanswered = {name: count for name, count in self._unanswered.items() if name in (self.cluster, *tick.asked)}
        for one in self._pending:
            in_time = one.builder.started <= tick.now <= one.builder.started + self.settings.timeout_s
            if not in_time or one.begun < self._voided:
                self.counts[Happened.GIVEN_UP.value] += 1
                is_asked = one.requested >= one.builder.round
                missing = one.builder.missing if is_asked else []
                if one.begun >= self._voided:
                    lacking = missing if is_asked else [self.cluster]
                    self._unanswered |= {name: self._unanswered.get(name, 0) + 1 for name in lacking}
                effects.append(GivenUp(one.builder.snapshot_id, tuple(missing)))
            else:
                kept.append(one)
        self._pending = kept
        return effects

    @property
    def _is_of_use(self) -> bool:
        return any(one.leads for one in self._subscriptions.values())

    def _is_wanted(self, tick: Tick, moved: int) -> bool:
        """Whether a snapshot is to be begun, were it not for the frequency."""
        if not self._is_of_use or not tick.asked or self._open_voids or any(name in tick.unable for name in tick.asked):
            return False
        if self._pending and not self._ever_completed:
            return False
        return moved != self._covered and all(moved != one.moved for one in self._pending)  # else nothing but markers came since

    def _begin(self, tick: Tick, moved: int) -> list[Effect]:
        snapshot_id = f"{self.cluster}:{self.topic}:{in_us(tick.now)}"
        begun = _Pending(begin(snapshot_id, tick.asked, tick.now), tick.seq, moved)
        self._started = tick.now
        self._pending.append(begun)
        self.counts[Happened.STARTED.value] += 1
        return [self._asks(begun)]

    def _asks(self, pending: _Pending) -> WriteMarker:
        request = pending.builder.request(self.cluster)
        return WriteMarker(request, request.replicate_to)

    # -- markers -----------------------------------------------------------------------------------------------------

    def _on_marker(self, row: MarkerRow) -> list[Effect]:
        if self._read is not None and row.position <= self._read:
            return self._nothing(Happened.REPEATED)
        self._read = row.position
        effects = [] if row.moved is None else self._note_quiet(row.moved, row.position.version)
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
            return self._nothing(Happened.FORGED)
        if asker == self.cluster:
            self._unanswered.pop(asker, None)
            for one in self._pending:
                if one.builder.snapshot_id == request.snapshot_id:
                    one.requested = request.round_number
            return []
        tick = self._tick
        if tick is None or (hubs := tick.ways.get(asker)) is None:
            return self._nothing(Happened.UNREACHABLE)
        if self._answered_since is not None and request.round_number == 1 and len(self._answered_since) < MAX_CLUSTERS:
            self._answered_since.setdefault(asker, request.started_us)
        holds = tuple(sorted({*tick.comes} - {asker}))
        position = Position.end(row.read_to)
        answer = SnapshotResponse(request.snapshot_id, asker, self.cluster, position, request.round_number, holds)
        return [WriteMarker(answer, (asker, *(hub for hub in hubs if hub != asker)))]

    def _on_response(self, row: MarkerRow, answer: SnapshotResponse) -> list[Effect]:
        if answer.cluster != row.sender:
            return self._nothing(Happened.FORGED)
        if answer.source_cluster != self.cluster:
            return []  # an answer of our own, or one that passes through
        if unknown := self._not_asked(answer):
            return self._at_odds_with(answer, unknown, row.seq)
        self._unanswered.pop(answer.cluster, None)  # also by one that is late
        self._at_odds.pop(answer.cluster, None)
        for one in self._pending:
            builder = one.builder
            if one.begun < self._voided or builder.snapshot_id != answer.snapshot_id:
                continue
            if builder.round == answer.round_number <= one.requested:
                snapshot = builder.on_response(answer.cluster, answer.position, Position.end(row.position.version))
                if snapshot is not None:
                    return self._completes(one, snapshot)
                return [self._asks(one)] if builder.round > answer.round_number else []
        return self._nothing(Happened.LATE)

    def _completes(self, pending: _Pending, snapshot: Snapshot) -> list[Effect]:
        taken = SnapshotTaken(snapshot, pending.begun, pending.moved)
        self._completed = [*self._completed, snapshot.snapshot_id][-(MOST_PENDING + 1) :]
        return [WriteMarker(taken, taken.replicate_to), *self._counts_from_now(taken)]

    def _not_asked(self, answer: SnapshotResponse) -> set[str]:
        """Whose messages come both here and to who answers, though they are not asked: one of both has not heard of a link or a policy yet."""
        tick = self._tick
        if tick is None or answer.cluster not in tick.asked:
            return set()
        return {*answer.holds} & {*tick.comes} - {*tick.asked, self.cluster}

    def _at_odds_with(self, answer: SnapshotResponse, unknown: set[str], seq: int) -> list[Effect]:
        """What is under way is given up at the next tick, and begun anew ever more rarely until both know the same."""
        if any(one.builder.snapshot_id == answer.snapshot_id and one.begun >= self._voided for one in self._pending):
            self._voided = seq
            self._at_odds[answer.cluster] = min(unknown)
            self._unanswered[answer.cluster] = self._unanswered.get(answer.cluster, 0) + 1
        return self._nothing(Happened.NOT_ASKED)

    def _on_taken(self, row: MarkerRow, taken: SnapshotTaken) -> list[Effect]:
        """A snapshot of ours is in the log. One that is not known was taken before this state began; behind one that counts it is of no use."""
        if row.sender != self.cluster:
            return self._nothing(Happened.FORGED)
        if taken.snapshot.snapshot_id in self._completed:
            self._completed.remove(taken.snapshot.snapshot_id)
            return []
        if self._open_voids or self._tick is None or taken.begun < self._voided:
            return self._nothing(Happened.VOID)
        if self._last_place is not None and Position(*taken.snapshot.local_position).version < self._last_place.version:
            return self._nothing(Happened.OVERTAKEN)
        return self._counts_from_now(taken)

    def _counts_from_now(self, taken: SnapshotTaken) -> list[Effect]:
        self._pending = [one for one in self._pending if one.builder.snapshot_id != taken.snapshot.snapshot_id]
        self.counts[Happened.COMPLETED.value] += 1
        self._ever_completed, self._covered = True, taken.moved
        snapshot = replace(taken.snapshot, local_position=self._placed(Position(*taken.snapshot.local_position)))
        effects: list[Effect] = []
        self._cache.add(snapshot)
        for name, one in self._subscriptions.items():
            one.cache.add(snapshot)
            effects += self._passed(name, one)
        return effects

    def _placed(self, position: Position) -> Position:
        last = self._last_place
        if last is not None and last.version == position.version and last >= position:
            position = Position(position.version, last.index + 1)
        self._last_place = position
        return position

    def _on_update(self, row: MarkerRow, update: SubscriptionUpdate) -> list[Effect]:
        position = update.clusters.get(self.cluster)
        if row.sender is None or row.sender == self.cluster or position is None:
            return []
        if position.next_version > row.read_to + 1:
            return self._nothing(Happened.BEYOND)
        since = self._answered_since
        if since is not None and (row.sender not in since or update.started_us < since[row.sender]):
            return self._nothing(Happened.VOID)  # its positions are of the log that was here before
        one, created = self._subscription(update.subscription)
        if one is None:
            return []
        known = max(one.start or 0, one.next_here)
        start = position.next_version
        if start <= known and not created:
            return []
        one.start = start
        return [MayStart(update.subscription, update.snapshot_id, update.started_us, {self.cluster: start}, row.sender)]

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def _subscription(self, name: str, *, here: bool = False) -> tuple[_Subscription | None, bool]:
        """It, and whether it is new; None if there is no room for it. One that is used `here` takes that of one that is not."""
        found = self._subscriptions.get(name)
        if found is not None:
            return found, False
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            self._nothing(Happened.FULL)
            unused = [each for each, one in self._subscriptions.items() if not one.used_here]
            if not here or not unused:
                return None, False
            del self._subscriptions[unused[0]]
        found = self._subscriptions[name] = _Subscription(self._copied_cache())
        return found, True

    def _new_cache(self) -> SnapshotCache:
        return SnapshotCache(self.settings.max_cached)

    def _copied_cache(self) -> SnapshotCache:
        known = {snapshot.snapshot_id: snapshot for snapshot in self._cache.snapshots}
        return SnapshotCache.from_state(self._cache.to_state(), known, self.settings.max_cached)

    def _on_subscribed(self, row: Subscribed) -> list[Effect]:
        before, effects = self._subscriptions.get(row.subscription), list[Effect]()
        if before is not None and before.created_us not in (None, row.created_us):
            effects += self._on_unsubscribed(row.subscription)
        one, _ = self._subscription(row.subscription, here=True)
        if one is None:
            return effects
        if one.created_us != row.created_us:
            self._covered = None  # so that it gets a snapshot of a topic at rest too
        one.used_here, one.created_us = True, row.created_us
        return effects if row.version is None else effects + self._finish(row.subscription, one, row.version)

    def _on_unsubscribed(self, name: str) -> list[Effect]:
        one = self._subscriptions.pop(name, None)
        if one is None:
            return []
        if one.start is not None:  # what others told of it stays
            self._subscriptions[name] = _Subscription(self._copied_cache(), start=one.start)
        return [Forgotten(name, here_too=False)]

    def _on_progress(self, row: FinishedUpTo) -> list[Effect]:
        one = self._subscriptions.get(row.subscription)
        if one is None:
            return self._nothing(Happened.UNKNOWN_SUBSCRIPTION)
        one.used_here = True
        return self._finish(row.subscription, one, row.version)

    def _finish(self, name: str, one: _Subscription, version: int) -> list[Effect]:
        version = self._with_markers_behind(version)
        if one.finished is not None and version <= one.finished:
            return []
        one.finished = version
        return self._passed(name, one)

    def _with_markers_behind(self, version: int) -> int:
        """Whoever has finished every message has finished the markers behind them: no consumer has to come by for those, and a topic that
        rests is in step (Pulsar's #19551)."""
        if self._quiet is None:
            return version
        moved, looked = self._quiet
        return max(version, looked) if moved is None or moved <= version else version

    def _note_quiet(self, moved: int | None, looked: int) -> list[Effect]:
        if self._quiet is None or self._quiet[1] <= looked:
            self._quiet = moved, looked
        effects: list[Effect] = []
        for name, one in self._subscriptions.items():
            if one.finished is not None:
                effects += self._finish(name, one, one.finished)
        return effects

    def _passed(self, name: str, one: _Subscription) -> list[Effect]:
        """What follows from the snapshots that lie in what is finished.

        What an update of another cluster has moved does not count as finished here. That one tells all clusters itself; and of what
        is routed here and to x, but not to it, nobody there has finished anything.
        """
        if one.finished is None:
            return []
        snapshot = one.cache.advance(Position.before(one.next_here))
        if snapshot is None:
            return []
        update = SubscriptionUpdate(name, snapshot.snapshot_id, snapshot.started_us, snapshot.clusters)
        starts = {cluster: position.next_version for cluster, position in sorted(snapshot.clusters.items())}
        return [WriteMarker(update, update.replicate_to), MayStart(name, snapshot.snapshot_id, snapshot.started_us, starts)]

    # -- voids -------------------------------------------------------------------------------------------------------

    def _on_void(self, row: Void) -> list[Effect]:
        if row.begins:
            self._open_voids.add(row.what)
        elif row.what in self._open_voids:
            self._open_voids.remove(row.what)
        elif row.table is None:
            return []
        self._voided = row.seq
        self._pending = []
        self._forget_snapshots()
        if row.table is not None:
            self._table = row.table
            for one in self._subscriptions.values():
                one.finished = one.start = None
            self._tick, self._quiet, self._read, self._last_place, self._answered_since = None, None, None, None, {}
            return [Forgotten(name, here_too=True) for name in self._subscriptions]
        return []

    def _forget_snapshots(self) -> None:
        """None that has completed counts any more, so that one is taken of a topic at rest too."""
        self._completed, self._covered, self._cache = [], None, self._new_cache()
        for one in self._subscriptions.values():
            one.cache = self._new_cache()

    # -- its state ---------------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """For JSON. Snapshots that several caches hold are written once."""
        caches = [self._cache, *(one.cache for one in self._subscriptions.values())]
        shared = {snapshot.snapshot_id: snapshot for cache in caches for snapshot in cache.snapshots}
        place = {snapshot_id: at for at, snapshot_id in enumerate(shared)}

        def places(cache: SnapshotCache) -> list[list[Any]]:
            return [[place[snapshot_id], gap] for snapshot_id, gap in cache.to_state()]

        return {
            "version": STATE_VERSION,
            **deepcopy({name: getattr(self, f"_{name}") for name in _AS_THEY_ARE}),
            "tick": self._tick and asdict(self._tick),
            "pending": [asdict(one) for one in self._pending],
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
                for name, one in self._subscriptions.items()
            },
            "open_voids": sorted(self._open_voids),
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
        for name in _AS_THEY_ARE:
            setattr(found, f"_{name}", deepcopy(state[name]))
        found._read, found._last_place = _place(state["read"]), _place(state["last_place"])
        found._quiet = state["quiet"] and tuple(state["quiet"])
        found._tick = None if state["tick"] is None else Tick.read(state["tick"])
        found._pending = [_Pending(**{**one, "builder": read_builder(one["builder"])}) for one in state["pending"]]
        snapshots, most = dict(enumerate(map(read_snapshot, state["snapshots"]))), found.settings.max_cached
        found._cache = SnapshotCache.from_state(state.get("cache", []), snapshots, most)  # states of before have none
        found._subscriptions = {
            name: _Subscription(**{**one, "cache": SnapshotCache.from_state(one["cache"], snapshots, most)})
            for name, one in state["subscriptions"].items()
        }
        found._open_voids, found.counts = set(state["open_voids"]), Counter(state["counts"])
        return found


def _place(state: list[int] | None) -> Position | None:
    return None if state is None else Position(*state)
