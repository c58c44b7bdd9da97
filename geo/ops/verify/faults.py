"""Faults beside messages: links that do not do what they should, and what others mention and is not there.

A fault makes a report not clean, also where no message can be said to be missing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from geo.config.model import Config, Link
from geo.log.absence import gone_region, is_new, lost_by_registry, nothing_in_target
from geo.log.topics import Registered
from geo.names import Topic
from geo.ops.verify.link_ends import Ends, key
from geo.times import in_us


def uncounted(topic: Topic, links: Sequence[Link], ends: Ends) -> Iterable[str]:
    """The fault of each link whose row an older program wrote, which did not count what no producer can have written: unknown is not 0.
    (Who compares content counts it by itself.)"""
    for link in links:
        end = ends.get(key(link, topic))
        if end is not None and end.version is not None and end.impossible is None:
            yield (
                f"{topic}: {link.name}: how many rows it left out that no producer can have written is unknown. Start the link once, which "
                f"counts them: geo broker or geo replicate --cluster {link.target}; or compare content: geo verify without --quick"
            )


def faults(
    topic: Topic, registries: Mapping[str, Mapping[Topic, Registered]], logs: Container[str], links: Sequence[Link], ends: Ends
) -> Iterable[str]:
    """Lists the faults of a topic in some cluster or link. `ends` tell what links have read and written."""
    for name, registry in registries.items():
        if (one := registry.get(topic)) is None or one.is_deleted:
            continue
        used = any(
            of == str(topic) and name in (target, source) and e.version is not None for (target, source, of), e in ends.items()
        )
        if name not in logs and used:
            yield f"{topic}: its log is not in {name}, though links read or wrote it. Put it back."
        elif (lost := lost_by_registry(one, name, "system/topics")) is not None:
            yield f"{topic}: {lost}."
    for link in links:
        end = ends.get(key(link, topic))
        if end is not None and end.state == "FAILED":
            yield f"{topic}: {link.name} is FAILED: {end.reason or 'no reason recorded'}"


def gone(config: Config, registries: Mapping[str, Mapping[Topic, Registered]], ends: Ends, now_us: int) -> Iterable[str]:
    """Clusters that have nothing, though others have read them, or links are to replicate into them what is there."""
    for name, registry in registries.items():
        place = config.clusters[name].place
        readers = sorted({target for (target, source, _), end in ends.items() if source == name and end.version is not None})
        if readers and not any(not one.is_unknown for one in registry.values()):
            yield f"{name}: {gone_region(name, place, readers)}."
        elif not registry and any(_is_due(config, link, registries[link.source], now_us) for link in config.inbound(name)):
            yield f"{name}: {nothing_in_target(name, place)}."


def _is_due(config: Config, link: Link, registry: Mapping[Topic, Registered], now_us: int) -> bool:
    """Tells whether a link is to replicate a topic of its source, and not only since a moment ago."""
    return any(
        not (one.is_deleted or one.is_unclear or is_new(in_us(one.created_at), now_us))
        and link in config.links_of(topic, {link.source: one.replication_clusters})
        for topic, one in registry.items()
    )
