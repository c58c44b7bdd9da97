"""Shapes of links beyond a pair: every cluster publishes, links are stopped at random points, and all ends clean.

Each round publishes in every cluster and runs every link once; a link may be stopped at a random crash point and is then
simply started again. The seed is in the test's name.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo import crash
from geo.crash import CrashPoint, InjectedCrash
from geo.errors import UsageError
from geo.log.publish import publish
from tests.world import SHAPES, TOPIC, World

pytestmark = pytest.mark.spark

LINK_POINTS = [point for point in CrashPoint if point.value.startswith("link-")]


def _round(world: World, number: int, chance: random.Random) -> None:
    for cluster in world.config.clusters:
        world.write(cluster, number * 10, number * 10 + 10)
    for target in dict.fromkeys(link.target for link in world.config.links):
        crash.arm(f"{chance.choice(LINK_POINTS).value}:raise")
        try:
            world.replicate(target)
        except InjectedCrash:
            crash.arm(None)
            world.replicate(target)
        crash.arm(None)


def _origins(world: World, cluster: str) -> dict[str, int]:
    found = world.log(cluster).read().groupBy("origin").agg(F.count("*").alias("rows")).collect()
    return {row["origin"]: row["rows"] for row in found}


@pytest.mark.parametrize(("shape", "seed"), [(shape, 7) for shape in SHAPES if shape not in ("pair", "mesh")])
def test_every_shape_ends_clean_though_links_are_stopped_at_random(
    spark: SparkSession, tmp_path: Path, shape: str, seed: int
) -> None:
    clusters, links = SHAPES[shape]
    world, chance = World(tmp_path, clusters, links, spark=spark), random.Random(seed)
    for number in range(2):
        _round(world, number, chance)
    for target in dict.fromkeys(link.target for link in world.config.links):
        world.replicate(target)  # what went through a hub after its turn
    world.assert_clean()
    for report in (world.verify_quick(), *([world.verify()] if shape == "hub" else [])):
        assert report.clean, "\n".join(report.lines())
    assert (
        _origins(world, clusters[-1])
        == {
            "one-way": {"a": 20, "b": 20},
            "hub": {"a": 20, "b": 20, "c": 20},
            "aggregation": {"e1": 20, "e2": 20, "e3": 20, "centre": 20},
            "inlong": {"a": 20, "c": 20},
        }[shape]
    )


def test_a_message_for_a_cluster_behind_a_hub_must_name_the_hub(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, *SHAPES["hub"], spark=spark)
    rows = world.rows(0, 3).withColumn("replicate_to", F.array(F.lit("c")))
    with pytest.raises(UsageError, match="replicate_to names c without b, through which it is reached; name both"):
        publish(rows, TOPIC, world.config, "a", order_by="number")
    rows = rows.withColumn("replicate_to", F.array(F.lit("c"), F.lit("b")))
    publish(rows, TOPIC, world.config, "a", order_by="number")
    world.run_links("b", "c")
    assert _origins(world, "c") == {"a": 3}
    world.assert_clean()


def test_a_cluster_leaves_a_running_mesh_and_what_it_wrote_stays(linked: World) -> None:
    linked.rewrite(("eu",), [])
    report = linked.verify()
    assert report.clean, "\n".join(report.lines())
    assert any("us->eu replicated it once and no longer does" in note for note in report.notes)
    assert _origins(linked, "eu") == {"eu": 20, "us": 20}


def test_replication_clusters_of_a_topic_decide_which_links_carry_it(world: World) -> None:
    world.write("us", 0, 10)
    world.configure(f'topics:\n  - {{match: "{TOPIC}", replication_clusters: [us]}}\n')
    assert world.replicate("eu") == []
    assert not world.log("eu").exists()
    assert world.verify().clean
