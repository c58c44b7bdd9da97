"""Waiting until regions hold what was published: for whom, for how long, and what it says when it was too long."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from geo.cli.main import main
from geo.errors import NotReplicatedError, UsageError
from geo.log import replicas
from geo.log.ledgers import Ledger, LedgerKey
from geo.log.publish import publish
from geo.log.publisher import Published
from geo.log.replicas import Replicas, WaitFor
from geo.now import now_us
from tests.running import running
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def _publish(world: World, end: int, wait_for: WaitFor, wait_s: float = 120.0) -> Published:
    done = publish(world.rows(0, end), TOPIC, world.config, "us", order_by="number", wait_for=wait_for, wait_s=wait_s)
    assert isinstance(done, Published)
    return done


def test_what_was_waited_for_is_there_when_its_region_is_gone_right_after(world: World) -> None:
    with running(world, "eu"):
        done = _publish(world, 10, ["eu"])
        shutil.rmtree(world.config.cluster("us").root or "")
        assert world.count("eu") == 10
    assert set(done.held_after) == {"eu"}
    assert done.rows == 10


def test_waiting_too_long_says_what_is_missing_where_and_publishes_nothing_twice(world: World) -> None:
    with pytest.raises(
        NotReplicatedError, match=r"is in us, and after [0-9.]+ s not yet .*: eu lacks 10 messages\. It is not"
    ) as late:
        _publish(world, 10, ["eu"], 0.5)
    assert isinstance(late.value.published, Published)
    assert late.value.published.rows == 10
    (ledger,) = world.log("us").read().selectExpr("max(ledger_id) AS id").collect()
    stop = threading.Event()
    stop.set()
    of = Replicas.of(["eu"], world.tables("us"), world.config, TOPIC, "default", {})
    with pytest.raises(NotReplicatedError, match="eu lacks 10 messages"):
        of.wait({LedgerKey("", None): Ledger(ledger["id"], 9, now_us())}, 3600.0, stop)
    waiting = threading.Thread(target=world.replicate, args=("eu",))
    waiting.start()
    again = _publish(world, 10, ["eu"])
    waiting.join()
    assert (again.rows, again.already_published, set(again.held_after)) == (0, 10, {"eu"})
    world.assert_clean()


def test_it_waits_for_so_many_and_for_those_in_sync(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.rewrite(("us", "eu", "in"))
    for target in ("eu", "in"):
        world.replicate(target)
    _publish(world, 5, [])
    world.replicate("eu")
    with running(world, "eu"):
        assert set(_publish(world, 10, 1).held_after) == {"eu"}
        monkeypatch.setattr(replicas, "IN_SYNC_US", 0)  # so that nobody waits half a minute for nothing
        assert set(_publish(world, 15, "in-sync").held_after) == {"eu"}, "in lacks what was published long ago"
        monkeypatch.setattr(replicas, "IN_SYNC_US", 3_600_000_000)
        with pytest.raises(NotReplicatedError, match="in lacks 20 messages"):
            _publish(world, 20, "in-sync", 1.0)


def test_a_region_that_gets_nothing_and_a_number_that_is_too_large_are_refused_before_anything_is_published(
    world: World,
) -> None:
    world.rewrite(("us", "eu", "in"), [("us", "eu"), ("in", "us")])
    for wait_for, says in (
        (["in"], "wait_for in: what is published to .* in us reaches eu"),
        (2, "wait_for 2: what"),
        (["mars"], "cluster 'mars' is unknown"),
    ):
        with pytest.raises(UsageError, match=says):
            _publish(world, 5, wait_for)
    assert world.log("us").exists()
    assert world.count("us") == 0


def test_what_was_read_from_files_is_waited_for_and_told(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"key": "a"}\n{"key": "b", "replicate_to": []}\n')
    run = ["publish", "--config", str(world.path), "--cluster", "us", "--topic", str(TOPIC), "--jsonl", str(lines)]
    assert main([*run, "--wait-for", "eu", "--wait-limit", "1 second"]) == 1
    said = capsys.readouterr()
    assert "2 messages published" in said.out
    assert "eu lacks 1 message." in said.err
    world.replicate("eu")
    assert main([*run, "--wait-for", "1"]) == 0
    assert "eu holds it, after" in capsys.readouterr().out
    assert main([*run, "--wait-for", "us"]) == 2
    assert main([*run, "--wait-for", "eu", "--trigger", "1 second"]) == 2
