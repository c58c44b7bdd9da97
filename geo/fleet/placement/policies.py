"""Policies of placement: which brokers may own a namespace's bundles, and which are to be spread. They are isolation, failure domains, anti-affinity,
versions. Pure: no Spark, clock, random or I/O.

As Pulsar's NamespaceIsolationPolicies, MinAvailablePolicy and LoadManagerShared. All results keep the order of the brokers given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf

from geo.errors import UsageError
from geo.text import show

BACK_BELOW = 0.8
"""Part of an isolation policy's `usage_threshold`."""


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
        """Tells whether the policy is of this namespace."""
        return _matches(self.namespaces, namespace)

    def is_primary(self, broker: str) -> bool:
        return _matches(self.primary, broker)

    def is_secondary(self, broker: str) -> bool:
        return _matches(self.secondary, broker)

    def brokers(self, usages: Mapping[str, float]) -> list[str]:
        """Chooses the brokers that are available and may own what the policy is of: the primary ones, then any secondary ones that join. `usages` has
        the usage of each, as a fraction.
        """
        primary = [broker for broker in usages if self.is_primary(broker)]
        if sum(100 * usages[broker] < self.usage_threshold for broker in primary) >= self.min_limit:
            return primary
        return primary + [broker for broker in usages if self.is_secondary(broker) and broker not in primary]


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
    """All policies of a cluster. `anti_affinity` has the group of each namespace that is in one. `domains` the brokers of each failure domain;
    `versions` the version of each broker, where later ones are preferred. Of several isolation policies of one namespace the first counts."""

    isolations: Sequence[Isolation] = ()
    anti_affinity: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, Set[str]] = field(default_factory=dict)
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def latest(self, candidates: list[str]) -> list[str]:
        """The candidates of the latest version (BrokerVersionFilter); all where versions do not count. A broker that reports none is of a version
        before there were any: in Pulsar no candidate is then left out."""
        if not self.versions:
            return candidates
        latest = max((self.versions.get(broker, ()) for broker in candidates), default=())
        return [broker for broker in candidates if self.versions.get(broker, ()) == latest]


class Allowed:
    """The one who of the brokers that are available may own what. `usages` has the usage of each, as a fraction. Found once for all namespaces of
    one policy: a decision asks for thousands of namespaces, among a thousand brokers."""

    def __init__(self, policies: Policies, usages: Mapping[str, float]) -> None:
        self._policies, self._usages = policies, usages
        self._isolations: dict[str, Isolation | None] = {}
        self._brokers: dict[tuple[int, float], list[str]] = {}
        self._may_keep: dict[int, set[str]] = {}

    def isolation_of(self, namespace: str) -> Isolation | None:
        """The isolation policy that counts for the namespace."""
        if namespace not in self._isolations:
            self._isolations[namespace] = next((one for one in self._policies.isolations if one.matches(namespace)), None)
        return self._isolations[namespace]

    def brokers(self, namespace: str) -> list[str]:
        """Those that may own bundles of the namespace: by its policy; without one, those that are primary of no policy
        (LoadManagerShared.applyNamespacePolicies)."""
        return self._if_busy(namespace, 1.0)

    def always(self, namespace: str) -> list[str]:
        """Those that may own it whatever is busy."""
        return self._if_busy(namespace, inf)

    def may_keep(self, namespace: str) -> set[str]:
        """Those that may go on with what they own of the namespace. Secondary brokers give it back only once enough primary ones
        are used far less than at the threshold at which they joined. So nothing goes back and forth.
        """
        key = id(self.isolation_of(namespace))
        if key not in self._may_keep:
            self._may_keep[key] = set(self._if_busy(namespace, BACK_BELOW))
        return self._may_keep[key]

    def _if_busy(self, namespace: str, part: float) -> list[str]:
        """Those that may own it if what each uses now were this part of its usage."""
        isolation = self.isolation_of(namespace)
        key = id(isolation), part
        if key not in self._brokers:
            usages = {broker: usage / part for broker, usage in self._usages.items()}
            self._brokers[key] = (
                [broker for broker in usages if not any(one.is_primary(broker) for one in self._policies.isolations)]
                if isolation is None
                else isolation.brokers(usages)
            )
        return self._brokers[key]
