"""Streaming checkpoints, read with Spark so that this works on every storage; and removing one."""

from __future__ import annotations

import json
import logging

from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.disk import local_path
from geo.errors import RetryableError
from geo.faults import FAULTS, SPARK_ERRORS
from geo.now import now_s

log = logging.getLogger(__name__)


def checkpoint_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id Spark gave the checkpoint; None if there is none, or it lost its metadata."""
    try:
        row = spark.read.text(f"{checkpoint}/metadata").first()
    except SPARK_ERRORS:
        return None
    return None if row is None else str(json.loads(row[0])["id"])


def last_planned_batch(spark: SparkSession, checkpoint: str) -> int:
    """Number of the newest micro-batch in the offset log; -1 for none."""
    try:
        names = spark.read.text(f"{checkpoint}/offsets").select(F.input_file_name().alias("name")).distinct().collect()
    except SPARK_ERRORS:
        return -1
    numbers = (row["name"].rpartition("/")[2] for row in names)
    return max((int(number) for number in numbers if number.isdigit()), default=-1)


def planned_end(spark: SparkSession, checkpoint: str, batch: int) -> int:
    """The last version that a micro-batch of a stream from one Delta table reads, all of it. Spark writes where a batch ends before it begins
    (engine facts 19)."""
    path = f"{checkpoint}/offsets/{batch}"
    local = local_path(path)
    lines = local.read_text().splitlines() if local is not None else [row[0] for row in spark.read.text(path).collect()]
    try:
        end = json.loads(lines[-1])
        index = int(end["index"])
    except (ValueError, KeyError, IndexError):
        raise RetryableError(f"{path} is not whole.") from None
    if index >= 0:
        raise RetryableError(f"{path}: the batch ends in the middle of version {end['reservoirVersion']}, {end}.")
    return int(end["reservoirVersion"]) - 1


def goes_on_from(spark: SparkSession, checkpoint: str) -> tuple[int | None, float] | None:
    """The version up to which a stream from one Delta table has certainly read all, and how many seconds ago that was recorded. (0: not known where
    a file's time is not.) None: there is no batch. The last one planned may not be done: it begins where the one before it ends."""
    last = last_planned_batch(spark, checkpoint)
    if last < 0:
        return None
    local = local_path(checkpoint)
    age_s = 0.0 if local is None else now_s() - (local / "offsets" / str(last)).stat().st_mtime
    try:
        return None if last == 0 else planned_end(spark, checkpoint, last - 1), age_s
    except FAULTS:
        return None, age_s


def forget(checkpoint: str) -> None:
    """Remove a checkpoint that nobody needs any more. Where that cannot be done from here it stays."""
    try:
        system, folder = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
        system.delete_dir(folder)
    except (OSError, ValueError) as error:
        log.debug("%s stays: %s", checkpoint, error)
