"""Folding: of one namespace's `__acks` each subscription's state is kept in `system/cursors`.

With it a consumer starts from one row and the newest records however long the history is, and old records can expire. A cluster that joins late
lacks nothing. Now and then all of a state is published again as compact records, which are records like any other. What has expired is left out of
state and records (`forgetting.py`). Nothing depends on it running. What a record means is decided in `fold.py`.

The cursors are all that it keeps. Each run begins with the records that are in none of them, and then follows the log commit by commit.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from geo.config.model import Config
from geo.coordination.storage_clock import checked_now_us
from geo.crash import CrashPoint, reach
from geo.delta.ddl import find_checked
from geo.delta.predicate_arrow import kept
from geo.delta.scan import scan
from geo.delta.tail import REMOTE_PRESENCE_S, TURN_COMMITS, Tail, Turn, look_every_s
from geo.errors import RetryableError
from geo.faults import FAULTS
from geo.ids import LedgerId
from geo.journal.cluster import ClusterTables
from geo.journal.rows import Row
from geo.log.ledger_parts import ledger_parts
from geo.names import Topic
from geo.now import now_us
from geo.schemas import CURSORS, TOPIC_LOG
from geo.slices import slices
from geo.streams import timetable
from geo.streams.loop import BatchLoop
from geo.streams.query_work import QueryWork
from geo.streams.trigger import interval_s
from geo.subscription.acks.ack_publisher import AckPublisher
from geo.subscription.acks.acks_topic import read_cursors
from geo.subscription.acks.cursor import Cursor, dated
from geo.subscription.acks.forgetting import DAY_US, days_of
from geo.subscription.acks.gathered import Gathered, joined
from geo.subscription.acks.gathered_frames import keys_of, news
from geo.subscription.acks.record import parse_key
from geo.text import first_line
from geo.times import in_us

log = logging.getLogger(__name__)

FOLD = "fold"
"""The producer of the compact records; owning it makes a process the only one that folds this namespace here."""

LAGS_S = 10.0
"""So long it goes on with turns, where many commits are there; then it is asked whether to stop."""

SLICE, SLICE_BYTES = 100, 16 * 1024 * 1024
"""Subscriptions whose cursors are written at once. Their states have so many bytes at most, unless a single one has more."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Result of a run."""

    cursors: int = 0
    compacted: int = 0
    unfinished: Mapping[str, str] = field(default_factory=dict)
    """State and reason, by `__acks` topic, of a namespace that could not be folded to its end."""


@dataclass(frozen=True, slots=True)
class OpenFold:
    """A fold that was begun, and the producer of its compact records, which owns the cursors of its namespace."""

    publisher: AckPublisher
    running: BatchLoop

    def close(self, *, clean: bool) -> None:
        self.running.stop()
        self.publisher.close(clean=clean)

    def abandon(self) -> None:
        self.publisher.writer.abandon()

    def refuse_if_replaced(self) -> None:
        self.publisher.writer.refuse_if_replaced()


class NamespaceFold(QueryWork[OpenFold]):
    """The fold of one namespace, as a piece of work. A turn: fold → compact records that are due → the cursors' rows. Who dies in one folds
    the same again, which changes nothing."""

    def __init__(self, tables: ClusterTables, config: Config, acks: Topic, trigger: str, *, take_over: bool = False) -> None:
        self._every_s = interval_s(trigger)
        super().__init__(lambda take_over, _: self._open(take_over), acks, once=self._every_s is None, take_over=take_over)
        self._tables, self._config, self.acks = tables, config, acks
        self._log = tables.log(acks)
        self.done = Folded()
        self._ttl_s = config.policy(acks).message_ttl_s
        self._uncompacted: set[str] = set()
        """Keys of states that changed since they were last published as a whole."""
        self._refreshed_at = -math.inf
        self._held: dict[Topic, tuple[int, frozenset[LedgerId] | None]] = {}
        """The ledgers that logs held on a day; None: not known."""
        self._tail: Tail | None = None
        """Tail of the log; None before all that is in no cursor was folded."""
        self._cursors_tail: Tail | None = None
        """Tail of the cursors' table, as of `_followed_at` (monotonic); None as long as there is none."""
        self._followed_at = -math.inf
        self._unread: dict[str, dict[LedgerId, int]] = {}
        """First record, by key and ledger, that a newer program wrote."""
        self._written: dict[str, tuple[int, int]] = {}
        """Number and time, by key, in microseconds since 1970, of the cursor's row that this run wrote last."""

    def __str__(self) -> str:
        return f"fold of {self.acks} in {self._tables.cluster.name}"

    @property
    def progress_marker(self) -> int | None:
        return self.done.cursors or None

    def _open(self, take_over: bool) -> OpenFold:
        """Raises AlreadyOwnedError if another process folds this namespace here."""
        publisher = self._publisher = AckPublisher(self._tables, self._config, self.acks, FOLD, take_over=take_over)
        try:
            self._begin_anew()
            self._refreshed_at = -math.inf
            # The streaming checkpoint of a program of before: one that comes back folds all of the log into the cursors.
            self._tables.files.remove_folder(self._tables.checkpoint("fold", self.acks.path))
            every_s = None if self._every_s is None else look_every_s(self._log, self._every_s)
            return OpenFold(publisher, BatchLoop(f"geo fold {self.acks}", self._step, lambda: None, every_s=every_s))
        except BaseException:
            publisher.close(clean=False)
            raise

    def _begin_anew(self) -> None:
        self._tail, self._cursors_tail, self._unread, self._written = None, None, {}, {}

    def _step(self) -> bool:
        """Take in what has come: a turn, and more of them where it lags. Whether there may be more now."""
        until = time.monotonic() + LAGS_S
        try:
            if time.monotonic() - self._refreshed_at >= timetable.COMPACT_S:
                self._refresh()
            if self._tail is None:
                self._take_all()
                return False
            while (turn := self._next(self._tail)) is not None:
                if turn.brings:
                    self._fold_turn(self._tail, turn)
                self._tail.take(turn)
                if len(turn.commits) < TURN_COMMITS // 2 or time.monotonic() >= until:
                    return True
        except _OtherThanTheyWereError as error:
            log.warning("%s: looks again at all that is in no cursor: %s", self, error)
            self._begin_anew()
            self._take_all()
        return False

    def _take_all(self) -> None:
        """Fold all of the log that is in no cursor."""
        tail = Tail.at_newest(self._log)
        self._follow_cursors()
        found = scan(self._log, tail.at.version, news(self._tables.cluster.name, self._cursors()))
        self._fold(joined(found), lambda some: self._cursors_of(one.key for one in some))
        self._tail = tail

    def _fold_turn(self, tail: Tail, turn: Turn) -> None:
        rows = tail.few(turn)
        cursors = self._cursors() if rows is None else self._cursors_of(keys_of(rows))
        asked = news(self._tables.cluster.name, cursors)
        found = tail.scan(turn, asked) if rows is None else [asked.each(kept(asked.where, rows))]
        self._fold(joined(found), lambda _: cursors)

    def _next(self, tail: Tail) -> Turn | None:
        """Raises _OtherThanTheyWereError where log or cursors are not what they were."""
        if self._log.is_near or time.monotonic() - self._followed_at >= REMOTE_PRESENCE_S:
            self._follow_cursors()  # else before anything is folded
        try:
            return tail.next()
        except RetryableError as error:
            raise _OtherThanTheyWereError(first_line(error)) from error

    def _follow_cursors(self, *, were_read: bool = False) -> None:
        """Raises _OtherThanTheyWereError where somebody took rows of the cursors away, or put an older copy of them back. They know less then than
        was folded before. `were_read`: their rows just were, so it must be known now."""
        self._followed_at = time.monotonic()
        try:
            if self._cursors_tail is not None:
                while (turn := self._cursors_tail.next()) is not None:
                    self._cursors_tail.take(turn)
                if were_read:
                    self._cursors_tail.check()
            elif (cursors := self._tables.journal(CURSORS)).exists():
                self._cursors_tail = cursors.tail()
        except RetryableError as error:
            raise _OtherThanTheyWereError(first_line(error)) from error

    def _fold(self, found: Mapping[str, Gathered], cursors: Callable[[Sequence[Gathered]], Mapping[str, Row]]) -> None:
        """Take in what records tell that are in no cursor."""
        for some in slices(found.values(), lambda one: one.size, SLICE_BYTES, SLICE):
            reach(CrashPoint.FOLD_FOLDED)
            self._fold_slice(some, cursors(some))
        reach(CrashPoint.FOLD_CURSORS_WRITTEN)

    def _fold_slice(self, found: Sequence[Gathered], known: Mapping[str, Row]) -> None:
        """`known`: the cursors that there are, read since the records were."""
        self._follow_cursors(were_read=True)
        at_us, today = now_us(), self._today()
        fresh: list[Cursor] = []
        due: list[Cursor] = []
        for one in found:
            row, unread = known.get(one.key), self._noted_unread(one)
            self._refuse_another(one.key, row)
            if row is None and not one.told.state.states:
                log.warning("%s: records of %.200s refused: %s", self.acks, ascii(one.key), dict(one.refused))
                continue
            before = Cursor(*parse_key(one.key)) if row is None else Cursor.of_row(row)
            ttl_days = self._ttl_days(before.topic)
            cursor = before.taking(one, unread, today, ttl_days, all_read=self._tail is None)
            if row is None or cursor.remembered.is_news(before.remembered, today, ttl_days):
                self._uncompacted.add(one.key)
            if one.key in self._uncompacted and cursor.is_long_ago(at_us, timetable.COMPACT_S):
                cursor = self._compacted(cursor, at_us, today)
                due.append(cursor)
            fresh.append(cursor)
        self._publish(due, today)
        self._write(fresh, at_us)
        self.done = replace(self.done, cursors=self.done.cursors + len(fresh))

    def _write(self, cursors: Sequence[Cursor], at_us: int) -> None:
        if cursors:
            self._publisher.writer.append_to(self._tables.journal(CURSORS), [one.as_row(at_us) for one in cursors])
            self._written |= {one.key: (one.sequence + 1, at_us) for one in cursors}
            self._uncompacted -= {one.key for one in cursors if one.compacted_us == at_us}

    def _refuse_another(self, key: str, row: Row | None) -> None:
        """Raises _OtherThanTheyWereError where a cursor is not the one that this run wrote: what an owner before had in flight, an older copy."""
        written = self._written.get(key)
        if written is not None and (row is None or (row["sequence"], in_us(row["updated_at"])) != written):
            raise _OtherThanTheyWereError(f"the cursor of {key} is another one than was written")

    def _noted_unread(self, found: Gathered) -> Mapping[LedgerId, int]:
        """First record of the subscription, by ledger, that a newer program wrote, since this run began."""
        before = self._unread.get(found.key, {})
        if found.unread:
            before = {**found.unread, **before}  # what came before has lower entries
            self._unread[found.key] = before
        return before

    def _refresh(self) -> None:
        """Publish again what would expire, a state whose compact records have half of their time behind them. So also what has changed since and was
        not touched again.
        """
        self._refreshed_at = time.monotonic()
        at_us = now_us()

        def is_due(key: str, row: Row) -> bool:
            since_s = math.inf if row["compacted_at"] is None else (at_us - in_us(row["compacted_at"])) / 1e6
            has_changed = key in self._uncompacted
            return (self._ttl_s is not None and since_s >= self._ttl_s / 2) or (has_changed and since_s >= timetable.COMPACT_S)

        if old := {key: row for key, row in self._cursors().items() if is_due(key, row)}:
            self._follow_cursors(were_read=True)
            today = self._today()
            for key, row in old.items():
                self._refuse_another(key, row)
            due = [self._compacted(Cursor.of_row(row), at_us, today) for row in old.values()]
            self._publish(due, today)
            self._write(due, at_us)

    def _compacted(self, cursor: Cursor, at_us: int, today: int) -> Cursor:
        """The cursor whose state is about to be told as a whole: without what has expired."""
        ttl_days = self._ttl_days(cursor.topic)
        state = dated(cursor.remembered, today, ttl_days)
        if ttl_days is not None and state.old(today, ttl_days) and (held := self._held_on(cursor.topic, today)) is not None:
            state = state.forgetting(held, today, ttl_days)
        return replace(cursor, remembered=state, compacted_us=at_us)

    def _publish(self, cursors: Sequence[Cursor], today: int) -> None:
        if cursors:
            self._publisher.publish_aged(
                (one.topic, one.subscription, one.remembered.by_age(today, self._ttl_days(one.topic))) for one in cursors
            )
            self.done = replace(self.done, compacted=self.done.compacted + len(cursors))
            reach(CrashPoint.FOLD_COMPACTED)

    # -- forgetting ------------------------------------------------------------------------------------------------------

    def _today(self) -> int:
        """The day since 1970. Raises WrongClockError."""
        return checked_now_us(self._tables, f"{self}: nothing is folded") // DAY_US

    def _ttl_days(self, topic: Topic) -> int | None:
        ttl_s = self._config.policy(topic).message_ttl_s
        return None if ttl_s is None else days_of(ttl_s)

    def _held_on(self, topic: Topic, today: int) -> frozenset[LedgerId] | None:
        """The ledgers that the log here held on this day, when it was first asked; None: that cannot be told. What has come since is
        younger than the TTL."""
        day, held = self._held.get(topic, (None, None))
        if day != today:
            try:
                log_table = self._tables.log(topic)
                there = find_checked(log_table, TOPIC_LOG) is not None
                held = frozenset(ledger_parts(log_table, log_table.latest_version())) if there else None
            except FAULTS as error:
                log.warning("%s: nothing of %s is forgotten, its log cannot be read: %s", self, topic, first_line(error))
                held = None
            self._held = {**{one: known for one, known in self._held.items() if known[0] == today}, topic: (today, held)}
        return held

    def _cursors(self) -> dict[str, Row]:
        return read_cursors(self._tables, self.acks)

    def _cursors_of(self, keys: Iterable[str]) -> dict[str, Row]:
        """Those of the topics of these subscriptions."""
        return read_cursors(self._tables, self.acks, topic={key.rpartition("/")[0] for key in keys})


class _OtherThanTheyWereError(RetryableError):
    """Log or cursors are not what they were."""
