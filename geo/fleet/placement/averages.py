"""Averages of loads that a leader knows beyond the newest reports, kept for the leader that comes after it. Pure: no Spark, clock, random or I/O.

As Pulsar's `bundle-data` and `broker-time-average`. Without it one report of a burst is all that a new leader has, and it splits and moves by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from heapq import nlargest

from geo.fleet.placement.load_data import BundleLoad, Samples, UsageAverage

MOST_KEPT = 10_000
"""Bundles whose averages are kept, those of the most bytes: about a megabyte."""


@dataclass(frozen=True, slots=True)
class Averages:
    """The averages of bundles; those of brokers' usages, if the shedder has any; and how many seconds ago bundles were unloaded."""

    samples: Mapping[str, Samples] = field(default_factory=dict)
    usages: Mapping[str, UsageAverage] = field(default_factory=dict)
    unloaded_s: Mapping[str, float] = field(default_factory=dict)


def encode(averages: Averages) -> str:
    """Averages as JSON. Of a bundle: number of samples, number of topics, and in and out of the short and of the long window; messages, then bytes."""
    heaviest = nlargest(MOST_KEPT, averages.samples.items(), key=lambda item: item[1].long.throughput)
    return json.dumps(
        {
            "bundles": {
                name: [one.count, one.long.topics, *_rates(one.short), *_rates(one.long)] for name, one in sorted(heaviest)
            },
            "usages": {broker: [round(one.usage, 4), one.count] for broker, one in sorted(averages.usages.items())},
            "unloaded_s": {bundle: round(since, 1) for bundle, since in sorted(averages.unloaded_s.items())},
        },
        separators=(",", ":"),
    )


def decode(text: str) -> Averages:
    """The inverse of `encode`. Raises ValueError, KeyError or TypeError of another text."""
    found = json.loads(text)
    samples = {}
    for name, (count, topics, *rates) in found["bundles"].items():
        a, b, c, d, e, f, g, h = map(float, rates)
        samples[name] = Samples(BundleLoad(a, b, c, d, int(topics)), BundleLoad(e, f, g, h, int(topics)), int(count))
    usages = {broker: UsageAverage(float(usage), int(count)) for broker, (usage, count) in found["usages"].items()}
    return Averages(samples, usages, {bundle: float(since) for bundle, since in found["unloaded_s"].items()})


def _rates(load: BundleLoad) -> list[float]:
    return [round(rate, 3) for rate in astuple(load)[:4]]
