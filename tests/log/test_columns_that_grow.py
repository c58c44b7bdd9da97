"""A typed topic's columns: any name that Delta takes goes everywhere, others are refused and leave nothing; new ones and wider types come with
rows, by a verb and over links; what does not go together stops the link, and says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField

from geo.cli.main import main
from geo.crash import CrashPoint
from geo.delta.ddl import add_columns
from geo.errors import SchemaError, UsageError
from geo.log.partitioned import create_partitions, grow_topic
from geo.log.publish import publish
from geo.log.publisher import Published, Publisher
from geo.log.source_identity import by_id
from geo.log.topic_log import newest
from geo.log.topics import known_topics
from geo.names import Topic
from geo.ops.erase import erase
from geo.reasons import Reason
from geo.replication.missing import missing_in_steps
from geo.replication.repair import resolve_links
from geo.streams.life import State
from geo.testing import dies_at
from tests.running import running
from tests.waiting import until
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

_NAMES = ("a.b", "a`b", "key.x", "ü-ö", "_first", "_bucket", "bad", "name", "row", "content", "origin_", "'\"\\%s")
"""Names that something in the way could take for something else."""


def _named(world: World, first: int, end: int) -> DataFrame:
    quoted = ["`" + name.replace("`", "``") + "`" for name in _NAMES]
    fields = ", ".join(f"id AS {name}" for name in quoted)
    return world.spark.range(first, end, numPartitions=1).selectExpr(
        *(f"id + {at} AS {name}" for at, name in enumerate(quoted)), f"struct({fields}, 'x' AS _change_type, 1 AS `user-id`) AS s",
        f"map('m', array(struct({fields}))) AS `m.m`", "CAST(CAST(id AS STRING) AS BINARY) AS payload",
    )  # fmt: skip


def _publish(world: World, cluster: str, rows: DataFrame, topic: Topic = TOPIC, **options: Any) -> int:
    done = publish(rows, topic, world.config, cluster, producer=f"of-{cluster}", **options)
    assert isinstance(done, Published)
    return done.rows


def _sql(world: World, cluster: str, sql: str, **options: Any) -> int:
    return _publish(world, cluster, world.spark.sql(sql), **(options or {"publish_id": sql}))


def test_columns_of_any_name_are_published_replicated_compared_looked_at_and_erased(world: World) -> None:
    assert _publish(world, "eu", _named(world, 0, 4), order_by=["a.b", "a`b"], partition_by="key.x") == 4
    assert _publish(world, "eu", _named(world, 0, 6), order_by=["a.b", "a`b"], partition_by="key.x") == 2
    world.settle("us")
    assert world.verify().clean
    eu, us = (world.log(name).read() for name in ("eu", "us"))
    (lacking,) = missing_in_steps(eu, us.where("entry_id > 0"), "compared", 100)
    assert lacking.columns == eu.columns
    assert lacking.count() == us.where("entry_id = 0").count()
    (last,) = newest(world.tables("us"), TOPIC, 1)
    assert set(last["columns"]) == {*_NAMES, "s", "m.m"}
    erase(world.spark, world.config, "eu", TOPIC, "`a.b` = 3")
    erased = world.log("eu").read().where("`a.b` IS NULL").collect()
    assert [(row["a`b"], row["s"], row["m.m"]) for row in erased] == [(None, None, None)]


def test_case_is_as_delta_has_it(world: World) -> None:
    _sql(world, "eu", "SELECT 1 AS Amount, 'k' AS Key")
    _sql(world, "eu", "SELECT 2 AS amount, 'l' AS KEY")
    assert world.log("eu").read().selectExpr("Amount", "key").toArrow().sort_by("Amount").to_pylist() == [
        {"Amount": 1, "key": "k"},
        {"Amount": 2, "key": "l"},
    ]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT 1 AS `order id`", "column 'order id' has a space in its name"),
        ("SELECT 1 AS id, 'insert' AS _Change_Type", "column '_Change_Type' has a name of Delta's change feed"),
        ("SELECT INTERVAL '1' DAY AS i", "column 'i' is interval day"),
        ("SELECT 'a' COLLATE UTF8_LCASE AS c", "column 'c' is string collate UTF8_LCASE"),
        ("SELECT NULL AS n", "column 'n' has no type"),
        ("SELECT 1 AS Key, 2 AS n", "column 'key' is int, the envelope's is string"),
        ("SELECT 1 AS _geo_x, 2 AS n", "column '_geo_x' begins as those of delta-geo's own plans do"),
        ("SELECT 1 AS Origin, 2 AS n", "column 'origin' is filled by delta-geo"),
    ],
)
def test_what_no_log_can_have_is_refused_by_name_and_leaves_nothing(world: World, sql: str, why: str) -> None:
    with pytest.raises(UsageError, match="nothing was published") as refused:
        _sql(world, "eu", sql)
    assert why in str(refused.value)
    assert not world.log("eu").exists()
    assert not known_topics(world.tables("eu"))


def test_a_topic_grows_by_what_is_published_in_all_partitions_and_over_links_and_narrower_rows_go_with_it(world: World) -> None:
    eu, us = world.tables("eu"), world.tables("us")
    parts = create_partitions(eu, TOPIC, 2, world.spark.sql("SELECT 1 AS n, 1 AS id").schema.fields)
    _publish(world, "eu", world.spark.sql("SELECT 1 AS n, 1 AS id"), parts[0], order_by="id")
    world.replicate("us")
    rows = world.spark.sql("SELECT * FROM VALUES (1L, 1, NULL), (3000000000L, 2, TIMESTAMP_NTZ'2026-01-01') AS (n, id, at)")
    with pytest.raises(UsageError, match=r"column 'n' is bigint, the topic's is int[^\n]*\n- column 'at' is not in the topic"):
        _publish(world, "eu", rows, parts[0], order_by="id")
    assert _publish(world, "eu", rows, parts[0], order_by="id", schema="grow") == 1, "what was published hashes as before"
    wider = rows.selectExpr("CAST(n AS DECIMAL(20,0)) AS n", "id", "at")
    assert _publish(world, "eu", wider, parts[0], order_by="id", schema="grow") == 0, "also what came while it was narrower"
    assert _publish(world, "eu", rows, parts[0], order_by="id") == 0
    wanted = "struct<n:decimal(20,0),id:int,at:timestamp_ntz>"
    own = [eu.log(one).read().select("n", "id", "at").schema.simpleString() for one in parts]
    assert own == [wanted, wanted]
    narrow = world.spark.sql("SELECT 5S AS n, 9 AS id")
    assert _publish(world, "us", narrow, parts[0], order_by="id") == 1, "us has not seen the wider type"
    world.run_links("us", "eu")
    assert _publish(world, "us", narrow, parts[0], order_by="id") == 0, "it has, and takes narrower values as before"
    assert us.log(parts[0]).read().select("n", "id", "at").schema.simpleString() == wanted
    assert sorted(row["n"] for row in us.log(parts[0]).read().collect()) == [1, 5, 3_000_000_000]
    assert world.verify().clean


@pytest.mark.parametrize("queries", [False, True])
def test_a_link_that_runs_brings_what_a_source_got_meanwhile(world: World, *, queries: bool) -> None:
    _sql(world, "us", "SELECT 1 AS n")
    with running(world, "eu", queries=queries):
        until(lambda: world.count("eu") == 1)
        _sql(world, "us", "SELECT 3000000000L AS n, 'x' AS more", publish_id="2", schema="grow")
        until(lambda: world.count("eu") == 2)
    assert {(row["n"], row["more"]) for row in world.log("eu").read().collect()} == {(1, None), (3_000_000_000, "x")}
    assert world.verify().clean


@pytest.mark.parametrize("queries", [False, True])
def test_who_runs_while_others_make_a_column_wider_goes_on(world: World, *, queries: bool) -> None:
    rows = world.spark.sql("SELECT 1 AS n")
    _publish(world, "us", rows, publish_id="1")
    publisher = Publisher(world.tables("us"), world.config, TOPIC, "of-us").open(rows.schema)
    with running(world, "eu", queries=queries):
        until(lambda: world.count("eu") == 1)
        for name in ("eu", "us"):
            grow_topic(world.tables(name), TOPIC, [StructField("n", LongType())])
        publisher.publish(rows, by_id("2"))
        until(lambda: world.count("eu") == 2)
    publisher.close()
    assert _publish(world, "us", rows, publish_id="2") == 0
    assert [row["n"] for row in world.log("eu").read().collect()] == [1, 1]
    assert world.verify().clean


def test_a_type_that_two_want_otherwise_is_the_first_ones_in_all_partitions(world: World) -> None:
    """As of two that looked before either had it: here the first one stops when the first partition has its column."""
    tables = world.tables("eu")
    parts = create_partitions(tables, TOPIC, 3, world.spark.sql("SELECT 1 AS n").schema.fields)
    number, text = ([StructField("x", kind)] for kind in (LongType(), StringType()))
    with dies_at(CrashPoint.COLUMNS_ADDED):
        grow_topic(tables, TOPIC, number)
    assert ["x" in tables.log(one).read().columns for one in parts] == [True, False, False]
    with pytest.raises(SchemaError, match="column 'x' is string as asked for and bigint there"):
        add_columns(tables.log(parts[0]), text)
    with pytest.raises(UsageError, match="bigint in clicks-partition-0"):
        grow_topic(tables, parts[2], text)
    rows = world.spark.sql("SELECT 1 AS n, 1L AS x")
    assert _publish(world, "eu", rows, parts[0], publish_id="1", schema="grow") == 1
    assert [tables.log(one).read().schema["x"].dataType for one in parts] == [LongType()] * 3, "who comes next does the rest"


def test_a_partition_of_a_bytes_topic_takes_rows_though_topics_may_grow(world: World) -> None:
    part, _ = create_partitions(world.tables("eu"), TOPIC, 2)
    assert _sql(world, "eu", "SELECT 'k' AS key, CAST('v' AS BINARY) AS payload", topic=part, publish_id="1", schema="grow") == 1


def test_a_column_is_added_by_a_verb_in_all_partitions_or_in_none(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    tables = world.tables("eu")
    parts = create_partitions(tables, TOPIC, 2, world.spark.sql("SELECT 1 AS n").schema.fields)
    add = ["topics", "set", "--config", str(world.path), "--cluster", "eu", "--topic", str(TOPIC), "--add-columns"]
    assert main([*add, "`gate.no` STRING, n BIGINT"]) == 0
    assert capsys.readouterr().out.count("in eu: has now `gate.no` string, `n` bigint") == 2
    assert main([*add, "`gate.no` STRING"]) == 0
    before = [tables.log(one).latest_version() for one in parts]
    assert main([*add, "more INT, n STRING"]) == 2
    assert "column 'n' is string as asked for and bigint in clicks-partition-0. Nothing was changed" in capsys.readouterr().err
    assert main([*add, "`a b` INT"]) == 2
    assert [tables.log(one).latest_version() for one in parts] == before


def test_a_type_that_does_not_go_with_the_targets_fails_the_link_until_a_person_accepts_it(world: World) -> None:
    _sql(world, "eu", "SELECT 1 AS Amount, 1 AS n")
    _sql(world, "us", "SELECT '12' AS amount, '7' AS n")
    reason = world.fails(
        "eu",
        "the columns 'amount' in us and 'Amount' in",
        "column 'n' is string in us and int in",
        "geo links resolve --accept-type",
    )
    assert "Nothing was written" in reason
    assert world.link_state("eu", "us").reason_code is Reason.COLUMNS
    assert resolve_links(world.spark, world.config, "us", "eu")[1], "who does not say so accepts no type"
    done, not_done = resolve_links(world.spark, world.config, "us", "eu", accept_type=True)
    assert ([one.appended for one in done], not_done) == ([1], {})
    _sql(world, "us", "SELECT '13' AS amount, '8' AS n")
    assert world.brought("eu") == (State.STOPPED, 1), "it stays accepted"
    assert {(row["Amount"], row["n"]) for row in world.log("eu").read().collect()} == {(1, 1), (12, 7), (13, 8)}
    assert [one.findings for one in world.verify().links if one.link == "us->eu"] == [()]
    _sql(world, "us", "SELECT '012' AS amount, '8' AS n")
    world.fails("eu", "of message us:", "is string and not exactly any int", "geo erase")
    assert world.count("eu") == 3


def test_a_link_that_denies_them_brings_no_columns(world: World) -> None:
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "schema_updates": "deny"}])
    _sql(world, "us", "SELECT 1 AS n")
    assert world.brought("eu") == (State.STOPPED, 1), "a topic that is not there is made"
    _sql(world, "us", "SELECT 1 AS n, 2 AS more", publish_id="2", schema="grow")
    world.fails("eu", "us has other columns than", "`more` int", "schema_updates: deny", "geo topics set --add-columns")
    add = ["topics", "set", "--config", str(world.path), "--cluster", "eu", "--topic", str(TOPIC), "--add-columns", "more INT"]
    assert main(add) == 0
    assert world.brought("eu") == (State.STOPPED, 1)
