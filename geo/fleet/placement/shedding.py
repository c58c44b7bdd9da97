"""Which bundles a broker gives up: Pulsar's shedders. Pure: no Spark, clock or I/O; AvgShedder chooses among equals as it is told to.

Each has `unload(brokers, recently_unloaded)`: the loads are over the short window, bundles in `recently_unloaded` are left alone, and
the result has for each broker that gives up any its bundles in the order of unloading. What is remembered between calls is in the object.
Bundles that are equally loaded come in the order of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Protocol

from geo.fleet.placement.avg_shedder import AvgShedder as AvgShedder
from geo.fleet.placement.load_data import BrokerLoad, Settings, smoothed

MARGIN = 0.05
"""So much more than needed is unloaded, for the broker not to stay at the threshold (ADDITIONAL_THRESHOLD_PERCENT_MARGIN)."""

LOWER_BOUNDARY_MARGIN = 0.5
"""Of the threshold, for a broker that is far below the mean (LOWER_BOUNDARY_THRESHOLD_MARGIN)."""

DELTA = 1_000
"""A bundle may have so much more than what is still to move (UniformLoadShedder), messages or bytes per second."""

NO_TRAFFIC = 1e-6
"""A least rate up to it counts as 1 (UniformLoadShedder.EPS)."""


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
        for broker, load in brokers.items():
            excess = load.max_usage(self._settings) - self._settings.broker_overloaded_threshold
            if excess >= 0 and (bundles := _heaviest(load, load.throughput * (excess + MARGIN), recently_unloaded)):
                unloaded[broker] = bundles
        return unloaded


class ThresholdShedder:
    """Every broker whose averaged usage is at or above the mean of all plus `broker_threshold_shedder` gives up its excess, if that is
    `bundle_unload_min_throughput_threshold` or more. This is Pulsar's default.

    With `lower_boundary_shedding_enabled`, if nobody is above but somebody below the mean less the threshold, the most loaded broker that
    has several bundles gives up half the threshold.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._usage: dict[str, float] = {}

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        unloaded: dict[str, list[str]] = {}
        settings, threshold = self._settings, self._settings.broker_threshold_shedder
        self._usage = {
            broker: smoothed(self._usage.get(broker), load.max_usage(settings), settings) for broker, load in brokers.items()
        }
        mean = sum(self._usage.values()) / len(brokers) if brokers else 0.0
        if mean == 0:
            return unloaded
        for broker, usage in self._usage.items():
            if usage >= mean + threshold:
                self._give_up(unloaded, broker, brokers[broker], usage - mean - threshold + MARGIN, recently_unloaded)
        if not unloaded and settings.lower_boundary_shedding_enabled and min(self._usage.values()) < mean - threshold:
            several = [
                broker for broker, load in brokers.items() if len(load.bundles) > 1 and self._usage[broker] > mean - threshold
            ]
            if several:
                most = max(several, key=self._usage.__getitem__)
                self._give_up(unloaded, most, brokers[most], threshold * LOWER_BOUNDARY_MARGIN, recently_unloaded)
        return unloaded

    def _give_up(
        self, unloaded: dict[str, list[str]], broker: str, load: BrokerLoad, fraction: float, recently_unloaded: Set[str]
    ) -> None:
        amount = load.throughput * fraction
        if amount >= self._settings.bundle_unload_min_throughput_threshold and (
            bundles := _heaviest(load, amount, recently_unloaded)
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
        rates = {broker: load.msg_rate for broker, load in brokers.items()}
        throughputs = {broker: load.throughput for broker, load in brokers.items()}
        rate, throughput = _Extremes(rates), _Extremes(throughputs)
        if 0 < settings.msg_rate_difference_shedder_threshold < (rate.most - rate.least) / rate.least:
            left, least = int((rate.most - rate.least) * settings.max_unload), settings.min_unload_message
            loads = {bundle: load.msg_rate for bundle, load in brokers[rate.broker].bundles.items()}
            broker = rate.broker
        elif 0 < settings.msg_throughput_multiplier_difference_shedder_threshold < throughput.most / throughput.least:
            left, least = int((throughput.most - throughput.least) * settings.max_unload), settings.min_unload_message_throughput
            loads = {bundle: load.throughput for bundle, load in brokers[throughput.broker].bundles.items()}
            broker = throughput.broker
        else:
            return {}
        bundles: list[str] = []
        if len(loads) > 1 and left >= least:
            for bundle in sorted(loads, key=loads.__getitem__, reverse=True):
                if len(bundles) == settings.max_unload_bundle_num_per_shedding:
                    break
                if bundle not in recently_unloaded and 0 < loads[bundle] <= left + DELTA:
                    left -= int(loads[bundle])
                    bundles.append(bundle)
        return {broker: bundles} if bundles else {}


class _Extremes:
    """The most and the least of what brokers have, and who has the most. Of equals the first counts."""

    def __init__(self, of_brokers: Mapping[str, float]) -> None:
        self.broker = max(of_brokers, key=of_brokers.__getitem__)
        self.most = of_brokers[self.broker]
        least = min(of_brokers.values())
        self.least = 1.0 if least <= NO_TRAFFIC else least


def _heaviest(load: BrokerLoad, amount: float, recently_unloaded: Set[str]) -> list[str]:
    """The bundles of the greatest throughput until they have the amount, one at least; none of a broker that has a single one."""
    chosen: list[str] = []
    if len(load.bundles) > 1:
        throughputs = {bundle: of.throughput for bundle, of in load.bundles.items() if bundle not in recently_unloaded}
        for bundle in sorted(throughputs, key=throughputs.__getitem__, reverse=True):
            if chosen and amount <= 0:
                break
            chosen.append(bundle)
            amount -= throughputs[bundle]
    return chosen


SHEDDERS: Mapping[str, Callable[[Settings], Shedder]] = {
    kind.__name__: kind for kind in (ThresholdShedder, OverloadShedder, UniformLoadShedder, AvgShedder)
}
"""By name, Pulsar's default first."""
