"""Warnings for people while brokers share a cluster: what placement cannot do for them. Pure: no Spark, clock, random or I/O.

As Pulsar's load manager warns of a sole bundle that overloads its broker. So it does of too many bundles, of no available broker and of a single one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set

from geo.fleet.placement.bundles import namespace_of
from geo.fleet.placement.load_data import BalancerSettings, BrokerLoad

CALM = 0.9
"""Part of the overload threshold: below it a broker that was warned of is overloaded no longer."""


class Warnings:
    """Warnings that hold, so that each is given once."""

    def __init__(self) -> None:
        self._hold: Set[str] = frozenset()

    def fresh(
        self,
        reports: Mapping[str, BrokerLoad],
        settings: BalancerSettings,
        *,
        unsplit: Mapping[str, int],
        without_broker: Collection[str],
    ) -> list[str]:
        """Those that did not hold the last time. `unsplit`: hot bundles that are not split, and how many their namespace has. `without_broker`:
        bundles that nobody may own of those who report."""
        found = dict(_of_brokers(reports, settings, self._hold))
        for bundle, count in unsplit.items():
            found[f"unsplit {bundle}"] = (
                f"bundle {bundle} has more topics, messages or bytes than a bundle may have and is not split: {namespace_of(bundle)} "
                f"has {count:,} bundles already (namespace_maximum_bundles)"
            )
        for bundle in without_broker:
            found[f"nobody {bundle}"] = (
                f"no broker is available for bundle {bundle}: isolation allows none of those that are up (geo isolation list)"
            )
        fresh = [text for key, text in found.items() if key not in self._hold]
        self._hold = found.keys()
        return fresh


def _of_brokers(reports: Mapping[str, BrokerLoad], settings: BalancerSettings, hold: Set[str]) -> Iterator[tuple[str, str]]:
    if len(reports) == 1 and settings.shedding_enabled:
        yield "one", f"broker {next(iter(reports))} is the only one that is up: nothing is shed"
    for broker, load in reports.items():
        key, usage = f"{'alone' if load.bundles else 'idle'} {broker}", load.max_usage(settings)
        if len(load.bundles) > 1 or usage < settings.broker_overloaded_threshold * (CALM if key in hold else 1.0):
            continue
        what = f"broker {broker} uses {usage:.0%} of its {load.busiest(settings)}"
        yield (
            key,
            (
                f"{what} for a single bundle, {next(iter(load.bundles))}, so nothing can be shed: split the bundle (geo bundles split), or give "
                "the broker a larger host"
                if load.bundles
                else f"{what} though it has no bundle: something else runs in it or on its host"
            ),
        )
