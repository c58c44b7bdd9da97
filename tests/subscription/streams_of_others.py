"""Consumers that are not of this program: a plain Delta stream over a topic's log, and what Spark leaves of one."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, Row

from geo.subscription.versions.stream_progress import read_progress
from tests.world import World

TABLE, OTHER = "5bcf1a8e-1d0c-4c3f-9a43-6f1b6a5f9d11", "0e0e0e0e-1d0c-4c3f-9a43-6f1b6a5f9d22"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1764099999999,"conf":{"spark.sql.shuffle.partitions":"1"}}'


def delta(version: object, index: object = -1, *, first: object = False, table: object = TABLE, of: object = 1) -> str:
    """The end of a Delta source, with the keys in Delta's order. `first`: while it reads what was there when the query began."""
    fields = {"sourceVersion": of, "reservoirId": table, "reservoirVersion": version, "index": index, "isStartingVersion": first}
    return json.dumps(fields, separators=(",", ":"))


def offsets(*sources: str, version: str = "v1") -> str:
    """A file of offsets."""
    return "\n".join([version, METADATA, *sources])


QUERY = "2f7c6f2a-9a52-4d0e-8d5e-6a0f5c0f7a11"


def write_batch(
    checkpoint: Path, batch: int, version: int, *, committed: bool = True, table: str = TABLE, query: str = QUERY
) -> None:
    """What Spark leaves of a batch that has read all below a version."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    files = {"offsets": offsets(delta(version, table=table)), "commits": 'v1\n{"nextBatchWatermarkMs":0}'}
    for name, text in files.items():
        if name == "offsets" or committed:
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
            (checkpoint / name / str(batch)).write_text(text)
            (checkpoint / name / f".{batch}.crc").write_bytes(b"crc\x00")


class DeltaStream:
    """A stream over the log in eu, as anybody writes one. Each `run` is a start of it that takes what is there."""

    def __init__(self, world: World, **options: object) -> None:
        self._world, self._options = world, {name: str(value) for name, value in options.items()}
        self.checkpoint = str(world.folder / "checkpoint-of-theirs")
        self.table_id = world.log("eu").table_id()
        self.finished_meanwhile: list[int | None] = []
        """What its checkpoint said while each batch was under way."""
        self.read: list[Row] = []
        """All rows, as often as they were read."""
        self.stops_in_batch: int | None = None

    def run(self) -> None:
        def batch(rows: DataFrame, number: int) -> None:
            self.read += rows.collect()
            self.finished_meanwhile.append(self.finished())
            if number == self.stops_in_batch:
                raise RuntimeError("stopped on purpose")

        rows = self._world.spark.readStream.format("delta").options(**self._options).load(self._world.log("eu").name)
        writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", self.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    def finished(self) -> int | None:
        return read_progress(self._world.tables("eu").files, self.checkpoint, self.table_id).finished
