"""Which bundles a broker gives up: Pulsar's shedders. Pure: no Spark, clock or I/O; AvgShedder chooses among equals as it is told to.

Each has `unload(brokers, recently_unloaded)`: the loads are over the short window, bundles in `recently_unloaded` are left alone, and
the result has for each broker that gives up any its bundles in the order of unloading. What is remembered between calls is in the object.
Bundles that are equally loaded come in the order of the report.

Pulsar's ThresholdShedder, OverloadShedder and AvgShedder find a busy broker by the resource that binds it, and then move bytes per second. Its brokers
bind at the network. Here a broker binds at its processor with a hundredth of the bytes, so what is to go is a part of the broker's usage, and a
bundle takes of it what its share of the load is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Protocol

from geo.fleet.placement.avg_shedder import AvgShedder as AvgShedder
from geo.fleet.placement.load_data import BrokerLoad, Settings, UsageAverage

MARGIN = 0.05
"""So much more than needed is unloaded, for the broker not to stay at the threshold (ADDITIONAL_THRESHOLD_PERCENT_MARGIN)."""

LOWER_BOUNDARY_MARGIN = 0.5
"""Of the threshold, for a broker that is far below the mean (LOWER_BOUNDARY_THRESHOLD_MARGIN)."""

DELTA = 1_000
"""A bundle may have so much more than what is still to move (UniformLoadShedder), messages or bytes per second."""

NO_TRAFFIC = 1e-6
"""A least rate up to it counts as 1 (UniformLoadShedder.EPS)."""


LEAST_SAMPLES = 3
"""A broker's averaged usage counts against it from so many samples on: a Java machine that starts takes all processors for a minute."""


class Shedder(Protocol):
    """What decides (LoadSheddingStrategy)."""

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        """For each broker that gives up any its bundles, in the order of unloading."""


class OverloadShedder:
    """Every broker at or above `broker_overloaded_threshold` gives up its excess, whatever the others have."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        unloaded = {}
        usages = {broker: load.max_usage(self._settings) for broker, load in brokers.items()}
        for broker, usage in usages.items():
            excess = usage - self._settings.broker_overloaded_threshold
            if excess >= 0 and (bundles := _heaviest(broker, brokers[broker], usages, excess + MARGIN, recently_unloaded)):
                unloaded[broker] = bundles
        return unloaded


class ThresholdShedder:
    """Every broker whose averaged usage is at or above the mean of all plus `broker_threshold_shedder` gives up its excess, if as large a part of
    its throughput is `bundle_unload_min_throughput_threshold` or more (0 by default; in Pulsar 10 MB). This is Pulsar's default.

    With `lower_boundary_shedding_enabled`, if nobody is above but somebody below the mean less the threshold, the most loaded broker that
    has several bundles gives up half the threshold.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.usages: dict[str, UsageAverage] = {}
        """Of each broker at the last call, with what moved since."""

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        unloaded: dict[str, list[str]] = {}
        settings, threshold = self._settings, self._settings.broker_threshold_shedder
        self.usages = {
            broker: self.usages.get(broker, UsageAverage()).add(load.max_usage(settings), settings)
            for broker, load in brokers.items()
        }
        usages = {broker: average.usage for broker, average in self.usages.items()}
        known = {broker for broker, average in self.usages.items() if average.count >= LEAST_SAMPLES}
        mean = sum(usages.values()) / len(brokers) if brokers else 0.0
        if mean == 0:
            return unloaded
        for broker, usage in usages.items():
            if broker in known and usage >= mean + threshold:
                self._give_up(unloaded, broker, brokers[broker], usages, usage - mean - threshold + MARGIN, recently_unloaded)
        if not unloaded and settings.lower_boundary_shedding_enabled and min(usages.values()) < mean - threshold:
            several = [
                broker
                for broker, load in brokers.items()
                if broker in known and len(load.bundles) > 1 and usages[broker] > mean - threshold
            ]
            if several:
                most = max(several, key=usages.__getitem__)
                self._give_up(unloaded, most, brokers[most], usages, threshold * LOWER_BOUNDARY_MARGIN, recently_unloaded)
        return unloaded

    def moved(self, source: str, target: str, usage: float) -> None:
        """A bundle that takes so much goes to another broker: the averages would say for minutes that it is still there."""
        for broker, more in ((source, -usage), (target, usage)):
            average = self.usages[broker]
            self.usages[broker] = replace(average, usage=max(0.0, average.usage + more))

    def _give_up(
        self,
        unloaded: dict[str, list[str]],
        broker: str,
        load: BrokerLoad,
        usages: Mapping[str, float],
        excess: float,
        recently_unloaded: Set[str],
    ) -> None:
        if load.throughput * excess >= self._settings.bundle_unload_min_throughput_threshold and (
            bundles := _heaviest(broker, load, usages, excess, recently_unloaded)
        ):
            unloaded[broker] = bundles


class UniformLoadShedder:
    """The broker with the greatest message rate gives up `max_unload` of its difference to the one with the least, if that is more than
    `msg_rate_difference_shedder_threshold` of the least; else, by throughput, if that is more than
    `msg_throughput_multiplier_difference_shedder_threshold` times the least. One broker at a call. A threshold of 0 turns its rule off."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        if not brokers:
            return {}
        settings = self._settings
        rate = _Extremes({broker: load.msg_rate for broker, load in brokers.items()})
        throughput = _Extremes({broker: load.throughput for broker, load in brokers.items()})
        if 0 < settings.msg_rate_difference_shedder_threshold < (rate.most - rate.least) / rate.least:
            of, least = rate, settings.min_unload_message
            loads = {bundle: load.msg_rate for bundle, load in brokers[of.broker].bundles.items()}
        elif 0 < settings.msg_throughput_multiplier_difference_shedder_threshold < throughput.most / throughput.least:
            of, least = throughput, settings.min_unload_message_throughput
            loads = {bundle: load.throughput for bundle, load in brokers[of.broker].bundles.items()}
        else:
            return {}
        bundles, left = list[str](), int((of.most - of.least) * settings.max_unload)
        if len(loads) > 1 and left >= least:
            for bundle in sorted(loads, key=loads.__getitem__, reverse=True):
                if len(bundles) == settings.max_unload_bundle_num_per_shedding:
                    break
                if bundle not in recently_unloaded and 0 < loads[bundle] <= left + DELTA:
                    left -= int(loads[bundle])
                    bundles.append(bundle)
        return {of.broker: bundles} if bundles else {}


class _Extremes:
    """The most and the least of what brokers have, and who has the most. Of equals the first counts."""

    def __init__(self, of_brokers: Mapping[str, float]) -> None:
        self.broker = max(of_brokers, key=of_brokers.__getitem__)
        self.most = of_brokers[self.broker]
        least = min(of_brokers.values())
        self.least = 1.0 if least <= NO_TRAFFIC else least


def _heaviest(
    broker: str, load: BrokerLoad, usages: Mapping[str, float], excess: float, recently_unloaded: Set[str]
) -> list[str]:
    """The bundles of the greatest share until they take the excess of the broker's usage, one at least; none of a broker that has a single one,
    and none without load.

    A bundle that would make the least used of the other brokers as busy as this one is left out: a hot one that cannot be split would go from
    broker to broker for ever, and all others would make room for it. (Pulsar unloads it.)
    """
    chosen: list[str] = []
    if len(load.bundles) > 1:
        usage, least = usages[broker], min((of for other, of in usages.items() if other != broker), default=0.0)
        takes = {
            bundle: usage * share for bundle, share in load.shares().items() if share > 0 and bundle not in recently_unloaded
        }
        for bundle in sorted(takes, key=takes.__getitem__, reverse=True):
            if chosen and excess <= 0:
                break
            if takes[bundle] < usage - least:
                chosen.append(bundle)
                excess, usage = excess - takes[bundle], usage - takes[bundle]
    return chosen


SHEDDERS: Mapping[str, Callable[[Settings], Shedder]] = {
    kind.__name__: kind for kind in (ThresholdShedder, OverloadShedder, UniformLoadShedder, AvgShedder)
}
"""By name, Pulsar's default first."""
