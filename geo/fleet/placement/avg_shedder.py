"""Pulsar's AvgShedder, which both unloads and places: what it takes from a broker goes to the one that it was compared with. Pure but
for who chooses among equals, which is an argument."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from geo.fleet.placement.load_data import BrokerLoad, Settings


class AvgShedder:
    """Compares the most loaded broker with the least loaded one, the second most with the second least and so on. A pair that differs
    by a low threshold many times in a row, or by a high one a few times, moves `max_unload` of its difference from the one to the
    other. (In Pulsar of the difference of messages or of bytes, if that is 1,000 messages or 1 MB per second.)

    As the strategy it must be the same object: it remembers where each bundle is expected. A bundle of which it has decided nothing
    goes to any candidate, and is expected there from then on.
    """

    def __init__(self, settings: Settings, choose: Callable[[Sequence[str]], str] = random.choice) -> None:
        self._settings, self._choose = settings, choose
        self._expected: dict[str, str] = {}
        self._hits_high: dict[str, int] = {}
        self._hits_low: dict[str, int] = {}

    def unload(self, brokers: Mapping[str, BrokerLoad], recently_unloaded: Set[str] = frozenset()) -> dict[str, list[str]]:
        unloaded: dict[str, list[str]] = {}
        pairs = self._count_hits({broker: load.max_usage(self._settings) for broker, load in brokers.items()})
        if not pairs:
            self._hits_high.clear()
            self._hits_low.clear()
        for target, source in pairs:
            if not self._take_hit(target, source):
                continue
            bundles = self._chosen(brokers[source], brokers[target], recently_unloaded)
            if bundles:
                unloaded[source] = bundles
                self._expected.update(dict.fromkeys(bundles, target))
        return unloaded

    def select(self, candidates: Iterable[str], brokers: Mapping[str, BrokerLoad], bundle: str = "") -> str | None:
        of_all = sorted(candidates)
        if not of_all:
            return None
        if self._expected.get(bundle) not in of_all:
            self._expected[bundle] = self._choose(of_all)
        return self._expected[bundle]

    def _count_hits(self, scores: Mapping[str, float]) -> list[tuple[str, str]]:
        """The pairs that differ by the low threshold at least, the less loaded of each first; their hits counted, all others' forgotten."""
        ranked = sorted(scores, key=scores.__getitem__)
        pairs = []
        for low, high in zip(ranked[: (len(ranked) + 1) // 2], reversed(ranked), strict=False):
            difference, settings = scores[high] - scores[low], self._settings
            for hits, threshold in (
                (self._hits_high, settings.avg_shedder_high_threshold), (self._hits_low, settings.avg_shedder_low_threshold),
            ):  # fmt: skip
                (self._forget if difference < threshold else self._hit)(hits, low, high)
            if difference >= settings.avg_shedder_low_threshold:
                pairs.append((low, high))
        return pairs

    def _take_hit(self, *pair: str) -> bool:
        """Whether one of the pair was hit often enough; its hits are then forgotten."""
        high, low = self._settings.avg_shedder_hit_count_high_threshold, self._settings.avg_shedder_hit_count_low_threshold
        if not any(self._hits_high.get(broker, 0) >= high or self._hits_low.get(broker, 0) >= low for broker in pair):
            return False
        self._forget(self._hits_high, *pair)
        self._forget(self._hits_low, *pair)
        return True

    def _chosen(self, source: BrokerLoad, target: BrokerLoad, recently_unloaded: Set[str]) -> list[str]:
        """Of the source's bundles, the heaviest first, each that takes no more of its usage than what is still to move."""
        usage = source.max_usage(self._settings)
        left = (usage - target.max_usage(self._settings)) * self._settings.max_unload
        takes = {bundle: usage * share for bundle, share in source.shares().items() if bundle not in recently_unloaded}
        chosen = []
        for bundle in sorted(takes, key=takes.__getitem__, reverse=True):
            if 0 < takes[bundle] <= left:
                chosen.append(bundle)
                left -= takes[bundle]
        return chosen

    @staticmethod
    def _hit(hits: dict[str, int], *pair: str) -> None:
        for broker in pair:
            hits[broker] = hits.get(broker, 0) + 1

    @staticmethod
    def _forget(hits: dict[str, int], *pair: str) -> None:
        for broker in pair:
            hits.pop(broker, None)
