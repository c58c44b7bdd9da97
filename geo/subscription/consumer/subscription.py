"""A subscription as a user consumes it: in Spark's thread or in one of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from geo.config import read
from geo.config.choices import Start
from geo.config.model import Config
from geo.errors import UsageError
from geo.ids import MessageId
from geo.journal.cluster import connect
from geo.log.housekeeping import open_for_writing
from geo.names import Topic, check_subscription
from geo.session import require_delta
from geo.subscription.acks.ack_state import AckState
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.run import TRIGGER, Run
from geo.subscription.consumer.settings import Settings
from geo.subscription.consumer.user_function import Listener
from geo.text import first_line

log = logging.getLogger(__name__)

REDELIVERY_DELAY_S = 60.0
"""Pulsar's negativeAckRedeliveryDelay."""

BATCH_ROWS = 100_000
"""Most messages that the user's function gets at once. Their ids are held on the driver."""

MAX_BATCH_BYTES = 50 * 1024**2
"""Bytes of the messages that the user's function gets at once, if it is more than one: Kafka's fetch.max.bytes."""


class Subscription:
    """The consumer of one subscription in one cluster. One process at a time; the same subscription may be consumed in others.

    Messages come at least once, each ledger in entry order. None comes that is acknowledged here, or in another cluster as far as it is known here.
    Within a batch they are in publish order. To work on many keys at once, each in its order:
    `messages.repartition("key").sortWithinPartitions(*PUBLISH_ORDER)` (geo.log.topic_log).

    `start`, where a subscription of which there is no record yet begins: earliest, latest or a time (one without a zone is UTC). With
    `ignore_unreadable` a run begins though records of the subscription cannot be read. Without `max_redeliveries` a message comes back until it is
    acknowledged; with it, it goes to `<topic>-<name>-DLQ` after so many redeliveries. `origins`: only messages that were first written in these
    clusters are delivered. The others stay for the consumers that are for them, as where each region works on its own. A consumer that is to be
    ready when another one of this cluster ends is a `standby`. It waits until that one has stopped, was killed, or is silent for the cluster's
    `owner_timeout`, and goes on. With `key_range=(i, n)` it is one of n consumers in this cluster, each of which gets the keys of its share
    (Pulsar's Key_Shared). Every message of a key goes to the same one, in order. All of them must name the same n. With
    `replicate_subscription_state=False` one that this consumer creates is of this region only (Pulsar's `replicateSubscriptionState`): no other one
    knows it, and nobody waits for others. None: as the policy of its topic says. One that is there stays as it is; `geo subscriptions set` changes
    it. Consumers in one process that share a `turn`, a lock, call their functions one after the other. Raises UsageError for an option that means
    nothing and a topic of delta-geo's own, InvalidNameError.
    """

    def __init__(
        self,
        spark: SparkSession,
        topic: str | Topic,
        name: str,
        config: Config | str | Path,
        cluster: str,
        *,
        start: Start | datetime = "earliest",
        redelivery_delay_s: float = REDELIVERY_DELAY_S,
        max_redeliveries: int | None = None,
        batch_rows: int = BATCH_ROWS,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        origins: Collection[str] | None = None,
        take_over: bool = False,
        standby: bool = False,
        ignore_unreadable: bool = False,
        key_range: tuple[int, int] | None = None,
        replicate_subscription_state: bool | None = None,
        turn: AbstractContextManager[object] | None = None,
    ) -> None:
        require_delta(spark)
        config = read(config)
        self._settings = Settings(
            tables=open_for_writing(connect(spark, config.cluster(cluster)), config),
            config=config,
            topic=Topic.of(topic),
            name=check_subscription(name),
            start=start,
            redelivery_delay_s=redelivery_delay_s,
            max_redeliveries=max_redeliveries,
            batch_rows=batch_rows,
            max_batch_bytes=max_batch_bytes,
            origins=None if origins is None else frozenset(origins),
            take_over=take_over,
            standby=standby,
            ignore_unreadable=ignore_unreadable,
            key_range=key_range,
            replicate_subscription_state=replicate_subscription_state,
            turn=nullcontext() if turn is None else turn,
        )
        self._run: Run | None = None
        """The one under way, or the last one."""
        self._running = threading.Lock()
        """Held by the run that is under way."""
        self._stopped = threading.Event()
        self._outcome: Future[Consumed] | None = None
        """Result of the run in a thread."""

    def __str__(self) -> str:
        return str(self._settings)

    def __repr__(self) -> str:
        state = "runs" if self._running.locked() else "does not run"
        return f"<{self}: {state}, {self.done.delivered:,} delivered, {self.done.acknowledged:,} acknowledged>"

    @property
    def state(self) -> AckState:
        """State of the subscription here and now, once a run has begun."""
        return AckState() if self._run is None else self._run.dispatcher.acks.state

    @property
    def has_begun(self) -> bool:
        """True if the run under way owns the subscription and knows what is known of it."""
        return self._run is not None and self._run.has_begun

    @property
    def done(self) -> Consumed:
        """Counts of the run so far, or of the last one."""
        return Consumed() if self._run is None else self._run.dispatcher.acks.done

    def run(
        self, listener: Listener, *, trigger: str = TRIGGER, limit: int | None = None, for_s: float | None = None
    ) -> Consumed:
        """Deliver until stopped, until `limit` messages or `for_s` seconds, or with available-now what is there.

        Without `max_redeliveries` an error of `listener` ends the run and is raised; of its batch nothing is acknowledged or
        counted. With it the batch is looked into (docs/guarantees.md), and the error is raised only with available-now if nothing
        of it passed. Raises UsageError if the topic is not there, AlreadyOwnedError, UnsafeError if the subscription was deleted
        or records of it cannot be read.
        """
        return self._go(self._begin(listener, trigger, limit, for_s))

    def start(self, listener: Listener, *, trigger: str = TRIGGER) -> Future[Consumed]:
        """`run` in a thread of its own, for a notebook. What ends it early is logged, and raised by `await_termination`. Returns
        what will become of it.

        Raises UsageError if one is under way.
        """
        run, outcome = self._begin(listener, trigger), Future[Consumed]()

        def go() -> None:
            try:
                outcome.set_result(self._go(run))
            except BaseException as error:
                log.error("%s: the consumer ended: %s", self, first_line(error))
                outcome.set_exception(error)

        self._outcome = outcome
        threading.Thread(target=go, name=f"geo-consume-{self._settings.name}", daemon=True).start()
        return outcome

    def stop(self) -> None:
        """Let the running batch end, publish what was acknowledged, and stop; nothing if no run is under way. Callable from a
        signal handler."""
        self._stopped.set()

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until a run that was started ends; True if it did. Raises what ended it."""
        outcome = self._outcome
        if outcome is None:
            raise UsageError(f"{self}: nothing was started.")
        if not wait([outcome], timeout_s).done:
            return False
        if (error := outcome.exception()) is not None:
            raise error
        return True

    def acknowledge(self, ids: Iterable[MessageId]) -> int:
        """Acknowledge messages by id, whenever they were delivered. Returns how many of them count. Refused are those that do not exist, and those
        that this run delivered before the subscription was reset and not since.

        Raises UsageError unless a run is under way, which publishes it.
        """
        run = self._run
        if run is None:
            raise UsageError(f"{self}: no consumer is running; acknowledge() works only during a run.")
        return run.dispatcher.acks.acknowledge(ids)

    def _begin(self, listener: Listener, trigger: str, limit: int | None = None, for_s: float | None = None) -> Run:
        """A run, which nothing else may be beside until `_go` has ended."""
        run = Run(self._settings, listener, self._stopped, trigger=trigger, limit=limit, for_s=for_s)
        if not self._running.acquire(blocking=False):
            raise UsageError(f"{self}: already running; call stop() first.")
        self._stopped.clear()
        self._run = run
        return run

    def _go(self, run: Run) -> Consumed:
        try:
            run.go()
            return run.dispatcher.acks.done
        finally:
            self._running.release()
