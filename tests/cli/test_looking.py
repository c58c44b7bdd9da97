"""Verbs that only look answer without Spark where they can, and the same as with it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml
from pyspark.sql import Column, SparkSession, functions
from pyspark.sql import functions as F

from geo.cli import running
from geo.cli.main import main
from geo.config import load
from geo.delta.appending import append_frame
from geo.delta.commits import commit_file
from geo.delta.driver import Driver, Reads
from geo.delta.engine import Engine
from geo.delta.engines.native import engine as native
from geo.delta.local_state import own_state
from geo.delta.s3_store import port_of
from geo.delta.store import StorePath, read_each
from geo.delta.table import Table
from geo.ids import LedgerId
from geo.journal.cluster import connect_later
from geo.log.ledger_parts import ledger_parts
from geo.log.ledgers import LedgerPart
from geo.log.publish import publish
from geo.log.topic_log import count_messages, is_message, newest
from geo.log.topics import create_topic, registered_topics
from geo.names import ALL_TOPICS, Topic
from geo.ops.regions import Regions
from geo.ops.status_facts import read_facts
from geo.subscription import changes
from geo.subscription.consumer import Subscription
from geo.subscription.status import standings
from geo.subscription.versions import version_subscriptions
from tests.cli.of_us import no_spark
from tests.kafka_broker import free_ports
from tests.object_store import KEY, SECRET, ObjectStore
from tests.version_starts import found_start
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

TYPED = Topic.parse("persistent://shop/orders/paid")
NESTED = Topic.parse("persistent://shop/orders/nested")


def _messages(engine: Engine) -> int:
    return engine.count_nulls(engine.newest(), "marker")


@pytest.fixture(scope="module")
def looked_at(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Logs of several files and dates, of bytes, typed, and typed with structure; markers in one of them."""
    world = World(tmp_path_factory.mktemp("looked-at"), spark=spark)
    for begin in (0, 20, 40):
        world.write("us", begin, begin + 20)
        world.replicate("eu")
    rows = spark.range(30).select(
        F.concat(F.lit("k"), "id").alias("key"),
        F.expr("CAST(id AS DECIMAL(10, 2))").alias("amount"),
        F.expr("date_add(DATE'2026-01-01', CAST(id AS INT))").alias("day"),
        F.expr("CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN TIMESTAMP'9999-12-30 12:00:00' ELSE timestamp_seconds(id) END").alias(
            "at"
        ),
        F.expr("encode(CAST(id AS STRING), 'UTF-8')").alias("raw"),
        F.expr("map('who', CAST(id AS STRING))").alias("properties"),
    )
    publish(rows, TYPED, world.config, "us", order_by="key")
    nested = rows.select("key", F.struct("amount", "day").alias("line"))
    publish(nested, NESTED, world.config, "us", order_by="key")
    log = world.log("us", TYPED)
    marker = log.read().limit(1).withColumns({"marker": F.lit("probe"), "entry_id": F.lit(10_000).cast("bigint")})
    append_frame(log, marker)
    consume(world, "us")
    changes.create(spark, world.config, "us", TOPIC, "later", datetime.now(timezone.utc))
    world.replicate("eu")
    world.replicate("us")
    version_subscriptions.create(world.tables("us"), TOPIC, "reports")
    version_subscriptions.finish(world.tables("us"), TOPIC, "reports", 2)
    found_start(world, "us", "reports", "eu", 2)
    return world


def consume(world: World, cluster: str) -> None:
    """Acknowledge every third message, and be told of what the subscription did in several records."""
    subscription = Subscription(world.spark, TOPIC, "billing", world.config, cluster, start="earliest", batch_rows=20)
    subscription.run(lambda messages: messages.where("entry_id % 3 = 0"), trigger="available-now")


def test_what_a_failover_would_do_is_the_same_on_every_screen(looked_at: World) -> None:
    clusters = {name: connect_later(no_spark, one) for name, one in looked_at.config.clusters.items()}
    told = {(one.topic, one.name): one for one in read_facts(Regions(clusters), looked_at.config, ALL_TOPICS).subscriptions}
    assert {name for _, name in told} == {"billing", "later"}
    for (topic, name), one in told.items():
        each = standings(clusters, looked_at.config, topic, name)
        ready = {(here.cluster, there.target): there for here in each for there in here.failover}
        assert (one.repeats, one.skips) == (
            {way: there.repeated for way, there in ready.items()},
            {way: there.skipped for way, there in ready.items()},
        )
        assert one.backlog in {here.backlog for here in each}
    assert told[TOPIC, "billing"].backlog == 40


@pytest.mark.parametrize("topic", [TOPIC, TYPED, NESTED])
@pytest.mark.parametrize("count", [1, 7, 500])
def test_the_newest_messages_are_the_same_with_and_without_spark(looked_at: World, topic: Topic, count: int) -> None:
    without = list(newest(connect_later(no_spark, looked_at.config.cluster("us")), topic, count))
    assert without == list(newest(looked_at.tables("us"), topic, count))
    assert len(without) == min(count, 60 if topic == TOPIC else 30)


def test_messages_are_counted_the_same_with_and_without_spark(looked_at: World) -> None:
    tables = connect_later(no_spark, looked_at.config.cluster("us"))
    for topic in (TOPIC, TYPED, NESTED):
        log = looked_at.log("us", topic)
        seen = log.latest_version()
        assert count_messages(tables.log(topic), seen) == count_messages(log, seen) == log.read().where(is_message()).count()


def test_messages_are_counted_by_the_log_of_a_table_alone(
    looked_at: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = looked_at.log("us").log_folder
    assert folder is not None
    shutil.copytree(str(folder), tmp_path / "_delta_log")
    alone = Table(Driver.of(looked_at.spark), str(tmp_path), by_path=True, lock=None)
    expected = looked_at.log("us").read().where(is_message()).count()
    assert alone.ask_here(_messages) == expected
    for checksum in (tmp_path / "_delta_log").glob("*.crc"):
        checksum.unlink()
    assert alone.ask_here(_messages) == expected, "as of a table of many files"
    monkeypatch.setattr(native, "LITTLE_FILES", 2)
    assert alone.ask_here(_messages) is None, "it has three"


def test_ledgers_are_the_same_with_and_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Two origins with ledgers of one number, one of them for a few clusters only; a marker."""
    world = World(tmp_path, spark=spark)
    create_topic(world.tables("us"), TOPIC)
    log = world.log("us")
    rows = world.entries("us", 0, 40).withColumns(
        {
            "origin": F.expr("IF(entry_id < 20, 'us', 'eu')"),
            "replicate_to": F.expr("CASE WHEN entry_id >= 20 THEN array('ap', 'us') END"),
            "publish_time": F.expr("timestamp_seconds(1800000000 + entry_id)"),
            "marker": F.expr("CASE entry_id WHEN 39 THEN 'SNAPSHOT' END"),
        }
    )
    append_frame(log, rows.repartition(3))
    of_second = {"ledger_id": F.lit(2).cast("bigint"), "replicate_to": F.expr("CAST(array() AS ARRAY<STRING>)")}
    # Files of one ledger, of which statistics tell: for nobody, and without a marker.
    append_frame(log, world.entries("us", 40, 45).withColumns(of_second))
    append_frame(log, world.entries("us", 45, 48).withColumns(of_second))
    version = log.latest_version()
    without = connect_later(no_spark, world.config.cluster("us")).log(TOPIC)
    by_spark = connect_later(lambda: world.spark, world.config.cluster("us"), reads=Reads.NONE).log(TOPIC)
    for since in (None, datetime(2020, 1, 1, tzinfo=timezone.utc), datetime.fromtimestamp(1_800_000_010, timezone.utc)):
        assert ledger_parts(without, version, since) == ledger_parts(by_spark, version, since)
    assert ledger_parts(by_spark, version) == {
        LedgerId("us", 1): LedgerPart(0, 19, 20),
        LedgerId("eu", 1): LedgerPart(20, 38, 19, ("ap", "us")),
        LedgerId("us", 2): LedgerPart(40, 47, 8, ()),
    }
    late = ledger_parts(by_spark, version, datetime.fromtimestamp(1_800_000_010, timezone.utc))
    assert late[LedgerId("us", 1)] == LedgerPart(10, 19, 10)


def test_a_quick_verify_finds_rows_that_were_taken_away(
    looked_at: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = looked_at.copy(tmp_path)
    looked_at.spark.sql(f"DELETE FROM {copy.log('eu').sql} WHERE entry_id BETWEEN 5 AND 8")
    assert main(["verify", "--quick", "--config", str(copy.path), "--engine", "native"]) == 1
    told = capsys.readouterr().out
    assert "NOT CLEAN: 4 holes" in told
    assert "only ends and counts" in told


OF_BILLING = ("--topic", str(TOPIC), "--subscription", "billing")


VERBS = pytest.mark.parametrize(
    "verb",
    [
        ("topics",),
        ("links",),
        ("links", "status"),
        ("peek", "--cluster", "us", "--topic", str(TYPED)),
        ("subscriptions",),
        ("subscriptions", "status", *OF_BILLING),
        ("subscriptions", "status", "--topic", str(TOPIC), "--subscription", "later"),
        ("subscriptions", "status", "--topic", str(TOPIC), "--subscription", "reports"),
        ("verify", "--quick"),
    ],
)


@VERBS
def test_looking_verbs_start_no_spark_and_say_the_same(
    looked_at: World, verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said, started, column, at = {}, list[str](), functions.col, 0

    def start(engine: str) -> SparkSession:
        started.append(engine)
        return looked_at.spark

    def of_a_session(name: str) -> Column:
        assert len(started) > at, "a process that looks has no session yet, and a condition takes one"
        return column(name)

    form = "text" if verb[0] == "topics" else "json"  # both say what was found, which is what is compared
    for engine in ("native", "spark"):
        with monkeypatch.context() as patched:
            patched.setattr(running, "start_spark", lambda name, config, engine=engine: start(engine))
            patched.setattr(functions, "col", of_a_session)
            at = len(started)
            assert main([*verb, "--config", str(looked_at.path), "-o", form, "--engine", engine]) == 0
            said[engine] = _said(capsys)
    assert started == (["spark"] if verb[0] != "links" else []), "links are in a system table, which this process reads always"
    assert said["native"] == said["spark"]


def _said(capsys: pytest.CaptureFixture[str]) -> str:
    """What a verb said, without how old the newest record is, which grows from one to the next."""
    ages = r'"(age_s|(age|oldest|lag)_seconds)": [0-9.]+|[0-9.,]+ s old|  [0-9,]+[.][0-9] {2,}'
    return re.sub(ages, "AGE", capsys.readouterr().out)


@pytest.fixture(scope="module")
def on_s3(looked_at: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration of the same clusters, of which copies are on an object store."""
    folder = tmp_path_factory.mktemp("on-s3")
    store = ObjectStore(free_ports(1)[0], folder / "store.log")
    try:
        clusters = {}
        for name in looked_at.config.clusters:
            store.make_bucket(f"geo-{name}")
            store.put(f"geo-{name}/clusters", looked_at.folder / name)
            clusters[name] = {
                "root": f"s3a://geo-{name}/clusters",
                "spark_conf": store.settings(f"geo-{name}"),
            }
        links = [{"source": link.source, "target": link.target} for link in looked_at.config.links]
        path = folder / "geo.yaml"
        path.write_text(yaml.safe_dump({"version": 1, "clusters": clusters, "links": links}))
        yield path
    finally:
        store.close()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)


@VERBS
@pytest.mark.usefixtures("keys")
def test_looking_verbs_say_the_same_of_an_object_store(
    looked_at: World, on_s3: Path, verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    of_disk, of_store = (
        (main([*verb, "--config", str(path), "-o", "json", "--engine", "native"]), _said(capsys))
        for path in (looked_at.path, on_s3)
    )
    assert of_disk == of_store
    assert of_store[0] == 0


def test_commits_on_a_store_are_read_many_at_once_in_their_order(on_s3: Path, keys: None) -> None:
    store = port_of(load(on_s3).cluster("us"))
    assert store is not None
    folder = StorePath(store, f"s3a://geo-us/clusters/topics/{TOPIC.path}/_delta_log")
    there = sorted(name for name in folder.names() if name.endswith(".json") and not name.startswith("."))
    names = ["gone", *there, "gone"] * 100
    expected = [
        None if name == "gone" else (folder / name).get().decode().splitlines() for name in ["gone", *there, "gone"]
    ] * 100
    assert len(names) > 2 * 256
    assert list(read_each(folder.store, names, lambda name: (folder / name).lines())) == expected


def test_the_doctor_looks_at_tables_without_spark(
    looked_at: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "session", no_spark)
    assert main(["doctor", "--config", str(looked_at.path), "--engine", "native", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    topics = len(registered_topics(looked_at.tables("us")))
    assert f"{topics} topics, their tables are delta-geo's" in [one["what"] for one in told if one["where"] == "cluster us"]


def test_what_spark_alone_can_read_is_refused_natively(
    looked_at: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--config", str(looked_at.path), "--engine", "native"]) == 2
    assert "add --quick" in capsys.readouterr().err
    copy = looked_at.copy(tmp_path)
    looked_at.spark.sql(f"ALTER TABLE {copy.log('us').sql} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert main(["peek", "--cluster", "us", "--topic", str(TOPIC), "--config", str(copy.path), "--engine", "native"]) == 2
    assert "so Spark is to read it: Spark does not start" in capsys.readouterr().err


def test_structs_in_which_values_are_required_are_read_without_spark(looked_at: World, tmp_path: Path) -> None:
    copy = looked_at.copy(tmp_path)
    log = copy.log("us", NESTED)
    folder, version = Path(str(log.log_folder)), log.latest_version()
    expected = list(newest(connect_later(no_spark, copy.config.cluster("us")), NESTED, 7))
    actions = [json.loads(line) for line in (folder / commit_file(0)).read_text().splitlines()]
    (metadata,) = (one["metaData"] for one in actions if "metaData" in one)
    required = metadata["schemaString"].replace(
        '"name":"day","type":"date","nullable":true', '"name":"day","type":"date","nullable":false'
    )
    assert required != metadata["schemaString"]
    (folder / commit_file(version + 1)).write_text(json.dumps({"metaData": {**metadata, "schemaString": required}}) + "\n")
    assert own_state(log) is None, "nobody appends to it by himself"
    assert list(newest(connect_later(no_spark, copy.config.cluster("us")), NESTED, 7)) == expected
    assert len(expected) == 7


def test_a_folder_that_is_no_table_is_left_to_spark(tmp_path: Path) -> None:
    table = Table(Driver(no_spark), str(tmp_path), by_path=True, lock=None)
    assert table.ask_here(_messages) is None
