"""Load of brokers and bundles: rates, reports and averages. Pure: no Spark, clock, random or I/O.

As Pulsar's LocalBrokerData, TimeAverageMessageData, BundleData and ResourceUsage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from geo.config.placement import MIB as MIB
from geo.config.placement import BalancerSettings as BalancerSettings


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a resource, and how much of it there is, in one unit (ResourceUsage)."""

    used: float
    limit: float

    @property
    def fraction(self) -> float:
        """0 if there is no limit; more than 1 if more is used than there is."""
        return self.used / self.limit if self.limit > 0 else 0.0


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """Load that goes in and out of the topics of a bundle: messages per second, bytes per second, and how many topics it has (NamespaceBundleStats)."""

    msg_rate_in: float
    msg_rate_out: float
    throughput_in: float
    throughput_out: float
    topics: int = 0

    @property
    def msg_rate(self) -> float:
        return self.msg_rate_in + self.msg_rate_out

    @property
    def throughput(self) -> float:
        return self.throughput_in + self.throughput_out


@dataclass(frozen=True)
class BrokerLoad:
    """A broker's report: its resources, and the load of every bundle that it owns, also of those that are idle (LocalBrokerData).
    Its own rates are the sums of its bundles'."""

    cpu: Usage
    direct_memory: Usage
    bandwidth_in: Usage
    bandwidth_out: Usage
    bundles: Mapping[str, BundleLoad]

    @cached_property
    def msg_rate(self) -> float:
        """Messages per second, in and out."""
        return sum(load.msg_rate for load in self.bundles.values())

    @cached_property
    def throughput(self) -> float:
        """Bytes per second, in and out."""
        return sum(load.throughput for load in self.bundles.values())

    @cached_property
    def topics(self) -> int:
        return sum(load.topics for load in self.bundles.values())

    def max_usage(self, settings: BalancerSettings) -> float:
        """The greatest of the weighted usages, as a fraction (getMaxResourceUsageWithWeight)."""
        return max(self._usages(settings).values())

    def busiest(self, settings: BalancerSettings) -> str:
        """The resource of which that is."""
        usages = self._usages(settings)
        return max(usages, key=usages.__getitem__)

    def _usages(self, settings: BalancerSettings) -> dict[str, float]:
        return {
            "processor": self.cpu.fraction * settings.cpu_resource_weight,
            "memory": self.direct_memory.fraction * settings.direct_memory_resource_weight,
            "network": self.bandwidth_in.fraction * settings.bandwidth_in_resource_weight,
            "network (out)": self.bandwidth_out.fraction * settings.bandwidth_out_resource_weight,
        }

    def shares(self) -> dict[str, float]:
        """Shares of the bundles in the broker's load, as fractions: of its bytes. Without any, of its messages; without any, of its topics, since
        each is looked at. All are 0 where nothing says what the broker is busy with.
        """
        if self.throughput > 0:
            return {bundle: load.throughput / self.throughput for bundle, load in self.bundles.items()}
        if self.msg_rate > 0:
            return {bundle: load.msg_rate / self.msg_rate for bundle, load in self.bundles.items()}
        return {bundle: load.topics / max(1, self.topics) for bundle, load in self.bundles.items()}

    def with_bundles(self, bundles: Mapping[str, BundleLoad]) -> BrokerLoad:
        """The same resources with these bundles."""
        return BrokerLoad(self.cpu, self.direct_memory, self.bandwidth_in, self.bandwidth_out, bundles)

    def with_one_more(self, bundle: str, load: BundleLoad) -> BrokerLoad:
        """The same with one more bundle. The sums are carried on: a broker without bundles may get thousands one by one."""
        more = self.with_bundles({**self.bundles, bundle: load})
        more.__dict__["msg_rate"] = self.msg_rate + load.msg_rate
        more.__dict__["topics"] = self.topics + load.topics
        return more


RESOURCES = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
_RATES = ("msg_rate_in", "msg_rate_out", "throughput_in", "throughput_out")


def encode(load: BrokerLoad) -> dict[str, Any]:
    """Load as `geo balance simulate --reports` reads it."""
    usages = {name: getattr(load, name) for name in RESOURCES}
    bundles = {
        name: {rate: round(getattr(one, rate), 3) for rate in _RATES} | {"topics": one.topics}
        for name, one in load.bundles.items()
    }
    return {**{name: [round(of.used, 3), round(of.limit, 3)] for name, of in usages.items()}, "bundles": bundles}


def decode(found: Mapping[str, Any]) -> BrokerLoad:
    """The inverse of `encode`. What a newer program says besides is passed over. Raises ValueError, TypeError or KeyError of what is none."""
    bundles = {
        name: BundleLoad(**{rate: float(one[rate]) for rate in _RATES}, topics=int(one.get("topics", 0)))
        for name, one in found["bundles"].items()
    }
    return BrokerLoad(**{name: Usage(*map(float, found[name])) for name in RESOURCES}, bundles=bundles)


class PerSecond:
    """From how much one broker did so far to how much it does per second, by bundle. What comes into a log counts as coming in. What is read from
    it is read by others and costs this broker nothing, so nothing goes out."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._at: float | None = None

    def sample(
        self,
        messages: Mapping[str, int],
        bundles: Iterable[str],
        bundle_of: Callable[[str], str],
        size_of: Callable[[str], float],
        now: float,
    ) -> dict[str, BundleLoad]:
        """The load of each of the bundles since the last sample. `messages`: how many each topic got so far from this broker, of all topics for
        which it does something. `size_of`: how many bytes a message of a topic takes, asked of those that got some."""
        took = None if self._at is None else now - self._at
        found = {bundle: [0.0, 0.0, 0] for bundle in bundles}
        for topic, count in messages.items():
            if (of := found.get(bundle_of(topic))) is None:
                continue
            of[2] += 1
            fresh = count - self._before.get(topic, count)  # one that was not asked for lately may have much behind it
            if took and fresh > 0:
                rate = fresh / took
                of[0] += rate
                of[1] += rate * size_of(topic)
        self._before, self._at = dict(messages), now
        return {bundle: BundleLoad(rate, 0.0, size, 0.0, int(topics)) for bundle, (rate, size, topics) in found.items()}


class Loads(dict[str, BrokerLoad]):
    """The loads of brokers, with their message rates at hand. In a cluster that starts, a decision selects tens of thousands of times among a
    thousand brokers, of which one has changed."""

    def __init__(self, loads: Mapping[str, BrokerLoad]) -> None:
        super().__init__(loads)
        self.msg_rates = {broker: load.msg_rate for broker, load in loads.items()}

    def __setitem__(self, broker: str, load: BrokerLoad) -> None:
        super().__setitem__(broker, load)
        self.msg_rates[broker] = load.msg_rate


UNKNOWN = BundleLoad(50.0, 50.0, 50_000.0, 50_000.0)
"""Load for which a bundle is taken of which nothing was reported (ModularLoadManagerImpl.DEFAULT_MESSAGE_RATE and _THROUGHPUT)."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The averages of a bundle's load over a short and a long window (BundleData). A window's average follows what is reported the more slowly the
    more samples it has, up to the window's size. The first sample replaces what was there before."""

    short: BundleLoad = UNKNOWN
    long: BundleLoad = UNKNOWN
    count: int = 0

    def add(self, load: BundleLoad, settings: BalancerSettings) -> Samples:
        """The averages after one more report."""
        count = self.count + 1
        return Samples(
            _averaged(self.short, load, min(count, settings.num_short_samples)),
            _averaged(self.long, load, min(count, settings.num_long_samples)),
            count,
        )


def _averaged(old: BundleLoad, new: BundleLoad, count: int) -> BundleLoad:
    """TimeAverageMessageData.getUpdatedValue, of each of the four."""
    stays = count - 1
    return BundleLoad(
        (stays * old.msg_rate_in + new.msg_rate_in) / count,
        (stays * old.msg_rate_out + new.msg_rate_out) / count,
        (stays * old.throughput_in + new.throughput_in) / count,
        (stays * old.throughput_out + new.throughput_out) / count,
        new.topics,
    )


def smoothed(old: float | None, new: float, settings: BalancerSettings) -> float:
    """A broker's averaged usage after a new one; the first counts as it is (ThresholdShedder.updateAvgResourceUsage)."""
    return new if old is None else settings.history_resource * old + (1 - settings.history_resource) * new


@dataclass(frozen=True, slots=True)
class UsageAverage:
    """A broker's averaged usage, as a fraction, and of how many samples."""

    usage: float = 0.0
    count: int = 0

    def add(self, usage: float, settings: BalancerSettings) -> UsageAverage:
        """The average after one more sample."""
        return UsageAverage(smoothed(self.usage if self.count else None, usage, settings), self.count + 1)


def is_due(last: BrokerLoad, now: BrokerLoad, age_s: float, settings: BalancerSettings) -> bool:
    """Tells whether a broker reports again `age_s` seconds after its last report: never before the least interval, always after the greatest.
    Between them it does if the greatest relative change is above `report_update_threshold`. It is one of its message rate, its throughput, the
    number of its bundles, or its greatest weighted usage (ModularLoadManagerImpl.needBrokerDataUpdate).
    """
    if age_s < settings.report_update_min_interval_s:
        return False
    change = max(
        _relative_change(last.msg_rate, now.msg_rate),
        _relative_change(last.throughput, now.throughput),
        _relative_change(len(last.bundles), len(now.bundles)),
        abs(now.max_usage(settings) - last.max_usage(settings)),
    )
    return age_s > settings.report_update_max_interval_s or change > settings.report_update_threshold


def _relative_change(old: float, new: float) -> float:
    if old == 0:
        return 0.0 if new == 0 else inf
    return abs((old - new) / old)
