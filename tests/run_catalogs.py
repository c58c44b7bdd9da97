"""`./run catalogs`: a cluster in Spark's session catalog, a Hive metastore in Derby, linked with one by path: the tests of crash points and of
failing over, and what keeps house and compares; and one whose tables are on S3. A command of its own, since its session is another one.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.config.secret import Secret
from geo.delta.appending import append_frame
from geo.delta.commits import ENGINE
from geo.delta.ddl import create_table, remove_table
from geo.errors import UnsafeError
from geo.log.topics import ensure_topic
from geo.names import Topic
from geo.ops.maintain import maintain
from geo.schemas import TOPIC_LOG
from geo.session import session
from geo.subscription.versions.version_subscriptions import create, drop_view, make_view
from geo.testing.world import beside
from tests.elsewhere import *  # noqa: F403
from tests.elsewhere import Elsewhere
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3
from tests.processes import LEAST
from tests.subscription.consuming import consume
from tests.subscription.test_failover import (  # noqa: F401
    test_a_failover_takes_what_no_link_has_brought,
    test_one_message_in_the_middle_is_all_that_is_repeated_elsewhere_and_the_topic_may_be_idle,
)
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

_number = itertools.count()

_BUCKET = "geo-catalog"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, s3: S3) -> Iterator[SparkSession]:
    os.environ.update(GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
    s3.make_bucket(_BUCKET)
    said = {key: Secret(value).reveal() if value.startswith("secret:") else value for key, value in s3.settings(_BUCKET).items()}
    of_metastore = {f"spark.hadoop.{key}": value for key, value in said.items()}
    folder = tmp_path_factory.mktemp("hive")
    hive = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateTables": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }
    started = session("delta-geo tests of catalogs", master="local[2]", conf={**LEAST, **hive, **of_metastore}, schemes={"s3a"})
    yield started
    started.stop()


@pytest.fixture(scope="session")
def elsewhere(spark: SparkSession) -> Elsewhere:
    """eu is in the catalog, us beside the configuration."""

    def make(folder: Path) -> World:
        schema = f"geo_eu_{next(_number)}"
        spark.sql(f"CREATE SCHEMA {schema} LOCATION '{folder / 'warehouse'}'")
        in_catalog = f"catalog: spark_catalog, schema: {schema}, checkpoints: {folder / 'checkpoints'}"
        return World(folder, place=lambda name: in_catalog if name == "eu" else beside(name), spark=spark)

    return make


@pytest.fixture
def consumed(linked: World) -> World:
    """In eu all but one message, eu:1:5, was acknowledged."""
    consume(linked, "eu", "NOT (origin = 'eu' AND entry_id = 5)")
    return linked


def test_what_keeps_house_and_compares_knows_both(linked: World) -> None:
    for cluster in ("eu", "us"):
        maintain(linked.spark, linked.config, cluster)
        linked.publish(cluster, 30, producer=f"p-{cluster}")
    for cluster in ("eu", "us"):
        linked.replicate(cluster)
    report = linked.verify()
    assert report.clean
    assert {link.link: link.compared for link in report.links} == {"us->eu": 50, "eu->us": 50}
    linked.assert_clean()


def test_a_topic_with_a_consumer_of_versions_has_a_view_of_its_messages(linked: World) -> None:
    tables = linked.tables("eu")
    create(tables, TOPIC, "reports")
    view = make_view(tables, TOPIC)
    marker = linked.entries("eu", 0, 1).withColumns({"ledger_id": F.lit(9).cast("bigint"), "marker": F.lit("SNAPSHOT")})
    append_frame(linked.log("eu"), marker)
    assert linked.spark.sql(f"SELECT * FROM {view}").count() == 40
    drop_view(tables, TOPIC)
    assert make_view(linked.tables("us"), TOPIC) is None, "a path has none"


@pytest.fixture
def on_s3(spark: SparkSession, s3: S3, tmp_path: Path) -> World:
    """eu is in the catalog, its schema on S3, us beside the configuration."""
    schema = f"geo_eu_{next(_number)}"
    spark.sql(f"CREATE SCHEMA {schema} LOCATION 's3a://{_BUCKET}/{schema}'")
    reached = json.dumps(s3.settings(_BUCKET))
    in_catalog = f"catalog: spark_catalog, schema: {schema}, checkpoints: {tmp_path / 'checkpoints'}, spark_conf: {reached}"
    return World(tmp_path, place=lambda name: in_catalog if name == "eu" else beside(name), spark=spark)


def _names(world: World) -> set[str]:
    """What the catalog knows of eu."""
    return {row["tableName"] for row in world.spark.sql(f"SHOW TABLES IN {world.config.cluster('eu').schema}").collect()}


def test_tables_of_a_catalog_on_s3_are_written_at_their_locations_and_found_by_their_names(on_s3: World) -> None:
    for cluster in ("us", "eu"):
        on_s3.publish(cluster, 20, producer=f"p-{cluster}")
    on_s3.settle("eu", "us")
    maintain(on_s3.spark, on_s3.config, "eu")
    on_s3.publish("eu", 30, producer="p-eu")
    on_s3.settle("us")
    assert on_s3.verify().clean
    log, place = on_s3.log("eu"), f"s3a://{_BUCKET}/{on_s3.config.cluster('eu').schema}"
    assert (log.location, log.may_spark_commit) == (f"{place}/{TOPIC.table_name}", False)
    assert {TOPIC.table_name, "system_topics", "system_links", "system_owners"} <= _names(on_s3)
    by_name = on_s3.spark.sql(f"SELECT count(*) FROM {log.sql}").first()
    assert by_name is not None
    assert by_name[0] == 50
    assert log.log_folder is not None
    commits = [json.loads((log.log_folder / f"{version:020}.json").lines()[0]) for version in range(log.latest_version() + 1)]
    assert {commit["commitInfo"]["engineInfo"] for commit in commits} == {ENGINE}


def test_a_table_on_s3_is_made_once_by_all_who_make_it_and_one_that_lost_its_name_gets_it_back(on_s3: World) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda tables: ensure_topic(tables, TOPIC), [on_s3.tables("eu") for _ in range(4)]))
    log = on_s3.log("eu")
    assert log.catalog_name is not None
    made, version = log.table_id(), log.latest_version()
    on_s3.spark.sql(f"DROP TABLE {log.sql}")  # or whoever made it died before it had its name
    assert not on_s3.log("eu").exists()
    ensure_topic(on_s3.tables("eu"), TOPIC)
    again = on_s3.log("eu")
    assert (again.table_id(), again.latest_version(), TOPIC.table_name in _names(on_s3)) == (made, version, True)


def test_a_table_on_s3_that_is_removed_leaves_neither_log_nor_name(on_s3: World) -> None:
    on_s3.publish("eu", 5)
    log = on_s3.log("eu")
    made = log.table_id()
    assert remove_table(log)
    assert (log.exists(), on_s3.log("eu").exists(), TOPIC.table_name in _names(on_s3)) == (False, False, False)
    create_table(log, TOPIC_LOG)
    assert (log.exists(), log.table_id() != made, log.latest_version()) == (True, True, 0)


def test_a_table_of_the_catalog_that_lies_elsewhere_is_refused(on_s3: World) -> None:
    other = Topic.parse("persistent://shop/web/other")
    name = f"{on_s3.config.cluster('eu').schema}.{other.table_name}"
    on_s3.spark.sql(f"CREATE TABLE {name} (a INT) USING delta LOCATION '{on_s3.folder / 'other'}'")
    with pytest.raises(UnsafeError, match="elsewhere than its schema"):
        on_s3.log("eu", other)
