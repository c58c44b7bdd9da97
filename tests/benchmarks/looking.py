"""Verbs that look, each a process of its own: on the demo's world, and with many topics, which are copies of the demo's."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from geo.cli.demo import TOPIC
from geo.config import load
from geo.journal.cluster import ClusterTables, connect, without_spark
from geo.names import Topic
from geo.schemas import LINKS, TOPICS
from geo.testing import config_text
from tests.far import Far

_TIMES = 3

VERBS = (
    ("topics",),
    ("links",),
    ("status",),
    ("subscriptions",),
    ("peek", "--cluster", "eu", "--topic", TOPIC),
    ("verify", "--quick"),
    ("doctor", "--engine", "native"),
    ("doctor",),
)
BY_SPARK = ("topics", "peek")
"""Those that read rows with either."""


def looked(spark: SparkSession, folder: Path, topics: int) -> Iterator[str]:
    """A line for each verb, as it is measured: best of some times, and of some how many times as long one by Spark takes."""
    subprocess.run([sys.executable, "-m", "geo", "demo", "--root", str(folder)], check=True, stdout=subprocess.DEVNULL)
    config = folder / "geo.yaml"
    for verb in VERBS:
        own = min(_seconds(config, verb) for _ in range(_TIMES))
        by_spark = ""
        if verb[0] in BY_SPARK:
            by_spark = f", {_seconds(config, (*verb, '--engine', 'spark')) / own:.0f} x as fast as with Spark"
        yield f"demo's world: {' '.join(verb)}: {own:.2f} s{by_spark}"
    _copy(spark, config, topics)
    for verb in VERBS:
        yield f"{topics} topics: {' '.join(verb)}: {min(_seconds(config, verb) for _ in range(_TIMES)):.2f} s"
    yield from statuses(folder / "ten", 10)
    yield from statuses(folder / "thousand", 5 * topics)


def _seconds(config: Path, verb: Sequence[str]) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "geo", *verb, "--config", str(config)], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _copy(spark: SparkSession, config: Path, topics: int) -> None:
    """Make copies of the demo's topic until there are so many, with the rows of the registries and of the links."""
    loaded, origin = load(config), Topic.parse(TOPIC)
    copies = [Topic.parse(f"{TOPIC}-{number}") for number in range(1, topics)]
    for cluster in loaded.clusters.values():
        tables = connect(spark, cluster)
        log = Path(tables.log(origin).name)
        for copy in copies:
            shutil.copytree(log, tables.log(copy).name, copy_function=os.link)
        for schema in (TOPICS, LINKS):
            journal = tables.journal(schema)
            rows = journal.newest(topic=TOPIC)
            journal.append([{**row, "topic": str(copy), "sequence": 1} for copy in copies for row in rows])


def statuses(folder: Path, topics: int) -> Iterator[str]:
    """What `geo status` takes of so many topics with links both ways, of which those one way are behind."""
    folder.mkdir()
    config, topic = folder / "geo.yaml", Topic.parse("persistent://shop/web/orders-0")
    config.write_text(config_text(("us", "eu"), [("us", "eu"), ("eu", "us")], place=lambda name: f"root: '{folder / name}'"))
    near = _Near(config)
    for end in (10, 20, 30):
        near.publish(end, topic)
        near.replicate(topic)
    near.replicate(topic, "eu", "us")
    near.publish(1000, topic)
    copies = [Topic.parse(f"persistent://shop/web/orders-{at}") for at in range(1, topics)]
    for name in ("us", "eu"):
        tables = near.tables(name)
        for copy in copies:
            shutil.copytree(tables.log(topic).name, tables.log(copy).name, copy_function=os.link)
        for schema in (TOPICS, LINKS):
            rows = tables.journal(schema).newest(topic=str(topic))
            tables.journal(schema).append([{**row, "topic": str(copy)} for copy in copies for row in rows])
    took = min(_cpu_s(config) for _ in range(_TIMES))
    yield f"{topics:,} topics with two links, of which one is behind: status: {took:.2f} s of CPU"


class _Near(Far):
    """Two regions on this disk, written without Spark."""

    def tables(self, name: str) -> ClusterTables:
        return without_spark(self.config.cluster(name))


def _cpu_s(config: Path) -> float:
    """Of a process of its own, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "geo", "status", "--config", str(config), "--engine", "native"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
