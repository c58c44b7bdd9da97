"""Verbs that look, each a process of its own: on the demo's world, and with many topics, which are copies of the demo's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from geo.cli.demo import TOPIC
from geo.config import load
from geo.journal.cluster import connect
from geo.names import Topic
from schemas import LINKS, TOPICS

_TIMES = 3

VERBS = (
    ("topics",),
    ("links",),
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
