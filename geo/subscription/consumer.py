"""A subscription as a user consumes it: in Spark's thread or in one of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future, wait
from datetime import datetime

from pyspark.sql import SparkSession

from geo.config_tree import Config, Start
from geo.errors import UsageError, first_line
from geo.log.message_id import MessageId
from geo.log.names import Topic, check_subscription
from geo.log.tables import ClusterTables
from geo.session import require_delta
from geo.subscription.dispatcher import Consumed, Process
from geo.subscription.options import Options
from geo.subscription.run import TRIGGER, Run
from geo.subscription.state import State

log = logging.getLogger(__name__)

REDELIVERY_DELAY_S = 60.0
"""Pulsar's negativeAckRedeliveryDelay."""

BATCH_ROWS = 100_000
"""Most messages that the user's function gets at once. Their ids are held on the driver."""


class Subscription:
    """The consumer of one subscription in one cluster. One process at a time; the same subscription may be consumed in others.

    Messages come at least once, each ledger in entry order, none that is acknowledged here or in another cluster as far as
    it is known here. Within a batch they are in publish order. To work on many keys at once, each in its order:
    `messages.repartition("key").sortWithinPartitions(*PUBLISH_ORDER)` (geo.subscription.rows).

    `start`, where a subscription that is not there yet begins: earliest, latest or a time. Without `max_redeliveries` a
    message comes back until it is acknowledged; with it, it goes to `<topic>-<name>-DLQ` after so many redeliveries.
    Raises UsageError for an option that means nothing and a topic of delta-geo's own, InvalidNameError.
    """

    def __init__(
        self,
        spark: SparkSession,
        topic: str | Topic,
        name: str,
        *,
        config: Config,
        cluster: str,
        start: Start | datetime = "latest",
        redelivery_delay_s: float = REDELIVERY_DELAY_S,
        max_redeliveries: int | None = None,
        batch_rows: int = BATCH_ROWS,
        take_over: bool = False,
    ) -> None:
        require_delta(spark)
        self._options = Options(
            ClusterTables(spark, config.cluster(cluster)).open_for_writing(config),
            config,
            topic if isinstance(topic, Topic) else Topic.parse(topic),
            check_subscription(name),
            start,
            redelivery_delay_s,
            max_redeliveries,
            batch_rows,
            take_over,
        )
        self._run: Run | None = None
        """The one that goes on, or the last one."""
        self._goes_on = threading.Lock()
        """Held by the run that goes on."""
        self._stopped = threading.Event()
        self._ended: Future[Consumed] | None = None
        """Of the run in a thread."""

    def __str__(self) -> str:
        return str(self._options)

    @property
    def state(self) -> State:
        """What is known of the subscription here and now, once a run has begun."""
        return State() if self._run is None else self._run.dispatcher.state

    @property
    def done(self) -> Consumed:
        """What the run has done so far, or the last one did."""
        return Consumed() if self._run is None else self._run.dispatcher.done

    def run(self, process: Process, *, trigger: str = TRIGGER, limit: int | None = None, for_s: float | None = None) -> Consumed:
        """Deliver until stopped, until `limit` messages or `for_s` seconds, or with available-now what is there.

        An error of `process` ends the run and is raised; of its batch nothing is acknowledged or counted.
        Raises UsageError if the topic is not there, AlreadyOwnedError, UnsafeError if the subscription was deleted.
        """
        return self._go(self._begin(process, trigger, limit, for_s))

    def start(self, process: Process, *, trigger: str = TRIGGER) -> None:
        """`run` in a thread of its own, for a notebook. What ends it early is logged, and raised by `await_termination`.

        Raises UsageError if one goes on.
        """
        run, ended = self._begin(process, trigger), Future[Consumed]()

        def go() -> None:
            try:
                ended.set_result(self._go(run))
            except BaseException as error:
                log.error("%s: the consumer ended: %s", self, first_line(error))
                ended.set_exception(error)

        self._ended = ended
        threading.Thread(target=go, name=f"geo-consume-{self._options.name}", daemon=True).start()

    def stop(self) -> None:
        """Let the running batch end, publish what was acknowledged, and stop; nothing if no run goes on. Callable from a signal handler."""
        self._stopped.set()

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until a run that was started ends; True if it did. Raises what ended it."""
        ended = self._ended
        if ended is None:
            raise UsageError(f"{self}: nothing was started.")
        if not wait([ended], timeout_s).done:
            return False
        if (error := ended.exception()) is not None:
            raise error
        return True

    def acknowledge(self, ids: Iterable[MessageId]) -> int:
        """Acknowledge messages by id, whenever they were delivered. Returns how many of them count: refused are those that do not
        exist, and those that this run delivered before the subscription was reset and not since.

        Raises UsageError unless a run goes on, which publishes it.
        """
        run = self._run
        if run is None:
            raise UsageError(f"{self}: nothing has run that could publish an acknowledgement. Acknowledge while it runs.")
        return run.dispatcher.acknowledge(ids)

    def _begin(self, process: Process, trigger: str, limit: int | None = None, for_s: float | None = None) -> Run:
        """A run, which nothing else may be beside until `_go` has ended."""
        run = Run(self._options, process, self._stopped, trigger=trigger, limit=limit, for_s=for_s)
        if not self._goes_on.acquire(blocking=False):
            raise UsageError(f"{self}: a run goes on already. Stop it first.")
        self._stopped.clear()
        self._run = run
        return run

    def _go(self, run: Run) -> Consumed:
        try:
            run.go()
            return run.dispatcher.done
        finally:
            self._goes_on.release()
