"""Which brokers may own a namespace's bundles, and which are to be spread: isolation, failure domains, anti-affinity, versions. Pure: no
Spark, clock, random or I/O.

As Pulsar's NamespaceIsolationPolicies, MinAvailablePolicy and LoadManagerShared. All results keep the order of the brokers given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar

from geo.errors import UsageError
from geo.text import show

T = TypeVar("T")

BACK_BELOW = 0.8
"""Of an isolation policy's `usage_threshold`."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Namespaces that have brokers of their own (NamespaceIsolationPolicy). Namespaces and brokers are given by regular expressions, one
    or several, each of a whole name. If fewer than `min_limit` primary brokers are available, secondary ones join them. A primary
    broker whose usage is `usage_threshold` percent or more counts as not available; it remains one that may own.

    Raises UsageError of an expression that is none.
    """

    namespaces: Sequence[str] | str
    primary: Sequence[str] | str
    secondary: Sequence[str] | str
    min_limit: int = 1
    usage_threshold: float = 100

    def __post_init__(self) -> None:
        for expression in (*_several(self.namespaces), *_several(self.primary), *_several(self.secondary)):
            try:
                re.compile(expression)
            except re.error as error:
                raise UsageError(f"{show(expression)} is no regular expression: {error}") from None

    def matches(self, namespace: str) -> bool:
        """Whether the policy is of this namespace."""
        return _matches(self.namespaces, namespace)

    def is_primary(self, broker: str) -> bool:
        return _matches(self.primary, broker)

    def is_secondary(self, broker: str) -> bool:
        return _matches(self.secondary, broker)

    def brokers(self, available: Iterable[str], namespace: str, usages: Mapping[str, float] | None = None) -> list[str]:
        """Those of the available brokers that may own the namespace: of one that the policy is of its primary brokers, then any
        secondary ones that join; of another one those that are not primary. `usages` are fractions; of a broker without, 0 counts."""
        brokers = list(available)
        if not self.matches(namespace):
            return [broker for broker in brokers if not self.is_primary(broker)]
        primary = [broker for broker in brokers if self.is_primary(broker)]
        at_hand = [broker for broker in primary if 100 * (usages or {}).get(broker, 0.0) < self.usage_threshold]
        if len(at_hand) >= self.min_limit:
            return primary
        return primary + [broker for broker in brokers if self.is_secondary(broker) and broker not in primary]


def _several(expressions: Sequence[str] | str) -> Sequence[str]:
    return (expressions,) if isinstance(expressions, str) else expressions


def _matches(expressions: Sequence[str] | str, name: str) -> bool:
    return any(re.fullmatch(expression, name) for expression in _several(expressions))


def version_of(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a program's version, to compare it by. Of one without any it is (): before all others."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of a cluster. `anti_affinity` has the group of each namespace that is in one; `domains` the brokers of each failure
    domain; `versions` the version of each broker, where later ones are preferred. Of several isolation policies of one namespace the first
    counts."""

    isolations: Sequence[Isolation] = ()
    anti_affinity: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, Set[str]] = field(default_factory=dict)
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def isolation_of(self, namespace: str) -> Isolation | None:
        """The isolation policy that counts for the namespace."""
        return next((isolation for isolation in self.isolations if isolation.matches(namespace)), None)

    def latest(self, candidates: list[str]) -> list[str]:
        """The candidates of the latest version (BrokerVersionFilter); all where versions do not count. A broker that reports none is of a version
        before there were any: in Pulsar no candidate is then left out."""
        if not self.versions:
            return candidates
        latest = max((self.versions.get(broker, ()) for broker in candidates), default=())
        return [broker for broker in candidates if self.versions.get(broker, ()) == latest]

    def brokers(self, available: Iterable[str], namespace: str, usages: Mapping[str, float]) -> list[str]:
        """Those of the available brokers that may own bundles of the namespace: by its policy; without one, those that are primary of
        no policy (LoadManagerShared.applyNamespacePolicies)."""
        if (isolation := self.isolation_of(namespace)) is not None:
            return isolation.brokers(available, namespace, usages)
        return [broker for broker in available if not any(isolation.is_primary(broker) for isolation in self.isolations)]

    def may_keep(self, available: Iterable[str], namespace: str, usages: Mapping[str, float]) -> set[str]:
        """Those that may go on with what they own of the namespace. Secondary brokers give it back only once the usage of enough primary ones is a
        good deal below the threshold at which they joined, so that nothing goes back and forth."""
        brokers, busier = list(available), {broker: usage / BACK_BELOW for broker, usage in usages.items()}
        return {*self.brokers(brokers, namespace, usages), *self.brokers(brokers, namespace, busier)}


class Allowed:
    """Who of the brokers that are available may own what. `usages` has the usage of each, as a fraction. Found once for all namespaces of one
    policy: a decision asks for thousands of namespaces, among a thousand brokers."""

    def __init__(self, policies: Policies, usages: Mapping[str, float]) -> None:
        self._policies, self._usages = policies, usages
        self._isolations: dict[str, Isolation | None] = {}
        self._by_usage: dict[int, list[str]] = {}
        self._always: dict[int, list[str]] = {}
        self._may_keep: dict[int, set[str]] = {}

    def isolation_of(self, namespace: str) -> Isolation | None:
        if namespace not in self._isolations:
            self._isolations[namespace] = self._policies.isolation_of(namespace)
        return self._isolations[namespace]

    def brokers(self, namespace: str) -> list[str]:
        """As `Policies.brokers`."""
        return self._once(self._by_usage, namespace, lambda: self._policies.brokers(self._usages, namespace, self._usages))

    def always(self, namespace: str) -> list[str]:
        """Those that may own it whatever is busy."""
        return self._once(self._always, namespace, lambda: self._policies.brokers(self._usages, namespace, {}))

    def may_keep(self, namespace: str) -> set[str]:
        """As `Policies.may_keep`."""
        return self._once(self._may_keep, namespace, lambda: self._policies.may_keep(self._usages, namespace, self._usages))

    def _once(self, found: dict[int, T], namespace: str, find: Callable[[], T]) -> T:
        key = id(self.isolation_of(namespace))
        if key not in found:
            found[key] = find()
        return found[key]
