"""Whom a snapshot must ask, by which clusters' messages come where. Pure.

A message is routed to this cluster and to x if its origin's messages reach both. A position in the log of x is safe once all such
messages before it are here; that is known by an answer of their origin, which comes after them on the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """`clusters`: they all must answer. `no_way`: those of them that no request reaches, so that none ever can."""

    clusters: tuple[str, ...]
    no_way: tuple[str, ...]


def asked(local: str, reaches: Mapping[str, Collection[str]]) -> Asked:
    """`reaches`: of each cluster, the others to which links bring its messages, through hubs or not.

    - A cluster that hears requests and whose answers come back is asked: it gets a position.
    - One whose messages come here, and into the log of such a cluster, must answer for them; if no request reaches it there is no safe
      position at all.
    - One with a way in one direction only, and without messages in an asked log, is not asked: nothing of it is routed to both.
    """
    there = {name for name in reaches.get(local, ()) if local in reaches.get(name, ())}
    heard = {name for name, others in reaches.items() if name != local and local in others and not there.isdisjoint(others)}
    return Asked(tuple(sorted(there | heard)), tuple(sorted(heard - there)))
