"""A cluster keeps its name: a place that the configuration calls by another one's name is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from geo.cli.main import main
from geo.errors import OtherClusterError
from geo.journal.cluster import Identity
from geo.names import Topic
from geo.ops.verify.report import Category
from geo.ops.verify.verify import verify
from geo.schemas import TOPICS
from geo.schemas.table import CLUSTER_PROPERTY
from geo.streams.life import State
from tests.world import TOPIC, World


def test_an_identity_is_read_as_it_was_written() -> None:
    one = Identity.of_new("eu")
    assert Identity.decode(str(one)) == one
    assert Identity.decode(None) is None
    assert one.id != Identity.of_new("eu").id


def _recorded(world: World, cluster: str) -> Identity | None:
    tables = world.tables(cluster)
    tables.refuse_other_cluster()
    return tables.identity


def _swap(world: World, one: str = "eu", other: str = "us") -> None:
    """Swap the folders of two clusters."""
    a, b = world.folder / one, world.folder / other
    a.rename(world.folder / "swap")
    b.rename(a)
    (world.folder / "swap").rename(b)


@pytest.mark.spark
def test_roots_that_are_swapped_are_refused_by_every_verb_and_nothing_is_published_twice(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for cluster in ("eu", "us"):
        world.publish(cluster, 5)
        world.replicate("us" if cluster == "eu" else "eu")
    before = _recorded(world, "eu"), _recorded(world, "us")
    assert None not in before
    assert before[0] != before[1]
    _swap(world)
    for cluster in ("eu", "us"):
        with pytest.raises(OtherClusterError, match=rf"cluster {cluster}: .* is that of cluster"):
            world.publish(cluster, 10)
        with pytest.raises(OtherClusterError):
            world.replicate(cluster)
    for verb in (["topics"], ["links"], ["links", "status"], ["verify", "--quick"], ["subscriptions"]):
        assert main([*verb, "--config", str(world.path)]) == 3, verb
        assert "is that of cluster" in capsys.readouterr().err
    assert main(["doctor", "--engine", "native", "--config", str(world.path), "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["where"] for one in found if one["level"] == "error"] == ["cluster eu", "cluster us"]

    _swap(world)
    assert (_recorded(world, "eu"), _recorded(world, "us")) == before, "nothing was written"
    for cluster in ("eu", "us"):
        world.publish(cluster, 10)
    for cluster in ("eu", "us"):
        world.replicate(cluster)
    world.assert_clean()


@pytest.mark.spark
def test_a_cluster_that_is_renamed_with_messages_on_their_way_is_refused(world: World) -> None:
    world.publish("us", 5)
    world.replicate("eu")
    world.publish("us", 8)
    renamed = World(
        world.folder, ("asia", "eu"), place=lambda name: f"root: {'us' if name == 'asia' else name}", spark=world.spark
    )
    with pytest.raises(OtherClusterError, match="Name it us in the configuration again"):
        renamed.publish("asia", 10)
    with pytest.raises(OtherClusterError):
        renamed.replicate("eu")  # a link does not read it by the wrong name either
    world.rewrite(("eu", "us"))
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated) == (State.STOPPED, 3)


@pytest.mark.spark
def test_a_place_without_an_identity_gets_one_at_its_next_use_if_its_owners_had_that_name(world: World) -> None:
    world.publish("us", 5)
    registry = world.tables("us").journal(TOPICS)
    world.spark.sql(f"ALTER TABLE delta.`{registry}` UNSET TBLPROPERTIES ('{CLUSTER_PROPERTY}')")
    assert _recorded(world, "us") is None
    (world.folder / "eu").mkdir(exist_ok=True)
    shutil.rmtree(world.folder / "eu")
    (world.folder / "us").rename(world.folder / "eu")
    with pytest.raises(OtherClusterError, match=r"cluster eu: .* is that of cluster us"):
        world.publish("eu", 5)
    assert _recorded(world, "eu") is None
    (world.folder / "eu").rename(world.folder / "us")
    world.publish("us", 6)
    first = _recorded(world, "us")
    assert first is not None
    assert first.cluster == "us"
    world.publish("us", 7)
    assert _recorded(world, "us") == first, "it is written once"
    assert len(world.messages("us")) == 7
    assert TOPIC.path in str(Path(world.log("us").name))


@pytest.mark.spark
def test_two_places_that_two_configurations_call_by_one_name_are_told_apart(world: World) -> None:
    """Both are called us by their registries, too: each began empty under that name."""
    world.publish("us", 5)
    world.replicate("eu")
    (world.folder / "other").mkdir()
    other = World(
        world.folder / "other", ("eu", "us"), place=lambda name: f"root: ../{name if name == 'eu' else 'us2'}", spark=world.spark
    )
    other.publish("us", 8)
    new = Topic.parse("persistent://shop/web/new")
    other.write("us", 0, 3, topic=new)
    states = {report.topic: (report.state, report.replicated) for report in other.replicate("eu")}
    assert states == {str(TOPIC): (State.FAILED, 0), str(new): (State.STOPPED, 3)}, "what the link knows is another table now"
    assert "its table id is" in (other.link_state("eu", "us").reason or "")
    found = verify(world.spark, world.config)
    assert (found.clean, found.total(Category.UNEXPECTED)) == (False, 3), "what it did not know us has not, of whom it says it is"
