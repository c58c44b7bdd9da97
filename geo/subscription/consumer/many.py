"""A subscription of many topics at once: those that a glob names, or the partitions of a topic, and new ones as they come.

Each topic is a piece of work with a consumer of its own (`subscription.py`). Those of one namespace share what they publish and are told
(`ack_exchange.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.config import read
from geo.config.model import Config
from geo.errors import UsageError
from geo.journal.cluster import ClusterTables, connect
from geo.log.housekeeping import open_for_writing
from geo.log.partitioned import partitions
from geo.log.topics import registered_topics
from geo.names import Topic, check_topic_glob, glob_takes, is_glob
from geo.streams.life import State
from geo.streams.query_work import QueryWork, QueryWorks
from geo.streams.supervisor import Supervisor, log_fault, unfinished
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.streams.work import Found
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.in_hand import handing_out, in_hand
from geo.subscription.consumer.run import TRIGGER
from geo.subscription.consumer.subscription import Subscription
from geo.subscription.consumer.user_function import Listener
from geo.subscription.status import subscriptions_in

log = logging.getLogger(__name__)

_WAIT_S = 0.05

FAILED_AGAIN_S = 60.0
"""Seconds after which a topic that waits for a person is tried again. Its subscription may have been created again, or who took it over have ended.
"""

TOPIC_NAME = "topic_name"
"""STRING, a column of what the function of many topics gets, unless the topic has one of its own of that name."""


class Subscriptions:
    """The consumer of one subscription of many topics in one cluster (Pulsar's MultiTopicsConsumer).

    `topics` is a glob (`persistent://shop/web/*`) or a partitioned topic; a glob reads dead letter topics only if it names them
    (`persistent://shop/web/*-DLQ`). Topics and partitions that come later are found within ten seconds, and begin at their earliest message. The
    function is called by one topic at a time, with messages of that topic, which a column `topic_name` names. Order holds within a topic, as with
    one. A topic whose consumer fails is tried again, after a minute where a person must see to it, and the others go on. One that another process
    consumes is taken up once that one has ended. `options` are those of `Subscription` but `standby`. Raises UsageError.
    """

    def __init__(
        self,
        spark: SparkSession,
        topics: str | Topic,
        name: str,
        config: Config | str | Path,
        cluster: str,
        *,
        take_over: bool = False,
        **options: Any,
    ) -> None:
        config, topics = read(config), str(topics)
        self._tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
        self._topics, self._name = topics, name
        self._take_over = take_over
        if is_glob(topics):
            check_topic_glob(topics)
        elif not partitions(self._tables, Topic.parse(topics)):
            raise UsageError(f"{topics} is neither a glob nor a partitioned topic in {cluster}: consume it as a Subscription.")
        self._make = partial(Subscription, spark, name=name, config=config, cluster=cluster, turn=threading.Lock(), **options)
        if options.get("standby"):
            raise UsageError("standby is for one topic; of many each is taken up once nobody else consumes it.")
        self._make(topic=Topic("any", "any", "any"))  # what the options mean is the same for all
        self._supervisor: Supervisor[_TopicWork] | None = None
        self._group: _Topics | None = None
        self._stopped = threading.Event()
        self.unfinished: Mapping[str, str] = {}
        """Reasons, by topic, that kept the last run from consuming it to its end."""

    def __repr__(self) -> str:
        of = f"{self._name} of {self._topics} in {self._tables.cluster.name}"
        return f"<subscriptions {of}: {self.done.delivered:,} delivered, {self.done.acknowledged:,} acknowledged>"

    @property
    def done(self) -> Consumed:
        """Counts of the run so far, or of the last one."""
        return Consumed() if self._group is None else self._group.done

    def stop(self) -> None:
        """Stops as `Subscription.stop`."""
        self._stopped.set()
        if self._supervisor is not None:
            self._supervisor.stop()

    def run(self, listener: Listener, *, trigger: str = TRIGGER, for_s: float | None = None) -> Consumed:
        """Runs as `Subscription.run`, for all topics; `unfinished` says afterwards what of them is not. Raises what `listener` does, unless it is an
        error of this package or of Spark, which is one topic's.
        """
        parse_trigger(trigger)
        self._stopped.clear()
        begin = partial(_begun, self._make, listener, trigger)
        self._group = _Topics(self._tables, self._topics, self._name, begin, trigger, take_over=self._take_over)
        self._supervisor = Supervisor([self._group], once=trigger == AVAILABLE_NOW, on_change=log_fault)
        if self._stopped.is_set():
            return self.done
        timer = None if for_s is None else threading.Timer(for_s, self.stop)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            ended = self._supervisor.run()
        finally:
            if timer is not None:
                timer.cancel()
        self.unfinished = unfinished(ended)
        return self.done


class _Consumer:
    """The consumer of one topic in its thread, asked as a query is. It owns and gives back what it needs by itself."""

    def __init__(self, subscription: Subscription, listener: Listener, trigger: str) -> None:
        self.subscription, self._outcome = subscription, subscription.start(listener, trigger=trigger)

    @property
    def running(self) -> _Consumer:
        return self

    @property
    def has_begun(self) -> bool:
        return self.subscription.has_begun or not self.is_active

    @property
    def is_active(self) -> bool:
        return not self._outcome.done()

    @property
    def error(self) -> BaseException | None:
        return None if self.is_active else self._outcome.exception()

    @property
    def ended_well(self) -> bool:
        return not self.is_active and self.error is None

    def wait(self, timeout_s: float | None = None) -> bool:
        return bool(wait([self._outcome], timeout_s).done)

    def stop(self) -> None:
        self.subscription.stop()
        self.wait()

    def close(self, *, clean: bool) -> None:
        self.stop()

    def abandon(self) -> None:
        self.subscription.stop()

    def refuse_if_replaced(self) -> None:
        """A run that was replaced has said so."""


class _TopicWork(QueryWork[_Consumer]):
    def __init__(self, topic: Topic, begin: Callable[[bool], _Consumer], *, once: bool, take_over: bool) -> None:
        super().__init__(lambda take_over, _: begin(take_over), topic, once=once, take_over=take_over)
        self._before = Consumed()

    def __str__(self) -> str:
        return str(self.topic)

    def own(self, stopped: Callable[[], bool]) -> None:
        self._takes_over_until = self.lease.takes_over_until
        super().own(stopped)

    def start(self, owned: _Consumer, stopped: Callable[[], bool]) -> None:
        """Returns once it has begun, so that a few topics do at once, and not hundreds."""
        super().start(owned, stopped)
        while not owned.has_begun and not stopped():
            owned.wait(_WAIT_S)
        if not owned.subscription.has_begun:
            self.lease.takes_over_until = self._takes_over_until  # it has owned nothing yet
        if not stopped():
            self.follow()

    @property
    def done(self) -> Consumed:
        last = self.lease.last
        return self._before if last is None else self._before + last.subscription.done

    @property
    def progress_marker(self) -> Hashable:
        return self.done.acknowledged or None

    def note(self, opened: _Consumer) -> None:
        self._before = self.done


class _Topics(QueryWorks[_TopicWork]):
    """The topics of one cluster that a glob or a partitioned topic stands for."""

    def __init__(
        self,
        tables: ClusterTables,
        topics: str,
        name: str,
        begin: Callable[[Topic, bool, bool], _Consumer],
        trigger: str,
        *,
        take_over: bool,
    ) -> None:
        super().__init__(again_s=FAILED_AGAIN_S)
        self._tables, self._topics, self._name, self._begin = tables, topics, name, begin
        self._once, self._take_over = trigger == AVAILABLE_NOW, take_over
        self._works: list[_TopicWork] = []
        self._asked = False

    def __str__(self) -> str:
        return f"subscription {self._name} of {self._topics} in {self._tables.cluster.name}"

    @property
    def done(self) -> Consumed:
        return sum((work.done for work in list(self._works)), Consumed())

    def discover(self, known: Mapping[Hashable, tuple[_TopicWork, State]]) -> Found[_TopicWork]:
        if not self._asked:
            # In an earlier run, too: a topic that came since then begins at its earliest message.
            self._asked = any(one.subscription == self._name for one in subscriptions_in(self._tables, self._pattern))
        fresh = []
        for topic in self._there():
            if topic in known or not self._tables.log(topic).exists():
                continue
            begin = partial(self._begin, topic, self._asked)
            fresh.append((topic, _TopicWork(topic, begin, once=self._once, take_over=self._take_over)))
        if not self._asked and not fresh:
            log.warning("%s: there is no such topic yet", self)
        self._asked = True
        self._works += [work for _, work in fresh]
        return self._found(known, fresh)

    @property
    def _pattern(self) -> str:
        return self._topics if is_glob(self._topics) else f"{self._topics}-partition-*"

    def _there(self) -> list[Topic]:
        if not is_glob(self._topics):
            return partitions(self._tables, Topic.parse(self._topics))
        found = [one.topic for one in registered_topics(self._tables)]
        return [topic for topic in found if glob_takes(self._topics, topic)]


def _begun(
    make: Callable[..., Subscription], listener: Listener, trigger: str, topic: Topic, came_later: bool, take_over: bool
) -> _Consumer:
    begins = {"start": "earliest"} if came_later else {}
    subscription = make(topic=topic, take_over=take_over, **begins)

    def named(messages: DataFrame) -> DataFrame | None:
        if TOPIC_NAME in messages.columns:
            return listener(messages)
        given = messages.withColumn(TOPIC_NAME, F.lit(str(topic)))
        with handing_out(replace(in_hand(), rows=given)):
            returned = listener(given)
        return messages if returned is given else returned

    return _Consumer(subscription, named, trigger)
