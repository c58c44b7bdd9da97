"""What PIP-33 keeps for a topic, without Spark: what additions to a cache of snapshots take, and how large the state of a controller gets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from geo.ids import Position
from geo.subscription.controller import TopicController
from geo.subscription.controller_rows import MarkerRow, Progress, Subscribed, Tick
from geo.subscription.markers import SnapshotTaken, encode
from geo.subscription.snapshot_cache import Snapshot, SnapshotCache

TOPIC = "persistent://shop/web/clicks"
_MAX_CACHED = 30
_BEGAN_US, _APART_US = 1_800_000_000_000_000, 10_000_000
_SAMPLES = 20


def states(additions: int, snapshots: int, subscriptions: int) -> Iterator[str]:
    """A line for each case, as it is measured."""
    yield f"{additions:,} additions to a cache of {_MAX_CACHED}, advanced behind each hundredth: {_additions_s(additions):.1f} s"
    few = subscriptions // 100
    for what, count, every, finishes in (
        (f"{few:,} subscriptions, of which one finishes a version with each snapshot", few, 0, True),
        (f"{subscriptions:,} that all wait", subscriptions, 0, False),
        (f"{subscriptions:,} that came one with each snapshot, and all wait", subscriptions, 1, False),
    ):
        yield f"state of a topic of three clusters in {snapshots:,} snapshots, {what}: {_Controller(count, every, finishes).largest(snapshots)}"


def _additions_s(additions: int) -> float:
    cache = SnapshotCache(_MAX_CACHED)
    snapshots = [
        Snapshot(f"us:{TOPIC}:{number}", Position.end(number), {"eu": Position.end(number)}) for number in range(additions)
    ]
    began = time.perf_counter()
    for number, snapshot in enumerate(snapshots):
        cache.add(snapshot)
        if number % 100 == 99:
            cache.advance(Position.end(number - 50))
    return time.perf_counter() - began


class _Controller:
    """One that hears of snapshot after snapshot, and of a subscription with each `every`th; 0: of all before the first."""

    def __init__(self, subscriptions: int, every: int, finishes: bool) -> None:
        self._controller = TopicController("us", TOPIC)
        self._subscriptions, self._every, self._finishes = subscriptions, every, finishes
        self._seq = 0

    def largest(self, snapshots: int) -> str:
        bytes_, different, seconds = 0, 0, 0.0
        self._controller.hear(Tick(self._next(), _BEGAN_US / 1e6, None, ("ap", "eu")))  # without one no snapshot counts
        for number in range(snapshots):
            self._subscribe(number)
            self._take(number)
            if self._finishes:
                name = f"subscription-{number % self._subscriptions}"
                self._controller.hear(Progress(self._next(), name, max(0, 3 * (number - number % 97))))
            if (number + 1) % max(1, snapshots // _SAMPLES) == 0:
                began = time.perf_counter()
                state = json.dumps(self._controller.to_state(), separators=(",", ":"))
                again = TopicController.from_state("us", TOPIC, kept := json.loads(state))
                took = time.perf_counter() - began
                assert again.to_state() == self._controller.to_state()
                if len(state) > bytes_:
                    bytes_, different, seconds = len(state), len(kept["snapshots"]), took
        assert different
        return (
            f"at most {bytes_ / 1e3:,.0f} kB, with {different:,} different snapshots; written and read in {seconds * 1e3:,.0f} ms"
        )

    def _subscribe(self, number: int) -> None:
        there = len(self._controller.subscriptions)
        wanted = self._subscriptions if not self._every else min(self._subscriptions, number // self._every + 1)
        for name in range(there, wanted):
            self._controller.hear(Subscribed(self._next(), f"subscription-{name}"))

    def _take(self, number: int) -> None:
        """A snapshot in the third commit after the last one: two that its requests and answers make, and one of messages."""
        version, began_us = 3 * (number + 1), _BEGAN_US + number * _APART_US
        places = {name: Position.end(version) for name in ("ap", "eu")}
        taken = SnapshotTaken(Snapshot(f"us:{TOPIC}:{began_us}", Position.end(version - 1), places, began_us), self._seq, version)
        self._controller.hear(MarkerRow(self._next(), "SNAPSHOT", encode(taken), "us", Position(version, 0), version))

    def _next(self) -> int:
        self._seq += 1
        return self._seq
