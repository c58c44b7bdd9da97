"""Hands messages to the user's function, a batch at a time, and takes what it acknowledges. (Pulsar's Dispatcher.)

What is delivered when is decided in `delivery.py`, what is known and acknowledged `acknowledgements.py` holds, what fails `poison.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.crash import CrashPoint, reach
from geo.delta.predicate import to_sql
from geo.delta.scan import read_where
from geo.ids import MessageId
from geo.log.conditions import IS_POSSIBLE, after
from geo.log.topic_log import PUBLISH_ORDER, is_message
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.message_set_frames import (
    FEW_RANGES,
    among,
    between,
    ids_of,
    in_publish_order,
    message_ids,
    message_set,
    only,
    with_redelivery_counts,
    without,
)
from geo.subscription.acks.start_position import split_at
from geo.subscription.consumer.acknowledgements import Acknowledgements
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.delivery import Answer
from geo.subscription.consumer.poison import Poison
from geo.subscription.consumer.settings import Settings
from geo.subscription.consumer.user_function import Listener, UserFunction
from geo.text import counted
from geo.times import LAST_US, from_us

log = logging.getLogger(__name__)

SCATTERED = 8
"""Ranges of a ledger, on average, from which on it is not worth finding its first hole before it is read."""

ONE_PARTITION = 10_000
"""So many messages come in one partition: sorting them needs no shuffle, and one that writes them writes one file."""


_IN_SHARE = "pmod(xxhash64(coalesce(key, concat_ws(':', origin, ledger_id, entry_id))), {1}) = {0}"
"""SQL that tells whether a message is of a share of the keys. One without a key may be anybody's."""


class Dispatcher:
    """Delivers the batches of one run, in the run's thread. `acks`: what is acknowledged, also by others meanwhile.

    `ends` is asked between batches; true drops the rest of the current backlog. `wake` is called when there is something to publish that is not to
    wait, `on_reset` when the subscription begins elsewhere than was known.
    """

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        limit: int | None,
        ends: Callable[[], bool],
        wake: Callable[[], None],
        on_reset: Callable[[], None],
    ) -> None:
        self._settings, self._limit, self._ends = settings, limit, ends
        self._log = settings.tables.log(settings.topic)
        self.acks = Acknowledgements(settings, wake, on_reset)
        self._delivery = self.acks.delivery
        self._poison = Poison(settings, self.acks)
        self.function = UserFunction(
            settings, listener, self._poison.attempt,
            ends=self._is_over, state=lambda: self.acks.state, answer=self.acks.checked, processed=self._processed,
        )  # fmt: skip

    def __str__(self) -> str:
        return str(self._settings)

    def begin(self) -> None:
        """From now until `end` what is acknowledged will be published; also what is found out of messages on which the last run died."""
        with self.acks.lock:
            self.acks.is_running = True
        self._poison.begin()

    def has_begun(self) -> None:
        """Marks what `begin` found out as published."""
        self._poison.has_begun()

    def end(self) -> None:
        """Nothing is acknowledged any more."""
        with self.acks.lock:
            self.acks.is_running = False

    def close(self, *, clean: bool) -> None:
        """Close what dead letters are published by; `clean`: after no fault of this program."""
        self._poison.close(clean=clean)

    def _is_over(self) -> bool:
        return not self.acks.is_running or self._ends()

    def deliver_until(self, version: int) -> None:
        """Deliver what the log holds at `version`. Of each ledger what is acknowledged up to its first hole is not read. It does not matter whether
        the subscription or the log begins at its first entry. Where there are many holes, what is acknowledged is left out where it is read.
        """
        self.function.control = False  # what passed before may be long ago
        with self.acks.lock:
            done, base = self._delivery.done, self.acks.state.base
        present, before = split_at(base, self._log, version)
        self.function.held = set(present.ledgers)
        done = (done | before) & present
        if done.range_count > SCATTERED * max(1, len(done.ledgers)):
            self.deliver(self._log.read(version), done=done)
            return
        begins = {ledger: found[0][0] for ledger, found in present.ledgers.items()}
        marks = done.marks(begins)
        beyond = done.size - sum(mark + 1 - begins[ledger] for ledger, mark in marks.items())
        self.deliver(read_where(self._log, version, after(marks)), done=done if beyond > ONE_PARTITION else None)

    def redeliver(self) -> None:
        """Deliver again what has waited long enough."""
        self.recheck()
        with self.acks.lock:
            ripe = self._delivery.due(time.monotonic())
        self._deliver_again(ripe)

    def recheck(self) -> None:
        """If the function has just passed something, deliver again what it failed on while nothing passed.

        One message comes first, whose failure counts now; if it passes, all others.
        """
        for is_first in (True, False):
            if not self.function.control:
                break
            with self.acks.lock:
                doubtful = self.function.doubtful = self.function.doubtful & self._delivery.waiting
                again = self._delivery.recall(MessageSet.of(islice(doubtful, 1)) if is_first else doubtful)
            self._deliver_again(again)
        self.function.control = False

    def _deliver_again(self, messages: MessageSet) -> None:
        if messages:
            # At one version: what a restore takes away meanwhile must not count as delivered unseen.
            self.deliver(among(self._log.read(self._log.latest_version()), messages))

    def deliver(self, rows: DataFrame, *, held_bytes: int | None = None, done: MessageSet | None = None) -> None:
        """Hand out what of `rows`, of the columns of the log, is wanted: in publish order, at most `batch_rows` and
        `max_batch_bytes` at once. With `held_bytes` they are on the driver, in that order, and no larger. What is `done` is left
        out where it is read, so that it does not come to the driver. Raises what the user's function does."""
        rows = rows.where(is_message())
        if self._settings.origins is not None:
            rows = rows.where(F.col("origin").isin(*sorted(self._settings.origins)))
        if self._settings.key_range is not None:
            rows = rows.where(_IN_SHARE.format(*self._settings.key_range))
        ids, impossible = ids_of(rows if done is None else without(rows, done))
        if impossible:
            log.warning(
                "%s: %s of the log are not delivered, with ids or times that no message has",
                self,
                counted(impossible, "row"),
            )
            self.acks.count(Consumed(refused=impossible))
            rows = rows.where(to_sql(IS_POSSIBLE))
        if ids.num_rows > self._settings.batch_rows or self._limit is not None:
            ids = in_publish_order(ids)
        whole = message_set(ids)
        self.function.held.update(whole.ledgers)
        each_once = whole.size == ids.num_rows
        pick, held_bytes = (among, held_bytes) if each_once else (only, None)
        early = self._early(ids)
        for at in range(0, ids.num_rows, self._settings.batch_rows):
            if self._is_over():
                return
            part = ids.slice(at, self._settings.batch_rows)
            present = whole if part.num_rows == ids.num_rows else message_set(part)
            with self.acks.lock:
                wanted = self._delivery.wanted(present, early)
            wanted = self._within_limit(wanted, part)
            for group in self._poison.groups(wanted, works=self.function.works):
                if group.size == ids.num_rows and done is None:
                    self._hand_out(rows, group, held_bytes)
                else:
                    self._hand_out(pick(between(rows, part), group), group, held_bytes)

    def _early(self, ids: pa.Table) -> MessageSet | None:
        """Those of the messages that were published before the time of the base, if it has one."""
        base = self.acks.state.base
        if base is None or base.time_us is None:
            return None
        begin = pa.scalar(from_us(min(base.time_us, LAST_US)), ids["publish_time"].type)
        return message_set(ids.filter(pc.less(ids["publish_time"], begin)))

    def _within_limit(self, wanted: MessageSet, ids: pa.Table) -> MessageSet:
        """The first of them in publish order, as many as may still be delivered."""
        if self._limit is None or wanted.size <= (left := self._limit - self.acks.done.delivered):
            return wanted
        first: set[MessageId] = set()
        for one in message_ids(ids):
            if one in wanted and len(first) < left:
                first.add(one)
        return MessageSet.of(first)

    def _hand_out(self, rows: DataFrame, wanted: MessageSet, held_bytes: int | None) -> None:
        """One batch. `rows` are exactly the messages `wanted`, with the columns of the log, on the driver if `held_bytes`. What is
        not settled, since the run ends or the function raised, is wanted as before."""
        with self.acks.lock:
            state = self.acks.state
            dead = self._delivery.given_up(wanted)
            self._delivery.hand_out(wanted)
        live = wanted - dead
        counts = state.redelivery_counts(live)
        try:
            if live:
                shown = with_redelivery_counts((among(rows, live) if dead else rows).drop("marker", "publish_date"), counts)
                if held_bytes is not None and held_bytes <= self._settings.max_batch_bytes and not counts:
                    self.function.process(shown.coalesce(1), live, state)
                else:
                    self._process_persisted(shown, live, state)
        finally:
            with self.acks.lock:
                self._delivery.take_back(live)
        if dead:
            self._poison.bury(among(rows, dead), dead, state.epoch)

    def _process_persisted(self, shown: DataFrame, live: MessageSet, state: AckState) -> None:
        if live.size <= ONE_PARTITION:
            # Of scattered messages the files are read in parallel first.
            one = shown.repartition(1) if live.range_count > FEW_RANGES else shown.coalesce(1)
            messages = one.sortWithinPartitions(*PUBLISH_ORDER).persist()
        else:
            messages = shown.orderBy(*PUBLISH_ORDER).persist()
        try:
            self.function.process_in_parts(messages, live, state)
        finally:
            messages.unpersist()

    def _processed(self, these: MessageSet, answer: Answer, state: AckState, blamed: Mapping[MessageId, str] | None) -> None:
        reach(CrashPoint.CONSUME_PROCESSED)
        done = Consumed(delivered=these.size, redelivered=(these & state.in_vain()).size)
        self.acks.settle(these, answer, state.epoch, done, blamed)
