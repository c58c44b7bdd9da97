"""Snapshots of a topic in one cluster: when one is begun, whom it waits for, when it is given up, and from when it counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from typing import Any

from geo.config.model import MOST_PENDING, Snapshots
from geo.ids import Position
from geo.subscription.pip33.controller_rows import Effect, GivenUp, MarkerRow, Tick, WriteMarker
from geo.subscription.pip33.happened import Counts, Happened
from geo.subscription.pip33.markers import SnapshotRequest, SnapshotResponse, SnapshotTaken
from geo.subscription.pip33.snapshot_builder import SnapshotBuilder, begin, in_us, read_builder
from geo.subscription.pip33.snapshot_cache import Snapshot
from geo.subscription.pip33.subscription_cursors import SubscriptionCursors
from geo.subscription.pip33.voids import Voids

SILENT_AFTER = 3
"""A cluster that lacked in so many snapshots in a row is waited for, and asked ever more rarely. It is asked after the timeout, twice that, and so
on, up to 32 times."""


@dataclass(slots=True)
class _Pending:
    """A snapshot that lacks answers."""

    builder: SnapshotBuilder
    begun: int
    """The number of the tick that began it."""
    moved: int
    """Newest version with a message, as that tick said."""
    requested: int = 0
    """The newest round whose request is in the log."""


_AS_THEY_ARE = ("started", "completed", "covered", "ever_completed", "waits_for", "unanswered", "at_odds")
"""Names of attributes that the state has as they are."""


class SnapshotRounds:
    """Begins snapshots as time passes, handles the answers, and hands those that count to the cursors."""

    def __init__(
        self, cluster: str, topic: str, settings: Snapshots, counts: Counts, voids: Voids, cursors: SubscriptionCursors
    ) -> None:
        self.tick: Tick | None = None
        """The newest one; None: there was none since the log was replaced."""
        self._cluster, self._topic, self._settings = cluster, topic, settings
        self._counts, self._voids, self._cursors = counts, voids, cursors
        self._started: float | None = None
        """The time when the newest snapshot was begun."""
        self._pending: list[_Pending] = []
        self._completed: list[str] = []
        """Ids of snapshots that count, of which the own marker was not read back yet."""
        self._covered: int | None = None
        """The newest version with a message when the last snapshot that completed was begun; None: there is none, or it is void."""
        self._ever_completed = False
        self._last_place: Position | None = None
        """The local position of the last snapshot that completed."""
        self._waits_for: dict[str, str] = {}
        self._unanswered: dict[str, int] = {}
        """Snapshots in a row, by cluster that was asked, in which its answer lacked or was of no use. Of this one, in which the request did not
        come into the log, so that nobody could answer.
        """
        self._at_odds: dict[str, str] = {}
        """Clusters, by cluster whose answer was of no use, whose messages it holds and that were to be asked too."""

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The clusters because of which no snapshot is begun, and why."""
        return dict(self._waits_for)

    @property
    def rests(self) -> bool:
        """Tells whether another tick does nothing, however late, as long as it says the same but for the time."""
        tick = self.tick
        if tick is None or self._pending or self._whom_it_waits_for(tick) != self._waits_for:
            return False
        return tick.moved is None or not self._is_wanted(tick, tick.moved)

    def want_another(self) -> None:
        """One more snapshot is to be taken though nothing came."""
        self._covered = None

    def forget(self) -> None:
        """No snapshot that is under way or has completed counts any more."""
        self._pending = []
        self._forget_completed()

    def forget_table(self) -> None:
        """Versions are those of another table from now on."""
        self.tick = self._last_place = None

    def _forget_completed(self) -> None:
        """One is taken of a topic at rest too."""
        self._completed, self._covered = [], None
        self._cursors.forget_snapshots()

    # -- ticks: begin, give up, say who is missing -------------------------------------------------------------------

    def on_tick(self, tick: Tick) -> list[Effect]:
        before, self.tick = self.tick, tick
        if before is None or set(before.asked) != set(tick.asked):
            self._voids.void(tick.seq)  # before the first one there may be a void that is not known any more
        if before is not None and (set(before.asked), set(before.comes)) != (set(tick.asked), set(tick.comes)):
            self._unanswered = {name: count for name, count in self._unanswered.items() if name not in self._at_odds}
            self._at_odds = {}
            # Whoever is asked from now on, or comes and may have to be asked, may bring here what it had brought to the others before.
            if {*tick.asked, *tick.comes} - {*before.asked, *before.comes} or {*tick.asked} - {*before.asked}:
                self._voids.void(tick.seq)
                self._forget_completed()
        effects = self._give_up(tick)
        if tick.looked is not None:
            effects += self._cursors.note_quiet(tick.moved, tick.looked)
        self._waits_for = self._whom_it_waits_for(tick)
        is_soon = self._started is not None and self._started <= tick.now < self._started + self._pause_s
        if tick.moved is not None and self._is_wanted(tick, tick.moved) and not is_soon:
            effects += self._begin(tick, tick.moved)
        return effects

    def _whom_it_waits_for(self, tick: Tick) -> dict[str, str]:
        if not self._cursors.need_snapshots:
            return {}
        found = {name: f"it has not answered the last {self._unanswered[name]} snapshots" for name in self._silent(tick)}
        for name in found.keys() & self._at_odds.keys():
            found[name] = (
                f"it holds messages of {self._at_odds[name]}, which by the links and policies known here is not to be asked"
            )
        if self._cluster in found:
            count = self._unanswered[self._cluster]
            found[self._cluster] = (
                f"its last {count} requests did not come into the log; whoever runs version sync there logs why"
            )
        found |= {name: tick.unable[name] for name in tick.asked if name in tick.unable}
        if (open_void := self._voids.open) is not None:
            found[self._cluster] = f"{open_void} has begun and not ended"
        return found

    def _silent(self, tick: Tick) -> list[str]:
        return [name for name in (self._cluster, *tick.asked) if self._unanswered.get(name, 0) >= SILENT_AFTER]

    @property
    def _pause_s(self) -> float:
        """Between two snapshots."""
        most = max(self._unanswered.values(), default=0) - SILENT_AFTER
        return self._settings.frequency_s if most < 0 else self._settings.timeout_s * 2 ** min(most, 5)

    def _give_up(self, tick: Tick) -> list[Effect]:
        """Gives up what takes too long, and what was begun when others were to be asked. A clock that was put back cannot say how long it has been:
        that is given up too.
        """
        kept, effects = [], list[Effect]()
        self._unanswered = {name: count for name, count in self._unanswered.items() if name in (self._cluster, *tick.asked)}
        for one in self._pending:
            in_time = one.builder.started <= tick.now <= one.builder.started + self._settings.timeout_s
            if in_time and self._voids.is_valid(one.begun):
                kept.append(one)
                continue
            self._counts[Happened.GIVEN_UP.value] += 1
            is_asked = one.requested >= one.builder.round
            missing = one.builder.missing if is_asked else []
            if self._voids.is_valid(one.begun):
                lacking = missing if is_asked else [self._cluster]
                self._unanswered |= {name: self._unanswered.get(name, 0) + 1 for name in lacking}
            effects.append(GivenUp(one.builder.snapshot_id, tuple(missing)))
        self._pending = kept
        return effects

    def _is_wanted(self, tick: Tick, moved: int) -> bool:
        """Tells whether a snapshot is to be begun, were it not for the frequency."""
        if not self._cursors.need_snapshots or not tick.asked or self._voids.open is not None:
            return False
        if any(name in tick.unable for name in tick.asked) or (self._pending and not self._ever_completed):
            return False
        return moved != self._covered and all(moved != one.moved for one in self._pending)  # else nothing but markers came since

    def _begin(self, tick: Tick, moved: int) -> list[Effect]:
        snapshot_id = f"{self._cluster}:{self._topic}:{in_us(tick.now)}"
        begun = _Pending(begin(snapshot_id, tick.asked, tick.now), tick.seq, moved)
        self._started = tick.now
        self._pending.append(begun)
        self._counts[Happened.STARTED.value] += 1
        return [self._asks(begun)]

    def _asks(self, pending: _Pending) -> WriteMarker:
        request = pending.builder.request(self._cluster)
        return WriteMarker(request, request.replicate_to)

    # -- its markers, read back, and the answers ---------------------------------------------------------------------

    def on_own_request(self, request: SnapshotRequest) -> None:
        """A request of this cluster is in the log: answers to it count from now on."""
        self._unanswered.pop(self._cluster, None)
        for one in self._pending:
            if one.builder.snapshot_id == request.snapshot_id:
                one.requested = request.round_number

    def on_response(self, row: MarkerRow, answer: SnapshotResponse) -> list[Effect]:
        """Another cluster has answered this one."""
        if unknown := self._not_asked(answer):
            return self._at_odds_with(answer, unknown, row.seq)
        self._unanswered.pop(answer.cluster, None)  # also by one that is late
        self._at_odds.pop(answer.cluster, None)
        for one in self._pending:
            builder = one.builder
            if not self._voids.is_valid(one.begun) or builder.snapshot_id != answer.snapshot_id:
                continue
            if builder.round == answer.round_number <= one.requested:
                snapshot = builder.on_response(answer.cluster, answer.position, Position.end(row.position.version))
                if snapshot is not None:
                    return self._completes(one, snapshot)
                return [self._asks(one)] if builder.round > answer.round_number else []
        return self._counts.nothing(Happened.LATE)

    def on_own_snapshot(self, taken: SnapshotTaken) -> list[Effect]:
        """A snapshot of ours is in the log. One that is not known was taken before this state began; behind one that counts it is of no use."""
        if taken.snapshot.snapshot_id in self._completed:
            self._completed.remove(taken.snapshot.snapshot_id)
            return []
        if self._voids.open is not None or self.tick is None or not self._voids.is_valid(taken.begun):
            return self._counts.nothing(Happened.VOID)
        if self._last_place is not None and Position(*taken.snapshot.local_position).version < self._last_place.version:
            return self._counts.nothing(Happened.OVERTAKEN)
        return self._is_used_from_now(taken)

    def _not_asked(self, answer: SnapshotResponse) -> set[str]:
        """Tells whose messages come both here and to who answers, though they are not asked. One of both has not heard of a link or a policy yet."""
        tick = self.tick
        if tick is None or answer.cluster not in tick.asked:
            return set()
        return {*answer.holds} & {*tick.comes} - {*tick.asked, self._cluster}

    def _at_odds_with(self, answer: SnapshotResponse, unknown: set[str], seq: int) -> list[Effect]:
        """Gives up, at the next tick, what is under way. It is begun again ever more rarely until both know the same."""
        if any(one.builder.snapshot_id == answer.snapshot_id and self._voids.is_valid(one.begun) for one in self._pending):
            self._voids.void(seq)
            self._at_odds[answer.cluster] = min(unknown)
            self._unanswered[answer.cluster] = self._unanswered.get(answer.cluster, 0) + 1
        return self._counts.nothing(Happened.NOT_ASKED)

    def _completes(self, pending: _Pending, snapshot: Snapshot) -> list[Effect]:
        taken = SnapshotTaken(snapshot, pending.begun, pending.moved)
        self._completed = [*self._completed, snapshot.snapshot_id][-(MOST_PENDING + 1) :]
        return [WriteMarker(taken, taken.replicate_to), *self._is_used_from_now(taken)]

    def _is_used_from_now(self, taken: SnapshotTaken) -> list[Effect]:
        self._pending = [one for one in self._pending if one.builder.snapshot_id != taken.snapshot.snapshot_id]
        self._counts[Happened.COMPLETED.value] += 1
        self._ever_completed, self._covered = True, taken.moved
        return self._cursors.add(replace(taken.snapshot, local_position=self._placed(Position(*taken.snapshot.local_position))))

    def _placed(self, position: Position) -> Position:
        last = self._last_place
        if last is not None and last.version == position.version and last >= position:
            position = Position(position.version, last.index + 1)
        self._last_place = position
        return position

    # -- its state ---------------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Its part of the controller's state, for JSON."""
        return {
            **deepcopy({name: getattr(self, f"_{name}") for name in _AS_THEY_ARE}),
            "last_place": self._last_place,
            "tick": self.tick and asdict(self.tick),
            "pending": [asdict(one) for one in self._pending],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes what `to_state` gave."""
        for name in _AS_THEY_ARE:
            setattr(self, f"_{name}", deepcopy(state[name]))
        self._last_place = None if state["last_place"] is None else Position(*state["last_place"])
        self.tick = None if state["tick"] is None else Tick.read(state["tick"])
        self._pending = [_Pending(**{**one, "builder": read_builder(one["builder"])}) for one in state["pending"]]
