"""A Delta table that is published into a typed topic: each row once in both regions, through any crash, with columns that come."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField

from geo.config.publication import Publication
from geo.crash import CrashPoint
from geo.errors import SourceChangedError, UsageError
from geo.log.partitioned import grow_topic
from geo.log.publish_stream import SourceStream
from geo.names import Topic
from geo.testing import crash_points, dies_at
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def _add(world: World, first: int, end: int, **more: Any) -> None:
    """Rows `first` to `end` - 1 in one commit, with these values in further columns."""
    numbers = range(first, end)
    rows = {
        "id": pa.array(numbers, pa.int64()),
        "item": [{"name": f"n{n}", "tags": ["a", str(n)], "by": [("x", n)]} for n in numbers],
    }
    item = pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string())), ("by", pa.map_(pa.string(), pa.int64()))])
    rows["item"] = pa.array(rows["item"], item)
    write_deltalake(
        str(world.folder / "orders"),
        pa.table({**rows, **{k: [v] * len(numbers) for k, v in more.items()}}),
        mode="append",
        schema_mode="merge",
    )


def _publish(world: World, topic: Topic = TOPIC, **of: Any) -> SourceStream:
    accept = {name: of.pop(name) for name in ("batch_bytes", "accept_lost") if name in of}
    return world.published(Publication("eu", topic, delta=str(world.folder / "orders"), **of), **accept)


def _held(world: World, cluster: str, topic: Topic = TOPIC, *columns: str) -> list[tuple[Any, ...]]:
    rows = world.log(cluster, topic).read().select("entry_id", "id", *columns).orderBy("entry_id")
    return [tuple(row)[1:] for row in rows.collect()]


def _not_in(table: DataFrame, log: DataFrame, *columns: str) -> list[int]:
    """Ids of those rows of a log that are not in the table."""
    here, there = (one.selectExpr("id", f"to_json(struct({', '.join(columns)})) AS row") for one in (log, table))
    return [row["id"] for row in here.exceptAll(there).collect()]


def test_rows_with_nested_columns_are_in_both_regions_as_they_are_in_the_table(world: World, spark: SparkSession) -> None:
    _add(world, 0, 4_000)
    assert _publish(world, key="id").published.rows == 4_000
    _add(world, 4_000, 4_010)
    _add(world, 4_010, 4_020, price=1.5)
    done = _publish(world, key="id").published
    assert (done.rows, done.commits) == (20, 2)
    world.settle("us")
    table = spark.read.format("delta").load(str(world.folder / "orders"))
    assert _not_in(table, world.log("us").read().where("key = CAST(id AS STRING)"), "id", "item", "price") == []
    assert [row[0] for row in _held(world, "us")] == list(range(4_020)), "in the order of its commits"


def test_a_bytes_topic_takes_no_columns_and_one_that_a_column_no_longer_fits_keeps_what_came_before(world: World) -> None:
    _add(world, 0, 2)
    world.write("eu", 0, 1, topic=(bytes_topic := Topic.parse("persistent://shop/web/bytes")))
    with pytest.raises(UsageError, match="column 'id' is not in the topic, which is a bytes topic"):
        _publish(world, bytes_topic)
    _publish(world)
    _add(world, 2, 3)
    _add(world, 3, 4, origin="mine")
    with pytest.raises(UsageError, match="column 'origin' is filled by delta-geo; rename yours"):
        _publish(world)
    assert _held(world, "eu") == [(0,), (1,), (2,)]


def test_what_a_table_gets_a_topic_gets_and_a_fixed_one_gets_by_a_person_only(world: World, spark: SparkSession) -> None:
    place = f"delta.`{world.folder / 'orders'}`"
    spark.sql(f"CREATE TABLE {place} (id INT, n INT) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql(f"INSERT INTO {place} VALUES (0, 0)")
    assert _publish(world).published.rows == 1
    grow_topic(world.tables("eu"), TOPIC, [StructField("id", LongType())])
    spark.sql(f"INSERT INTO {place} VALUES (1, 1)")
    assert _publish(world).published.rows == 1, "what is narrower than the topic's goes with it"
    spark.sql(f"ALTER TABLE {place} ALTER COLUMN n TYPE BIGINT")
    spark.sql(f"ALTER TABLE {place} ADD COLUMNS (more STRING)")
    spark.sql(f"INSERT INTO {place} VALUES (2, 3000000000, 'x')")
    with pytest.raises(UsageError, match=r"column 'n' is bigint[^\n]*\n- column 'more' is not in the topic[^\n]*--add-columns`"):
        _publish(world, schema="fixed")
    assert len(_held(world, "eu")) == 2
    assert _publish(world).published.rows == 1
    assert _publish(world, schema="fixed").published.rows == 0
    world.replicate("us")
    assert _held(world, "us", TOPIC, "n", "more") == [(0, 0, None), (1, 1, None), (2, 3_000_000_000, "x")]
    assert world.verify().clean


def test_what_a_merge_inserted_is_published_by_the_change_feed(world: World, spark: SparkSession) -> None:
    _add(world, 0, 4)
    place = f"delta.`{world.folder / 'orders'}`"
    spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    assert _publish(world).published.rows == 4
    new = "SELECT id + 2 AS id, named_struct('name', 'new', 'tags', array('z'), 'by', map('y', id)) AS item FROM range(4)"
    spark.sql(
        f"MERGE INTO {place} t USING ({new}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    with pytest.raises(SourceChangedError, match=r"a MERGE .*changed or deleted rows"):
        _publish(world)
    assert _publish(world, only_inserts=True).published.rows == 2
    assert sorted(_held(world, "eu", TOPIC, "item.name"))[4:] == [(4, "new"), (5, "new")]


def test_columns_with_other_names_in_files_are_read_and_rows_that_were_deleted_one_by_one_only_passed_over(
    world: World, spark: SparkSession
) -> None:
    place = f"delta.`{world.folder / 'orders'}`"
    properties = "delta.columnMapping.mode = 'name', delta.enableDeletionVectors = true"
    columns = "id BIGINT, item STRUCT<name: STRING, tags: ARRAY<STRUCT<t: INT>>, by: MAP<STRING, INT>>, day DATE"
    spark.sql(f"CREATE TABLE {place} ({columns}) USING delta PARTITIONED BY (day) TBLPROPERTIES ({properties})")
    item = "named_struct('name', concat('n', id), 'tags', array(named_struct('t', int(id))), 'by', map('y', int(id)))"

    def insert(first: int, end: int) -> None:
        spark.sql(f"INSERT INTO {place} SELECT id, {item}, DATE'2026-11-30' FROM range({first}, {end}, 1, 1)")

    insert(0, 4)
    assert _publish(world).published.rows == 4
    spark.sql(f"DELETE FROM {place} WHERE id = 1")
    insert(4, 6)
    assert _publish(world, only_inserts=True).published.rows == 2
    table = spark.read.format("delta").load(str(world.folder / "orders"))
    assert _not_in(table, world.log("eu").read(), "id", "item", "day") == [1]
    with pytest.raises(UsageError, match=r"deletion vectors.*REORG TABLE"):
        _publish(world, producer="anew")


@pytest.mark.parametrize("point", crash_points("publish-", "columns-"), ids=lambda p: p.value)
def test_one_that_stops_here_goes_on_where_it_was(world: World, point: CrashPoint) -> None:
    _add(world, 0, 5)
    if point is CrashPoint.COLUMNS_ADDED:
        _publish(world)
        _add(world, 5, 7)
        _add(world, 7, 9, price=1.5)
    with dies_at(point):
        _publish(world, batch_bytes=1)
    _add(world, 9, 12, price=2.5)
    _publish(world)
    expected = [*range(9 if point is CrashPoint.COLUMNS_ADDED else 5), *range(9, 12)]
    assert sorted(row[0] for row in _held(world, "eu")) == expected
    assert _publish(world).published.rows == 0
    world.settle("us")
