"""One run of a consumer: it owns the subscription, delivers what the log holds, then what the log gets.

What a batch does is in `dispatcher.py`, what others are told and tell in `ack_exchange.py`; this file runs the steps in order.
"""

from __future__ import annotations

import logging
import math
import threading
import time

from geo.crash import CrashPoint, reach
from geo.delta.small_batch import MOST_HELD_BYTES, hold_on_driver
from geo.delta.tail import Tail, Turn, look_every_s
from geo.errors import UnsafeError
from geo.faults import FAULTS, may_pass, session_is_gone
from geo.log.topic_log import PUBLISH_ORDER, open_log, user_columns
from geo.streams import timetable
from geo.streams.life import Life, WorkEvent, backoff_s
from geo.streams.trigger import interval_s
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.start_position import base_at
from geo.subscription.consumer.ack_exchange import ConsumerPart, join, leave
from geo.subscription.consumer.dispatcher import Dispatcher
from geo.subscription.consumer.owning import give_back, own, refuse_without_log
from geo.subscription.consumer.settings import Settings
from geo.subscription.consumer.user_function import Listener
from geo.text import first_line

log = logging.getLogger(__name__)

TRIGGER = "200 ms"

LAST_FLUSH_S = 10.0
"""Seconds that a run that ends tries to publish what it has acknowledged."""

_POLL_S = 0.05


class Run:
    """One run of a consumer. `go`:

    1. owns the subscription in this cluster, as a standby once nobody else does;
    2. reads what is known of it, here and at its peers, and creates it if that is nothing (then CONSUME_CREATED);
    3. delivers what the log holds at its newest version V, then what comes after V. Per batch it
       a. with `max_redeliveries` notes what the user's function gets (then CONSUME_ATTEMPTED); calls it (then CONSUME_PROCESSED),
       b. adds what that acknowledged to what is published within a second (ACKS_BEFORE_FLUSH, ACKS_AFTER_FLUSH),
       c. publishes dead letters (then CONSUME_DEAD_LETTERED) and acknowledges those.

    No position is stored: a start resumes with whatever is not acknowledged, so no checkpoint can be lost, too old, or of another
    table.
    """

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        stopped: threading.Event,
        *,
        trigger: str = TRIGGER,
        limit: int | None = None,
        for_s: float | None = None,
    ) -> None:
        self._settings, self._tables, self._topic, self._name = settings, settings.tables, settings.topic, settings.name
        self._stopped, self._limit = stopped, limit
        self._interval_s = interval_s(trigger)
        """Between two looks whether there are messages; None: only what is there is delivered."""
        self._ends_at = None if for_s is None else time.monotonic() + for_s
        self.dispatcher = Dispatcher(
            settings, listener, limit, lambda: self._is_over() or self._reset_seen.is_set(), self._wake, self._on_reset
        )
        self._reset_seen = threading.Event()
        """A record has reset the subscription: it begins elsewhere now."""
        self._followed_at = -math.inf
        """The time when it last saw what the log holds behind what was delivered."""
        self.has_begun = False
        """It owns the subscription and knows what is known of it."""

    def __str__(self) -> str:
        return str(self._settings)

    def go(self) -> None:
        """Raises as `Subscription.run`."""
        refuse_without_log(self._settings)
        ownership = own(self._settings, self._stopped, self._ends_at)
        if ownership is None:
            return
        tidy = told = False
        try:
            self._member = ConsumerPart(self._settings, ownership, self.dispatcher.acks, self._interval_s or 0.0)
            self._exchange = join(self._member)
            try:
                self._begin()
                self._run_on()
                tidy = True
            except BaseException as error:
                # After a fault of this program nothing is tidied up.
                tidy = error is self.dispatcher.function.failure or isinstance(error, (*FAULTS, KeyboardInterrupt, SystemExit))
                raise
            finally:
                self.dispatcher.end()
                told = self._leave(tidy=tidy)
        finally:
            try:
                self.dispatcher.close(clean=tidy)
            finally:
                give_back(self._settings, ownership, tidy=tidy, told=told)
        self._raise_failure()

    # -- start and end ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Take in what is known of the subscription; create it if that is nothing. Publish what the last run died on before this one can."""
        settings = self._settings
        self._open_log()
        known = self._exchange.known(self._member, in_spite=settings.ignore_unreadable)
        if known.here is None:
            is_replicated, base = settings.is_replicated_if_new, base_at(settings.start, self._log)
            begun = known.begun(self._tables.cluster.name, base, replicated=is_replicated)
            where = "" if is_replicated else ", in this region only"
            log.info("%s: there is no record of it yet, it begins at %s%s", self, settings.start, where)
            self._member.keep(begun)
            known |= begun
        elif (wanted := settings.replicate_subscription_state) is not None and wanted is known.is_regional:
            log.warning(
                "%s is there already, and is %s; `geo subscriptions set` changes that",
                self, "of this region only" if known.is_regional else "replicated",
            )  # fmt: skip
        self._exchange.flush()
        reach(CrashPoint.CONSUME_CREATED)
        self._member.begin(known)
        self.dispatcher.begin()
        self._exchange.flush()
        self.dispatcher.has_begun()
        self.has_begun = True

    def _leave(self, *, tidy: bool) -> bool:
        """Returns whether all that was found out is published."""
        try:
            if not tidy or self._member.error is not None:
                return False
            deadline, failed = time.monotonic() + LAST_FLUSH_S, 0
            while True:
                try:
                    self._exchange.flush()
                    return self._member.error is None
                except Exception as error:
                    failed += 1
                    if not may_pass(error) or session_is_gone(error) or time.monotonic() + backoff_s(failed) > deadline:
                        raise
                    log.warning("%s: the last acknowledgements could not be published, again: %s", self, first_line(error))
                    time.sleep(backoff_s(failed))
        finally:
            leave(self._exchange, self._member)

    def _open_log(self) -> None:
        self._log, self._columns = open_log(self._tables, self._topic)

    def _wake(self) -> None:
        self._member.news.set()

    def _on_reset(self) -> None:
        if self.has_begun:
            log.info("%s: was reset (%s)", self, self.dispatcher.acks.state.epoch)
        self._reset_seen.set()

    def _refuse_deleted(self) -> None:
        state = self.dispatcher.acks.state
        if state.deleted:
            raise UnsafeError(
                f"{self} was deleted (by {state.epoch.cluster}). Nothing is delivered. `geo subscriptions create` begins it anew."
            )

    # -- running ---------------------------------------------------------------------------------------------------------

    def _run_on(self) -> None:
        life, function, again, progress = Life(), Life(), False, 0
        while not self._is_over():
            self.dispatcher.function.take_delayed()
            try:
                if again:
                    self._catch_up()
                again = True
                self._reset_seen.clear()  # what was heard by now is known
                tail = Tail.at_newest(self._log)
                self.dispatcher.deliver_until(tail.at.version)
                if self._interval_s is None and not self._reset_seen.is_set():
                    self._refuse_unexplained()
                    return
                if self._interval_s is not None:
                    self._follow(tail, self._interval_s)
            except Exception as error:
                self._raise_failure()
                delayed = self.dispatcher.function.take_delayed()
                if delayed is not None and self._interval_s is None:
                    self.dispatcher.function.failure = delayed
                    raise delayed from None
                if delayed is None and (not may_pass(error) or session_is_gone(error)):
                    raise
                now = time.monotonic()
                if delayed is not None:
                    function = function.after(WorkEvent.FAULT, now=now)
                    wait_s = function.again_at - now
                    log.warning("%s: the function fails on all messages, again in %.0f s: %s", self, wait_s, first_line(delayed))
                else:
                    # The log was restored, rewritten, made anew: what is not acknowledged is found again.
                    ends, before, progress = self._interval_s is None, progress, self.dispatcher.acks.done.progress
                    # One that is slower than its log is cut comes further at each look. Time that it took to fail is no time that
                    # an idle one ran.
                    moved = progress > before or (not ends and self._followed_at - life.again_at > timetable.STEADY_S)
                    life = life.after(WorkEvent.FAULT, now=now, ends=True, moved=moved)
                    wait_s = life.again_at - now
                    if (ends and life.done) or life.is_hopeless(now):
                        raise
                    log.warning("%s: looking at the whole log again in %.0f s: %s", self, wait_s, first_line(error))
                self._stopped.wait(max(0.0, wait_s if self._ends_at is None else min(wait_s, self._ends_at - now)))

    def _refuse_unexplained(self) -> None:
        """At the end of a run that ends: raises the error of the function on messages that nobody is to blame for."""
        function = self.dispatcher.function
        self.dispatcher.recheck()
        if function.unexplained is not None:
            function.failure = function.unexplained
            raise function.failure

    def _follow(self, tail: Tail, interval_s: float) -> None:
        """Deliver what comes, and again what has waited long enough, until the run is over or the subscription begins elsewhere.
        Raises as `Tail.next`."""
        interval_s = look_every_s(self._log, interval_s)
        looked_at = time.monotonic()
        while not self._is_over() and not self._reset_seen.is_set():
            self.dispatcher.redeliver()
            if time.monotonic() - looked_at >= interval_s:
                looked_at = time.monotonic()
                turn = tail.next()
                self._followed_at = time.monotonic()
                if turn is not None:
                    self._exchange.has_messages(self._member)
                    self._deliver(tail, turn)
                    tail.take(turn)
                    continue
            self._stopped.wait(min(_POLL_S, interval_s))

    def _deliver(self, tail: Tail, turn: Turn) -> None:
        if turn.alters:
            self._open_log()
        if not turn.brings:
            return
        if user_columns(self._columns):
            self.dispatcher.deliver(tail.rows(turn))
            return
        few = tail.few(turn)
        if few is not None and few.column_names == self._columns.names:
            ordered = few.sort_by([(name, "ascending") for name in PUBLISH_ORDER])
            self.dispatcher.deliver(self._tables.spark.createDataFrame(ordered, self._columns), held_bytes=few.nbytes)
            return
        rows = tail.rows(turn)
        held = hold_on_driver(rows, PUBLISH_ORDER)
        if held is None:
            self.dispatcher.deliver(rows)
        else:
            self.dispatcher.deliver(held, held_bytes=MOST_HELD_BYTES)

    def _catch_up(self) -> None:
        """Take in the log as it is by now, and all that is known of the subscription."""
        if self._log.exists():  # if not, reading it says so
            self._open_log()
        # A run goes on, as it does when its tail meets records that it cannot read.
        known = read_known(self._tables, self._topic, self._name)
        if known.state_of(self._topic, self._name, in_spite=True) is not None:
            self.dispatcher.acks.received(known.all_of(self._topic, self._name))

    def _raise_failure(self) -> None:
        """Raises what ends the run, in whichever thread it was met."""
        for failure in (self.dispatcher.function.failure, self._member.error):
            if failure is not None:
                raise failure

    def _is_over(self) -> bool:
        self._refuse_deleted()
        self._raise_failure()
        late = self._ends_at is not None and time.monotonic() >= self._ends_at
        return self._stopped.is_set() or late or (self._limit is not None and self.dispatcher.acks.done.delivered >= self._limit)
