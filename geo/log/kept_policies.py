"""A topic's policies as its log keeps them beside the registry. So a registry that was put back from an older backup loses none of them. Pure: no
Spark, clock, random or I/O.

A log keeps them as the property POLICIES_PROPERTY. It has it from its first commit. A log of an older program gets it when its publisher, or a link
into it, next starts. Where may go what was published is said by both: a link carries what neither forbids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from geo.errors import RetryableError
from geo.reasons import Reason

Policies = Mapping[str, str]
"""Policies of a topic, as its row in the registry has them."""

REPLICATION_CLUSTERS = "replication_clusters"
"""The policy a topic may have in a registry: names of clusters, joined by commas."""

DELETED = "deleted"
"""The policy of a topic that somebody deleted here: when. It stands in the topic's newest row until it is made again."""

UNENDED = "unended"
"""The policy beside it as long as the delete has not ended. Until then the topic is not made again."""

UNCLEAR = "unclear"
"""The policy of a topic that the registry lost and whose log kept none: where it may go a person has to say."""


def kept(policies: Policies | None) -> str | None:
    """Encode policies as the log keeps them.

    None: the log keeps nothing, since where the topic may go is not known.
    """
    if UNCLEAR in (policies or {}):
        return None
    return json.dumps({name: value for name, value in sorted((policies or {}).items()) if name not in (DELETED, UNENDED)})


def restored(told: str | None) -> dict[str, str]:
    """The policies with which a topic is registered again whose log says this."""
    if told is None:
        return {UNCLEAR: "its log did not say"}
    found: dict[str, str] = json.loads(told)
    return found


def clusters_of(policies: Policies | None) -> tuple[str, ...] | None:
    """The clusters that the policies name; None: as the configuration says."""
    clusters = (policies or {}).get(REPLICATION_CLUSTERS)
    return tuple(clusters.split(",")) if clusters else None


def forbids(told: str | None, source: str, target: str) -> tuple[str, ...] | None:
    """The clusters that alone may have the topic by what its log in the source says, where that leaves out the target or the source.

    None: the log forbids nothing, or does not say.
    """
    among = None if told is None else clusters_of(restored(told))
    return None if among is None or {source, target} <= set(among) else among


def refuse_forbidden(told: str | None, source: str, target: str, who: str, table: str, topic: str) -> None:
    """Raises RetryableError if the topic's log in the source (`table`) says that it does not go this way, whatever the registry there says now. `who`
    replicates it.
    """
    if (among := forbids(told, source, target)) is not None:
        raise RetryableError(
            f"{who}: its log {table} says that it replicates between {', '.join(among)} alone, and the registry of {source} says "
            "otherwise: an older copy of that was put back, or who set it died. Nothing was replicated. Say it again: geo topics set "
            f"--cluster {source} --topic {topic} --replication-clusters …, or --inherit",
            code=Reason.REGISTRY_EMPTY,
        )
