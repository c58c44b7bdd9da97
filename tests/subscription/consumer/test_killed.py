"""A consumer's process that is really killed: what it could not tell any more is repeated elsewhere, and nothing else."""

from __future__ import annotations

import json
import signal

import pytest

from geo.ids import MessageId
from geo.subscription.failover import failover
from tests.processes import geo
from tests.running import running
from tests.subscription.consuming import NAME, consume, ids, known
from tests.world import TOPIC, World

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def test_a_killed_consumer_repeats_at_most_what_it_could_not_tell(linked: World, capsys: pytest.CaptureFixture[str]) -> None:
    world = linked
    args = ["consume", "--config", str(world.path), "--cluster", "eu", "--topic", str(TOPIC), "--subscription", NAME]
    written = 20
    with running(world, "eu") as into_eu, running(world, "us") as into_us:
        with geo(world.folder, *args, "--start", "earliest", "-o", "json") as consumer:

            def processed() -> list[MessageId]:
                lines = (line for line in consumer.log.read_text().splitlines() if line.startswith('{"origin"'))
                return [MessageId(row["origin"], row["ledger_id"], row["entry_id"]) for row in map(json.loads, lines)]

            consumer.until(lambda: len(processed()) >= 40)
            for _ in range(12):
                for cluster in ("eu", "us"):
                    world.write(cluster, written, written + 10)
                written += 10
            consumer.until(lambda: len(processed()) >= 200)
            consumer.signal(signal.SIGKILL)
            consumer.wait()
            first = processed()
        into_us.until(lambda: known(world, "us").acked.size >= known(world, "eu").acked.size)
        into_eu.until(lambda: world.count("us") == 2 * written)
        told = known(world, "us").acked
        moved = failover(world.spark, TOPIC, NAME, world.config, "eu", "us")
        second = consume(world, "us").ids
    assert moved.consumer == "killed"
    assert moved.to_deliver == len(second) == moved.at_most_repeated
    assert len(set(first)) == len(first)
    assert len(set(second)) == len(second)
    assert {*first, *second} == {*ids("eu", 0, written), *ids("us", 0, written)}
    repeated = set(first) & set(second)
    assert len(repeated) == len(first) - told.size, "what was told is not repeated"
    with capsys.disabled():
        print(f" [killed after {len(first)} messages: {len(repeated)} repeated, {told.size} not]", end="")
