"""Subscriptions: how long until an acknowledgement counts in the other region, and how long until a consumer that starts has
found what is not acknowledged."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.log.message_id import MessageId
from geo.log.names import Topic
from geo.log.topics import create_topic
from geo.replication.replicate import DISCOVERY_INTERVAL_S, Replicator
from geo.subscription.acks import AckPublisher, consumer_name
from geo.subscription.consumer import Process, Subscription
from geo.subscription.message_set import MessageSet
from geo.subscription.record import encode
from geo.subscription.state import Base, State
from geo.trigger import AVAILABLE_NOW
from tests.benchmarks.bench import Bench

NAME = "bench"
HOLE_EVERY = 101
"""A hundred messages acknowledged, one not."""

_PACE_S = 0.5
_POLL_S = 0.005
_NEVER_S = 86_400.0
_SETTLED_S = DISCOVERY_INTERVAL_S + 5
"""After the first acknowledgement has crossed: by then the links have found all topics and everything has run once."""

_LIMIT_S = 600.0
_COMMITS = 10
_PAYLOAD = 100
_RECORDS_A_CALL = 100


@dataclass(slots=True)
class Started:
    """What the start of a consumer took and found."""

    first_s: float = 0.0
    """From the construction to the function's first call."""
    all_s: float = 0.0
    """Until the run had ended."""
    state_bytes: int = 0
    """Of what it read, encoded, and of what it knew afterwards: each hole delivered once in vain."""
    state_bytes_after: int = 0
    batches: int = 0
    entries: list[int] = field(default_factory=list)


class SubscriptionBench(Bench):
    """Clusters us and eu, linked both ways."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder, links=[("us", "eu"), ("eu", "us")])

    # -- an acknowledgement into the other region ----------------------------------------------------------------------

    def effects(self, batches: int) -> list[float]:
        """Seconds from the return of the function that acknowledged a batch in us until the consumer in eu knows it, which is
        delivered the same messages and acknowledges none."""
        topic, log = self.topic("acks"), self.log("acks")
        told: deque[tuple[float, MessageId]] = deque()

        def acknowledge(messages: DataFrame) -> DataFrame:
            (last,) = messages.select(F.max("entry_id")).first() or (-1,)
            told.append((time.monotonic(), MessageId("us", 1, last)))
            return messages

        def look(messages: DataFrame) -> None:
            messages.count()

        with ExitStack() as running:
            for cluster in ("us", "eu"):
                running.enter_context(self._linked(cluster))
            self._wait_for(topic, "eu")
            running.enter_context(self._consuming(topic, "us", acknowledge))
            eu = running.enter_context(self._consuming(topic, "eu", look))
            running.enter_context(_paced(lambda: self.small_commit(log)))
            found = _effects(told, eu)
            next(found)
            settled = time.monotonic() + _SETTLED_S
            return list(islice((seconds for at, seconds in found if at > settled), batches))

    @contextmanager
    def _linked(self, target: str) -> Iterator[None]:
        links = Replicator(self.spark, self.world.config, target, trigger="100 ms")
        runner = threading.Thread(target=links.run)
        runner.start()
        try:
            yield
        finally:
            links.stop()
            runner.join(_LIMIT_S)

    @contextmanager
    def _consuming(self, topic: Topic, cluster: str, process: Process) -> Iterator[Subscription]:
        consumer = self._subscription(topic, cluster)
        consumer.start(process)
        try:
            yield consumer
        finally:
            consumer.stop()
            consumer.await_termination(_LIMIT_S)

    def _wait_for(self, topic: Topic, cluster: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not self.world.log(cluster, topic).exists():
            assert time.monotonic() < deadline, f"no link brought {topic} to {cluster}"
            time.sleep(0.2)

    def _subscription(self, topic: Topic, cluster: str) -> Subscription:
        config = self.world.config
        return Subscription(
            self.spark, topic, NAME, config=config, cluster=cluster, start="earliest", redelivery_delay_s=_NEVER_S
        )

    # -- the start of a consumer ---------------------------------------------------------------------------------------

    def holes(self, name: str, holes: int, records: int) -> None:
        """A topic of one ledger in eu, in ten commits, all acknowledged but so many messages: told in so many records."""
        topic, tables, count = self.topic(name), self.world.tables("eu"), holes * HOLE_EVERY
        create_topic(tables, topic)
        payload = F.substring(F.sha2(F.col("entry_id").cast("string"), 512), 1, _PAYLOAD).cast("binary")
        for number in range(_COMMITS):
            rows = self.rows(number * count // _COMMITS, count // _COMMITS)
            tables.log(topic).append(rows.withColumns({"origin": F.lit("eu"), "payload": payload}))
        states = [State(base=Base())]
        for number in range(records):
            here = range(number * holes // records, (number + 1) * holes // records)
            ranges = tuple((at * HOLE_EVERY, (at + 1) * HOLE_EVERY - 2) for at in here)
            states.append(State(acked=MessageSet({("eu", 1): ranges})))
        publisher = AckPublisher(tables, self.world.config, topic, consumer_name(topic, NAME))
        for part in _parts(states, _RECORDS_A_CALL):
            publisher.publish((topic, NAME, state) for state in part)
        publisher.close()

    def start(self, name: str) -> Started:
        """A consumer that delivers what is there and acknowledges nothing."""
        found, began = Started(), time.monotonic()
        consumer = self._subscription(self.topic(name), "eu")

        def look(messages: DataFrame) -> None:
            if not found.batches:
                found.first_s = time.monotonic() - began
                found.state_bytes = len(encode(consumer.state, limited=False))
            found.batches += 1
            found.entries += messages.select("entry_id").toArrow()["entry_id"].to_pylist()

        consumer.run(look, trigger=AVAILABLE_NOW)
        found.all_s = time.monotonic() - began
        found.state_bytes_after = len(encode(consumer.state, limited=False))
        return found


def _effects(told: deque[tuple[float, MessageId]], consumer: Subscription) -> Iterator[tuple[float, float]]:
    """Of each batch that was told, when, and how long it took until the consumer knew it."""
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        acked, now = consumer.state.acked, time.monotonic()
        while told and told[0][1] in acked:
            at, _ = told.popleft()
            yield at, now - at
        time.sleep(_POLL_S)
    raise AssertionError(f"{consumer}: {len(told)} batches were acknowledged elsewhere and are not known")


@contextmanager
def _paced(do: Callable[[], None]) -> Iterator[None]:
    """Do it each 500 ms, in a thread of its own."""
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            began = time.monotonic()
            do()
            stopped.wait(max(0.0, _PACE_S - (time.monotonic() - began)))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _parts(states: Sequence[State], most: int) -> Iterator[Sequence[State]]:
    for at in range(0, len(states), most):
        yield states[at : at + most]
