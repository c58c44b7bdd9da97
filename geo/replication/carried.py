"""Topics that a link carries: those of its source that are to go into its target. Looks only."""

from __future__ import annotations

from collections.abc import Iterable

from geo.config.model import Config, Link
from geo.faults import Tried
from geo.journal.cluster import ClusterTables
from geo.log.absence import lost_by_registry
from geo.log.topics import Registered, all_topics
from geo.names import Topic
from geo.replication.link_state import LinkState
from geo.schemas import TOPICS


def topics_of_source(source: ClusterTables, replicated: Iterable[Topic]) -> list[Registered]:
    """The topics of a link's source: those of its registry, and those whose logs are there though the registry lacks them. Also those that the target
    has `replicated` from it, by the target's own rows. None at all if some were and the registry has nothing: it is not there now.
    """
    by_link = set(replicated)
    found = all_topics(source, by_link)
    if by_link and all(one.is_unknown for one in found):
        return []
    without_log = by_link.difference(one.topic for one in found)
    return [*found, *(Registered.unknown(topic, None) for topic in sorted(without_log))]


def has_carried(row: LinkState | None) -> bool:
    """Tells whether the link of this row has carried its topic: such a link does so though nobody knows where the topic may go."""
    return row is not None and row.cursor is not None


def unclear(one: Registered, row: LinkState | None, source: ClusterTables) -> str | None:
    """Tells why the link of this row does not carry a topic of which nobody knows where it may go. None: it does, since it has."""
    if not one.is_unclear or has_carried(row):
        return None
    return str(lost_by_registry(one, source.cluster.name, str(source.journal(TOPICS))))


def has_log(source: ClusterTables, topic: Topic) -> bool:
    """Tells whether a topic has a log. Also of one that cannot be looked at: what is in the way is its own fault, not its link's."""
    with Tried():
        return source.log(topic).exists()
    return True


def replicates(config: Config, link: Link, found: Registered) -> bool:
    """Tells whether the link replicates a topic of its source's registry. (One that was deleted in its target it leaves out as well.)"""
    return not found.is_deleted and link in config.links_of(found.topic, {link.source: found.replication_clusters})
