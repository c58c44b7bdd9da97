"""The clusters to which a topic may go: the policy that the registry has and its log keeps (`geo.log.kept_policies`), read and set."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from geo.config.model import Config
from geo.delta.ddl import set_property
from geo.errors import UsageError
from geo.journal.cluster import ClusterTables
from geo.journal.journal import Journal
from geo.log.kept_policies import REPLICATION_CLUSTERS, UNCLEAR, Policies, clusters_of, kept, restored
from geo.log.topics import Registered, all_topics, change_policies, ensure_topic, half_deleted_error, registered_partitions
from geo.names import Topic
from geo.schemas import LEDGERS, LINKS, TOPICS
from geo.schemas.table import POLICIES_PROPERTY


def told_clusters(tables: ClusterTables, topic: Topic) -> tuple[str, ...] | None:
    """Return where a topic may go by its log, as `replication_clusters` does by the registry. None also if the log does not say."""
    seen = tables.log(topic).snapshot()
    return None if seen is None else clusters_of(restored(seen.properties.get(POLICIES_PROPERTY)))


def replication_clusters(tables: ClusterTables, topic: Topic) -> tuple[str, ...] | None:
    """Return where a topic may go by this cluster's registry, or else by its log: `Registered.replication_clusters`; None also for an unknown topic.

    Raises UnsafeError for one that was deleted. (Who asks has its log: a delete has not ended.)
    """
    found = tables.journal(TOPICS).one(Registered, topic=str(topic))
    if found is None:
        return told_clusters(tables, topic)
    if found.is_deleted:
        raise half_deleted_error(tables, topic)
    return found.replication_clusters


def set_replication_clusters(
    tables: ClusterTables, config: Config, topic: Topic, clusters: Collection[str] | None
) -> list[Topic]:
    """Let only links between `clusters` carry the topic out of this one; None: as the configuration says again.

    For a partitioned topic, all its partitions. A link that runs follows within seconds; one that is withdrawn keeps its
    place and goes on from there. (Pulsar's topic policy, which goes before the namespace's.)
    Returns the topics changed. A topic that the registry lost is registered by it. Raises UsageError for an unknown cluster or topic.

    1. The logs keep it → 2. the registry says it → 3. logs that came meanwhile keep it. A death between 1 and 2 leaves links with what both
    let them carry.
    """
    if clusters is not None and tables.cluster.name not in clusters:
        raise UsageError(
            f"replication clusters {', '.join(sorted(clusters))} leave out {tables.cluster.name} itself; name it too."
        )

    def change(policies: dict[str, str]) -> None:
        before = policies.pop(REPLICATION_CLUSTERS, "").split(",")
        for name in clusters or ():
            if name not in before:  # one that was named already may have left the configuration
                config.cluster(name)
        policies.pop(UNCLEAR, None)
        if clusters is not None:
            policies[REPLICATION_CLUSTERS] = ",".join(sorted(set(clusters)))

    def found_in(registry: Journal) -> list[Registered]:
        single = [one for one in registry.read(Registered, topic=str(topic)) if not one.is_deleted]
        return [*single, *registered_partitions(registry, topic)]

    for one in all_topics(tables, [topic, *_used_partitions(tables, topic)]):
        if one.is_unknown and topic in (one.topic, one.topic.partitioned):
            ensure_topic(tables, one.topic)
    changed = {one.topic: dict(one.policies or {}) for one in found_in(tables.journal(TOPICS))}
    for policies in changed.values():
        change(policies)
    _keep(tables, changed)
    with tables.journal(TOPICS).alone() as registry:
        found = found_in(registry)
        if not found:
            raise UsageError(f"{tables.cluster.name} has no topic {topic}.")
        change_policies(registry, found, change)
    _keep(tables, {one.topic: one.policies or {} for one in found_in(tables.journal(TOPICS))})  # logs that came meanwhile
    return [one.topic for one in found]


def _keep(tables: ClusterTables, policies: Mapping[Topic, Policies]) -> None:
    """Let the logs that are there keep these policies, by topic."""
    for topic, of_topic in policies.items():
        table, told = tables.log(topic), kept(of_topic)
        if told is not None and (seen := table.snapshot()) is not None and seen.properties.get(POLICIES_PROPERTY) != told:
            set_property(table, POLICIES_PROPERTY, told)


def _used_partitions(tables: ClusterTables, topic: Topic) -> set[Topic]:
    """The partitions of a topic that a cluster's own producers and links know, whether or not its registry does. Folders of logs are listed on a
    local disk alone."""
    begins = ("topic", f"{topic}-partition-")
    named = {Topic.parse(row["topic"]) for schema in (LEDGERS, LINKS) for row in tables.journal(schema).newest(begins)}
    return {one for one in named if one.partitioned == topic}
