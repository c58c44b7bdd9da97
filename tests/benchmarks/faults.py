"""What five faults at once in one broker cost the topics that have none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from geo.streams.life import State
from tests.benchmarks.bench import at
from tests.fleet.test_broker import Running
from tests.fleet.test_five_faults import FAULTS, WELL, world_of
from tests.world import World

EVERY_S = 0.5


def faults(spark: SparkSession, folder: Path, commits: int) -> Iterator[str]:
    """Two topics that get a commit each half second, in a broker of seven: before, and while the others are poisoned, made anew, forbidden, on a
    full disk and in a region that is away."""
    folder.mkdir()
    world = world_of(spark, folder)
    with Running(world, "eu") as running:
        _runs(running)
        _lags(world, 20, 10)  # warms up
        without = _lags(world, 30, commits)
    with ExitStack() as healed:
        for fault in FAULTS:
            healed.enter_context(fault(world))  # type: ignore[arg-type]
        with Running(world, "eu") as running:
            _runs(running)
            _lags(world, 30 + commits, 10)
            beside = _lags(world, 40 + commits, commits)
    yield (
        f"{len(WELL)} topics, {commits} commits each, behind by {at(without, 50):.3f} s (p50) and {at(without, 95):.3f} s (p95) while all is well, by {at(beside, 50):.3f} s (p50) and {at(beside, 95):.3f} s (p95) while {len(FAULTS)} other topics of "
        f"the broker have faults: {at(beside, 50) / at(without, 50):.2f} x (p50)"
    )


def _runs(running: Running) -> None:
    names = {f"us->eu {topic}" for topic in WELL}
    running.until(lambda: names <= {one.name for one in running.events if one.state is State.RUNNING})


def _lags(world: World, first: int, commits: int) -> list[float]:
    """Seconds from a commit in us to that in eu, entry by entry."""
    found: list[float] = []
    for entry in range(first, first + commits):
        for topic in WELL:
            log = world.log("eu", topic)
            before = log.latest_version()
            world.write("us", entry, entry + 1, topic=topic)
            began = time.monotonic()
            while not log.has_commit(before + 1):
                time.sleep(0.002)
            found.append(time.monotonic() - began)
        time.sleep(EVERY_S)
    return found
