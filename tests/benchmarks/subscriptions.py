"""Subscriptions: how long until an acknowledgement counts in the other region, and how long until a consumer that starts has
found what is not acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.ids import LedgerId
from geo.log.publisher import Publisher
from geo.log.topics import create_topic
from geo.names import Topic
from geo.replication.replicator import Replicator
from geo.streams.supervisor import DISCOVERY_INTERVAL_S
from geo.streams.trigger import AVAILABLE_NOW
from geo.subscription.acks.ack_publisher import AckPublisher, consumer_name
from geo.subscription.acks.ack_state import AckState, Base
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.ranges import Ranges, contains
from geo.subscription.acks.record import decode, encode
from geo.subscription.consumer import Subscription
from geo.subscription.consumer.dispatcher import Listener
from geo.tables.arrow_rows import rows_frame
from tests.benchmarks.bench import Bench, commits

NAME = "bench"
HOLE_EVERY = 101
"""A hundred messages acknowledged, one not."""

_ROWS = 10
_IN_FLIGHT = 5
"""Batches that may still be of the pace before."""
_NEVER_S = 86_400.0
_SETTLED_S = DISCOVERY_INTERVAL_S + 50
"""After the first acknowledgement has crossed: by then the links have found all topics, and what runs all the time is compiled."""

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

    def effects(self, batches: int, paces_s: Sequence[float]) -> dict[float, list[float]]:
        """Seconds from the return of the function that acknowledged a batch in us until a consumer that starts in eu does not get it:
        the record has landed in eu's log. Messages and acknowledgements cross meanwhile, in both directions. By the seconds between
        two commits of the producer, which is part of the process as all else is."""
        topic = self.topic("acks")
        told: list[tuple[float, int]] = []

        def acknowledge(messages: DataFrame) -> DataFrame:
            entries = messages.select("entry_id").toArrow()["entry_id"].to_pylist()
            told.append((time.time(), max(entries)))
            return messages

        publisher = Publisher(self.world.tables("us"), self.world.config, topic, "bench")
        publisher.open(rows_frame(self.spark, {"key": "STRING", "payload": "BINARY"}, []).schema)
        rows = [{"key": f"k{number}", "payload": bytes(1024)} for number in range(_ROWS)]
        with ExitStack() as running:
            running.callback(publisher.close)
            for cluster in ("us", "eu"):
                running.enter_context(self._linked(cluster))
            us = running.enter_context(self._consuming(topic, "us", acknowledge))
            records, measured = self.world.log("eu", topic.acks), {}
            with _paced(lambda: publisher.publish_rows(rows)) as pace:
                self._until(records.exists, us)
                settled = time.monotonic() + _SETTLED_S
                self._until(lambda: time.monotonic() >= settled, us)
                for pace.seconds in paces_s:
                    first = len(told) + _IN_FLIGHT
                    self._until(partial(_has, told, first + batches), us)
                    measured[pace.seconds] = told[first : first + batches]
            self._until(lambda: any(told[-1][1] in found for _, found in _landed(Path(records.name))), us)
            landed = list(_landed(Path(records.name)))
        return {
            pace: [next(at for at, found in landed if last in found) - when for when, last in here]
            for pace, here in measured.items()
        }

    def _until(self, condition: Callable[[], bool], consumer: Subscription) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            assert not consumer.await_termination(0), "the consumer ended by itself"
            assert time.monotonic() < deadline, "did not happen"
            time.sleep(0.2)

    @contextmanager
    def _linked(self, target: str) -> Iterator[None]:
        links = Replicator(self.spark, self.world.config, target, trigger="200 ms")
        runner = threading.Thread(target=links.run)
        runner.start()
        try:
            yield
        finally:
            links.stop()
            runner.join(_LIMIT_S)

    @contextmanager
    def _consuming(self, topic: Topic, cluster: str, listener: Listener) -> Iterator[Subscription]:
        consumer = self._subscription(topic, cluster)
        consumer.start(listener)
        try:
            yield consumer
        finally:
            consumer.stop()
            consumer.await_termination(_LIMIT_S)

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
        states = [AckState(base=Base())]
        for number in range(records):
            here = range(number * holes // records, (number + 1) * holes // records)
            ranges = tuple((at * HOLE_EVERY, (at + 1) * HOLE_EVERY - 2) for at in here)
            states.append(AckState(acked=MessageSet({LedgerId("eu", 1): ranges})))
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


def _landed(log: Path) -> Iterator[tuple[float, Container[int]]]:
    """When each record landed in a log of acknowledgements, and which entries of the one ledger of us it names."""
    for at, payloads in commits(log, column="payload"):
        for payload in payloads:
            for found in decode(payload).acked.ledgers.values():
                yield at, _Entries(found)


class _Entries:
    def __init__(self, found: Ranges) -> None:
        self._found = found

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, int) and contains(self._found, entry)


def _has(found: Sequence[object], count: int) -> bool:
    return len(found) >= count


@dataclass(slots=True)
class _Pace:
    seconds: float = 0.5


@contextmanager
def _paced(do: Callable[[], None]) -> Iterator[_Pace]:
    """Do it again and again, in a thread of its own."""
    stopped, pace = threading.Event(), _Pace()

    def run() -> None:
        while not stopped.is_set():
            began = time.monotonic()
            do()
            stopped.wait(max(0.0, pace.seconds - (time.monotonic() - began)))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield pace
    finally:
        stopped.set()
        thread.join()


def _parts(states: Sequence[AckState], most: int) -> Iterator[Sequence[AckState]]:
    for at in range(0, len(states), most):
        yield states[at : at + most]
