"""What running links take up by themselves: new topics and partitions, a changed policy, a failure that was resolved."""

from __future__ import annotations

import shutil
import time
from unittest import mock

import pytest

from geo.delta.appending import append_frame
from geo.errors import UsageError
from geo.log.partitioned import create_partitions, create_single, partitions
from geo.log.publish import publish
from geo.log.topic_policies import set_replication_clusters
from geo.log.topics import registered_topics
from geo.names import Topic
from geo.replication.repair import reconcile_links
from geo.streams import timetable
from geo.streams.life import State
from tests.running import running
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

ORDERS = Topic.parse("persistent://shop/web/orders")


def test_new_partitions_are_taken_up_with_the_columns_and_policy_of_the_others(world: World) -> None:
    us = world.tables("us")

    with pytest.raises(UsageError, match="us has no topic"):
        set_replication_clusters(us, world.config, ORDERS, ["us"])
    columns = world.spark.range(0).selectExpr("id AS number", "CAST(id AS DOUBLE) AS amount").schema
    assert [str(one) for one in create_partitions(us, ORDERS, 2, list(columns))] == [f"{ORDERS}-partition-{n}" for n in (0, 1)]
    assert create_partitions(us, ORDERS, 2) == []
    with pytest.raises(UsageError, match="has 2 partitions in us; they can grow in number, not shrink to 1"):
        create_partitions(us, ORDERS, 1)
    shutil.rmtree(world.log("us", ORDERS.with_partition(1)).name)  # as if its creator had died before the log
    assert create_partitions(us, ORDERS, 2) == [ORDERS.with_partition(1)]
    create_single(us, ORDERS.with_partition(1), list(columns)[:1])  # as of a script of before the topic got another column
    for other in ("CAST(id AS STRING) AS number", "id AS gate"):
        with pytest.raises(UsageError, match="is there and has other columns"):
            create_single(us, ORDERS.with_partition(1), list(world.spark.range(0).selectExpr(other).schema))
    with pytest.raises(UsageError, match="has 2 partitions in us: say how many"):
        create_single(us, ORDERS)
    with pytest.raises(UsageError, match=r"orders is partitioned: publish to one of .*-partition-0 to orders-partition-1"):
        publish(world.rows(0, 1), ORDERS, world.config, "us", order_by="number")
    set_replication_clusters(us, world.config, ORDERS, ["us", "eu"])
    for part in partitions(us, ORDERS):
        world.write("us", 0, 5, topic=part)
    with running(world, "eu") as links:
        links.until(lambda: all(world.count("eu", ORDERS.with_partition(n)) == 5 for n in (0, 1)))
        (third,) = create_partitions(us, ORDERS, 3)
        world.write("us", 0, 7, topic=third)
        links.until(lambda: world.count("eu", third) == 7)
    assert [found.replication_clusters for found in registered_topics(us)] == [("eu", "us")] * 3
    assert partitions(world.tables("eu"), ORDERS) == partitions(us, ORDERS)
    set_replication_clusters(world.tables("eu"), world.config, ORDERS, ["eu"])
    create_partitions(us, ORDERS, 4)
    world.replicate("eu")
    assert [found.replication_clusters for found in registered_topics(world.tables("eu"))] == [("eu",)] * 4, "also by a link"
    assert "amount" in world.log("eu", third).read().columns
    assert world.verify().clean


def test_a_topic_whose_policy_leaves_the_link_out_stops_and_goes_on_when_it_is_back(world: World) -> None:
    us = world.tables("us")
    world.write("us", 0, 10)
    with running(world, "eu") as links:
        links.until(lambda: world.count("eu", TOPIC) == 10)
        assert set_replication_clusters(us, world.config, TOPIC, ["us"]) == [TOPIC]
        links.until(lambda: links.last(TOPIC) == (State.PAUSED, "its replication clusters leave this link out"))
        world.write("us", 10, 20)
        assert world.verify().clean, "what no link carries is not missing"
        rows = world.rows(0, 1).selectExpr("*", "array('eu') AS replicate_to")
        with pytest.raises(UsageError, match="replicate_to names eu: from us this topic reaches no other cluster"):
            publish(rows, TOPIC, world.config, "us", order_by="number")
        set_replication_clusters(us, world.config, TOPIC, None)
        links.until(lambda: world.count("eu", TOPIC) == 20)
    world.assert_clean()


def test_the_registrys_policy_goes_before_the_configurations(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("us", 0, 10)
    world.configure(f'topics:\n  - {{match: "{TOPIC}", replication_clusters: [us]}}\n')
    set_replication_clusters(world.tables("us"), world.config, TOPIC, ["eu", "us"])
    assert [report.replicated for report in world.replicate("eu")] == [10]
    (before,) = registered_topics(world.tables("us"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    set_replication_clusters(world.tables("us"), world.config, TOPIC, ["us", "eu"])
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert registered_topics(world.tables("us")) == [before], "whatever time zone the process has"
    with pytest.raises(UsageError, match="leave out us itself"):
        set_replication_clusters(world.tables("us"), world.config, TOPIC, ["eu"])
    with pytest.raises(UsageError, match="mars"):
        set_replication_clusters(world.tables("us"), world.config, TOPIC, ["us", "mars"])


def test_a_failed_link_goes_on_in_its_process_once_it_is_resolved(linked: World) -> None:
    with running(linked, "eu") as links:
        linked.write("us", 20, 30)
        links.until(lambda: linked.count("eu", TOPIC) == 50)
        linked.log("us").delta().update("origin = 'us' AND entry_id = 7", {"key": "'forged'"})
        linked.write("us", 30, 40)
        links.until(lambda: links.last(TOPIC)[0] is State.FAILED)
        assert "geo reconcile" in (links.last(TOPIC)[1] or "")
        (done,) = reconcile_links(linked.spark, linked.config, "us", "eu")
        assert done.appended == 10
        links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)
        linked.write("us", 40, 50)
        links.until(lambda: linked.count("eu", TOPIC) == 70)
    assert linked.link_state("eu", "us").state is State.STOPPED


def test_columns_added_to_a_typed_topic_cross_while_its_link_runs(world: World) -> None:
    us = world.tables("us")
    create_single(us, ORDERS, list(world.rows(0, 0).select("number").schema))
    world.write("us", 0, 5, topic=ORDERS)
    with running(world, "eu") as links:
        links.until(lambda: world.count("eu", ORDERS) == 5)
        world.spark.sql(f"ALTER TABLE {world.log('us', ORDERS).sql} ADD COLUMNS (note STRING)")
        rows = world.entries("us", 5, 9).selectExpr("*", "entry_id AS number", "'new' AS note")
        append_frame(world.log("us", ORDERS), rows)
        links.until(lambda: world.count("eu", ORDERS) == 9)
        world.spark.sql(f"ALTER TABLE {world.log('us', ORDERS).sql} ADD COLUMNS (place STRING)")
        rows = world.entries("us", 9, 12).selectExpr("*", "entry_id AS number", "'new' AS note", "'here' AS place")
        append_frame(world.log("us", ORDERS), rows)
        links.until(lambda: world.count("eu", ORDERS) == 12)
    assert world.log("eu", ORDERS).read().where("note = 'new'").count() == 7
    assert world.log("eu", ORDERS).read().where("note IS NULL").count() == 5
    assert world.log("eu", ORDERS).read().where("place = 'here' AND note = 'new'").count() == 3
    assert [report.state for report in links.reports if report.state is State.FAILED] == []
    world.assert_clean(ORDERS)


def test_a_query_without_news_ends_and_the_next_news_start_another(linked: World) -> None:
    end = 20

    def news_start_a_query() -> bool:
        """Of a topic that has not caught up when they come they are brought by a turn: then the next ones do."""
        nonlocal end
        end += 2
        linked.write("us", end - 2, end)
        links.until(lambda: len(linked.arrived("eu")) == end)
        return bool(linked.spark.streams.active)

    with running(linked, "eu", queries=True) as links, mock.patch.object(timetable, "QUERY_IDLE_S", 3.0):
        links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)
        for _ in range(2):
            links.until(news_start_a_query)
            links.until(lambda: not linked.spark.streams.active)
    assert {report.state for report in links.reports} <= {State.RUNNING, State.STOPPED}
    linked.settle("us")
