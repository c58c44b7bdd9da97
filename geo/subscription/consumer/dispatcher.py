"""Hands messages to the user's function, a batch at a time, and takes what it acknowledges. (Pulsar's Dispatcher.)

What is delivered when is decided in `delivery.py`; nothing here is published but dead letters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.crash import CrashPoint, reach
from geo.delta.predicate import to_sql
from geo.delta.scan import read_where
from geo.errors import UsageError
from geo.ids import MessageId
from geo.log.conditions import IS_POSSIBLE, after
from geo.log.topic_log import ID, PUBLISH_ORDER, is_message
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.fold import Fold, Received
from geo.subscription.acks.forgetting import Remembered
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
from geo.subscription.acks.record import RecordRefusal, told_refusals
from geo.subscription.acks.start_position import split_at
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.consumer.answer import answer_of
from geo.subscription.consumer.attempt import Attempt
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.dead_letters import DeadLetters
from geo.subscription.consumer.delivery import Answer, Delivery
from geo.subscription.consumer.settings import Settings
from geo.subscription.consumer.user_function import Listener, UserFunction
from geo.text import counted
from geo.times import LAST_US, from_us

log = logging.getLogger(__name__)

MOST_ALONE = 16
"""Messages that failed before and are delivered alone, one after the other."""

SCATTERED = 8
"""Ranges of a ledger, on average, from which on it is not worth finding its first hole before it is read."""

ONE_PARTITION = 10_000
"""So many messages come in one partition: sorting them needs no shuffle, and one that writes them writes one file."""


_IN_SHARE = "pmod(xxhash64(coalesce(key, concat_ws(':', origin, ledger_id, entry_id))), {1}) = {0}"
"""SQL that tells whether a message is of a share of the keys. One without a key may be anybody's."""


class Dispatcher:
    """Delivers the batches of one run. The run's thread delivers, others acknowledge by id, merge remote state, and take
    unpublished state.

    `ends` is asked between batches; true drops the rest of the current backlog. `wake` is called when there is something to
    publish that is not to wait, `on_reset` when the subscription begins elsewhere than was known.
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
        self._settings, self._limit, self._ends, self._wake, self._on_reset = settings, limit, ends, wake, on_reset
        self._log = settings.tables.log(settings.topic)
        self._delivery = Delivery(AckState(), settings.redelivery_delay_s, settings.max_redeliveries)
        self._known = SubscriptionState()
        """All that records tell of it; how it is in this region, `_delivery` knows better."""
        most = settings.max_redeliveries
        self._dead_letters = None if most is None else DeadLetters(settings, most)
        note = "-".join(["attempt", *settings.share.split()])
        place = settings.tables.checkpoint("consume", settings.topic.path, settings.name, note)
        self._attempt = None if most is None else Attempt(settings.tables.files, place)
        self._suspects = MessageSet()
        """Messages that the last run had in hand when it died: each comes by itself, in halves."""
        self.done = Consumed()
        self.function = UserFunction(
            settings, listener, self._attempt,
            ends=self._is_over, state=lambda: self.state, answer=self._checked, processed=self._processed,
        )  # fmt: skip
        self._errors: dict[MessageId, str] = {}
        """Why messages that came alone failed last, for their dead letters."""
        self._running = False
        self._lock = threading.RLock()
        """Guards `_delivery`, `_known`, `done` and `_running`."""

    def __str__(self) -> str:
        return str(self._settings)

    @property
    def state(self) -> AckState:
        return self._delivery.state

    def begin(self) -> None:
        """From now until `end` what is acknowledged will be published. What the last run died on comes in halves, before the rest
        of its batch; if that was one message, it counts for it."""
        with self._lock:
            self._running = True
            epoch, acked = self.state.epoch, self.state.acked
        if self._attempt is None or not (died_on := self._attempt.died_on(epoch) - acked):
            return
        log.warning(
            "%s: the last run died while the function had %s in hand: %.200s",
            self,
            counted(died_on.size, "message"),
            died_on,
        )
        if died_on.size > 1:
            self._suspects = died_on
        else:
            why = "the process died while the function had it in hand"
            self._settle(died_on, Answer(), epoch, Consumed(), dict.fromkeys(died_on, why))

    def _is_over(self) -> bool:
        return not self._running or self._ends()

    def has_begun(self) -> None:
        """Marks what `begin` found out as published."""
        if self._attempt is not None and not self._suspects:
            self._attempt.forget()

    def end(self) -> None:
        with self._lock:
            self._running = False

    def close(self, *, clean: bool) -> None:
        if self._dead_letters is not None:
            self._dead_letters.close(clean=clean)

    # -- what is known ---------------------------------------------------------------------------------------------------

    @property
    def is_regional(self) -> bool:
        """Tells whether it is of this region only: nothing that peers know concerns it. Of one of which nothing is known yet it may."""
        return self._known.is_regional

    def received(self, known: SubscriptionState) -> None:
        """Take in what is known here."""
        with self._lock:
            self._take_in(self._known.with_here(self.state) | known, elsewhere=False)

    def _take_in(self, known: SubscriptionState, *, elsewhere: bool) -> None:
        """Takes in as `Delivery.received` all that is known with what has come."""
        before, self._known = self._known, known
        if self._delivery.received(known.here or AckState(), elsewhere=elsewhere, switched=known.turn != before.turn):
            if elsewhere:
                self._wake()
            self._on_reset()

    def hear(self, records: Sequence[Received], *, elsewhere: bool) -> None:
        """Take in records of it; `elsewhere`: they are not in this cluster yet."""
        with self._lock:
            fold = Fold(self._settings.tables.cluster.name, Remembered(self._known.with_here(self.state)))
            fold.add(records)
            self._take_in(fold.known.state, elsewhere=elsewhere)
        # After a reset what was acknowledged before it keeps coming for a while.
        usual = fold.refused.keys() <= {RecordRefusal.OLDER_EPOCH}
        if fold.refused and not (usual and elsewhere):
            log.log(logging.INFO if usual else logging.WARNING, "%s: records refused: %s", self, told_refusals(fold.refused))
        if not elsewhere:  # those count once the link has brought them
            self._count(Consumed(refused=fold.refused.total()))

    def take_unpublished(self) -> SubscriptionState | None:
        """Takes the state that is to be published; None: nothing. It counts as published from here on."""
        with self._lock:
            news = self._delivery.take_unpublished()
            return None if news is None else self._known.part(news)

    # -- delivering ------------------------------------------------------------------------------------------------------

    def deliver_until(self, version: int) -> None:
        """Deliver what the log holds at `version`. Of each ledger what is acknowledged up to its first hole is not read. It does not matter whether
        the subscription or the log begins at its first entry. Where there are many holes, what is acknowledged is left out where it is read.
        """
        self.function.control = False  # what passed before may be long ago
        with self._lock:
            done, base = self._delivery.done, self.state.base
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
        with self._lock:
            ripe = self._delivery.due(time.monotonic())
        self._deliver_again(ripe)

    def recheck(self) -> None:
        """If the function has just passed something, deliver again what it failed on while nothing passed: one message, whose
        failure counts now, and if that passes all others."""
        for is_first in (True, False):
            if not self.function.control:
                break
            with self._lock:
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
            self._count(Consumed(refused=impossible))
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
            with self._lock:
                wanted = self._delivery.wanted(present, early)
            wanted = self._within_limit(wanted, part)
            for group in self._groups(wanted):
                if group.size == ids.num_rows and done is None:
                    self._hand_out(rows, group, held_bytes)
                else:
                    self._hand_out(pick(between(rows, part), group), group, held_bytes)

    def _early(self, ids: pa.Table) -> MessageSet | None:
        """Those of the messages that were published before the time of the base, if it has one."""
        base = self.state.base
        if base is None or base.time_us is None:
            return None
        begin = pa.scalar(from_us(min(base.time_us, LAST_US)), ids["publish_time"].type)
        return message_set(ids.filter(pc.less(ids["publish_time"], begin)))

    def _groups(self, wanted: MessageSet) -> list[MessageSet]:
        """Groups of a batch, each of which is handed out together.

        Of what the last run died on each half comes by itself, and first: with the rest before it, two messages in two groups would kill in turn for
        ever. Then what never failed, so that what did holds up nothing. Last what failed before: each alone while the function works for others,
        since together two bad ones would be nobody's fault; else together, since it may be away.
        """
        suspects = wanted & self._suspects
        self._suspects = self._suspects - suspects
        worn = MessageSet() if self._settings.max_redeliveries is None else (wanted - suspects) & self.state.in_vain()
        alone = [MessageSet.of([one]) for one in islice(worn, MOST_ALONE)] if self.function.works else []
        together = worn - MessageSet.union(alone)
        return [group for group in (*suspects.halves(), wanted - suspects - worn, *alone, together) if group]

    def _within_limit(self, wanted: MessageSet, ids: pa.Table) -> MessageSet:
        """The first of them in publish order, as many as may still be delivered."""
        if self._limit is None or wanted.size <= (left := self._limit - self.done.delivered):
            return wanted
        first: set[MessageId] = set()
        for one in message_ids(ids):
            if one in wanted and len(first) < left:
                first.add(one)
        return MessageSet.of(first)

    def _hand_out(self, rows: DataFrame, wanted: MessageSet, held_bytes: int | None) -> None:
        """One batch. `rows` are exactly the messages `wanted`, with the columns of the log, on the driver if `held_bytes`. What is
        not settled, since the run ends or the function raised, is wanted as before."""
        with self._lock:
            state = self.state
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
            with self._lock:
                self._delivery.take_back(live)
        if dead:
            assert self._dead_letters is not None, "only with max_redeliveries a message is given up"
            self._dead_letters.publish(among(rows, dead), state.epoch, {one: self._errors.pop(one, "") for one in dead})
            reach(CrashPoint.CONSUME_DEAD_LETTERED)
            self._settle(dead, Answer(dead), state.epoch, Consumed(dead_lettered=dead.size))

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

    # -- acknowledging ---------------------------------------------------------------------------------------------------

    def acknowledge(self, ids: Iterable[MessageId]) -> int:
        """Acknowledges as `Subscription.acknowledge`."""
        with self._lock:
            self._refuse_over()
            epoch = self.state.epoch
        existing = self._existing(MessageSet.of(ids))
        with self._lock:
            self._refuse_over()  # it may have ended meanwhile
            self._settle(MessageSet(), Answer(existing), epoch, Consumed())
        return existing.size

    def _refuse_over(self) -> None:
        if not self._running:
            raise UsageError(f"{self}: no consumer is running; acknowledge() works only during a run.")

    def _checked(self, returned: object, messages: DataFrame, live: MessageSet) -> Answer:
        """Checks the answer of the function, by what it returned of `messages`, which are `live`. Other messages it may acknowledge, and not delay."""
        answer = answer_of(returned, messages, live, self)
        if other := answer.acked - live:
            answer = replace(answer, acked=(answer.acked & live) | self._existing(other))
        if other := MessageSet.union(answer.delays.values()) - live:
            log.warning(
                "%s: the function delays %s that it was not given, which changes nothing: %.200s",
                self,
                counted(other.size, "message"),
                other,
            )
            self._count(Consumed(refused=other.size))
            answer = replace(answer, delays={delay_s: messages & live for delay_s, messages in answer.delays.items()})
        return answer

    def _existing(self, ids: MessageSet) -> MessageSet:
        """Those of the messages that are in the log, or are acknowledged already. The others are refused, and those that were
        delivered before the subscription began elsewhere and not since."""
        with self._lock:
            known = ids & (self._delivery.waiting | self.state.acked)
            outdated = ids & self._delivery.outdated
        if unknown := ids - known - outdated:
            known = known | message_set(among(self._log.read(), unknown).select(*ID).toArrow())
        if refused := ids - known:
            log.warning(
                "%s: %d acknowledgements refused, no such messages or of before a reset: %.200s", self, refused.size, refused
            )
            self._count(Consumed(refused=refused.size))
        return known

    def _processed(self, these: MessageSet, answer: Answer, state: AckState, blamed: Mapping[MessageId, str] | None) -> None:
        reach(CrashPoint.CONSUME_PROCESSED)
        done = Consumed(delivered=these.size, redelivered=(these & state.in_vain()).size)
        self._settle(these, answer, state.epoch, done, blamed)

    def _settle(
        self, handed_out: MessageSet, answer: Answer, epoch: Epoch, done: Consumed, blamed: Mapping[MessageId, str] | None = None
    ) -> None:
        """Settles as `Delivery.settle`, with what is told of those that are `blamed`. `done`: what to count beside the acknowledged."""
        acked = answer.acked
        with self._lock:
            news = (acked - self.state.acked).size if epoch == self.state.epoch else 0
            ids = None if blamed is None else MessageSet.of(blamed)
            self._delivery.settle(handed_out, answer, epoch, time.monotonic(), ids)
            self._count(replace(done, acknowledged=news))
            self._errors.update(blamed or {})
            for one in [one for one in self._errors if one in acked]:
                del self._errors[one]
        if acked:
            self._wake()

    def _count(self, more: Consumed) -> None:
        with self._lock:
            self.done += more
