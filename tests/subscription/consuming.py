"""Consumers as tests need them: what their function was given, and what of it counts as done."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, Row

from geo.crash import CrashPoint
from geo.ids import MessageId
from geo.log.topic_log import ID
from geo.names import Topic
from geo.streams.trigger import AVAILABLE_NOW
from geo.subscription.acks.ack_publisher import AckPublisher
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.consumers import ConsumerState, consumers_in
from geo.subscription.acks.record import key_of
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.consumer import Subscription
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.dead_letters import ORIGIN_MESSAGE_ID
from geo.subscription.consumer.settings import dead_letter_topic
from geo.subscription.consumer.user_function import Listener
from tests.processes import environment
from tests.running import TRIGGER
from tests.waiting import until
from tests.world import TOPIC, World

NAME = "billing"

ALL, NONE = "true", "false"

LIMIT_S = 120.0
"""For what must happen while a consumer runs."""


class Given:
    """The function of a consumer. Notes what it is given; done is what fulfils a condition of SQL, or what `done` returns."""

    def __init__(self, done: str | Listener = ALL) -> None:
        self.done = done
        self.batches: list[list[MessageId]] = []
        self.counts: dict[MessageId, list[int]] = {}
        """Of each message the redelivery counts with which it came."""
        self.times: dict[MessageId, list[float]] = {}
        """And when."""
        self.keys: list[str] = []
        self.columns: list[str] = []
        self.consumed = Consumed()
        """What the run says that `consume` made."""

    def __call__(self, messages: DataFrame) -> DataFrame | None:
        now, self.columns = time.monotonic(), messages.columns
        rows = messages.select(*ID, "key", "redelivery_count").toArrow().to_pylist()
        batch = []
        for row in rows:
            one = MessageId(*(row[name] for name in ID))
            self.counts.setdefault(one, []).append(row["redelivery_count"])
            self.times.setdefault(one, []).append(now)
            self.keys.append(row["key"])
            batch.append(one)
        self.batches.append(batch)
        if not isinstance(self.done, str):
            return self.done(messages)
        return {ALL: messages, NONE: None}.get(self.done, messages.where(self.done))

    @property
    def ids(self) -> list[MessageId]:
        """In the order in which they came; one that came twice is there twice."""
        return [one for batch in self.batches for one in batch]


def ids(origin: str, first: int, end: int) -> list[MessageId]:
    """The messages that `World.write(origin, first, end)` wrote."""
    return [MessageId(origin, 1, entry) for entry in range(first, end)]


def subscription(
    world: World, cluster: str, *, topic: str | Topic = TOPIC, name: str = NAME, start: Any = "earliest", **options: Any
) -> Subscription:
    return Subscription(world.spark, topic, name, world.config, cluster, start=start, **options)


def consume(
    world: World,
    cluster: str,
    done: str | Listener = ALL,
    *,
    trigger: str = AVAILABLE_NOW,
    limit: int | None = None,
    **options: Any,
) -> Given:
    """One run over what is there, or with another `trigger` until `limit`. A Given that is passed as `done` is the function."""
    given = done if isinstance(done, Given) else Given(done)
    consumer = subscription(world, cluster, **options)
    given.consumed = consumer.run(given, trigger=trigger, limit=limit, for_s=None if trigger == AVAILABLE_NOW else LIMIT_S)
    return given


_PROCESS = """
import json, sys
from geo.session import session
from geo.subscription.consumer import Subscription
from geo.subscription.sink import append_once

config, topic, name, cluster, function, options = sys.argv[1:]
consumer = Subscription(session("consumer"), topic, name, config, cluster, **json.loads(options))
consumer.run(eval(function), trigger="available-now")
"""


def kill_at(
    world: World, cluster: str, point: CrashPoint, *, nth: int = 1, function: str = "lambda messages: messages", **options: Any
) -> None:
    """A consumer in a process of its own, with this Python as its function, which is killed when it is at the point for the nth
    time."""
    env = environment(GEO_CRASH=f"{point.value}:kill:{nth}")
    command = [sys.executable, "-c", _PROCESS, str(world.path), str(TOPIC), NAME, cluster, function, json.dumps(options)]
    died = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, start_new_session=True)
    assert died.returncode == -signal.SIGKILL, died.stderr


def tell(world: World, cluster: str, state: AckState, name: str = NAME, producer: str = "forger") -> None:
    """Publish a record of a subscription, as another producer."""
    publisher = AckPublisher(world.tables(cluster), world.config, TOPIC, producer)
    publisher.publish([(TOPIC, name, SubscriptionState(state))])
    publisher.close()


def known(world: World, cluster: str, name: str = NAME) -> AckState:
    """What the published records tell a cluster of a subscription; nothing where there are none."""
    return read_known(world.tables(cluster), TOPIC, name).states.get(key_of(TOPIC, name), AckState())


def consumer_in(world: World, cluster: str, name: str = NAME) -> ConsumerState:
    """What is known in a cluster of the consumer of a subscription."""
    return consumers_in(world.tables(cluster), [(TOPIC, name)])[TOPIC, name]


def letters(world: World, cluster: str, name: str = NAME) -> list[Row]:
    """The dead letters of a subscription in a cluster, by the messages they are of."""
    log = world.log(cluster, dead_letter_topic(TOPIC, name))
    rows = log.read().collect() if log.exists() else []
    return sorted(rows, key=lambda row: str(row["properties"][ORIGIN_MESSAGE_ID]))


class Running:
    """A consumer that runs in its thread while the test does something else."""

    def __init__(self, consumer: Subscription, given: Given) -> None:
        self.subscription, self.given = consumer, given
        consumer.start(given, trigger=TRIGGER)

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, self._told, limit_s=LIMIT_S, goes_on=lambda: not self.subscription.await_termination(0))

    def _told(self) -> str:
        """What there is to know of a consumer that hangs."""
        return f"{self.subscription.done}, last batch {self.given.batches[-1:]}"

    def until_given(self, *messages: MessageId) -> None:
        self.until(lambda: set(messages) <= self.given.counts.keys())

    def stop(self) -> Consumed:
        self.subscription.stop()
        assert self.subscription.await_termination(LIMIT_S), "did not stop"
        return self.subscription.done


@contextmanager
def consuming(world: World, cluster: str, done: str | Listener = ALL, **options: Any) -> Iterator[Running]:
    """A consumer that runs; what ends it early is raised."""
    running = Running(subscription(world, cluster, **options), Given(done))
    try:
        yield running
    finally:
        running.stop()
