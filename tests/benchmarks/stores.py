"""Two regions on an S3 API of this machine that answers as late as a store far away does, beside Spark's Delta and delta-rs on the same store.

Seconds and requests: both are what a user pays. The store is one process of this machine, so its own time is in all of it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from geo.fleet.backfill import Backfill, Mode, backfill
from geo.log.publish import publish
from geo.log.publisher import Publisher
from geo.log.topics import create_topic
from geo.names import Topic
from geo.streams.life import State
from tests.benchmarks.bench import message_rows, percentiles, replica_lags
from tests.benchmarks.regions import LINKS, effects
from tests.kafka_broker import free_ports
from tests.object_store import KEY, SECRET, ObjectStore
from tests.running import Running
from tests.s3_servers import SeaweedFS
from tests.world import World

TOPIC = Topic.parse("persistent://bench/store/topic")
_GIVEN = "key STRING, payload BINARY"
_TIMES, _ROWS, _PACE_S = 20, 10, 0.5
_ROUNDS = 3
_ACKED, _ACK_PACE_S, _SETTLED_S = 12, 2.0, 15.0
_PRICES = ("PUT", "LIST", "GET", "HEAD", "POST", "DELETE")


class StoreBench:
    """Clusters us and eu, each in a bucket of its own, with a link into eu."""

    def __init__(self, spark: SparkSession, folder: Path, behind: str = "", prefix: str = "geo") -> None:
        """`behind` as `ObjectStore` has it. `prefix` of its buckets, which Spark takes for the same ones for ever."""
        os.environ.update(GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
        folder.mkdir(parents=True, exist_ok=True)
        self.spark, self.folder, self.store = spark, folder, ObjectStore(free_ports(1)[0], folder / "store.log", behind)
        self.prefix, self.plain_at = prefix, f"s3a://{prefix}-plain"
        for name in ("us", "eu", "plain"):
            self.store.make_bucket(f"{prefix}-{name}")
        self.world = self.world_at("t", [("us", "eu")])
        for key, value in self.store.settings(f"{prefix}-plain").items():
            secret = {"secret://env/GEO_TEST_KEY": KEY, "secret://env/GEO_TEST_SECRET": SECRET}
            spark.conf.set(key, secret.get(value, value))

    def world_at(self, root: str, links: Sequence[tuple[str, str]]) -> World:
        folder, reached = self.folder / root, json.dumps(self.store.storage())
        folder.mkdir()
        return World(
            folder,
            links=links,
            place=lambda name: f"root: 's3a://{self.prefix}-{name}/{root}', storage: {reached}",
            spark=self.spark,
        )

    def asked(self, do: Callable[[], object]) -> tuple[float, Counter[str]]:
        """Seconds and requests."""
        before, began = self.store.counts(), time.monotonic()
        do()
        return time.monotonic() - began, self.store.counts() - before

    def producer(self) -> Publisher:
        given = self.spark.createDataFrame([], _GIVEN).schema
        return Publisher(self.world.tables("us"), self.world.config, TOPIC, "bench").open(given)

    def publish(self, rows: DataFrame, producer: str, publish_id: str, topic: Topic = TOPIC) -> None:
        publish(rows, topic, self.world.config, "us", producer=producer, publish_id=publish_id)

    def plain(self, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(f"{self.plain_at}/by-spark")

    def stream(self, topic: Topic) -> None:
        """What us has, by a stream of Spark's alone."""
        rows = self.spark.readStream.format("delta").load(self.world.log("us", topic).name).writeStream.format("delta")
        rows = rows.option("checkpointLocation", str(self.folder / "stream")).trigger(availableNow=True)
        rows.start(f"{self.plain_at}/by-stream").awaitTermination()

    def link(self, topic: Topic) -> None:
        (report,) = self.world.replicate("eu", topics=str(topic))
        assert report.state is State.STOPPED

    def backfill(self, topic: Topic, mode: Mode) -> None:
        (filled,), _ = backfill(self.spark, self.world.config, "us", "eu", topics=str(topic), what=Backfill(mode=mode))
        assert (filled.complete, filled.by_file > 0) == (True, mode is Mode.FILES)

    def by_deltalake(self, rows: pa.Table) -> None:
        write_deltalake(f"s3://{self.prefix}-plain/by-deltalake", rows, mode="append", storage_options=self.store.options())

    def verb(self, *words: str) -> None:
        command = [sys.executable, "-m", "geo", *words, "--config", str(self.world.path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def stores(spark: SparkSession, folder: Path, delays: Sequence[float], rows: int, *, seaweedfs: bool = False) -> Iterator[str]:
    """A line for each figure, by what is added to each request; then of many `rows`, at 25 ms, if wanted on another make of store."""
    with ExitStack() as running:
        bench = StoreBench(spark, folder / "moto")
        running.callback(bench.store.close)
        for delay in delays:
            bench.store.delay(0)
            yield from _small(bench, delay)
        if seaweedfs:
            server = SeaweedFS(folder / "seaweedfs")
            running.callback(server.close)
            bench = StoreBench(spark, folder / "large", server.endpoint, "large")
            running.callback(bench.store.close)
        bench.store.delay(0.025)
        yield from _large(bench, rows)


def _small(bench: StoreBench, delay: float) -> Iterator[str]:
    what = f"{delay * 1000:.0f} ms a request: "
    ten = [{"key": f"k{n}", "payload": b"x" * 1024} for n in range(_ROWS)]
    frame, table = bench.spark.createDataFrame(ten, _GIVEN).coalesce(1), pa.Table.from_pylist(ten)
    producer = bench.producer()
    bench.plain(frame)
    bench.by_deltalake(table)
    bench.publish(frame, "warm", f"warm {delay}")
    bench.store.delay(delay)
    for name, do in (
        ("ten rows by a running producer", lambda: producer.publish_rows(ten)),
        ("ten rows by Spark's Delta", lambda: bench.plain(frame)),
        ("ten rows by delta-rs", lambda: bench.by_deltalake(table)),
    ):
        yield what + _told(name, [bench.asked(do) for _ in range(_TIMES if delay < 0.1 else 5)])
    one_shot = [bench.asked(partial(bench.publish, frame, "warm", f"{delay} {at}")) for at in range(3)]
    yield what + _told("publish() of ten rows, one shot", one_shot)
    links = Running(bench.world, "eu", topics=str(TOPIC), trigger="200 ms")
    source, target = (bench.world.log(name, TOPIC) for name in ("us", "eu"))
    _until(lambda: target.exists() and target.read().count() == source.read().count())
    for _ in range(_TIMES):
        began = time.monotonic()
        producer.publish_rows(ten)
        time.sleep(max(0.0, _PACE_S - (time.monotonic() - began)))
    time.sleep(2.0)
    links.stop()
    links.join()
    producer.close()
    lag = sorted([*replica_lags(bench.world, TOPIC)][-_TIMES:])  # what came before waited for the link to begin
    yield f"{what}commit to the other region's log at 200 ms: p50 {statistics.median(lag):.2f} s, p95 {lag[int(0.95 * len(lag))]:.2f} s"
    world = bench.world_at(f"acks-{delay * 1000:.0f}", LINKS)
    (found,) = effects(world, _ACKED, processes=False, paces_s=(_ACK_PACE_S,), settled_s=_SETTLED_S).values()
    yield what + percentiles("from an acknowledgement to its effect in the other region", found, "batches")
    for words in (("topics",), ("links", "status"), ("replicate", "--cluster", "eu", "--trigger", "available-now")):
        yield what + _told(f"geo {' '.join(words)}", [bench.asked(partial(bench.verb, *words)) for _ in range(2)])


def _large(bench: StoreBench, rows: int) -> Iterator[str]:
    frame = message_rows(bench.spark, 0, rows).select("key", "payload").cache()
    frame.count()
    few = frame.where("key = 'k1'")
    bench.plain(few)  # the first one of a table, and of a producer, takes longer
    bench.publish(few, "large", "warm")
    yield from _in_turn(
        bench,
        rows,
        "a plain append, wanted 0.8",
        ("by Spark's Delta", lambda _: bench.plain(frame)),
        ("published", lambda at: bench.publish(frame, "large", f"round {at}")),
    )
    yield from _brought(bench, rows, frame)


def _brought(bench: StoreBench, rows: int, frame: DataFrame) -> Iterator[str]:
    """What is in us comes into eu: by a link that has passed the topic's begin; by whole files and by rows, of a topic each."""
    linked = Topic.parse(f"{TOPIC}-link")
    of_mode = {mode: [Topic.parse(f"{TOPIC}-{mode.value}-{at}") for at in range(_ROUNDS)] for mode in Mode}
    create_topic(bench.world.tables("us"), linked)
    bench.link(linked)
    bench.stream(linked)  # the first one of a session takes longer
    yield from _in_turn(
        bench,
        rows,
        "a plain stream, wanted 1.0",
        ("by a stream of Spark's Delta", lambda _: bench.stream(linked)),
        ("by a link", lambda _: bench.link(linked)),
        before=lambda at: bench.publish(frame, "large", f"round {at}", linked),
    )
    for topics in of_mode.values():
        for topic in topics:
            bench.publish(frame, "large", "large", topic)
    yield from _in_turn(
        bench,
        rows,
        "a backfill of rows, wanted 5",
        ("by a backfill of rows", lambda at: bench.backfill(of_mode[Mode.ROWS][at], Mode.ROWS)),
        ("by a backfill of files", lambda at: bench.backfill(of_mode[Mode.FILES][at], Mode.FILES)),
    )


def _in_turn(
    bench: StoreBench,
    rows: int,
    told: str,
    *ways: tuple[str, Callable[[int], object]],
    before: Callable[[int], object] = lambda at: None,
) -> Iterator[str]:
    """Two ways in turn, each as many times, with what comes before; then how many times as fast the second one is."""
    found = []
    for at in range(_ROUNDS):
        before(at)
        found.append([bench.asked(partial(do, at)) for _, do in ways])
    for (name, _), asked in zip(ways, zip(*found, strict=True), strict=True):
        seconds = statistics.median(one for one, _ in asked)
        yield f"{rows:,} x 1 KB {name}: {rows * 1024 / 1e6 / seconds:.0f} MB/s, {asked[-1][1].total()} requests"
    ratios = sorted(slow / fast for (slow, _), (fast, _) in found)
    yield f"{rows:,} x 1 KB {ways[1][0]}: {statistics.median(ratios):.2f} x {told} ({ratios[0]:.2f} to {ratios[-1]:.2f}, {_ROUNDS} of each in turn)"


def _told(name: str, found: Sequence[tuple[float, Counter[str]]]) -> str:
    seconds, requests = [one for one, _ in found], [counts.total() for _, counts in found]
    kinds = ", ".join(f"{found[-1][1][kind]} {kind}" for kind in _PRICES if found[-1][1][kind])
    return f"{name}: p50 {statistics.median(seconds):.3f} s, {statistics.median(requests):.0f} requests ({kinds})"


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.3)
