"""Strategies that choose the candidate for a bundle: Pulsar's. Pure: no Spark, clock, random or I/O.

Each is an object that keeps what it remembers between calls. `brokers` has the load of every candidate, over the long window and with what was placed
on it since its report; nothing is placed here. `bundle` is the one to be placed, which only AvgShedder asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from geo.fleet.placement.load_data import BalancerSettings, BrokerLoad, Loads, smoothed

Choose = Callable[[Sequence[str]], str]
"""Chooses one of several brokers that are equally good."""


class Strategy(Protocol):
    """Strategy that chooses a broker (ModularLoadManagerStrategy)."""

    def select(self, candidates: Sequence[str], brokers: Loads, bundle: str = "") -> str | None:
        """One of the candidates; None if there are none."""


class LeastLongTermMessageRate:
    """The broker with the least message rate, in and out; one above the overload threshold only if all are. This is Pulsar's default."""

    def __init__(self, settings: BalancerSettings, choose: Choose) -> None:
        self._settings, self._choose = settings, choose

    def select(self, candidates: Sequence[str], brokers: Loads, bundle: str = "") -> str | None:
        if not candidates:
            return None
        chosen = self._choose(self._least(candidates, brokers))
        if self._overloaded(brokers[chosen]):  # rare, so the usages of all are looked at only now
            fit = [broker for broker in candidates if not self._overloaded(brokers[broker])]
            chosen = self._choose(self._least(fit, brokers) or candidates)
        return chosen

    def _least(self, among: Sequence[str], brokers: Loads) -> list[str]:
        rates = list(map(brokers.msg_rates.__getitem__, among))
        least = min(rates, default=0.0)
        if rates.count(least) == 1:  # faster where many bundles are placed among many brokers
            return [among[rates.index(least)]]
        return [broker for broker, rate in zip(among, rates, strict=True) if rate == least]

    def _overloaded(self, load: BrokerLoad) -> bool:
        return load.max_usage(self._settings) > self._settings.broker_overloaded_threshold


class LeastResourceUsageWithWeight:
    """Any of the brokers whose averaged usage is below the candidates' mean by `average_resource_usage_difference_threshold` or more; of all, if
    there are none.

    The average is taken at every call. A broker without bundles or traffic has its usage of now: it may have been restarted.
    """

    def __init__(self, settings: BalancerSettings, choose: Choose) -> None:
        self._settings, self._choose = settings, choose
        self._usage: dict[str, float] = {}

    def select(self, candidates: Sequence[str], brokers: Loads, bundle: str = "") -> str | None:
        if not candidates:
            return None
        if len(self._usage) > len(brokers):
            self._usage = {broker: usage for broker, usage in self._usage.items() if broker in brokers}
        usages = [self._averaged(broker, brokers[broker]) for broker in candidates]
        self._usage.update(zip(candidates, usages, strict=True))
        limit = sum(usages) / len(usages)
        below = self._settings.average_resource_usage_difference_threshold
        best = [broker for broker, usage in zip(candidates, usages, strict=True) if usage + below <= limit]
        return self._choose(best or candidates)

    def _averaged(self, broker: str, load: BrokerLoad) -> float:
        old = self._usage.get(broker) if load.bundles and load.msg_rate > 0 else None
        return smoothed(old, load.max_usage(self._settings), self._settings)


class RoundRobin:
    """The candidates one after the other, in the order of their names, by one counter (RoundRobinBrokerSelector)."""

    def __init__(self, settings: BalancerSettings, choose: Choose) -> None:
        self._count = 0

    def select(self, candidates: Sequence[str], brokers: Loads, bundle: str = "") -> str | None:
        if not candidates:
            return None
        self._count += 1
        return sorted(candidates)[(self._count - 1) % len(candidates)]


STRATEGIES: Mapping[str, Callable[[BalancerSettings, Choose], Strategy]] = {
    kind.__name__: kind for kind in (LeastLongTermMessageRate, LeastResourceUsageWithWeight, RoundRobin)
}
"""Strategies by name. (AvgShedder is in `shedding.py`.)"""
