"""A source that lost the end of a ledger, on real tables: the link and verify name what was recorded as published and is nowhere."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from geo.ops.verify.report import Category, VerifyReport
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from tests.world import World

pytestmark = pytest.mark.spark


def _lose(world: World, *entries: int) -> None:
    """Somebody removes entries of us in us, and the commits are cleaned up."""
    DeltaTable(world.log("us").name).delete(f"entry_id IN ({', '.join(map(str, entries))})")
    world.clean_up("us")


def _holes(report: VerifyReport) -> dict[str, tuple[str, ...]]:
    """What a verify says of holes, by cluster. It found nothing else."""
    found = {where: found.examples for _, where, found in report.findings() if found.category is Category.HOLES}
    assert report.clean is not bool(found)
    return found


def _published_and_lost(world: World) -> int:
    """The link stands at entry 4, entries 5 to 9 are published, 8 and 9 are lost. The ledger's id."""
    world.publish("us", 5)
    assert world.ended("eu")[0] is State.STOPPED
    world.publish("us", 10)
    (ledger,) = {ledger for _, ledger, _ in world.messages("us")}
    _lose(world, 8, 9)
    return ledger


def test_a_lost_end_fails_the_link_and_verify_until_a_person_accepts_it(world: World) -> None:
    lost = f"us:{_published_and_lost(world)}:8-9"
    for _ in range(2):  # and it stays so
        world.fails("eu", lost, "geo reconcile")
    assert world.arrived("eu") == [0, 1, 2, 3, 4]
    assert _holes(world.verify()) == _holes(world.verify_quick()) == {"us": (lost,)}

    reconcile_links(world.spark, world.config, "us", "eu")
    assert world.arrived("eu") == list(range(8))
    assert _holes(world.verify_quick()) == {}
    assert world.ended("eu")[0] is State.STOPPED


def test_a_producer_that_gave_the_ledger_up_hides_no_lost_end(world: World) -> None:
    """Its next start finds the log shorter than it recorded, and publishes on in a new ledger."""
    lost = f"us:{_published_and_lost(world)}:8-9"
    world.publish("us", 12)
    world.fails("eu", lost)
    assert _holes(world.verify_quick()) == {"us": (lost,)}

    reconcile_links(world.spark, world.config, "us", "eu")
    assert world.arrived("eu") == sorted([*range(8), *range(2)])
    world.publish("us", 14)
    assert world.ended("eu")[0] is State.STOPPED
    assert _holes(world.verify_quick()) == {}


def test_a_source_whose_newest_commits_are_gone_has_lost_them(world: World) -> None:
    """As after a power cut: nobody removed a row, and the commit at which the link stands is what it was."""
    world.publish("us", 5)
    assert world.ended("eu")[0] is State.STOPPED
    put_back = world.kept("us")
    world.publish("us", 10)
    put_back()
    world.fails("eu", ":5-9")
    assert len(*_holes(world.verify_quick()).values()) == 1

    reconcile_links(world.spark, world.config, "us", "eu")
    assert world.ended("eu")[0] is State.STOPPED
    assert _holes(world.verify_quick()) == {}
    world.publish("us", 12, producer="another")
    assert world.ended("eu")[0] is State.STOPPED
    assert len(world.arrived("eu")) == 5 + 12


def test_a_first_comparison_names_a_lost_end(world: World) -> None:
    world.publish("us", 10)
    _lose(world, 8, 9)
    world.fails("eu", ":8-9")
    assert world.arrived("eu") == []


def test_what_the_target_holds_is_not_lost(world: World) -> None:
    world.publish("us", 10)
    assert world.ended("eu")[0] is State.STOPPED
    world.publish("us", 11)
    _lose(world, 8, 9, 10)
    world.fails("eu", ":10-10")
