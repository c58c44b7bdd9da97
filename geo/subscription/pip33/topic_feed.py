"""Feed of one topic's controller: the rows that it is given next, each once, and when they are worth a batch of their own.

It is given what its log adds (`log_feed.py`), what people do with subscriptions, how far consumers are, backfills that begin and end, and the
time.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from geo.errors import RetryableError
from geo.faults import FAULTS
from geo.journal.cluster import ClusterTables
from geo.now import now_us
from geo.streams import timetable
from geo.subscription.pip33.answers import Answers
from geo.subscription.pip33.asked import Ways
from geo.subscription.pip33.controller import is_only_noted
from geo.subscription.pip33.controller_rows import (
    FinishedUpTo,
    Invalidated,
    MarkerRow,
    Notes,
    Resnapshot,
    Row,
    Subscribed,
    Tick,
    Unsubscribed,
)
from geo.subscription.pip33.log_feed import LogFeed
from geo.subscription.pip33.surroundings import Surroundings, TopicWays
from geo.subscription.versions.version_subscriptions import VersionSubscription, said_by, unused_subscriptions
from geo.text import first_line
from geo.times import in_us

log = logging.getLogger(__name__)


class TopicFeed:
    """One topic, and what its controller was given. A new one gives it again what it must know."""

    def __init__(
        self,
        tables: ClusterTables,
        log_feed: LogFeed,
        ways: TopicWays,
        surroundings: Surroundings,
        notes: Notes,
        next_seq: Callable[[], int],
    ) -> None:
        """`notes`: of controllers, among them which rests. `next_seq`: draws the number of a row."""
        self.topic, self.log, self._ways, self._surroundings = log_feed.topic, log_feed, ways, surroundings
        self._tables, self._notes, self._next_seq = tables, notes, next_seq
        self._answers = Answers(surroundings.cluster)
        self._told: Tick | None = None
        """The newest tick."""
        self._is_changed = False
        """Something else than messages and markers was given since."""
        self._held: list[Row] = []
        """Rows that wait for others, not yet given."""
        self._waits_since: float | None = None
        """The time when the first answer among them came, by a clock that only goes on."""
        self._told_moved_at = 0.0
        """The time of the tick that had messages that the one before did not know of."""
        self._progress_at = -math.inf
        """The time when its consumers were asked last, by a clock that only goes on."""
        self.last_seq = 0
        """The number of the newest row."""
        self._subscriptions: dict[str, VersionSubscription] = {}
        """Subscriptions as they were given last."""
        self._unused = set(unused_subscriptions(tables, self.topic))
        """Those deleted before, or of this region only, of which it is not known whether that was given."""
        self._finished: dict[str, int] = {}
        """The version that each subscription has finished, as it was given last."""
        self._backfills: dict[str, bool] = {}
        """Backfills, which add rows behind others, as they were given last: whether each has begun and not ended."""

    def rest(self) -> list[Row]:
        """Returns the last rows for a topic that is followed no longer: what waits, and that its subscriptions are gone."""
        rows = [*self._held, *(Unsubscribed(0, name) for name in self._subscriptions)]
        return [replace(row, seq=self._next_seq()) for row in rows]

    def news(
        self,
        subscriptions: Mapping[str, VersionSubscription],
        backfills: Callable[[bool], Mapping[str, bool]],
        *,
        again: bool,
    ) -> list[Row]:
        """Returns the rows that the controller is given now, with their numbers.

        `backfills`: those into the log and whether each is under way, read again if it is given True. `again`: one of the controller's updates
        was lost.
        """
        lost, rows = list[Row](), list[Row]()
        try:
            rows += self.log.read()
        except RetryableError as error:
            lost = self._restart(error)
        # Where the log shows one, after the log: whoever has brought a row owned that before, so nothing is begun between two of its rows.
        now = backfills(any(isinstance(row, Invalidated) for row in rows))
        told = [*([Resnapshot(0)] if again else []), *lost, *self._of_backfills(now)]
        # By the ways that a tick tells an answer goes: it comes before what was copied.
        if (tick := self._tick(used=bool(subscriptions))) is not None:
            if self._told is None or tick.moved != self._told.moved:
                self._told_moved_at = tick.now
            self._told, self._is_changed = tick, False
            told.append(tick)
        told += rows
        has_waited = self._waits_since is not None and time.monotonic() - self._waits_since >= timetable.MARKERS_ANSWER_S
        waits = [self._waits(row) for row in told]  # of each, which notes who has answered
        is_due = has_waited or not all(waits)
        others = list(self._of_subscriptions(subscriptions, with_others=is_due))
        told += others
        self._is_changed |= any(isinstance(row, (Invalidated, Resnapshot, Subscribed, Unsubscribed)) for row in told)
        self._held += told
        if not is_due and not others:
            return []  # they come with the next rows; a tail that comes after this one reads them again
        told, self._held, self._waits_since = self._held, [], None
        return [replace(row, seq=self._next_seq()) for row in told]

    def _waits(self, row: Row) -> bool:
        """Tells whether a row may come with later ones, as each time is a batch: neither a request nor a snapshot follows from it yet. An answer does
        so while that of another cluster lacks, but not for long.
        """
        if not isinstance(row, MarkerRow):
            return False
        if is_only_noted(row.kind, row.sender, self._surroundings.cluster):
            return True
        asked = self._ways.now().asked.clusters
        given = self._answers.note(row, asked)
        if not given or given >= set(asked):
            return False
        self._waits_since = self._waits_since or time.monotonic()
        return True

    def _of_backfills(self, now: Mapping[str, bool]) -> Iterator[Row]:
        """Rows for backfills that have begun, or ended. A new feed does not know what of it was given, and gives all."""
        for what, begins in now.items():
            if self._backfills.get(what) != begins:
                self._backfills[what] = begins
                yield Invalidated(0, what, begins)

    def _of_subscriptions(self, subscriptions: Mapping[str, VersionSubscription], *, with_others: bool) -> Iterator[Row]:
        """Rows for what people did, at once. The progress of consumers comes with other rows, or once in `timetable.MARKERS_LOOK_S`. (Alone it
        is a batch of its own, and while those follow one another answers wait.)
        """
        for name in self._subscriptions.keys() - subscriptions.keys() | self._unused:
            yield Unsubscribed(0, name)
            self._subscriptions.pop(name, None)
            self._finished.pop(name, None)
        self._unused = set()
        if is_due := with_others or time.monotonic() - self._progress_at >= timetable.MARKERS_LOOK_S:
            self._progress_at = time.monotonic()
        for name, now in subscriptions.items():
            before = self._subscriptions.get(name)
            if before is None or before.created_at != now.created_at:  # it may have been deleted in between
                yield Subscribed(0, name, table=now.table_id, created_us=in_us(now.created_at))
                self._finished.pop(name, None)
            self._subscriptions[name] = now
            if not is_due:
                continue
            finished = self._finished_by(now, self._finished.get(name)) if now.table_id == self.log.tail.at.table_id else None
            # One that is further than was looked at here is told once that is.
            if finished is not None and self._finished.get(name, -1) < finished <= self.log.read_to:
                self._finished[name] = finished
                yield FinishedUpTo(0, name, finished, now.table_id)

    def _finished_by(self, one: VersionSubscription, told: int | None) -> int | None:
        try:
            finished = said_by(self._tables, one)
            if finished is not None and told is not None and finished < told:
                raise RetryableError(f"it is back at version {finished}, and version {told} was told as finished, which stays")
            return finished
        except FAULTS as error:
            if (why := first_line(error)) != self._surroundings.unread.get(str(one)):
                self._surroundings.unread[str(one)] = why
                log.warning("%s of %s: how far it is cannot be read: %s", one.subscription, one.topic, why)
            return None

    def _tick(self, *, used: bool) -> Tick | None:
        """The next one. Where nobody here uses versions, others are answered: that needs the ways alone.

        None: its time has not come, or it would say what the last one did to a controller that has nothing to do.
        """
        told, now, frequency_s = self._told, now_us() / 1e6, self._surroundings.config.snapshots.frequency_s
        ways = self._ways.now()
        comes = self._comes(ways)
        is_same_way = told is not None and (told.asked, told.ways, told.comes) == (ways.asked.clusters, ways.there, comes)
        if told is not None and used and is_same_way:  # whom it must ask from now on it hears before any answer
            # Of messages it tells at once, unless it has just done so: a snapshot that can begin does not wait for the next tick.
            since = told.now if self.log.moved == told.moved else self._told_moved_at
            if 0 <= now - since < frequency_s:
                return None
        unable = self._surroundings.unable(self.topic, ways) if used else {}
        if told is not None and is_same_way:
            same = (told.moved, told.unable) == (self.log.moved, unable)
            rests = self._notes.rests.get(str(self.topic), -1) >= self.last_seq
            if not used or (
                same and (rests or (not self._is_changed and 0 <= now - told.now < max(frequency_s, timetable.STILL_S)))
            ):
                return None
        return Tick(
            0, now, self.log.moved, ways.asked.clusters, unable, ways.there, self.log.read_to, self.log.tail.at.table_id, comes
        )

    def _comes(self, ways: Ways) -> tuple[str, ...]:
        """The clusters whose messages come here. It goes by the policies, and by what links have replicated since policies were read of all that
        could have them come. A cluster that could, and has never answered, may be one.
        """
        could = [self._surroundings.peers[name] for name in self._ways.may_come]
        read_at = min([self._surroundings.looked_at, *(peer.said_at for peer in could)])
        self.log.arrived = {origin: at for origin, at in self.log.arrived.items() if at >= read_at}
        unheard = {name for name in self._ways.may_come if not self._surroundings.peers[name].has_answered}
        return tuple(sorted({*ways.back, *self.log.arrived, *unheard}))

    def _restart(self, error: RetryableError) -> list[Row]:
        rows, is_other = self.log.restart(error)
        if is_other:
            self._finished.clear()
        return rows
