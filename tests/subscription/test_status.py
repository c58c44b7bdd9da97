"""Whether consumers run, by signs of life."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from geo.cli.main import main
from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import consumer_runner
from geo.delta.process import Process
from geo.schemas import OWNERS
from geo.subscription.acks.consumers import ConsumerState, lacking_shares
from geo.subscription.status import Standing, standings
from tests.rows import owner
from tests.world import TOPIC, World

NAME = "s"
RUNNING, KILLED, STOPPED = ConsumerState.RUNNING, ConsumerState.KILLED, ConsumerState.STOPPED


@pytest.mark.parametrize(
    ("shares", "lacking"),
    [
        ({}, []),
        ({"": RUNNING}, []),
        ({"": KILLED}, []),
        ({"keys 0 of 2": RUNNING, "keys 1 of 2": RUNNING}, []),
        ({"keys 0 of 2": RUNNING}, ["keys 1 of 2"]),
        ({"keys 0 of 2": RUNNING, "keys 1 of 2": KILLED}, ["keys 1 of 2"]),
        ({"keys 0 of 2": KILLED, "keys 1 of 2": STOPPED}, []),
        ({"keys 2 of 3": RUNNING, "keys 0 of 2": STOPPED}, ["keys 0 of 3", "keys 1 of 3"]),
        ({"": RUNNING, "keys 0 of 2": KILLED}, []),
    ],
)
def test_shares_that_nobody_has_beside_others_are_named(shares: dict[str, ConsumerState], lacking: list[str]) -> None:
    assert lacking_shares(shares) == lacking


def _owned_by(world: World, holder: Process, share: str, age: timedelta = timedelta(0)) -> None:
    """As a process that claimed a share of the subscription and did not release it."""
    tables = world.tables("eu")
    tables.journal(OWNERS).append([owner(consumer_runner(tables, TOPIC, NAME, share).name, holder=holder, age=age)])


def _in_eu(world: World) -> Standing:
    return next(one for one in standings({"eu": world.tables("eu")}, world.config, TOPIC, NAME))


@pytest.mark.spark
def test_a_consumer_that_was_killed_does_not_run_nor_does_one_that_is_silent(world: World) -> None:
    world.write("eu", 0, 5)
    me = world.tables("eu").me
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    _owned_by(world, replace(me, pid=child.pid, started="1"), "")
    assert (_in_eu(world).runs, _in_eu(world).consumer) == (False, "killed")
    _owned_by(world, replace(me, host="elsewhere"), "keys 0 of 2")
    assert (_in_eu(world).runs, _in_eu(world).lacking_shares) == (True, ("keys 1 of 2",)), "it gave a sign of life lately"
    _owned_by(world, replace(me, host="elsewhere"), "keys 0 of 2", timedelta(hours=1))
    assert (_in_eu(world).runs, _in_eu(world).consumer) == (False, "killed")


@pytest.mark.spark
def test_a_share_that_nobody_has_is_named_with_exit_code_1(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.write("eu", 0, 5)
    tables = world.tables("eu")
    status = ["subscriptions", "status", "--config", str(world.path), "--topic", str(TOPIC), "--subscription", NAME]
    both = claim(tables, [[consumer_runner(tables, TOPIC, NAME, f"keys {number} of 2")] for number in range(2)])
    assert main(status) == 0
    release(both[1:])
    assert main(status) == 1
    assert "nobody has keys 1 of 2" in capsys.readouterr().out
    release(both[:1])
    assert main(status) == 0
    assert "eu: no consumer runs, epoch 0" in capsys.readouterr().out
