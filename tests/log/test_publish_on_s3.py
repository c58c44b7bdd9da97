"""What one call of `publish` asks an object store."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.delta import held_files
from geo.delta.scan import few_rows
from geo.log.publish import publish
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3
from tests.world import TOPIC, World

MOST = 40
"""Requests of a call in a session that is warm, for a few rows, with another region that has the topic."""


@pytest.mark.spark
def test_a_call_for_a_few_rows_asks_for_no_more_than_is_said(
    spark: SparkSession, tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    monkeypatch.setattr(held_files, "FRESH_S", 60.0)  # of a machine that is busy too
    run, reached = uuid.uuid4(), json.dumps(s3.storage())
    for name in ("eu", "us"):
        s3.make_bucket(f"{name}-{run}")
    world = World(
        tmp_path, links=[("us", "eu")], place=lambda name: f"root: 's3a://{name}-{run}/t', storage: {reached}", spark=spark
    )
    rows = spark.createDataFrame([{"key": f"k{n}"} for n in range(10)], "key STRING").coalesce(1)

    def asked(publish_id: str, producer: str = "p") -> int:
        before = s3.counts()
        publish(rows, TOPIC, world.config, "us", producer=producer, publish_id=publish_id)
        return (s3.counts() - before).total()

    asked("first")
    world.replicate("eu")
    asked("second")
    found = [asked("third"), asked("fourth"), asked("fifth", "another")]
    assert max(found) <= MOST, found
    log = world.log("us")
    published = few_rows(log, log.latest_version())
    assert published is not None
    assert len(published) == 50
