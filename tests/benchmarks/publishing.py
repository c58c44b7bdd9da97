"""Publishing beside what a user would write by hand: Spark reads the same rows and appends them to a Delta table."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.log.publish import publish, publish_json_lines
from geo.log.publisher import Published
from geo.names import Topic
from tests.benchmarks.kafka import payload
from tests.world import World

_FILES = 4
_SORTED_SCHEMA = "number BIGINT, key STRING, payload BINARY"


class PublishBench:
    """Rows of 1 KB as Parquet files, sorted and not, and as JSON lines, in four files each."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        (folder / "world").mkdir(parents=True)
        self.spark, self.folder, self.rows = spark, folder, rows
        self.world = World(folder / "world", links=[("us", "eu")], spark=spark)
        self._numbers = itertools.count()
        hashes = F.concat(*(F.sha2(F.concat(F.col("id").cast("string"), F.lit(f"#{i}")), 256) for i in range(16)))
        frame = spark.range(0, rows, numPartitions=_FILES).select(
            F.col("id").alias("number"),
            F.concat(F.lit("k"), F.col("id") % 1000).alias("key"),
            hashes.cast("binary").alias("payload"),
        )
        frame.write.parquet(str(folder / "sorted"))
        shuffled = frame.repartition(_FILES, F.xxhash64("number")).sortWithinPartitions(F.xxhash64("number"))
        shuffled.write.parquet(str(folder / "unsorted"))
        (folder / "lines").mkdir()
        for part in range(_FILES):
            with open(folder / "lines" / f"{part}.jsonl", "w", encoding="utf-8") as file:
                for number in range(rows * part // _FILES, rows * (part + 1) // _FILES):
                    file.write(json.dumps({"key": f"k{number % 1000}", "payload": payload(number).decode()}) + "\n")

    def measured(self, rounds: int) -> Iterator[tuple[str, list[tuple[float, float]]]]:
        """What is published, and of each round the seconds of the plain way and of ours, in turn."""
        ways: dict[str, tuple[Callable[[], None], Callable[[], Published]]] = {
            "a sorted DataFrame, order_by": (lambda: self._append(self._read("sorted")), lambda: self._publish("sorted")),
            "an unsorted DataFrame, beside sort and append": (
                lambda: self._append(self._read("unsorted").sort("number")),
                lambda: self._publish("unsorted"),
            ),
            "JSON lines": (lambda: self._append(self._json()), self._publish_lines),
        }
        for what, (plain, ours) in ways.items():
            found = []
            for _ in range(rounds):
                began = time.monotonic()
                plain()
                middle = time.monotonic()
                done = ours()
                found.append((middle - began, time.monotonic() - middle))
                assert done.rows == self.rows
                shutil.rmtree(self.folder / "plain")
                shutil.rmtree(self.folder / "world" / "us" / "topics")
            yield what, found

    def _read(self, name: str) -> DataFrame:
        return self.spark.read.schema(_SORTED_SCHEMA).parquet(str(self.folder / name))

    def _json(self) -> DataFrame:
        rows = self.spark.read.schema("key STRING, payload STRING").json(str(self.folder / "lines"))
        return rows.withColumn("payload", F.col("payload").cast("binary"))

    def _append(self, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(str(self.folder / "plain"))

    def _topic(self) -> Topic:
        return Topic.parse(f"persistent://bench/publish/topic{next(self._numbers)}")

    def _publish(self, name: str) -> Published:
        done = publish(self._read(name), self._topic(), self.world.config, "us", order_by="number")
        assert isinstance(done, Published)
        return done

    def _publish_lines(self) -> Published:
        lines = str(self.folder / "lines")
        stream = publish_json_lines(self.spark, lines, self._topic(), self.world.config, "us")
        stream.await_termination()
        return stream.published
