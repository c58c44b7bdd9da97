"""Simulation of the manager of `placement/` on a cluster that is not there: every minute is one decision, which is done at once. Time is counted and
not waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import mean, median, pstdev
from typing import Any

from geo.fleet.placement.manager import Manager
from geo.fleet.placement.policies import Policies
from geo.fleet.simulated_cluster import SimulatedCluster

MINUTE_S = 60.0

BALANCED = 1.3
"""A cluster is balanced while its heaviest broker has less than so many times the mean, or the heaviest topic if that is more."""


@dataclass(frozen=True, slots=True)
class Minute:
    """Result of a minute's decision, and the cluster after it. Loads are in bytes per second."""

    heaviest: float
    """The broker with the most."""
    heaviest_without: float
    """The most that a broker has whose bundles are all lighter than the mean."""
    mean: float
    deviation: float
    """The standard deviation over the mean."""
    heaviest_topic: float
    unassigned: int
    """Bundles that nobody owns or has had before."""
    moves: int
    splits: int
    decision_s: float
    """Seconds of a processor that the decision took."""

    @property
    def ratio(self) -> float:
        """The heaviest broker over the larger of the mean and the heaviest topic."""
        return self.heaviest / (max(self.mean, self.heaviest_topic) or 1.0)


@dataclass(frozen=True, slots=True)
class Phase:
    """The minutes from one change of the load to the next."""

    minutes: list[Minute]

    @property
    def minutes_to_balance(self) -> int | None:
        """After how many minutes the ratio was below BALANCED, with every bundle owned, and stayed so; None: it was not at the end."""
        outside = [at for at, minute in enumerate(self.minutes) if minute.ratio >= BALANCED or minute.unassigned]
        first = outside[-1] + 1 if outside else 0
        return first if first < len(self.minutes) else None

    def to_json(self) -> dict[str, Any]:
        last, times = self.minutes[-1], [minute.decision_s for minute in self.minutes]
        hour = self.minutes[-60:]
        return {
            "minutes": len(self.minutes),
            "minutes_to_balance": self.minutes_to_balance,
            "ratio": last.ratio,
            "spread": last.heaviest / (last.mean or 1.0),
            "spread_without_heavy": last.heaviest_without / (last.mean or 1.0),
            "deviation": last.deviation,
            "moves": sum(minute.moves for minute in self.minutes),
            "moves_per_hour_at_end": sum(minute.moves for minute in hour) * 60 / len(hour),
            "splits": sum(minute.splits for minute in self.minutes),
            "decision_s_median": median(times),
            "decision_s_max": max(times),
            "unassigned": last.unassigned,
        }


def simulate(
    cluster: SimulatedCluster,
    manager: Manager,
    random: Random,
    *,
    minutes: int,
    changes: int,
    share: float,
    timer: Callable[[], float],
) -> list[Phase]:
    """Let a manager decide for `minutes`, and as long again after each of `changes`, at which a share of the topics trade their loads."""
    phases, now = [], 0.0
    for number in range(changes + 1):
        if number:
            cluster.change(random, share)
        heaviest_topic, found = cluster.heaviest_topic(), []
        for _ in range(minutes):
            reports, unassigned = cluster.reports(), cluster.unassigned()
            before = timer()
            decision = manager.decide(reports, Policies(), now, unassigned)
            took = timer() - before
            now += MINUTE_S
            moves = cluster.do(decision)
            found.append(_minute(cluster, heaviest_topic, moves, len(decision.splits), took))
        phases.append(Phase(found))
    return phases


def _minute(cluster: SimulatedCluster, heaviest_topic: float, moves: int, splits: int, decision_s: float) -> Minute:
    loads = cluster.throughputs()
    average = mean(loads.values())
    heavy = {broker for bundle, broker in cluster.holders().items() if cluster.parts[bundle].load.throughput > average}
    without = max((load for broker, load in loads.items() if broker not in heavy), default=0.0)
    deviation = pstdev(loads.values(), average) / (average or 1.0)
    unassigned = len(cluster.parts) - len(cluster.holders())
    return Minute(max(loads.values()), without, average, deviation, heaviest_topic, unassigned, moves, splits, decision_s)
