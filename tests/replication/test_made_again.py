"""What a person is told, and what is brought, when a source's log was made again, or an origin is new to a link. On real tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.ops.delete_topic import delete_topics
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def test_what_the_target_holds_of_the_log_of_before_is_said_and_how_to_be_rid_of_it(world: World) -> None:
    world.publish("us", 5)
    world.replicate("eu")
    delete_topics(world.spark, world.config, "us", str(TOPIC), lose=True)
    world.publish("us", 3)
    (report,) = world.replicate("eu")
    assert report.state is State.FAILED
    (previewed,) = reconcile_links(world.spark, world.config, "us", "eu", dry_run=True)
    for told in (report.reason or "", previewed.beside):
        assert "eu holds 5 messages of the log of before" in told
        assert f"geo topics delete --cluster eu --topic {TOPIC}" in told
    assert previewed.missing == 3
    reconcile_links(world.spark, world.config, "us", "eu")
    assert world.arrived("eu") == [0, 0, 1, 1, 2, 2, 3, 4]
    (previewed,) = reconcile_links(world.spark, world.config, "us", "eu", dry_run=True)
    assert previewed.beside == "", "it was accepted"


def test_an_origin_that_is_new_to_a_link_from_the_latest_on_brings_no_history(spark: SparkSession, tmp_path: Path) -> None:
    def links(origins: str) -> list[dict[str, object]]:
        return [{"source": "a", "target": "b"}, {"source": "b", "target": "c", "origins": origins, "start": "latest"}]

    world = World(tmp_path, ("a", "b", "c"), links("[b]"), spark=spark)
    world.publish("b", 2, producer="q")
    world.publish("a", 5)
    world.run_links("b", "c")
    world.rewrite(("a", "b", "c"), links("[a, b]"))
    world.replicate("c")
    assert world.arrived("c", "a") == []
    assert world.link_state("c", "b").floors is not None
    world.publish("a", 7)
    world.publish("b", 3, producer="q")
    world.run_links("b", "c")
    assert (world.arrived("c", "a"), world.arrived("c", "b")) == ([5, 6], [2])
