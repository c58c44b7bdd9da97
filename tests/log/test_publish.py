"""Publishing as users do it: what identifies a row, what is refused and why, and what the log then holds."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField

import geo.log.publish as publish_module
from geo.crash import CrashPoint
from geo.delta import small_batch
from geo.delta.ddl import add_columns, set_property
from geo.errors import AlreadyOwnedError, RetryableError, SchemaError, SourceChangedError, UnsafeError, UsageError
from geo.log.admission import own_columns
from geo.log.publish import publish
from geo.log.publish_stream import PublishStream
from geo.log.publisher import Published, Publisher
from geo.log.source_identity import by_order
from geo.log.sources import jsonl
from geo.log.sources.source import Position
from geo.log.topic_log import user_columns
from geo.log.topics import ensure_topic
from geo.names import Topic
from geo.testing import dies_at
from geo.times import FIRST_US
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def _publish(world: World, rows: DataFrame, **options: object) -> Published:
    done = publish(rows, TOPIC, world.config, "eu", **options)  # type: ignore[arg-type]
    assert isinstance(done, Published)
    return done


def _ledgers(world: World) -> list[tuple[object, int, int, int]]:
    """Of each ledger of the log: replicate_to, first and last entry, number of entries."""
    found = world.log("eu").read().groupBy("ledger_id", "replicate_to").agg(
        F.min("entry_id").alias("first"), F.max("entry_id").alias("last"), F.count("*").alias("entries")
    )  # fmt: skip
    return sorted(((r["replicate_to"], r["first"], r["last"], r["entries"]) for r in found.collect()), key=str)


# -- identity ------------------------------------------------------------------------------------------------------------


def test_rows_without_an_identity_or_under_a_name_of_ours_are_refused_and_nothing_is_made(world: World) -> None:
    with pytest.raises(UsageError, match="no identity"):
        _publish(world, world.rows(0, 5))
    with pytest.raises(UsageError, match="geo-markers is delta-geo itself"):
        _publish(world, world.rows(0, 5), order_by="number", producer="geo-markers")
    assert not world.log("eu").exists()


def test_order_columns_identify_rows(world: World) -> None:
    assert _publish(world, world.rows(0, 5), order_by="number").rows == 5
    again = _publish(world, world.rows(0, 8), order_by="number")
    assert (again.rows, again.already_published) == (3, 5)
    with pytest.raises(SourceChangedError, match="published 8 rows up to order"):
        _publish(world, world.rows(0, 20).where("number % 2 = 0"), order_by="number")
    with pytest.raises(UsageError, match=r"two rows have the same order columns \('19'\), so"):
        _publish(world, world.rows(0, 20).unionAll(world.rows(19, 20)), order_by="number")
    tuesday = world.rows(0, 8).withColumn("payload", F.expr("if(number = 3, encode('another file', 'UTF-8'), payload)"))
    with pytest.raises(SourceChangedError, match=r"published 8 rows .* now has other rows up to there, as many\. Nothing was"):
        _publish(world, tuesday, order_by="number")
    with pytest.raises(SourceChangedError, match="other rows up to there"):
        _publish(world, world.rows(0, 8).withColumn("number", F.expr("if(number = 3, -3, number)")), order_by="number")
    assert _publish(world, world.rows(0, 8).repartition(3), order_by="number").rows == 0, "in whatever order they come"
    assert _ledgers(world) == [(None, 0, 7, 8)]
    keys = world.log("eu").read().orderBy("entry_id").collect()
    assert [row["key"] for row in keys] == [f"k{i}" for i in range(8)], "in their order"


def test_a_publish_id_publishes_its_rows_once(world: World) -> None:
    assert _publish(world, world.rows(0, 5), publish_id="monday").rows == 5
    assert _publish(world, world.rows(0, 5), publish_id="monday").rows == 0
    done = _publish(world, world.rows(0, 4), publish_id="tuesday")
    assert (done.rows, done.commits) == (4, 1)
    assert [entries for *_, entries in _ledgers(world)] == [4, 5]


def test_each_partition_and_each_aim_has_its_own_ledger_without_holes(world: World) -> None:
    rows = world.rows(0, 24).withColumn("gate", F.expr("number % 2")).drop("payload")
    aims = F.expr("CASE number % 3 WHEN 0 THEN array('us') WHEN 1 THEN array('eu', 'us', 'us') ELSE array('eu') END")
    rows = rows.withColumn("replicate_to", aims)
    assert _publish(world, rows, order_by="number", partition_by="gate").rows == 24
    assert _ledgers(world) == [(["us"], 0, 7, 8), (["us"], 0, 7, 8), ([], 0, 3, 4), ([], 0, 3, 4)]
    assert _publish(world, rows, order_by="number", partition_by="gate").rows == 0


_GATES = "CASE number % 4 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN '\u2400' ELSE 'a' END"


def test_null_the_empty_text_and_the_sign_for_null_are_partitions_apart(world: World) -> None:
    rows = world.rows(0, 20).withColumn("gate", F.expr(_GATES))
    assert _publish(world, rows.where("number < 8"), order_by="number", partition_by="gate").rows == 8
    assert _publish(world, rows, order_by="number", partition_by="gate").rows == 12
    assert _publish(world, rows, order_by="number", partition_by="gate").rows == 0
    assert _ledgers(world) == [(None, 0, 4, 5)] * 4


def test_what_an_earlier_version_published_of_null_and_the_empty_text_as_one_goes_on_as_one(world: World) -> None:
    rows = world.rows(0, 20).withColumn("gate", F.expr(_GATES)).where("number % 4 < 2")
    few = rows.where("number < 8")
    publisher = Publisher(world.tables("eu"), world.config, TOPIC, "default").open(few.schema, {"number", "gate"})
    before = by_order(few, ["number"], "gate")
    assert before.source_before is not None
    assert publisher.publish(few, replace(before, source=before.source_before, marks={})).rows == 4
    publisher.close()
    assert _publish(world, few, order_by="number", partition_by="gate").rows == 0
    assert _publish(world, rows, order_by="number", partition_by="gate").rows == 6
    assert _publish(world, rows, order_by="number", partition_by="gate").rows == 0
    assert _ledgers(world) == [(None, 0, 9, 10)]


def _followed(world: World, inbox: Path, more: str = "") -> PublishStream:
    """All rows of a folder as a stream."""
    frame = world.spark.readStream.schema(f"number BIGINT, key STRING, payload BINARY{more}").parquet(str(inbox))
    started = publish(frame.drop("number"), TOPIC, world.config, "eu")
    assert isinstance(started, PublishStream)
    started.await_termination()
    return started


def test_a_stream_goes_on_from_its_checkpoint_and_refuses_to_guess_without_it(world: World) -> None:
    inbox = world.folder / "inbox"

    world.rows(0, 5).write.parquet(str(inbox))
    assert _followed(world, inbox).published.rows == 5
    assert _followed(world, inbox).published.rows == 0
    world.rows(5, 9).write.mode("append").parquet(str(inbox))
    assert _followed(world, inbox).published.rows == 4
    assert _ledgers(world) == [(None, 0, 8, 9)]
    (Path(world.config.cluster("eu").checkpoints) / "publish").rename(world.folder / "away")
    with pytest.raises(UnsafeError, match="no longer at"):
        _followed(world, inbox)
    assert world.count("eu") == 9


def test_a_row_that_cannot_be_published_stops_no_stream(world: World) -> None:
    inbox = world.folder / "inbox"
    bad = "if(number = 2, array('mars'), NULL)"
    world.rows(0, 5).withColumn("replicate_to", F.expr(bad)).write.parquet(str(inbox))
    stream = _followed(world, inbox, ", replicate_to ARRAY<STRING>")
    assert (stream.published.rows, stream.published.rejected) == (4, 1)
    assert stream.rejects_file is not None
    (reject,) = [json.loads(line) for line in Path(stream.rejects_file).read_text().splitlines()]
    assert (reject["stream"], reject["batch"], reject["key"]) == ("stream", 0, "k2")
    assert "replicate_to names mars" in reject["reason"]


def test_every_way_of_numbering_gives_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same batches to a topic each: a few rows held in memory, any number held in files, and by Spark as if they were many."""
    aims = "CASE number % 3 WHEN 0 THEN NULL WHEN 1 THEN array('us') ELSE array() END"
    rows = world.spark.range(0, 60, numPartitions=3).selectExpr(
        "id AS number", "concat('s', id % 4) AS gate", "date_add(DATE'2026-01-31', cast(id / 7 AS int)) AS day",
        "if(id % 5 = 0, NULL, concat('k', id)) AS key", "if(id % 6 = 0, NULL, encode(concat('p', id), 'UTF-8')) AS payload",
        "if(id % 4 = 0, map('a', cast(id AS string)), NULL) AS properties",
        "if(id % 2 = 0, TIMESTAMP'2026-10-25 01:30:00', NULL) AS event_time",
    ).withColumn("replicate_to", F.expr(aims))  # fmt: skip
    topics = {kind: Topic.parse(f"persistent://shop/web/{kind}") for kind in ("few", "files", "spark")}
    for kind, topic in topics.items():
        monkeypatch.setattr(small_batch, "FEW", 2_000 if kind == "few" else 0)
        if kind != "files":
            world.leave_to_spark("eu", topic)
        for batch in (rows.where("number < 25"), rows):
            publish(batch, topic, world.config, "eu", order_by=["day", "number"], partition_by="gate")
        with pytest.raises(UsageError, match=r"two rows have the same order columns \('2026-02-08, 60' of 's3'\), so"):
            more = rows.unionAll(rows.where("number = 59").withColumn("number", F.lit(60).cast("bigint")))
            again = more.unionAll(more.where("number = 60"))
            publish(again, topic, world.config, "eu", order_by=["day", "number"], partition_by="gate")
    logs = {kind: world.log("eu", topic).read().drop("publish_time", "publish_date") for kind, topic in topics.items()}
    lines = {}
    for kind, log in logs.items():
        first = (
            Window.partitionBy("ledger_id").orderBy("entry_id").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        )
        named = log.withColumn("ledger", F.first(F.struct("key", "payload")).over(first))  # a ledger has another id in each
        lines[kind] = sorted(map(str, named.drop("ledger_id").collect()))
    assert lines["few"] == lines["files"] == lines["spark"]
    assert len(lines["few"]) == 60


# -- JSON lines ----------------------------------------------------------------------------------------------------------


def _lines(world: World, path: Path) -> Published:
    return world.publish_lines("eu", path).published


@pytest.mark.parametrize("way", ["here", "by tasks", "by Spark"])
def test_bad_lines_are_listed_and_the_others_are_published(world: World, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "by Spark":
        world.leave_to_spark("eu")
    if way == "by tasks":
        monkeypatch.setattr(jsonl, "FEW_BYTES", -1)
    path = world.folder / "in.jsonl"
    path.write_text('{"key": "a"}\n{broken\n{"key": "b", "replicate_to": ["mars"]}\n\n{"key": "c", "payload": "x"}\n')

    first = world.publish_lines("eu", path)
    assert (first.published.rows, first.published.rejected) == (2, 2)
    assert first.rejects_file is not None
    rejects = [json.loads(line) for line in Path(first.rejects_file).read_text().splitlines()]
    assert [reject["line"] for reject in rejects] == [2, 3]
    assert "not JSON" in rejects[0]["reason"]
    assert "replicate_to names mars" in rejects[1]["reason"]
    assert _lines(world, path) == Published(), "complete: nothing is added, nothing rejected twice"
    assert _lines(world, Path(os.path.relpath(path))) == Published(), "a file is the same however its path is written"
    with path.open("a") as more:
        more.write('{"key": "d"}\n')
    assert _lines(world, path).rows == 1
    assert _ledgers(world) == [(None, 0, 2, 3)]


@pytest.mark.parametrize("way", ["here", "by tasks", "by Spark"])
def test_lines_fill_the_columns_of_a_typed_topic(world: World, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "by tasks":
        monkeypatch.setattr(jsonl, "FEW_BYTES", -1)
    ddl = "id BIGINT, amount DECIMAL(10,2), at TIMESTAMP, local TIMESTAMP_NTZ, tags MAP<STRING, ARRAY<DATE>>"
    own = own_columns(f"{ddl}, anything VARIANT" if way == "by Spark" else ddl, lambda: world.spark)
    ensure_topic(world.tables("eu"), TOPIC, own)
    if way == "by Spark":
        world.leave_to_spark("eu")
    path = world.folder / "in.jsonl"
    path.write_text(
        '{"key": "a", "id": 1, "amount": 12.5, "at": "0001-01-01T00:00:00Z", "local": "9999-12-31T23:59:59"}\n'
        '{"key": "b", "id": "2", "tags": {"x": ["2013-01-01", null]}}\n{"key": "c", "amount": 1.005}\n{"key": "d", "anything": 1}\n'
    )
    done = world.publish_lines("eu", path)
    assert (done.published.rows, done.published.rejected) == (2, 2)
    assert done.first_reject is not None
    assert done.first_reject.endswith(
        "in.jsonl, line 3: amount has more than 2 digits behind the point, and the column is DECIMAL(10,2)"
    )
    names = ["key", "id", "CAST(amount AS STRING)", "unix_micros(at)", "CAST(local AS STRING)", "to_json(tags)"]
    assert [tuple(row) for row in world.log("eu").read().orderBy("key").selectExpr(*names).collect()] == [
        ("a", 1, "12.50", FIRST_US, "9999-12-31 23:59:59", None),
        ("b", 2, None, None, None, '{"x":["2013-01-01",null]}'),
    ]
    if way != "here":
        return
    add_columns(world.log("eu"), [StructField("more", StringType())])
    path.write_text(path.read_text() + '{"key": "e", "more": "m"}\n')
    with monkeypatch.context() as before:  # as if the column had come a moment later
        before.setattr(
            publish_module, "user_columns", lambda columns: [one for one in user_columns(columns) if one.name != "more"]
        )
        with pytest.raises(RetryableError, match="has other columns now"):
            world.publish_lines("eu", path)
    assert _lines(world, path).rows == 1


def test_a_note_that_is_lost_or_of_another_time_repeats_and_skips_nothing(world: World) -> None:
    path = world.folder / "in.jsonl"
    path.write_text('{"key": "a"}\n')
    assert _lines(world, path) == Published(rows=1, commits=1)
    checkpoints = Path(world.config.cluster("eu").checkpoints)
    assert list(checkpoints.rglob("position.json")) == [], "what is published says where reading goes on"
    path.write_text('{"key": "a"}\n\n')
    assert _lines(world, path) == Published()
    (note,) = checkpoints.rglob("position.json")
    before = note.read_text()
    for lost in (None, "", "{", '{"position": 3}', "[]"):
        note.unlink() if lost is None else note.write_text(lost)
        assert _lines(world, path) == Published(), "read again behind what is published"
    path.write_text('{"key": "a"}\n\n{"key": "b"}\n')
    assert _lines(world, path).rows == 1
    note.write_text(before)  # an older one
    assert _lines(world, path) == Published()
    assert sorted(row["key"] for row in world.log("eu").read().collect()) == ["a", "b"]


def test_a_file_that_is_replaced_after_a_crash_is_found_out(world: World) -> None:
    """Killed after the commit, before anything is noted of it: what is published says itself what was read."""
    path = world.folder / "in.jsonl"
    path.write_text('{"key": "old0"}\n{"key": "old1"}\n{"key": "old2"}\n')
    with dies_at(CrashPoint.PUBLISH_AFTER_APPEND):
        _lines(world, path)
    path.write_text("".join(f'{{"key": "new{number}"}}\n' for number in range(5)))
    for _ in range(2):
        with pytest.raises(SourceChangedError, match="was changed below line 4"):
            _lines(world, path)
    path.write_text('{"key": "old0"}\n{"key": "old1"}\n{"key": "old2"}\n{"key": "old3"}\n')
    assert _lines(world, path) == Published(rows=1, commits=1)
    assert sorted(row["key"] for row in world.log("eu").read().collect()) == ["old0", "old1", "old2", "old3"]


def test_lines_and_frames_of_one_producer_are_no_matter_to_each_other(world: World) -> None:
    by_time = world.rows(0, 3).withColumn("at", F.expr("timestamp_seconds(number)")).drop("number")
    assert _publish(world, by_time, order_by="at").rows == 3
    path = world.folder / "in.jsonl"
    path.write_text('{"key": "a"}\n')
    assert _lines(world, path).rows == 1


@pytest.mark.parametrize("few_bytes", [jsonl.FEW_BYTES, -1])
def test_what_a_task_raises_arrives_as_it_was_raised(world: World, monkeypatch: pytest.MonkeyPatch, few_bytes: int) -> None:
    """A file that is cut after the batch was planned, read by this process and by a task."""
    monkeypatch.setattr(jsonl, "FEW_BYTES", few_bytes)
    path = world.folder / "in.jsonl"
    path.write_text('{"key": "a"}\n' * 3)
    spans = jsonl.JsonLinesReader.spans

    def cut(reader: jsonl.JsonLinesReader, start: Position, end: Position) -> list[jsonl.FileSpan]:
        found = spans(reader, start, end)
        path.write_text("")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(jsonl.JsonLinesReader, "spans", cut)
        with pytest.raises(SourceChangedError, match="ends at byte 0, it was 39 bytes long"):
            _lines(world, path)
    path.write_text('{"key": "a"}\n' * 3)
    assert _lines(world, path).rows == 3


def test_a_crash_between_many_sources_leaves_nothing_out(world: World) -> None:
    """Each file is a source with a ledger of its own, opened batch by batch: the record must never run ahead of the log."""
    folder = world.folder / "in"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.jsonl").write_text(f'{{"key": "{number}a"}}\n{{"key": "{number}b"}}\n')

    for nth in (3, 1):
        with dies_at(CrashPoint.PUBLISH_LEDGERS_OPENED, nth):
            world.publish_lines("eu", folder, batch_bytes=1)
    world.publish_lines("eu", folder, batch_bytes=1)
    assert _ledgers(world) == [(None, 0, 1, 2)] * 4
    assert sorted(row["key"] for row in world.log("eu").read().collect()) == [f"{n}{x}" for n in range(4) for x in "ab"]


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("payload", "cast(repeat('x', 5 * 1024 * 1024 + 1) AS binary)", "payload has 5242881 bytes, the limit is 5242880"),
        ("properties", "map('a', repeat('x', 1024 * 1024))", "key and properties have 1048"),
        ("replicate_to", "array('mars')", "replicate_to names mars: from eu this topic reaches us"),
        ("replicate_to", "array('us', cast(null AS string))", "has a null in it"),
        ("key", "1", "column 'key' is int, the envelope's is string"),
        ("origin", "'eu'", "column 'origin' is filled by delta-geo"),
    ],
)
def test_what_cannot_be_published_refuses_the_whole_dataframe(world: World, column: str, value: str, reason: str) -> None:
    rows = world.rows(0, 3).withColumn(column, F.expr(value))
    with pytest.raises(UsageError, match="othing was published") as error:
        _publish(world, rows, order_by="number")
    assert reason in str(error.value)
    assert world.count("eu") == 0


def test_a_typed_topic_keeps_its_columns_and_refuses_others(world: World) -> None:
    crew = "named_struct('size', id, 'since', array(TIMESTAMP_NTZ'2026-01-02 03:04:05', NULL)) AS crew"
    local = "TIMESTAMP_NTZ'2026-01-02 03:04:05.678901' AS local"
    rows = world.spark.range(4).selectExpr(
        "id AS flight", "cast(id * 1.5 AS DECIMAL(9, 2)) AS fare", "array(id) AS legs", crew, local
    )
    _publish(world, rows, order_by="flight")
    assert_df_equality(world.log("eu").read().select(*rows.columns), rows, ignore_row_order=True, ignore_nullable=True)
    with pytest.raises(
        UsageError, match="column 'seats' is not in the topic, which has the columns flight, fare, legs, crew, local"
    ):
        _publish(world, rows.withColumn("seats", F.lit(1)), order_by="flight")
    with pytest.raises(UsageError, match=r"column 'fare' is double, the topic's is decimal\(9,2\)"):
        _publish(world, rows.withColumn("fare", F.lit(1.0)), order_by="flight")
    world.replicate("us")
    replica, own = (world.log(name).read().drop("properties") for name in ("us", "eu"))  # maps have no order to sort by
    assert_df_equality(replica, own, ignore_row_order=True)
    other_engine = DeltaTable(world.log("us").name).to_pyarrow_table(columns=["flight", "entry_id"]).to_pylist()
    assert sorted(row["flight"] for row in other_engine) == [0, 1, 2, 3], "delta-rs reads what the JVM wrote"


def test_a_foreign_table_and_a_newer_version_are_refused(world: World) -> None:
    log = world.log("eu")
    world.rows(0, 1).write.format("delta").save(log.name)
    with pytest.raises(SchemaError, match="is not a topic-log of delta-geo"):
        _publish(world, world.rows(0, 3), order_by="number")
    set_property(log, "geo.table", "topic-log")
    set_property(log, "geo.schema.version", "3")
    with pytest.raises(SchemaError, match="has schema version '3', this program knows up to 2"):
        _publish(world, world.rows(0, 3), order_by="number")
    assert log.read().count() == 1


def test_a_second_producer_of_the_same_name_is_refused_and_another_name_is_not(world: World) -> None:
    first = Publisher(world.tables("eu"), world.config, TOPIC, "p").open(world.rows(0, 0).schema, {"number"})
    with pytest.raises(AlreadyOwnedError, match=r"producer p of .* already run by this process"):
        world.publish("eu", 5)
    assert world.publish("eu", 5, producer="q").rows == 5
    first.close()
    assert world.publish("eu", 5).rows == 5
