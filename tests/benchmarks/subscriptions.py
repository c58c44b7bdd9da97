"""The start of a consumer: how long until it has found what is not acknowledged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.delta.appending import append_frame
from geo.ids import LedgerId, MessageId
from geo.log.ledgers import ledger_id
from geo.log.topics import create_topic
from geo.names import Topic
from geo.now import now_us
from geo.streams.trigger import AVAILABLE_NOW
from geo.subscription.acks.ack_publisher import AckPublisher
from geo.subscription.acks.ack_state import AckState, Base
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import decode, encode
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.consumer import Subscription, Subscriptions
from geo.subscription.consumer.delivery import Answer, Delivery
from tests.benchmarks.bench import Bench, commits, percentiles

NAME = "bench"
HOLE_EVERY = 101
"""A hundred messages acknowledged, one not."""

_NEVER_S = 86_400.0
_COMMITS = 10
_PAYLOAD = 100
_RECORDS_A_CALL = 100
_SETTLES_S = 20.0
_PACE_S = 5.0


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
    delivered: int = 0
    memory_mb: tuple[float, float] = (0.0, 0.0)


def never_acknowledged(messages: int, minutes: int) -> Iterator[str]:
    """So many scattered messages, each with one before it that is acknowledged, come in vain each minute. No Spark."""
    ledger = LedgerId("eu", ledger_id(1_800_000_000, 1))
    waiting, acked = (MessageSet({ledger: tuple((2 * n + odd, 2 * n + odd) for n in range(messages))}) for odd in (0, 1))
    delivery, records = Delivery(AckState(base=Base(), acked=acked), 60.0), list[int]()
    began, wanted = time.monotonic(), delivery.wanted(waiting)
    for minute in range(minutes):
        assert wanted.size == messages
        delivery.hand_out(wanted)
        delivery.settle(wanted, Answer(), delivery.state.epoch, minute * 60.0)
        if (told := delivery.take_unpublished()) is not None:
            records.append(len(encode(told)))
        wanted = delivery.due(minute * 60.0 + 60.1)
    round_s = (time.monotonic() - began) / minutes
    yield (
        f"{messages:,} scattered messages never acknowledged for {minutes:,} minutes: state "
        f"{len(encode(delivery.state, limited=False)) / 1e6:.3f} MB (wanted: 5), largest record {max(records) / 1e3:.1f} kB (wanted: 200), "
        f"{len(records):,} records; {round_s * 1000:.0f} ms a round"
    )


class SubscriptionBench(Bench):
    """Clusters us and eu, linked both ways."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder, links=[("us", "eu"), ("eu", "us")])

    def _subscription(self, topic: Topic, cluster: str) -> Subscription:
        config = self.world.config
        return Subscription(self.spark, topic, NAME, config, cluster, start="earliest", redelivery_delay_s=_NEVER_S)

    # -- the start of a consumer ---------------------------------------------------------------------------------------

    def holes(self, name: str, holes: int, records: int) -> None:
        """A topic of one ledger in eu, in ten commits, all acknowledged but so many messages: told in so many records."""
        topic, tables, count = self.topic(name), self.world.tables("eu"), holes * HOLE_EVERY
        create_topic(tables, topic)
        payload = F.substring(F.sha2(F.col("entry_id").cast("string"), 512), 1, _PAYLOAD).cast("binary")
        for number in range(_COMMITS):
            rows = self.rows(number * count // _COMMITS, count // _COMMITS)
            append_frame(tables.log(topic), rows.withColumns({"origin": F.lit("eu"), "payload": payload}))
        states = [AckState(base=Base())]
        for number in range(records):
            here = range(number * holes // records, (number + 1) * holes // records)
            ranges = tuple((at * HOLE_EVERY, (at + 1) * HOLE_EVERY - 2) for at in here)
            states.append(AckState(acked=MessageSet({LedgerId("eu", 1): ranges})))
        publisher = AckPublisher(tables, self.world.config, topic, "acks-1")
        for part in _parts(states, _RECORDS_A_CALL):
            publisher.publish((topic, NAME, SubscriptionState(state)) for state in part)
        publisher.close()

    def scattered(self, holes: int, records: int) -> Iterator[str]:
        """From the start of a consumer to its function's first call, when all but some messages of a long topic are acknowledged."""
        self.holes("warm", 100, 10)
        self.start("warm")
        self.holes("holes", holes, records)
        found, count = self.start("holes"), holes * HOLE_EVERY
        wanted = range(HOLE_EVERY - 1, count, HOLE_EVERY)
        assert found.entries == list(wanted), f"{len(found.entries):,} were delivered of {holes:,}, or others"
        yield (
            f"start of a consumer, {count:,} messages, {count - holes:,} acknowledged in {records:,} records: "
            f"first batch after {found.first_s:.1f} s, all {holes:,} holes in {found.batches} batches after {found.all_s:.1f} s; "
            f"state {found.state_bytes / 1e6:.3f} MB, {found.state_bytes_after / 1e6:.3f} MB with the holes as delivered once "
            f"(wanted: under 10 s, under 5 MB)"
        )

    def start(self, name: str, measure: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)) -> Started:
        """A consumer that delivers what is there and acknowledges nothing."""
        found, began = Started(), time.monotonic()
        consumer = self._subscription(self.topic(name), "eu")

        def look(messages: DataFrame) -> None:
            if not found.batches:
                found.first_s = time.monotonic() - began
                found.memory_mb = measure()
                found.state_bytes = len(encode(consumer.state, limited=False))
            found.batches += 1
            found.delivered += messages.count()
            found.entries += messages.select("entry_id").toArrow()["entry_id"].to_pylist()

        consumer.run(look, trigger=AVAILABLE_NOW)
        found.all_s = time.monotonic() - began
        found.state_bytes_after = len(encode(consumer.state, limited=False))
        return found

    def long_lived(self, messages: int, ledgers: int, holes: int) -> Iterator[str]:
        """A topic of eu as months leave it: many ledgers, of each the first hundredth expired, all acknowledged but some messages, in a
        subscription that begins at a time: what its start takes until the function is called first."""
        name = "long"
        topic, tables, length = self.topic(name), self.world.tables("eu"), messages // ledgers
        expired, gap = length // 100, (length - length // 100) * ledgers // holes
        create_topic(tables, topic)
        began_us = now_us() - 3_600_000_000
        payload = F.substring(F.sha2(F.col("entry_id").cast("string"), 512), 1, _PAYLOAD).cast("binary")
        for part in range(_COMMITS):
            first, last = part * ledgers // _COMMITS, (part + 1) * ledgers // _COMMITS
            rows = self.rows(first * length, (last - first) * length).withColumns(
                {
                    "origin": F.lit("eu"),
                    "ledger_id": F.expr(f"entry_id div {length} + 1"),
                    "entry_id": F.expr(f"entry_id % {length}"),
                    "payload": payload,
                }
            )
            append_frame(tables.log(topic), rows.where(f"entry_id >= {expired}"))
        acked = {}
        wanted = 0
        for ledger in range(1, ledgers + 1):
            at = list(range(expired + gap - 1, length, gap))
            wanted += len(at)
            edges = [expired - 1, *at, length]
            acked[LedgerId("eu", ledger)] = tuple((a + 1, b - 1) for a, b in pairwise(edges) if a + 1 <= b - 1)
        publisher = AckPublisher(tables, self.world.config, topic, "acks-1")
        state = AckState(base=Base(time_us=began_us), acked=MessageSet(acked))
        publisher.publish([(topic, NAME, SubscriptionState(state))])
        publisher.close()
        self.start(name)  # what is compiled once is compiled
        before = self._memory_mb()
        found = self.start(name, lambda: self._memory_mb())
        assert found.delivered == wanted, f"{found.delivered:,} were delivered of {wanted:,}"
        jvm_mb, own_mb = (then - now for then, now in zip(found.memory_mb, before, strict=True))
        yield (
            f"start of a consumer, {messages:,} messages in {ledgers} ledgers, begun at a time, a hundredth expired, {found.delivered:,} "
            f"not acknowledged: first batch after {found.first_s:.1f} s (wanted: 10); heap {jvm_mb:+,.0f} MB, this process {own_mb:+,.0f} MB "
            "(wanted: under 200)"
        )

    def _memory_mb(self) -> tuple[float, float]:
        """Of the JVM's heap what is in use after a collection, and of this process what is resident."""
        jvm: Any = self.spark.sparkContext._jvm  # a measurement, not the product
        jvm = jvm.java.lang
        jvm.System.gc()
        runtime = jvm.Runtime.getRuntime()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return (runtime.totalMemory() - runtime.freeMemory()) / 1e6, resident / 1e6

    # -- many in one process --------------------------------------------------------------------------------------------

    def many(self, topics: int, active: int, seconds: float) -> Iterator[str]:
        """One consumer of so many topics of a namespace, in some of which ten messages are published each _PACE_S seconds."""
        tables = self.world.tables("eu")
        names = [Topic.parse(f"persistent://bench/many/topic-{number}") for number in range(topics)]
        for topic in names:
            create_topic(tables, topic)
        told: list[tuple[float, str, int]] = []

        def acknowledge(messages: DataFrame) -> DataFrame:
            row = messages.selectExpr("first(topic_name)", "max(entry_id)").collect()[0]
            told.append((time.time(), row[0], row[1]))
            return messages

        consumer = Subscriptions(self.spark, "persistent://bench/many/*", NAME, self.world.config, "eu")
        runner = threading.Thread(target=consumer.run, args=(acknowledge,))
        began = time.monotonic()
        runner.start()
        acks = self.world.log("eu", names[0].acks)
        while len(read_known(tables, names[0]).states if acks.exists() else ()) < topics:
            time.sleep(0.5)
        started_s = time.monotonic() - began
        time.sleep(_SETTLES_S)
        used, began = self._cpu_s(), time.monotonic()
        time.sleep(seconds)
        idle_cores = (self._cpu_s() - used) / (time.monotonic() - began)
        entries = dict.fromkeys(names[:active], 0)
        deadline, used, began = time.monotonic() + seconds, self._cpu_s(), time.monotonic()
        for topic in cycle(entries):
            if time.monotonic() > deadline:
                break
            self.world.write("eu", entries[topic], entries[topic] + 10, topic=topic)
            entries[topic] += 10
            time.sleep(_PACE_S / active)
        busy_cores = (self._cpu_s() - used) / (time.monotonic() - began)
        while consumer.done.acknowledged < sum(entries.values()):
            time.sleep(0.2)
        consumer.stop()
        runner.join()
        landed = [
            (at, key, decode(bytes(payload)))
            for (at, keys), (_, payloads) in zip(
                commits(Path(acks.name), column="key"), commits(Path(acks.name), column="payload"), strict=True
            )
            for key, payload in zip(keys, payloads, strict=True)
        ]
        flushes_s = [
            min(at for at, key, state in landed if key == f"{name}/{NAME}" and MessageId("eu", 1, last) in state.acked) - when
            for when, name, last in told
        ]
        yield (
            f"{topics} topics in one process, {active} of them active, ten messages each {_PACE_S:.0f} s: all begun after {started_s:.0f} s; "
            f"{percentiles('flush', flushes_s, 'batches')} (wanted: p95 5 s); idle {idle_cores:.2f} cores (wanted: 0.25), "
            f"active {busy_cores:.2f}"
        )

    def _cpu_s(self) -> float:
        """Of this process and its JVM."""
        ticks = 0
        for pid in (os.getpid(), self.world.tables("eu").me.jvm_pid):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def _parts(states: Sequence[AckState], most: int) -> Iterator[Sequence[AckState]]:
    for at in range(0, len(states), most):
        yield states[at : at + most]
