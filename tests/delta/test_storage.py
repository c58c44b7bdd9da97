"""On which storages a cluster may be written: the pure decision, and that nothing is touched where it may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DecimalType, StringType, StructField

from geo.cli.main import main
from geo.config.cluster import Cluster
from geo.config.model import Config
from geo.delta.storage import why_not_by_port, why_unsafe
from geo.disk import local_path
from geo.errors import UnsafeError
from geo.journal.cluster import connect, mount_type
from geo.locations import scheme_of
from geo.log.partitioned import create_partitions
from geo.log.topic_log import user_columns
from geo.log.topic_policies import set_replication_clusters
from geo.log.topics import create_topic
from geo.names import Topic
from geo.schemas import LEDGERS, OWNERS, TOPICS
from tests.rows import ledger_row, owner

_DYNAMO = "io.delta.storage.S3DynamoDBLogStore"
_SINGLE = "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore"


@pytest.mark.parametrize(
    ("location", "how", "reason"),
    [
        ("s3a://bucket/geo", {}, "plain S3 are not safe"),
        ("s3://bucket/geo", {}, "plain S3 are not safe"),
        ("S3A://bucket/geo", {}, "plain S3 are not safe"),
        ("s3a://bucket/geo", {"log_store": _SINGLE}, "plain S3 are not safe"),
        ("s3a://bucket/geo", {"log_store": "io.delta.storage.GCSLogStore"}, "plain S3 are not safe"),
        ("s3a://bucket/geo", {"log_store": _DYNAMO}, None),
        ("s3://bucket/geo", {"databricks": True}, None),
        ("abfss://box@account.dfs.core.windows.net/geo", {}, None),
        ("hdfs://name:8020/geo", {}, None),
        ("gs://bucket/geo", {}, None),
        ("oss://bucket/geo", {}, "whether commits to oss: are put-if-absent is not known"),
        ("oss://bucket/geo", {"log_store": "com.example.Oss"}, None),
        ("/data/geo", {"mount": "ext4"}, None),
        ("/data/geo", {"mount": ""}, None),
        ("file:///data/geo", {"mount": "xfs"}, None),
        ("/data/geo", {"mount": "nfs4"}, "is on a nfs4 mount"),
        ("file:/data/geo", {"mount": "fuse.s3fs"}, "is on a fuse.s3fs mount"),
        ("/Volumes/prod/geo", {"mount": "fuse", "databricks": True}, "is on a fuse mount"),
    ],
)
def test_a_storage_that_loses_commits_is_refused_with_the_ways_out(
    location: str, how: dict[str, Any], reason: str | None
) -> None:
    why = why_unsafe(location, **{"log_store": None, "mount": "", "databricks": False, **how})
    if reason is None:
        assert why is None
    else:
        assert why is not None
        assert why.startswith(f"{location}: ")
        assert reason in why
        assert "Nothing was written" in why


@pytest.mark.parametrize(
    ("log_store", "is_refused"), [(None, False), (_SINGLE, False), (_DYNAMO, True), ("com.example.Own", True)]
)
def test_what_this_program_writes_by_itself_is_not_written_beside_a_log_store_of_its_own(
    log_store: str | None, is_refused: bool
) -> None:
    why = why_not_by_port("s3a://bucket/geo", log_store=log_store)
    assert (why is not None) == is_refused
    assert why is None or f"with the log store {log_store}" in why


@pytest.mark.parametrize(
    ("location", "scheme", "path"),
    [
        ("/data/eu", "", "/data/eu"),
        ("file:/data/eu", "", "/data/eu"),
        ("file:///data/eu", "", "/data/eu"),
        ("s3a://bucket/eu", "s3a", None),
        ("hdfs:///geo", "hdfs", None),
        ("dbfs:/geo", "dbfs", None),
    ],
)
def test_only_a_path_of_this_host_is_a_local_one(location: str, scheme: str, path: str | None) -> None:
    assert scheme_of(location) == scheme
    assert local_path(location) == (None if path is None else Path(path))


def test_the_mount_of_a_folder_that_is_not_there_yet_is_its_parents(tmp_path: Path) -> None:
    assert mount_type(Path("/proc/self")) == "proc"
    assert mount_type(tmp_path / "a" / "b") == mount_type(tmp_path) != ""


# -- the lock is where the tables are ----------------------------------------------------------------------------------


@pytest.fixture
def schema(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A schema of Spark's own catalog, whose tables lie on this disk."""
    spark.sql(f"CREATE SCHEMA geo_storage_test LOCATION '{tmp_path / 'warehouse'}'")
    yield "geo_storage_test"
    spark.sql("DROP SCHEMA geo_storage_test CASCADE")


@pytest.mark.spark
def test_tables_of_a_catalog_on_this_disk_are_locked_wherever_the_checkpoints_are(
    spark: SparkSession, tmp_path: Path, schema: str
) -> None:
    cluster = Cluster("eu", catalog="spark_catalog", schema=schema, checkpoints="hdfs://nowhere:1/checkpoints")
    tables = connect(spark, cluster)
    tables.refuse_unsafe_storage()
    assert tables.location == f"file:{tmp_path / 'warehouse'}"
    owners = tables.journal(OWNERS)
    owners.append([owner()])
    assert [row["runner"] for row in owners.newest()] == ["r"]
    own = [StructField("amount", DecimalType(10, 2)), StructField("tags", ArrayType(StringType()))]
    columns = create_topic(tables, Topic.parse(_TOPIC), own)
    assert [field.dataType for field in user_columns(columns)] == [DecimalType(10, 2), ArrayType(StringType())]
    assert tables.log(Topic.parse(_TOPIC)).properties()["delta.enableChangeDataFeed"] == "true"
    locks = sorted(str(path.relative_to(tmp_path / "warehouse" / "locks")) for path in tmp_path.rglob("*.lock"))
    assert locks == ["system/owners.lock", "system/topics.lock", "topics/shop/web/clicks.lock"]


@pytest.mark.spark
def test_tables_elsewhere_are_not_locked_though_the_checkpoints_are_here(spark: SparkSession, tmp_path: Path) -> None:
    by_root = Cluster("eu", root="hdfs://name/geo", checkpoints=str(tmp_path))
    assert connect(spark, by_root).lock_folder is None
    unknown = Cluster("eu", catalog="spark_catalog", schema="geo_no_such_schema", checkpoints=str(tmp_path))
    tables = connect(spark, unknown)
    assert tables.lock_folder is None
    assert not tables.journal(TOPICS).exists()


@pytest.mark.spark
def test_a_schema_that_comes_into_being_later_is_locked_then(spark: SparkSession, tmp_path: Path, request: Any) -> None:
    cluster = Cluster("eu", catalog="spark_catalog", schema="geo_storage_test", checkpoints=str(tmp_path / "c"))
    tables = connect(spark, cluster)
    assert tables.lock_folder is None
    request.getfixturevalue("schema")
    assert tables.lock_folder == tmp_path / "warehouse" / "locks"


@pytest.mark.spark
def test_partitions_that_the_registry_of_a_catalog_lost_are_set_with_the_others(
    spark: SparkSession, tmp_path: Path, schema: str
) -> None:
    """No folders of logs can be listed there: what the cluster's own producers wrote names them."""
    cluster = Cluster("eu", catalog="spark_catalog", schema=schema, checkpoints=str(tmp_path / "c"))
    tables = connect(spark, cluster)
    parts = create_partitions(tables, Topic.parse(_TOPIC), 2)
    tables.journal(LEDGERS).append([ledger_row(parts[1])])
    spark.sql(f"DELETE FROM spark_catalog.{schema}.system_topics WHERE topic = '{parts[1]}'")
    config = Config("geo.yaml", {"eu": cluster}, ())
    assert set_replication_clusters(connect(spark, cluster), config, Topic.parse(_TOPIC), ["eu"]) == parts


# -- nothing is touched ------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_log_store_counts_only_if_spark_was_started_with_it(spark: SparkSession) -> None:
    conf = {"spark.delta.logStore.oss.impl": "com.example.Oss"}  # in the session, where Delta does not look
    tables = connect(spark, Cluster("eu", root="oss://bucket/x", spark_conf=conf))
    try:
        with pytest.raises(
            UnsafeError, match="cluster eu: oss://bucket/x: whether commits to oss: are put-if-absent is not known"
        ):
            tables.refuse_unsafe_storage()
    finally:
        spark.conf.unset("spark.delta.logStore.oss.impl")


_TOPIC = "persistent://shop/web/clicks"


@pytest.mark.spark
@pytest.mark.parametrize(
    "verb",
    [
        ["publish", "--cluster", "eu", "--topic", _TOPIC, "--jsonl", "rows.jsonl"],
        ["replicate", "--cluster", "eu"],
        ["reconcile", "--source", "us", "--target", "eu", "--topic", _TOPIC],
        ["links", "reset", "--source", "us", "--target", "eu", "--topic", _TOPIC, "--to", "earliest"],
        ["rebuild", "--cluster", "eu", "--from", "us", "--yes"],
        ["maintain", "--cluster", "eu"],
        ["erase", "--cluster", "eu", "--topic", _TOPIC, "--where", "true", "--yes"],
        ["topics", "create", "--cluster", "eu", "--topic", _TOPIC],
        ["topics", "set", "--cluster", "eu", "--topic", _TOPIC, "--inherit"],
        ["consume", "--cluster", "eu", "--topic", _TOPIC, "--subscription", "s", "--trigger", "available-now"],
        ["subscriptions", "create", "--cluster", "eu", "--topic", _TOPIC, "--subscription", "s"],
        ["subscriptions", "reset", "--cluster", "eu", "--topic", _TOPIC, "--subscription", "s", "--to", "earliest", "--yes"],
        ["subscriptions", "delete", "--cluster", "eu", "--topic", _TOPIC, "--subscription", "s", "--yes"],
        ["subscriptions", "fold", "--cluster", "eu"],
        ["failover", "--topic", _TOPIC, "--subscription", "s", "--from", "us", "--to", "eu"],
    ],
    ids=lambda verb: "-".join(word for word in verb[:2] if not word.startswith("-")),
)
def test_each_verb_that_writes_what_loses_commits_ends_with_3_and_the_ways_out(
    verb: list[str], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # It is not even reachable here: there is no client of it on the class path, so any touch would be another error.
    monkeypatch.chdir(tmp_path)
    links = "links:\n  - {source: us, target: eu}\n"
    Path("geo.yaml").write_text(f"version: 1\nclusters:\n  eu: {{root: 'oss://bucket/x'}}\n  us: {{root: us}}\n{links}")
    Path("rows.jsonl").write_text('{"payload": "x"}\n')
    assert main([*verb, "--config", "geo.yaml"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "cluster eu: oss://bucket/x: whether commits to oss: are put-if-absent is not known" in err
    assert "spark.delta.logStore.oss.impl" in err
    assert "Traceback" not in err
