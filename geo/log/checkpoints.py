"""What a streaming checkpoint says of itself, read with Spark so that it works on every storage. Read only."""

from __future__ import annotations

import json

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def checkpoint_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id Spark gave the checkpoint; None if there is none, or it lost its metadata."""
    try:
        row = spark.read.text(f"{checkpoint}/metadata").first()
    except PySparkException:
        return None
    return None if row is None else str(json.loads(row[0])["id"])


def last_planned_batch(spark: SparkSession, checkpoint: str) -> int:
    """Number of the newest micro-batch in the offset log; -1 for none."""
    try:
        names = spark.read.text(f"{checkpoint}/offsets").select(F.input_file_name().alias("name")).distinct().collect()
    except PySparkException:
        return -1
    numbers = (row["name"].rpartition("/")[2] for row in names)
    return max((int(number) for number in numbers if number.isdigit()), default=-1)
