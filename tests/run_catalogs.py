"""`./run catalogs`: a cluster in Spark's session catalog, a Hive metastore in Derby, linked with one by path: the tests of crash points and of
failing over, and what keeps house and compares. A command of its own, since its session is another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.ops.maintain import maintain
from geo.session import session
from geo.subscription.version_subscriptions import create, drop_view, make_view
from tests.elsewhere import *  # noqa: F403
from tests.elsewhere import Elsewhere
from tests.processes import LEAST
from tests.subscription.consuming import consume
from tests.subscription.test_failover import (  # noqa: F401
    test_a_failover_takes_what_no_link_has_brought,
    test_one_message_in_the_middle_is_all_that_is_repeated_elsewhere_and_the_topic_may_be_idle,
)
from tests.world import TOPIC, World, beside

pytestmark = pytest.mark.spark

_number = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("hive")
    hive = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateTables": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }
    started = session("delta-geo tests of catalogs", master="local[2]", conf={**LEAST, **hive})
    yield started
    started.stop()


@pytest.fixture(scope="session")
def elsewhere(spark: SparkSession) -> Elsewhere:
    """eu is in the catalog, us beside the configuration."""

    def make(folder: Path) -> World:
        schema = f"geo_eu_{next(_number)}"
        spark.sql(f"CREATE SCHEMA {schema} LOCATION '{folder / 'warehouse'}'")
        in_catalog = f"catalog: spark_catalog, schema: {schema}, checkpoints: {folder / 'checkpoints'}"
        return World(spark, folder, place=lambda name: in_catalog if name == "eu" else beside(name))

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
    linked.log("eu").append(marker)
    assert linked.spark.sql(f"SELECT * FROM {view}").count() == 40
    drop_view(tables, TOPIC)
    assert make_view(linked.tables("us"), TOPIC) is None, "a path has none"
