"""Shedders, which decide what bundles a broker gives up: Pulsar's. Pure: no Spark, clock, random or I/O.

Each has `unload(brokers, recently_unloaded)`: the loads are over the short window, bundles in `recently_unloaded` are left alone. The result has for
each broker that gives up any its bundles in the order of unloading. What is remembered between calls is in the object. Bundles that are equally
loaded come in the order of the report.

Pulsar's ThresholdShedder, OverloadShedder and AvgShedder find a busy broker by the resource that binds it, and then move bytes per second. Its
brokers bind at the network. Here a broker binds at its processor with a hundredth of the bytes. So what is to go is a part of the broker's usage, and
a bundle takes of it what its share of the load is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Protocol

from geo.fleet.placement.load_data import BalancerSettings, BrokerLoad, Loads, UsageAverage

MARGIN = 0.05
"""So much more than needed is unloaded, for the broker not to stay at the threshold (ADDITIONAL_THRESHOLD_PERCENT_MARGIN)."""

LOWER_BOUNDARY_MARGIN = 0.5
"""Part of the threshold, for a broker that is far below the mean (LOWER_BOUNDARY_THRESHOLD_MARGIN)."""

DELTA = 1_000
"""A bundle may have so much more than what is still to move (UniformLoadShedder), messages or bytes per second."""

NO_TRAFFIC = 1e-6
"""A least rate up to it counts as 1 (UniformLoadShedder.EPS)."""


LEAST_SAMPLES = 3
"""A broker's averaged usage counts against it from so many samples on: a Java machine that starts takes all processors for a minute."""


class Shedder(Protocol):
    """Strategy that decides what is unloaded (LoadSheddingStrategy)."""

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        """For each broker that gives up any its bundles, in the order of unloading."""


class OverloadShedder:
    """Every broker at or above `broker_overloaded_threshold` gives up its excess, whatever the others have."""

    def __init__(self, settings: BalancerSettings) -> None:
        self._settings = settings

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        usages, most = _usages(brokers, self._settings), self._settings.broker_overloaded_threshold
        excess = {broker: usage - most + MARGIN for broker, usage in usages.items() if usage >= most}
        return _given_up(brokers, usages, excess, recently_unloaded)


class ThresholdShedder:
    """Pulsar's default: a broker whose averaged usage is at or above the mean of all plus `broker_threshold_shedder` gives up its excess. It does so
    if as large a part of its throughput is `bundle_unload_min_throughput_threshold` or more (0 by default; in Pulsar 10 MB).

    With `lower_boundary_shedding_enabled` the most loaded broker that has several bundles gives up half the threshold. That is if nobody is above,
    but somebody is below the mean less the threshold.
    """

    def __init__(self, settings: BalancerSettings) -> None:
        self._settings = settings
        self.usages: dict[str, UsageAverage] = {}
        """Usages of the brokers at the last call, with what moved since."""

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        settings, threshold = self._settings, self._settings.broker_threshold_shedder
        self.usages = {
            broker: self.usages.get(broker, UsageAverage()).add(usage, settings)
            for broker, usage in _usages(brokers, settings).items()
        }
        usages = {broker: average.usage for broker, average in self.usages.items()}
        known = {broker for broker, average in self.usages.items() if average.count >= LEAST_SAMPLES}
        mean = sum(usages.values()) / len(brokers) if brokers else 0.0
        if mean == 0:
            return {}

        def given_up(excess: Mapping[str, float]) -> dict[str, list[str]]:
            least = settings.bundle_unload_min_throughput_threshold
            enough = {broker: usage for broker, usage in excess.items() if brokers[broker].throughput * usage >= least}
            return _given_up(brokers, usages, enough, recently_unloaded)

        above = {broker: usage for broker, usage in usages.items() if broker in known and usage >= mean + threshold}
        unloaded = given_up({broker: usage - mean - threshold + MARGIN for broker, usage in above.items()})
        if not unloaded and settings.lower_boundary_shedding_enabled and min(usages.values()) < mean - threshold:
            several = [
                broker
                for broker, load in brokers.items()
                if broker in known and len(load.bundles) > 1 and usages[broker] > mean - threshold
            ]
            if several:
                return given_up({max(several, key=usages.__getitem__): threshold * LOWER_BOUNDARY_MARGIN})
        return unloaded

    def moved(self, source: str, target: str, usage: float) -> None:
        """A bundle that takes so much goes to another broker: the averages would say for minutes that it is still there."""
        for broker, more in ((source, -usage), (target, usage)):
            average = self.usages[broker]
            self.usages[broker] = replace(average, usage=max(0.0, average.usage + more))


class UniformLoadShedder:
    """The broker with the greatest message rate gives up `max_unload` of its difference to the one with the least. It does if that is more than
    `msg_rate_difference_shedder_threshold` of the least. Else, by throughput, if that is more than
    `msg_throughput_multiplier_difference_shedder_threshold` times the least. One broker at a call. A threshold of 0 turns its rule off."""

    def __init__(self, settings: BalancerSettings) -> None:
        self._settings = settings

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        if not brokers:
            return {}
        settings = self._settings
        source, most, least = _extremes({broker: load.msg_rate for broker, load in brokers.items()})
        if 0 < settings.msg_rate_difference_shedder_threshold < (most - least) / least:
            enough = settings.min_unload_message
            loads = {bundle: load.msg_rate for bundle, load in brokers[source].bundles.items()}
        else:
            source, most, least = _extremes({broker: load.throughput for broker, load in brokers.items()})
            if not 0 < settings.msg_throughput_multiplier_difference_shedder_threshold < most / least:
                return {}
            enough = settings.min_unload_message_throughput
            loads = {bundle: load.throughput for bundle, load in brokers[source].bundles.items()}
        bundles, left = list[str](), int((most - least) * settings.max_unload)
        if len(loads) > 1 and left >= enough:
            for bundle in sorted(loads, key=loads.__getitem__, reverse=True):
                if len(bundles) == settings.max_unload_bundle_num_per_shedding:
                    break
                if bundle not in recently_unloaded and 0 < loads[bundle] <= left + DELTA:
                    left -= int(loads[bundle])
                    bundles.append(bundle)
        return {source: bundles} if bundles else {}


class AvgShedder:
    """Pulsar's shedder that places too: what it takes from a broker goes to the one that it was compared with.

    Compares the most loaded broker with the least loaded one, the second most with the second least and so on. Some pairs differ by a low threshold
    many times in a row, or by a high one a few times. Then it moves `max_unload` of the difference from the one to the other. (In Pulsar of the
    difference of messages or of bytes, if that is 1,000 messages or 1 MB per second.)

    As the strategy it must be the same object: it remembers where each bundle is expected. A bundle of which it has decided nothing goes to any
    candidate, and is expected there from then on.
    """

    def __init__(self, settings: BalancerSettings, choose: Callable[[Sequence[str]], str]) -> None:
        self._settings, self._choose = settings, choose
        self._expected: dict[str, str] = {}
        self._hits = (
            (settings.avg_shedder_low_threshold, settings.avg_shedder_hit_count_low_threshold, Counter[str]()),
            (settings.avg_shedder_high_threshold, settings.avg_shedder_hit_count_high_threshold, Counter[str]()),
        )
        """Hits by threshold: how many it takes, and how many each broker has."""

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        unloaded: dict[str, list[str]] = {}
        pairs = self._count_hits(_usages(brokers, self._settings))
        if not pairs:
            for _, _, hits in self._hits:
                hits.clear()
        for target, source in pairs:
            if not self._take_hit(target, source):
                continue
            bundles = self._chosen(brokers[source], brokers[target], recently_unloaded)
            if bundles:
                unloaded[source] = bundles
                self._expected.update(dict.fromkeys(bundles, target))
        return unloaded

    def select(self, candidates: Sequence[str], brokers: Loads, bundle: str = "") -> str | None:
        if not candidates:
            return None
        if self._expected.get(bundle) not in candidates:
            self._expected[bundle] = self._choose(sorted(candidates))
        return self._expected[bundle]

    def _count_hits(self, scores: Mapping[str, float]) -> list[tuple[str, str]]:
        """The pairs that differ by the low threshold at least, the less loaded of each first; their hits counted, all others' forgotten."""
        ranked = sorted(scores, key=scores.__getitem__)
        pairs = []
        for low, high in zip(ranked[: (len(ranked) + 1) // 2], reversed(ranked), strict=False):
            difference = scores[high] - scores[low]
            for threshold, _, hits in self._hits:
                if difference >= threshold:
                    hits.update((low, high))
                else:
                    del hits[low], hits[high]
            if difference >= self._settings.avg_shedder_low_threshold:
                pairs.append((low, high))
        return pairs

    def _take_hit(self, *pair: str) -> bool:
        """Tells whether one of the pair was hit often enough; its hits are then forgotten."""
        if not any(hits[broker] >= enough for _, enough, hits in self._hits for broker in pair):
            return False
        for _, _, hits in self._hits:
            for broker in pair:
                del hits[broker]  # of a Counter: if it has any
        return True

    def _chosen(self, source: BrokerLoad, target: BrokerLoad, recently_unloaded: Set[str]) -> list[str]:
        """Chooses of the source's bundles, the heaviest first, each that takes no more of its usage than what is still to move."""
        usage = source.max_usage(self._settings)
        left = (usage - target.max_usage(self._settings)) * self._settings.max_unload
        takes = {bundle: usage * share for bundle, share in source.shares().items() if bundle not in recently_unloaded}
        chosen = []
        for bundle in sorted(takes, key=takes.__getitem__, reverse=True):
            if 0 < takes[bundle] <= left:
                chosen.append(bundle)
                left -= takes[bundle]
        return chosen


def _usages(brokers: Mapping[str, BrokerLoad], settings: BalancerSettings) -> dict[str, float]:
    return {broker: load.max_usage(settings) for broker, load in brokers.items()}


def _extremes(of_brokers: Mapping[str, float]) -> tuple[str, float, float]:
    """Names who has the most, of equals the first; how much that is, and the least."""
    most, least = max(of_brokers, key=of_brokers.__getitem__), min(of_brokers.values())
    return most, of_brokers[most], 1.0 if least <= NO_TRAFFIC else least


def _given_up(
    brokers: Mapping[str, BrokerLoad], usages: Mapping[str, float], excess: Mapping[str, float], recently_unloaded: Set[str]
) -> dict[str, list[str]]:
    """Chooses, of the brokers that have an excess of usage, those that give up any bundles, and which."""
    found = {broker: _heaviest(broker, brokers[broker], usages, usage, recently_unloaded) for broker, usage in excess.items()}
    return {broker: bundles for broker, bundles in found.items() if bundles}


def _heaviest(
    broker: str, load: BrokerLoad, usages: Mapping[str, float], excess: float, recently_unloaded: Set[str]
) -> list[str]:
    """The bundles of the greatest share until they take the excess of the broker's usage, one at least. None of a broker that has a single one, and
    none without load.

    A bundle that would make the least used of the other brokers as busy as this one is left out. A hot one that cannot be split would go from
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


SHEDDERS: Mapping[str, Callable[[BalancerSettings], Shedder]] = {
    kind.__name__: kind for kind in (ThresholdShedder, OverloadShedder, UniformLoadShedder)
}
"""Shedders by name; AvgShedder is a strategy besides."""
