"""The start of a consumer: how long until it has found what is not acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.ids import LedgerId
from geo.log.topics import create_topic
from geo.names import Topic
from geo.streams.trigger import AVAILABLE_NOW
from geo.subscription.acks.ack_publisher import AckPublisher
from geo.subscription.acks.ack_state import AckState, Base
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import encode
from geo.subscription.consumer import Subscription
from tests.benchmarks.bench import Bench

NAME = "bench"
HOLE_EVERY = 101
"""A hundred messages acknowledged, one not."""

_NEVER_S = 86_400.0
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
        publisher = AckPublisher(tables, self.world.config, topic, "acks-1")
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


def _parts(states: Sequence[AckState], most: int) -> Iterator[Sequence[AckState]]:
    for at in range(0, len(states), most):
        yield states[at : at + most]
