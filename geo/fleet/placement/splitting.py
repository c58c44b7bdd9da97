"""The place where a bundle is split, and which ones are: Pulsar's split algorithms and its BundleSplitterTask. Pure: no Spark, clock, random or
I/O.

Each algorithm returns the positions at which the bundle is split, ascending; none: it is not split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from geo.fleet.placement.bundles import namespace_of
from geo.fleet.placement.load_data import BalancerSettings, BrokerLoad


def range_equally(lower: int, upper: int) -> list[int]:
    """The middle of the range (RangeEquallyDivideBundleSplitAlgorithm, the default)."""
    return [lower + (upper - lower) // 2]


def topic_count_equally(hashes: Iterable[int]) -> list[int]:
    """Between the two topics in the middle, so that both halves have as many (TopicCountEquallyDivideBundleSplitAlgorithm). None for
    fewer than two topics."""
    ordered = sorted(hashes)
    if len(ordered) < 2:
        return []
    below, above = ordered[len(ordered) // 2 - 1], ordered[len(ordered) // 2]
    return [below + (above - below) // 2]


def specified_positions(lower: int, upper: int, positions: Sequence[int]) -> list[int]:
    """Those of the given positions that are inside the range (SpecifiedPositionsBundleSplitAlgorithm)."""
    return sorted({position for position in positions if lower < position < upper})


def bundles_to_split(
    brokers: Mapping[str, BrokerLoad], bundle_counts: Mapping[str, int], settings: BalancerSettings
) -> tuple[list[str], dict[str, int]]:
    """The bundles that are split, in the order of the reports. These have more topics, messages or bytes than a bundle may have, and two topics or
    more. Their namespace (`bundle_counts`: how many bundles it has) stays within `namespace_maximum_bundles`. And the others of these, with the
    number of bundles that their namespace has then. None where there is one broker only. `brokers` has loads over the long window.
    (BundleSplitterTask; our brokers have no client sessions, so Pulsar's limit of them has nothing to count.)"""
    chosen: list[str] = []
    unsplit: dict[str, int] = {}
    if len(brokers) < 2:
        return chosen, unsplit
    fresh: Counter[str] = Counter()
    for load in brokers.values():
        for bundle, of in load.bundles.items():
            if of.topics < 2 or not (
                of.topics > settings.namespace_bundle_max_topics
                or of.msg_rate > settings.namespace_bundle_max_msg_rate
                or of.throughput > settings.namespace_bundle_max_bandwidth
            ):
                continue
            namespace = namespace_of(bundle)
            if bundle_counts[namespace] + fresh[namespace] < settings.namespace_maximum_bundles:
                fresh[namespace] += 1
                chosen.append(bundle)
            else:
                unsplit[bundle] = bundle_counts[namespace] + fresh[namespace]
    return chosen, unsplit
