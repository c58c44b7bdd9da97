"""Many rows of a link on an object store: tasks read them from the source's files and write the target's."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from geo.delta.scan import few_rows
from geo.delta.store import parquet
from geo.delta.table import Table
from geo.log.publish import publish
from geo.replication.link_target import ORDER
from geo.streams.life import State
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3
from tests.world import TOPIC, World

_GIVEN = ("concat('k', id) AS key", "CAST(repeat(CAST(id AS STRING), 9) AS BINARY) AS payload", "map('n', CAST(id AS STRING)) AS properties",
          "if(id % 5 = 0, array('elsewhere'), if(id % 2 = 0, array('eu'), NULL)) AS replicate_to", "timestamp_micros(id) AS event_time")  # fmt: skip


@pytest.mark.spark
def test_many_rows_pass_by_no_plan_of_sparks(
    spark: SparkSession, tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    run, reached = uuid.uuid4(), json.dumps(s3.storage())
    clusters, links = ("eu", "us", "elsewhere"), [("us", "eu"), ("us", "elsewhere")]
    for name in clusters:
        s3.make_bucket(f"{name}-{run}")
    world = World(tmp_path, clusters, links, place=lambda name: f"root: 's3a://{name}-{run}/t', storage: {reached}", spark=spark)

    def published(count: int) -> None:
        given = spark.range(0, count, 1, 2).selectExpr(*_GIVEN)
        publish(given, TOPIC, world.config, "us", producer="p", publish_id=str(count))

    def as_listed(name: str) -> list[dict[str, object]]:
        log = world.log(name)
        found = few_rows(log, log.latest_version())
        assert found is not None
        return sorted(found.to_pylist(), key=lambda row: (row["ledger_id"], row["entry_id"]))

    def refuses(table: Table, first: int, last: int) -> DataFrame:
        raise AssertionError(f"{table} was read by Spark")

    published(10)
    assert world.brought("eu") == (State.STOPPED, 8)
    with monkeypatch.context() as patched:
        patched.setattr("geo.delta.engines.native.rows.MOST_ROWS", 9)
        patched.setattr("geo.replication.running_link.read_added", refuses)
        patched.setattr("geo.delta.tail.read_added", refuses)
        published(300)
        assert world.brought("eu") == (State.STOPPED, 240)
    wanted = [row for row in as_listed("us") if row["replicate_to"] != ["elsewhere"]]
    assert as_listed("eu") == wanted
    log = world.log("eu").log_folder
    assert log is not None
    (last,) = [json.loads(line) for line in (log / f"{2:020}.json").lines() if line.startswith('{"add"')][:1]
    read = parquet(log.parent / last["add"]["path"]).read(list(ORDER[1:])).to_pylist()
    assert read == sorted(read, key=lambda row: tuple(row.values()))
