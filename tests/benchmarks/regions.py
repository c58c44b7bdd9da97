"""From an acknowledgement in one region to its effect in the other: both in one process, or a process a region as users run them.

`python -m tests.benchmarks.regions FOLDER CLUSTER BATCHES` is one region; what it noted is its last line.
"""

from __future__ import annotations

import bisect
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from geo.delta.arrow_rows import rows_frame
from geo.delta.history import CommitName
from geo.log.publisher import Publisher
from geo.names import Topic
from geo.replication.link_table import append_links, read_links
from geo.session import session
from geo.streams import timetable
from geo.streams.trigger import AVAILABLE_NOW
from geo.subscription.consumer import Subscription
from tests.benchmarks.bench import grown
from tests.running import Running
from tests.waiting import InThread, until
from tests.world import World

TOPIC = Topic.parse("persistent://bench/acks/topic")
PACES_S = (5.0, 2.0, 0.5)
"""Between two commits of the producer."""

LINKS = [("us", "eu"), ("eu", "us")]
_ROWS = 10
_IN_FLIGHT = 5
"""Batches that may still be of the pace before."""
_SETTLED_S = timetable.DISCOVERY_S + 50
"""By then the links have found all topics, and what runs all the time is compiled."""
_LIMIT_S = 900.0
_LOOK_S = 0.005


@dataclass(slots=True)
class Noted:
    """By time: each greatest entry that was acknowledged in us, by pace, and that eu would not deliver any more."""

    told: dict[float, list[tuple[float, int]]] = field(default_factory=dict)
    known: list[tuple[float, int]] = field(default_factory=list)


def effects(
    world: World,
    batches: int,
    *,
    processes: bool,
    commits: int = 0,
    paces_s: Sequence[float] = PACES_S,
    settled_s: float = _SETTLED_S,
) -> dict[float, list[float]]:
    """By pace, the seconds from the return of the function that acknowledged a batch in us until eu would not deliver it; after
    so many commits of each log. `paces_s` and `settled_s`, when the first is measured, are of regions in one process."""
    Publisher(world.tables("us"), world.config, TOPIC, "bench").open(_columns(world.spark)).close()
    if commits:
        _age(world, commits)
    folder, stop = world.folder, world.folder / "stop"
    if processes:
        started = {
            name: subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.regions", str(folder), name, str(batches)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("eu", "us")
        }
        said = {name: process.communicate()[0].splitlines()[-1] for name, process in started.items()}
        told = {float(pace): [tuple(one) for one in found] for pace, found in json.loads(said["us"]).items()}
        known = [tuple(one) for one in json.loads(said["eu"])]
    else:
        noted = Noted()
        acknowledging = threading.Thread(target=_acknowledging, args=(world, noted, stop, batches, paces_s, settled_s))
        acknowledging.start()
        _knowing(world, noted, stop)
        acknowledging.join()
        told, known = noted.told, noted.known
    entries = [entry for _, entry in known]
    return {pace: [known[bisect.bisect_left(entries, last)][0] - when for when, last in found] for pace, found in told.items()}


def longest_log(folder: Path) -> int:
    """How many commits the table with most of them has."""
    return max(sum(1 for _ in log.glob("*.json")) for log in folder.rglob("_delta_log"))


def _age(world: World, commits: int) -> None:
    """So many small commits more in the logs of messages and of acknowledgements in both regions, and the links at their ends, as
    if all had run a day, which their times say too. They are hard links of one that Spark made; before Spark makes the last one a
    checkpoint is written, as there would have been."""
    with closing(Publisher(world.tables("us"), world.config, TOPIC, "bench").open(_columns(world.spark))) as publisher:
        publisher.publish_rows([{"key": f"k{number}", "payload": bytes(1024)} for number in range(_ROWS)])
    for target in ("eu", "us", "eu"):
        Subscription(world.spark, TOPIC, "bench", world.config, "us").run(lambda rows: rows, trigger=AVAILABLE_NOW)
        world.replicate(target)
    newest: dict[tuple[str, Topic], CommitName] = {}
    for cluster in ("us", "eu"):
        for topic in (TOPIC, TOPIC.acks):
            log = world.log(cluster, topic)
            rows = world.spark.createDataFrame(log.read().limit(_ROWS).toArrow(), log.read().schema).coalesce(1).persist()
            until = log.latest_version() + commits
            rows.write.format("delta").mode("append").save(log.name)
            grown(Path(log.name), until - 1, 0)
            a_day_ago = time.time() - 86_400
            for file in (Path(log.name) / "_delta_log").glob("*.json"):
                os.utime(file, (a_day_ago, a_day_ago))
            DeltaTable(log.name).create_checkpoint()
            rows.write.format("delta").mode("append").save(log.name)
            commit = log.commit_at(log.latest_version())
            assert commit is not None
            newest[cluster, topic] = CommitName.of(log.table_id(), commit)
    for cluster in ("us", "eu"):
        tables = world.tables(cluster)
        states = [
            replace(one, cursor=newest[source, Topic.parse(topic)], target=newest[cluster, Topic.parse(topic)], sequence=one.sequence + 1)
            for (source, topic), one in read_links(tables).items()
        ]  # fmt: skip
        append_links(tables, states)


def _columns(spark: SparkSession) -> StructType:
    return rows_frame(spark, {"key": "STRING", "payload": "BINARY"}, []).schema


def _acknowledging(
    world: World, noted: Noted, stop: Path, batches: int, paces_s: Sequence[float] = PACES_S, settled_s: float = _SETTLED_S
) -> None:
    """us: publishes at each pace, and acknowledges all."""
    told: list[tuple[float, int]] = []

    def acknowledge(messages: DataFrame) -> DataFrame:
        entries = messages.select("entry_id").toArrow()["entry_id"].to_pylist()
        told.append((time.time(), max(entries)))
        return messages

    publisher = Publisher(world.tables("us"), world.config, TOPIC, "bench").open(_columns(world.spark))
    rows = [{"key": f"k{number}", "payload": bytes(1024)} for number in range(_ROWS)]
    try:
        with ExitStack() as running:
            running.callback(publisher.close)
            running.enter_context(Running(world, "us", trigger="200 ms"))
            consumer = Subscription(world.spark, TOPIC, "bench", world.config, "us")
            consumer.start(acknowledge)
            running.callback(consumer.await_termination, _LIMIT_S)
            running.callback(consumer.stop)
            with _Paced(lambda: publisher.publish_rows(rows)) as pace:
                settled = time.monotonic() + settled_s
                _until(lambda: time.monotonic() >= settled, consumer)
                for pace.seconds in paces_s:
                    first = len(told) + _IN_FLIGHT
                    last = first + batches
                    _until(lambda last=last: len(told) >= last, consumer)  # type: ignore[misc]
                    noted.told[pace.seconds] = told[first:last]
            settled = time.monotonic() + min(20, settled_s)
            _until(lambda: time.monotonic() >= settled, consumer)
    finally:
        stop.touch()


def _knowing(world: World, noted: Noted, stop: Path) -> None:
    """eu: its consumer acknowledges nothing, and says what it would not deliver any more."""
    with Running(world, "eu", trigger="200 ms"):
        consumer = Subscription(world.spark, TOPIC, "bench", world.config, "eu", redelivery_delay_s=86_400)
        while not world.log("eu", TOPIC).exists():
            time.sleep(0.1)
        consumer.start(lambda messages: None)
        last = -1
        while not stop.exists():
            assert not consumer.await_termination(0), "the consumer ended by itself"
            for found in consumer.state.acked.ledgers.values():
                if found[0][1] > last:
                    last = found[0][1]
                    noted.known.append((time.time(), last))
            time.sleep(_LOOK_S)
        consumer.stop()
        consumer.await_termination(_LIMIT_S)


def _until(condition: Callable[[], bool], consumer: Subscription) -> None:
    until(condition, limit_s=_LIMIT_S, every_s=0.2, goes_on=lambda: not consumer.await_termination(0))


class _Paced(InThread[None]):
    """Does it again and again, each `seconds`."""

    seconds = 0.5

    def __init__(self, do: Callable[[], None]) -> None:
        self._do, self._stopped = do, threading.Event()
        super().__init__(self._repeat, self._stopped.set)

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self._do()
            self._stopped.wait(max(0.0, self.seconds - (time.monotonic() - began)))


def main() -> None:
    folder, cluster, batches = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    world, noted = World(folder, links=LINKS, spark=session(f"region {cluster}", master="local[2]")), Noted()
    if cluster == "us":
        _acknowledging(world, noted, folder / "stop", batches)
    else:
        _knowing(world, noted, folder / "stop")
    world.spark.stop()
    print(json.dumps(noted.told if cluster == "us" else noted.known), flush=True)


if __name__ == "__main__":
    main()
