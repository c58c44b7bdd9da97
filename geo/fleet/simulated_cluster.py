"""A cluster that is not there: brokers, bundles and topics with generated load, or what a file of reports says. What a broker uses of its
resources is the sum of what its bundles use, and what is decided is done at once."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from geo.errors import UsageError
from geo.fleet.placement.bundles import bundle_hash, bundle_name, even, parse_bundle
from geo.fleet.placement.load_data import MIB, RESOURCES, BrokerLoad, BundleLoad, Usage, decode
from geo.fleet.placement.manager import Decided
from geo.fleet.placement.splitting import range_equally

BUNDLES_A_NAMESPACE = 64
"""Half of Pulsar's greatest number, so that hot ones can be split."""

_MEAN_THROUGHPUT = 200.0 * MIB
_MEAN_USAGE = 0.5
_MESSAGE_BYTES = 1_024
"""Constants of generated load. They are what a broker has if all have the same, its part of what a broker can bear, and a message's size."""

Amounts = tuple[float, float, float, float]
"""Amounts of each resource, in the order of `RESOURCES`."""

_NOTHING: Amounts = (0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class _Part:
    """A bundle: its load, what it uses, and the numbers of its topics if the load was generated."""

    load: BundleLoad
    uses: Amounts
    topics: array[int] | None = None


def _times(amounts: Iterable[float], factor: float) -> Amounts:
    first, second, third, fourth = (amount * factor for amount in amounts)
    return first, second, third, fourth


@dataclass(slots=True)
class SimulatedCluster:
    """Brokers, bundles, and who owns which."""

    limits: dict[str, Amounts]
    base: dict[str, Amounts]
    """Usage of a broker without any bundle."""
    parts: dict[str, _Part]
    owners: dict[str, str]
    hashes: array[int] = field(default_factory=lambda: array("L"))
    rates: array[float] = field(default_factory=lambda: array("d"))
    """Rates of the topics, if the load was generated: messages per second, in and out."""
    name_of: Callable[[Any], str] = str
    _released: dict[str, str] = field(default_factory=dict)
    """Parts of bundles that were split, until they are assigned: who had them."""

    def reports(self) -> dict[str, BrokerLoad]:
        """Reports of all brokers."""
        held: dict[str, dict[str, BundleLoad]] = {broker: {} for broker in self.limits}
        used = {broker: list(base) for broker, base in self.base.items()}
        for bundle, broker in self.owners.items():
            part = self.parts[bundle]
            held[broker][bundle] = part.load
            sums = used[broker]
            for at, amount in enumerate(part.uses):
                sums[at] += amount
        found = {}
        for broker, limits in self.limits.items():
            cpu, direct_memory, bandwidth_in, bandwidth_out = map(Usage, used[broker], limits)
            found[broker] = BrokerLoad(cpu, direct_memory, bandwidth_in, bandwidth_out, held[broker])
        return found

    def do(self, decision: Decided) -> int:
        """Do what was decided. Returns how many bundles moved from one broker to another; the first assignment of one is no move."""
        for split in decision.splits:
            del self.owners[split.bundle]
            for part in self._split(split.bundle):
                (self._released if split.unload else self.owners)[part] = split.broker
        for move in decision.unloads:
            self.owners[move.bundle] = move.target
        moves = len(decision.unloads)
        self.owners |= decision.assignments
        return moves + sum(self._released.pop(bundle, to) != to for bundle, to in decision.assignments.items())

    def unassigned(self) -> list[str]:
        return [bundle for bundle in self.parts if bundle not in self.owners]

    def holders(self) -> dict[str, str]:
        """The broker of each bundle. A part of one that was split counts with the broker that had it until it is assigned. Here that is at the next
        minute's decision, in life within seconds.
        """
        return self._released | self.owners

    def throughputs(self) -> dict[str, float]:
        """Bytes per second of each broker."""
        sums = dict.fromkeys(self.limits, 0.0)
        for bundle, broker in self.holders().items():
            sums[broker] += self.parts[bundle].load.throughput
        return sums

    def change(self, random: Random, share: float) -> None:
        """Let a share of all topics trade their loads."""
        chosen = random.sample(range(len(self.rates)), int(share * len(self.rates)))
        shuffled = [self.rates[topic] for topic in chosen]
        random.shuffle(shuffled)
        for topic, rate in zip(chosen, shuffled, strict=True):
            self.rates[topic] = rate
        for bundle, part in self.parts.items():
            if part.topics is not None:
                self.parts[bundle] = self._part(part.topics)

    def heavy_topics(self) -> dict[str, float]:
        """The topics that are heavier than a broker's mean, by name, in bytes per second, the heaviest first. Of recorded load these are
        bundles of one topic, whose own names are not known."""
        limit = sum(part.load.throughput for part in self.parts.values()) / len(self.limits)
        found = {self.name_of(topic): load for topic, load in self._topics() if load > limit}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def heaviest_topic(self) -> float:
        """Bytes per second."""
        return max((load for _, load in self._topics()), default=0.0)

    def _topics(self) -> Iterator[tuple[Any, float]]:
        """The topics that can be told apart, as `name_of` takes them, with their bytes per second."""
        if len(self.rates):
            return ((number, rate * _MESSAGE_BYTES) for number, rate in enumerate(self.rates))
        return ((bundle, part.load.throughput) for bundle, part in self.parts.items() if part.load.topics == 1)

    def _split(self, bundle: str) -> list[str]:
        """Split a bundle in its middle; of recorded load each half gets half of all."""
        namespace, (lower, upper) = parse_bundle(bundle)
        part, at = self.parts.pop(bundle), range_equally(lower, upper)[0]
        below, above = bundle_name(namespace, (lower, at)), bundle_name(namespace, (at, upper))
        if part.topics is None:
            topics = part.load.topics
            for name, number in ((below, topics // 2), (above, topics - topics // 2)):
                self.parts[name] = _Part(BundleLoad(*_times(_rates(part.load), 0.5), topics=number), _times(part.uses, 0.5))
        else:
            self.parts[below] = self._part(array("L", (topic for topic in part.topics if self.hashes[topic] < at)))
            self.parts[above] = self._part(array("L", (topic for topic in part.topics if self.hashes[topic] >= at)))
        return [below, above]

    def _part(self, topics: array[int]) -> _Part:
        """A bundle of generated topics: half of the load goes in and half out, and a processor's work is as its bytes."""
        rate = sum(map(self.rates.__getitem__, topics))
        half = rate * _MESSAGE_BYTES / 2
        return _Part(BundleLoad(rate / 2, rate / 2, half, half, len(topics)), (half, 0.0, half, half), topics)


def _rates(load: BundleLoad) -> Amounts:
    return load.msg_rate_in, load.msg_rate_out, load.throughput_in, load.throughput_out


def generated(topics: int, brokers: int, bundles: int, zipf: float, random: Random) -> SimulatedCluster:
    """A cluster that starts: nobody owns anything, and the topic of rank k has 1/k^zipf of the first one's load. A broker can bear twice
    what each has if all have the same."""
    namespaces = max(1, bundles // BUNDLES_A_NAMESPACE)
    spaces = [even(bundles // namespaces + (number < bundles % namespaces)) for number in range(namespaces)]
    weights = [rank**-zipf for rank in range(1, topics + 1)]
    scale = _MEAN_THROUGHPUT * brokers / _MESSAGE_BYTES / sum(weights)
    random.shuffle(weights)

    def name_of(number: int) -> str:
        return f"persistent://simulated/n{number % namespaces}/t{number}"

    limit = _MEAN_THROUGHPUT / _MEAN_USAGE / 2
    names = [f"broker-{number:0{len(str(brokers - 1))}}" for number in range(brokers)]
    cluster = SimulatedCluster(
        dict.fromkeys(names, (limit, limit, limit, limit)), dict.fromkeys(names, _NOTHING), {}, {},
        array("L", (bundle_hash(name_of(number)) for number in range(topics))),
        array("d", (weight * scale for weight in weights)),
        name_of,
    )  # fmt: skip
    held: list[list[array[int]]] = [[array("L") for _ in space.ranges] for space in spaces]
    for number, at in enumerate(cluster.hashes):
        boundaries = spaces[number % namespaces].boundaries
        held[number % namespaces][min(bisect_right(boundaries, at), len(boundaries) - 1) - 1].append(number)
    for number, space in enumerate(spaces):
        for found, of in zip(space.ranges, held[number], strict=True):
            cluster.parts[bundle_name(f"simulated/n{number}", found)] = cluster._part(of)
    return cluster


def recorded(path: str) -> SimulatedCluster:
    """The cluster of a file of reports, one JSON object:

    `{broker: {"cpu": [used, limit], "direct_memory": […], "bandwidth_in": […], "bandwidth_out": […], "bundles": {bundle:
    {"msg_rate_in": …, "msg_rate_out": …, "throughput_in": …, "throughput_out": …, "topics": …}}}}`

    Of what a broker uses its bundles have shares by their throughput, which move with them. Raises UsageError of another file.
    """
    try:
        document = json.loads(Path(path).read_text())
        reports = {broker: decode(fields) for broker, fields in document.items()}
        for load in reports.values():
            for bundle in load.bundles:
                parse_bundle(bundle)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, UsageError) as error:
        raise UsageError(f"{path} has no load reports: {type(error).__name__} {error}; see geo balance simulate --help") from None
    if not reports:
        raise UsageError(f"{path} has no load reports: it names no broker")
    cluster = SimulatedCluster({}, {}, {}, {})
    for broker, load in reports.items():
        used = _times((getattr(load, resource).used for resource in RESOURCES), 1)
        cluster.limits[broker] = _times((getattr(load, resource).limit for resource in RESOURCES), 1)
        cluster.base[broker] = _NOTHING if load.throughput > 0 else used
        for bundle, of in load.bundles.items():
            if bundle in cluster.parts:
                raise UsageError(f"{path}: bundle {bundle} is in the reports of {cluster.owners[bundle]} and {broker}")
            share = of.throughput / load.throughput if load.throughput > 0 else 0.0
            cluster.parts[bundle] = _Part(of, _times(used, share))
            cluster.owners[bundle] = broker
    return cluster
