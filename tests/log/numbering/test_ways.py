"""What is written is what was counted, whatever Spark computes; and what a row contains, as one number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.delta import small_batch
from geo.errors import UnsafeError
from geo.log import source_identity
from geo.log.ledgers import SourceEnd
from geo.log.numbering.tallies import Rejected
from geo.log.publisher import Publisher
from geo.log.source_identity import HASH, by_columns, by_order
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

PLANNED = [("a", number) for number in range(10)] + [("b", number) for number in range(5)]
"""Gate and number of each row, beside one that is rejected."""

OTHER = {
    "more": [*PLANNED, ("a", 10)],
    "fewer": PLANNED[:-1],
    "a ledger less": PLANNED[:10],
    "a ledger more": [*PLANNED, ("c", 0)],
    "as many, one beyond the end": [*PLANNED[:-1], ("b", 5)],
}


def _rows(spark: SparkSession, path: Path) -> DataFrame:
    """Rows that are computed from a file each time anew."""
    place = str(path)

    def read(blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in blocks:
            gates, numbers = zip(*json.loads(Path(place).read_text()), strict=True)
            yield pa.record_batch({"gate": pa.array(gates), "number": pa.array(numbers, pa.int64())})

    schema = "gate STRING, number BIGINT"
    rows = spark.range(1, numPartitions=1).mapInArrow(read, schema).withColumn("key", F.concat("gate", "number"))
    return rows.withColumn("_geo_error", F.when(F.expr("gate = 'a' AND number = 0"), "rejected"))


def test_rows_that_are_other_ones_when_they_are_written_publish_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark loses what it has cached between counting and writing, and the source says something else."""
    monkeypatch.setattr(small_batch, "FEW", 0)
    world.leave_to_spark("eu")
    source = world.folder / "source.json"
    source.write_text(json.dumps(PLANNED))
    rows = _rows(world.spark, source)
    publisher = Publisher(world.tables("eu"), world.config, TOPIC, "p").open(rows.schema, {"gate", "number"})
    identity = by_columns("gate", "number")
    for other in [*OTHER.values(), PLANNED]:
        source.write_text(json.dumps(PLANNED))

        def changed(_: list[Rejected], other: list[tuple[str, int]] = other) -> None:
            source.write_text(json.dumps(other))
            world.spark.catalog.clearCache()

        if other is PLANNED:
            assert publisher.publish(rows, identity, changed).rows == 14, "computed again, to the same rows"
        else:
            with pytest.raises(UnsafeError, match=r"other rows than before.* Nothing of it was published.*checkpoint"):
                publisher.publish(rows, identity, changed)
            assert world.log("eu").read().isEmpty()
    publisher.close()
    found = world.log("eu").read().selectExpr("left(key, 1) AS gate", "ledger_id", "entry_id", "substr(key, 2) AS number")
    by_gate: dict[str, list[tuple[int, str]]] = {}
    for row in found.orderBy("ledger_id", "entry_id").collect():
        by_gate.setdefault(row["gate"], []).append((row["entry_id"], row["number"]))
    assert by_gate == {"a": [(n, str(n + 1)) for n in range(9)], "b": [(n, str(n)) for n in range(5)]}
    assert found.select("ledger_id").distinct().count() == 2, "ledgers that were opened for nothing are used after all"


def test_rows_that_are_held_in_files_are_published_as_they_were_counted(world: World) -> None:
    source = world.folder / "source.json"
    source.write_text(json.dumps(PLANNED))
    rows = _rows(world.spark, source)
    publisher = Publisher(world.tables("eu"), world.config, TOPIC, "p").open(rows.schema, {"gate", "number"})

    def changed(_: list[Rejected]) -> None:
        source.write_text(json.dumps(OTHER["more"]))

    assert publisher.publish(rows, by_columns("gate", "number"), changed).rows == 14
    publisher.close()
    found = sorted(row["key"] for row in world.log("eu").read().collect())
    assert found == sorted(f"{gate}{number}" for gate, number in PLANNED[1:])
    assert not list(Path(world.config.cluster("eu").checkpoints).rglob("*.arrow"))


def test_a_hash_is_of_all_that_gets_into_the_log_and_of_nothing_else(spark: SparkSession) -> None:
    base = {
        "number": "1L",
        "key": "'k'",
        "payload": "X'00FF'",
        "properties": "map('a', '1', 'b', CAST(NULL AS STRING))",
        "tree": "named_struct('leaves', array(map(1, map('x', 1.5D)), NULL), 'none', CAST(NULL AS MAP<STRING, INT>))",
        "shape": "parse_json('{\"a\": 1}')",
        "note": "CAST(NULL AS STRING)",
    }

    def hashed(**changes: str) -> int:
        rows = spark.sql("SELECT " + ", ".join(f"{value} AS {name}" for name, value in {**base, **changes}.items() if value))
        identity = by_order(rows, ["number"], None)
        found: int = identity.tag(rows, rows.drop("number").schema).collect()[0][HASH]
        return found

    same = [
        {"properties": "map('b', CAST(NULL AS STRING), 'a', '1')"},  # a map has no order
        {"number": "CAST(1 AS INT)"},  # the same order, as it is recorded
        {"note": ""},  # a column that the log did not have then
        {"shape": "parse_json('{ \"a\" : 1 }')"},
    ]
    assert {hashed(**changes) for changes in [{}, *same]} == {hashed()}
    other = [
        {"number": "2L"},
        {"key": "NULL", "note": "'k'"},  # the same value elsewhere
        {"payload": "X'00FE'"},
        {"properties": "map('a', '1')"},
        {"tree": base["tree"].replace("1.5D", "2.5D")},
        {"tree": base["tree"].replace("map('x', 1.5D)", "map('y', 1.5D)")},
        {"shape": "parse_json('{\"a\": 2}')"},
    ]
    assert len({hashed(), *(hashed(**changes) for changes in other)}) == 1 + len(other)


@pytest.mark.parametrize("length", [10, source_identity.SHORT_NAME + 1, 60_000])
def test_a_row_below_the_end_of_its_source_is_published_however_long_the_name(spark: SparkSession, length: int) -> None:
    """Spark's parser of JSON takes no long names, and what it cannot parse would be no end."""
    name = '"' + "ü" * length
    rows = spark.createDataFrame([(name, 4), (name, 5), (name, None), ("other", 1)], "gate STRING, number BIGINT")
    identity = by_columns("gate", "number", {name: "m"})
    ends = {name: SourceEnd(identity.encode(name, ["4"]), 5, 0), "another": SourceEnd(identity.encode("another", ["9"]), 10, 0)}
    marked = identity.mark_published(spark, identity.tag(rows, rows.schema), ends)
    found = {(row["gate"] == name, row["number"]): row["_geo_published"] for row in marked.collect()}
    assert found == {(True, 4): True, (True, 5): False, (True, None): True, (False, 1): False}
