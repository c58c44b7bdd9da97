"""Whom a snapshot must ask, by which clusters' messages come where, and who of them cannot answer now. Pure.

A message is routed to this cluster and to x if its origin's messages reach both. A position in the log of x is safe once all such messages before
it are here. That is known by an answer of their origin, which comes after them on the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Asked:
    """`clusters`: they all must answer. `no_way`: those of them that no request reaches, so that none ever can."""

    clusters: tuple[str, ...]
    no_way: tuple[str, ...]


def asked(local: str, reaches: Mapping[str, Collection[str]]) -> Asked:
    """`reaches`: of each cluster, the others to which links replicate its messages, through hubs or not.

    - A cluster that gets requests and whose answers come back is asked: it gets a position.
    - One whose messages come here, and into the log of such a cluster, must answer for them. If no request reaches it there is no safe position at
      all.
    - One with a way in one direction only, and without messages in an asked log, is not asked: nothing of it is routed to both.
    """
    there = {name for name in reaches.get(local, ()) if local in reaches.get(name, ())}
    heard = {name for name, others in reaches.items() if name != local and local in others and not there.isdisjoint(others)}
    return Asked(tuple(sorted(there | heard)), tuple(sorted(heard - there)))


@dataclass(frozen=True, slots=True)
class Ways:
    """Whom a snapshot of a topic asks, and the hubs on the ways by which its messages leave the cluster `local`, and come there."""

    local: str
    asked: Asked
    there: Mapping[str, tuple[str, ...]]
    back: Mapping[str, tuple[str, ...]]

    def unable(self, fault: Callable[[str, str], str | None]) -> dict[str, str]:
        """Names who cannot answer now, and why. `fault` says what is wrong with the link from a cluster to another."""
        found = {name: f"no link brings a request to {name}, and its messages come here" for name in self.asked.no_way}
        for name in self.asked.clusters:
            if name in found:
                continue
            there = [self.local, *self.there[name], name]
            back = [name, *self.back.get(name, ()), self.local]
            why = next((why for pair in [*pairwise(there), *pairwise(back)] if (why := fault(*pair)) is not None), None)
            if why is not None:
                found[name] = why
        return found


def ways_of(local: str, hubs: Mapping[tuple[str, str], tuple[str, ...]]) -> Ways:
    """`hubs`: of each pair of clusters with a way from the first to the second, the clusters on it."""
    names = {name for pair in hubs for name in pair}
    reaches = {name: [other for source, other in hubs if source == name] for name in names}
    there = {other: way for (source, other), way in hubs.items() if source == local}
    back = {other: way for (other, target), way in hubs.items() if target == local}
    return Ways(local, asked(local, reaches), there, back)
