"""The one who holds what of each namespace, and how crowded the namespaces of an anti-affinity group are. Pure: no Spark, clock, random or I/O.

By the rules of LoadManagerShared (filterAntiAffinityGroupOwnedBrokers, shouldAntiAffinityNamespaceUnload). All counts are kept up to date while
bundles are placed and moved. One decision asks for them tens of thousands of times, among a thousand brokers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Set

_DEFAULT_DOMAIN = ""
"""The failure domain of the brokers that are in none."""

_Crowding = tuple[int, int]
"""Counts of namespaces of a group in a broker's failure domain, and at the broker."""


class Holders:
    """Counts of the bundles of each namespace that each broker holds. Beside them those of the namespaces of each anti-affinity group, of each
    broker and each failure domain. `group_of` has the group of each namespace that is in one, `domains` the brokers of each failure domain. Where
    there are no domains they do not count.
    """

    def __init__(self, group_of: Mapping[str, str], domains: Mapping[str, Set[str]]) -> None:
        self.group_of = group_of
        self._members: dict[str, list[str]] = defaultdict(list)
        for namespace, group in group_of.items():
            self._members[group].append(namespace)
        self.domain_of: dict[str, str] = {}
        for domain, brokers in domains.items():
            for broker in brokers:
                self.domain_of.setdefault(broker, domain)
        self._bundles: dict[str, Counter[str]] = defaultdict(Counter)
        self._at_broker: dict[str, Counter[str]] = defaultdict(Counter)
        self._in_domain: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, namespace: str, broker: str) -> list[str]:
        """The broker holds one bundle more. Returns of which namespaces the crowding has changed by that."""
        held = self._bundles[namespace]
        held[broker] += 1
        return self._changed(namespace, broker, 1) if held[broker] == 1 else []

    def remove(self, namespace: str, broker: str) -> list[str]:
        """The broker holds one bundle fewer. Returns as `add` does."""
        held = self._bundles[namespace]
        held[broker] -= 1
        if held[broker] > 0:
            return []
        del held[broker]
        return self._changed(namespace, broker, -1)

    def of(self, namespace: str) -> Mapping[str, int]:
        """Counts of the bundles of the namespace, by broker that holds any."""
        return self._bundles[namespace]

    def fewest(self, namespace: str, brokers: Collection[str]) -> list[str]:
        """Those of the brokers that hold the fewest bundles of the namespace. A new list."""
        held = self._bundles[namespace]
        return _least(brokers, [held.get(broker, 0) for broker in brokers]) if held else list(brokers)

    def farthest(self, namespace: str, brokers: list[str]) -> list[str]:
        """Those of the brokers in the domains that hold the fewest namespaces of the group; of these, the ones that hold the fewest."""
        group = self.group_of.get(namespace)
        if group is None:
            return brokers
        if self.domain_of:
            in_domain = self._in_domain[group]
            brokers = _least(brokers, [in_domain[self._domain(broker)] for broker in brokers])
        at_broker = self._at_broker[group]
        return _least(brokers, [at_broker.get(broker, 0) for broker in brokers])

    def may_leave(self, namespace: str, candidates: Iterable[str]) -> bool:
        """Tells whether a bundle of the namespace may be unloaded from where it is. It may not if all that may own it hold as many namespaces of
        its group. It could only come back or make the spread uneven. `candidates`: they, also the one that has it.
        """
        group = self.group_of.get(namespace)
        if group is None:
            return True
        held = {self._at_broker[group].get(candidate, 0) for candidate in candidates}
        return 0 in held or len(held) != 1

    def has_company(self, namespace: str, broker: str) -> bool:
        """Tells whether the broker, which holds some of the namespace, holds others of its group too."""
        group = self.group_of.get(namespace)
        return group is not None and self._at_broker[group][broker] > 1

    def is_farther(self, namespace: str, source: str, target: str) -> bool:
        """Tells whether the namespace is farther from the others of its group at the target than at the source."""
        before, after = self._crowding(namespace, source, target)
        return after < before

    def is_nearer(self, namespace: str, source: str, target: str) -> bool:
        """Tells whether the namespace is nearer to the others of its group at the target than at the source."""
        before, after = self._crowding(namespace, source, target)
        return after > before

    def may_be_farther(self, namespace: str, source: str, brokers: Collection[str]) -> bool:
        """Tells, for a namespace of a group that the source alone holds, False if `is_farther` is so of none of the brokers. True says no more than
        that it may be so of one. It costs less than to ask of each.
        """
        group = self.group_of[namespace]
        at_broker, in_domain = self._at_broker[group], self._in_domain[group]
        here = in_domain[self._domain(source)]
        if at_broker[source] > 1 and min((at_broker.get(broker, 0) for broker in brokers), default=0) + 1 < at_broker[source]:
            return True
        if not self.domain_of or here <= 1:
            return False
        return min((in_domain[self._domain(broker)] for broker in brokers), default=0) + 1 < here

    def _crowding(self, namespace: str, source: str, target: str) -> tuple[_Crowding, _Crowding]:
        """At the source, and how it would be at the target. Within one domain the broker alone counts."""
        group = self.group_of.get(namespace)
        if group is None:
            return (0, 0), (0, 0)
        comes = target not in self._bundles[namespace]
        at_broker, in_domain = self._at_broker[group], self._in_domain[group]
        here, there = self._domain(source), self._domain(target)
        if here == there:
            return (0, at_broker[source]), (0, at_broker[target] + comes)
        return (in_domain[here], at_broker[source]), (in_domain[there] + comes, at_broker[target] + comes)

    def _changed(self, namespace: str, broker: str, by: int) -> list[str]:
        group = self.group_of.get(namespace)
        if group is None:
            return []
        self._at_broker[group][broker] += by
        self._in_domain[group][self._domain(broker)] += by
        return self._members[group]

    def _domain(self, broker: str) -> str:
        return self.domain_of.get(broker, _DEFAULT_DOMAIN)


def _least(brokers: Collection[str], held: list[int]) -> list[str]:
    """Those of the brokers that hold the least. `held`: by place."""
    least = min(held, default=0)
    return [broker for broker, count in zip(brokers, held, strict=True) if count == least]
