"""A Kafka topic into another region: by `geo publish` and a link, and by MirrorMaker 2, on the same machine.

MirrorMaker 2 copies from one broker to another; delta-geo from the broker into one region's log and over a link into
another's. Both get the same records of 1 KB in four partitions.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from deltalake import DeltaTable
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession

from geo.fleet.replicator import Replicator
from geo.jars import default_folder, ensure_jars, find_java, parse_lock
from geo.log.publish import PublishOptions, publish_kafka
from geo.log.publish_stream import SourceStream
from geo.log.sources.kafka import BATCH_ROWS
from geo.names import Topic
from tests.benchmarks.bench import commits
from tests.kafka_broker import Broker
from tests.running import Running
from tests.waiting import InThread
from tests.world import World

PARTITIONS = 4
PER_SECOND = 200
_JAVA = ("-Xmx1g", "-XX:+UseParallelGC")
_LIMIT_S = 600.0
_LOCK = Path(__file__).with_name("mirror_maker.lock")
_MIRROR = """\
clusters=a,b
a.bootstrap.servers={a}
b.bootstrap.servers={b}
a->b.enabled=true
a->b.topics=bench-.*
b->a.enabled=false
tasks.max={tasks}
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
refresh.topics.interval.seconds=1
"""


class Arrivals:
    """How many records were there at which second, from the first that were seen to the last."""

    def __init__(self, seen: Sequence[tuple[float, int]]) -> None:
        self._seen = seen

    def rate(self, share: float = 0.0) -> float:
        """Records a second, from the last moment at which no more than that share of all was there."""
        (end, total), first = self._seen[-1], self._seen[0]
        begin, before = max((one for one in self._seen[:-1] if one[1] <= share * total), default=first)
        return (total - before) / (end - begin)


class KafkaBench:
    """Two brokers, a and b, and a world of two regions: us, which publishes from broker a, and eu, linked to it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        (folder / "world").mkdir(parents=True)
        self.world = World(folder / "world", links=[("us", "eu")], spark=spark)
        self._sent = 0
        self.a, self.b = (Broker(folder / name, _JAVA) for name in ("a", "b"))

    def close(self) -> None:
        self.a.close()
        self.b.close()

    def backlog(self, records: int) -> None:
        self.a.create("bench-backlog", PARTITIONS, **{"segment.bytes": "1073741824"})
        producer = KafkaProducer(bootstrap_servers=self.a.bootstrap, linger_ms=20, batch_size=256 * 1024)
        for number in range(records):
            producer.send("bench-backlog", value=payload(number), partition=number % PARTITIONS)
        producer.flush()
        producer.close()

    def messages(self, name: str) -> Topic:
        return Topic.parse(f"persistent://bench/{name}/topic")

    # -- MirrorMaker 2 ---------------------------------------------------------------------------------------------

    def mirror(self) -> subprocess.Popen[bytes]:
        properties = self.folder / "mm2.properties"
        properties.write_text(_MIRROR.format(a=self.a.bootstrap, b=self.b.bootstrap, tasks=PARTITIONS))
        jars = ensure_jars(default_folder().with_name("mirror-maker"), parse_lock(_LOCK.read_text()))
        command = [find_java(), *_JAVA, "-cp", os.pathsep.join(map(str, jars)), "org.apache.kafka.connect.mirror.MirrorMaker"]
        with open(self.folder / "mm2.log", "ab") as log:
            return subprocess.Popen([*command, str(properties)], stdout=log, stderr=log, start_new_session=True)

    def mirrored(self, topic: str, records: int) -> Arrivals:
        """How the records came to broker b, until all are there."""
        consumer = KafkaConsumer(bootstrap_servers=self.b.bootstrap)
        where = [TopicPartition(f"a.{topic}", p) for p in range(PARTITIONS)]
        deadline, seen = time.monotonic() + _LIMIT_S, list[tuple[float, int]]()
        while time.monotonic() < deadline:
            there = set(consumer.topics())
            count = sum(consumer.end_offsets(where).values()) if f"a.{topic}" in there else 0
            if count and (not seen or count > seen[-1][1]):
                seen.append((time.monotonic(), count))
            if count >= records:
                consumer.close()
                return Arrivals(seen)
            time.sleep(0.02)
        raise AssertionError(f"MirrorMaker 2 did not copy {topic}:\n{(self.folder / 'mm2.log').read_text()[-3000:]}")

    def mirror_latency(self, seconds: float) -> list[float]:
        """Seconds from a record's timestamp to its arrival at a consumer of broker b, at 200 records a second."""
        self.a.create("bench-mirrored", PARTITIONS)
        consumer = KafkaConsumer(bootstrap_servers=self.b.bootstrap, fetch_max_wait_ms=10)
        deadline = time.monotonic() + _LIMIT_S
        while "a.bench-mirrored" not in consumer.topics():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        consumer.assign([TopicPartition("a.bench-mirrored", p) for p in range(PARTITIONS)])
        consumer.seek_to_beginning()
        found: list[float] = []
        with Sender(self.a.bootstrap, "bench-mirrored", seconds) as sender:
            while time.monotonic() < deadline and (not sender.is_done or len(found) < sender.sent):
                for records in consumer.poll(timeout_ms=100).values():
                    now = time.time()
                    found += [now - record.timestamp / 1000 for record in records]
        consumer.close()
        return found

    # -- delta-geo -------------------------------------------------------------------------------------------------

    def published(self, records: int) -> Arrivals:
        """How the records came into the log of us. In ten batches at least, none larger than usual."""
        topic = self.messages("backlog")
        rows = min(BATCH_ROWS, records // 10)
        stream = self._publish("bench-backlog", topic, PublishOptions(batch_rows=rows))
        stream.await_termination()
        assert stream.published.rows == records
        landed = commits(Path(self.world.log("us", topic).name), column="entry_id")
        there = itertools.accumulate(len(entries) for _, entries in landed)
        return Arrivals([(at, count) for (at, _), count in zip(landed, there, strict=True)])

    def _publish(self, kafka_topic: str, topic: Topic, options: PublishOptions) -> SourceStream:
        return publish_kafka(self.spark, self.a.bootstrap, kafka_topic, topic, self.world.config, "us", options=options)

    def replicated(self, records: int) -> float:
        """Seconds of a link's run over the log that was published, its start included."""
        began = time.monotonic()
        (report,) = Replicator(self.spark, self.world.config, "eu").run()
        assert report.replicated == records
        return time.monotonic() - began

    def geo_latency(self, seconds: float) -> dict[str, list[float]]:
        """Seconds from a record's timestamp to the commit that has it, in each region's log, at 200 records a second."""
        topic, kafka_topic = self.messages("latency"), "bench-latency"
        self.a.create(kafka_topic, PARTITIONS)
        stream = self._publish(kafka_topic, topic, PublishOptions(trigger="100 ms"))
        try:
            with Running(self.world, "eu", topics=str(topic), trigger="100 ms"):
                self._send(topic, 60.0)  # the link finds the topic, both get warm
                began = datetime.now(timezone.utc)
                self._send(topic, seconds)
        finally:
            stream.stop()
        found = {}
        for cluster in ("us", "eu"):
            landed = commits(Path(self.world.log(cluster, topic).name), column="event_time")
            sent = [(at, time.replace(tzinfo=timezone.utc)) for at, times in landed for time in times]
            found[cluster] = [at - time.timestamp() for at, time in sent if time >= began]
        return found

    def _send(self, topic: Topic, seconds: float) -> None:
        """Send records, and wait until all that were ever sent are in eu."""
        log, deadline = self.world.log("eu", topic).name, time.monotonic() + _LIMIT_S
        with Sender(self.a.bootstrap, "bench-latency", seconds) as sender:
            pass
        self._sent += sender.sent
        while not DeltaTable.is_deltatable(log) or DeltaTable(log).count() < self._sent:
            assert time.monotonic() < deadline, "the link did not bring all of it"
            time.sleep(0.5)


class Sender(InThread[None]):
    """Sends 200 records of 1 KB a second to a topic, in a thread of its own, to its end."""

    limit_s = _LIMIT_S

    def __init__(self, bootstrap: str, topic: str, seconds: float) -> None:
        self.sent, self._bootstrap, self._topic, self._records = 0, bootstrap, topic, int(seconds * PER_SECOND)
        super().__init__(self._send, lambda: None)

    def _send(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, linger_ms=0)
        began = time.monotonic()
        for number in range(self._records):
            time.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
            producer.send(self._topic, value=payload(number), partition=number % PARTITIONS)
            self.sent += 1
        producer.flush()
        producer.close()


def payload(number: int) -> bytes:
    """1 KB of hexadecimal hashes: half as random as random bytes, as JSON payloads are."""
    return b"".join(hashlib.sha256(b"%d#%d" % (number, part)).hexdigest().encode() for part in range(16))
