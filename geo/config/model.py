"""A configuration as one frozen tree that cannot exist wrong: its clusters and publications, links and policies.

An origin reaches a cluster by one link only, otherwise its messages would arrive twice. Pure: no Spark, clock or I/O. The
YAML form is in `reader.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType

from geo.config.choices import Carry, Start, Updates, check_carry, check_start, check_updates
from geo.config.cluster import Cluster
from geo.config.placement import Placement
from geo.config.publication import Publication
from geo.config.secret import Secret
from geo.config.spark_conf import contradictions
from geo.config.yaml_nodes import check_within, contains, suggestion
from geo.errors import ConfigError, UsageError
from geo.locations import scheme_of
from geo.names import (
    ACKS,
    ALL_TOPICS,
    Topic,
    check_cluster,
    check_topic_glob,
    glob_names_system_topics,
    namespace_glob_matches,
    topic_glob_matches,
)
from geo.text import show
from geo.times import MAX_DURATION_S

Local = Mapping[str, Sequence[str] | None]
"""Replication clusters that a cluster's own registry has for a topic, by cluster.
None or left out: it has none."""

LONGEST_OUTAGE_S = 7 * 86_400
"""A week: somebody notices, and has time."""

REPLICA_LAG_MAX_S = 30
"""A cluster is in sync that lacks nothing older (Kafka's replica.lag.time.max.ms)."""

NUM_FETCHERS, MOST_FETCHERS = 4, 64
"""Batches of a link at once: as many as keep some cores busy (Kafka's num.replica.fetchers, which is 1 by default)."""

LEAST_CACHED, MOST_CACHED = 3, 300
"""Snapshots that a subscription keeps, the first and the last always among them. The state of a topic is read and written at each of its batches.
With the most, and a thousand subscriptions that all wait, it is 3 MB of JSON and takes some seconds."""

MOST_PENDING = 100
"""Timeout over frequency of snapshots. One more can be under way at once: that which is begun at the very timeout."""


@dataclass(frozen=True, slots=True)
class DispatchRate:
    """Highest rate at which a link replicates each topic (Pulsar's replicatorDispatchRate). UsageError for a rate at which nothing would
    ever come.

    None: any number."""

    messages_per_second: int | None = None
    bytes_per_second: int | None = None

    def __post_init__(self) -> None:
        for what, per_second in (("messages", self.messages_per_second), ("bytes", self.bytes_per_second)):
            if per_second is not None and per_second <= 0:
                raise UsageError(f"{what}_per_second {per_second}; expected: 1 or more, or leave it out for any number")


@dataclass(frozen=True, slots=True)
class Link:
    """Replication from `source` into `target`; `origins` left empty is the source alone. At most `num_fetchers` batches of it run
    at once; `dispatch_rate` holds for each topic of which no policy says one. UsageError if impossible."""

    source: str
    target: str
    topics: tuple[str, ...] = (ALL_TOPICS,)
    start: Start = "earliest"
    origins: tuple[str, ...] = ()
    carry: Carry = "both"
    num_fetchers: int = NUM_FETCHERS
    dispatch_rate: DispatchRate = DispatchRate()
    schema_updates: Updates = "allow"
    """`deny`: a topic whose source gets columns, or wider types, is FAILED until its target has them too and `geo links restart`."""
    expect_every_s: int | None = None
    """Period in which the link is run, where that is by a schedule. Nobody is missed for so long and half as long again.
    None: it runs on, or as its commits tell."""
    line: int | None = field(default=None, compare=False, repr=False)
    """The place where it stands in the configuration's file; None: in none."""

    def __post_init__(self) -> None:
        check_cluster(self.source)
        check_cluster(self.target)
        check_within(f"link {self.name}: num_fetchers", self.num_fetchers, 1, MOST_FETCHERS)
        if self.expect_every_s is not None:
            check_within(f"link {self.name}: expect_every", self.expect_every_s, 1, MAX_DURATION_S, " s")
        if self.source == self.target:
            raise UsageError(f"link {self.name}: a cluster needs no link to itself")
        check_start(self.start)
        check_carry(self.carry)
        check_updates(self.schema_updates)
        if not self.topics:
            raise UsageError(f"link {self.name}: topics is empty; leave it out for all topics")
        for glob in self.topics:
            check_topic_glob(glob)
        object.__setattr__(self, "origins", self.origins or (self.source,))
        for origin in self.origins:
            check_cluster(origin)
        if len(set(self.origins)) < len(self.origins):
            raise UsageError(f"link {self.name}: origins has a cluster twice")
        if self.target in self.origins:
            raise UsageError(f"link {self.name}: origins has the target, whose own messages would come back")

    @property
    def name(self) -> str:
        """`source->target`, by which people and checkpoints call the link."""
        return f"{self.source}->{self.target}"

    def carries(self, topic: Topic) -> bool:
        """True if the link's globs match the topic and it carries such topics. A policy has a say too: see `Config.links_of`.

        Acknowledgements travel with a namespace: a link that carries one topic of it carries those of all.
        """
        if topic.name == ACKS:
            return self.carry != "messages" and any(namespace_glob_matches(glob, topic) for glob in self.topics)
        return self.carry != "acks" and any(topic_glob_matches(glob, topic) for glob in self.topics)


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """Policy for the topics that match. `message_ttl_s` None: messages do not expire. `replication_clusters` None: all.
    `dispatch_rate` None: it says none; `Config.dispatch_rate` has whose counts. `replicate_subscription_state` likewise."""

    match: str = ALL_TOPICS
    message_ttl_s: int | None = None
    replication_clusters: tuple[str, ...] | None = None
    longest_outage_s: int = LONGEST_OUTAGE_S
    dispatch_rate: DispatchRate | None = None
    replicate_subscription_state: bool | None = None
    line: int | None = field(default=None, compare=False, repr=False)
    """Line as of a link."""

    def __post_init__(self) -> None:
        check_topic_glob(self.match)
        if self.message_ttl_s is not None:
            check_within("message_ttl_s", self.message_ttl_s, 1, MAX_DURATION_S)
        check_within("longest_outage_s", self.longest_outage_s, 1, MAX_DURATION_S)
        for cluster in self.replication_clusters or ():
            check_cluster(cluster)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Snapshots of topics with version subscriptions: how often one is taken at most, and after how long it is given up. A subscription keeps
    `max_cached` that it has still to pass. UsageError if impossible."""

    frequency_s: int = 10
    """Pulsar's second would be a commit a second and topic."""
    timeout_s: int = 30
    """Pulsar's. Two rounds over links that replicate a batch each few seconds take about half of it."""
    max_cached: int = 30
    """Pulsar's: five minutes at their full density, and any backlog at less."""

    def __post_init__(self) -> None:
        check_within("snapshots: frequency", self.frequency_s, 1, MAX_DURATION_S, " s")
        if not 1 <= self.timeout_s <= MOST_PENDING * self.frequency_s:
            raise UsageError(f"snapshots: timeout {self.timeout_s} s; allowed: 1 to {MOST_PENDING} times the frequency")
        check_within("snapshots: max_cached", self.max_cached, LEAST_CACHED, MOST_CACHED)


@dataclass(frozen=True, slots=True)
class Config:
    """All clusters, links and policies. Raises ConfigError with everything in which they contradict each other."""

    path: str
    clusters: Mapping[str, Cluster]
    links: tuple[Link, ...] = ()
    policies: tuple[TopicPolicy, ...] = ()
    kafka: Mapping[str, Mapping[str, str | Secret]] = field(default_factory=dict, repr=False)
    """Settings of kafka-python by bootstrap servers."""
    publications: tuple[Publication, ...] = ()
    snapshots: Snapshots = Snapshots()
    placement: Placement | None = None
    """None: a cluster has one broker."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "clusters", MappingProxyType(dict(self.clusters)))
        object.__setattr__(self, "kafka", MappingProxyType({k: MappingProxyType(dict(v)) for k, v in self.kafka.items()}))
        for name, cluster in self.clusters.items():
            if name != cluster.name:
                raise ConfigError([f"{self.path}: cluster {cluster.name} stands under the name {show(name)}"])
        found = problems(list(self.clusters.values()), self.clusters, self.links, self.policies, self.publications)
        messages = [message for _, message in found] + ([] if self.clusters else ["expected at least one cluster"])
        if messages:
            raise ConfigError([f"{self.path}: {message}" for message in messages])

    @property
    def schemes(self) -> frozenset[str]:
        """The schemes of all storages that it names: of tables, checkpoints and lines to publish. None of a local disk."""
        locations = [location for cluster in self.clusters.values() for location in cluster.locations]
        locations += [one.jsonl for one in self.publications if one.jsonl is not None]
        return frozenset(map(scheme_of, locations)) - {""}

    def cluster(self, name: str) -> Cluster:
        """The cluster of that name, or UsageError."""
        return self.clusters[check_known(name, self.clusters)]

    def link(self, source: str, target: str) -> Link:
        """The link from source to target, or UsageError."""
        self.cluster(source), self.cluster(target)
        for link in self.links:
            if (link.source, link.target) == (source, target):
                return link
        found = ", ".join(link.name for link in self.links) or "none"
        raise UsageError(f"{self.path} has no link {source}->{target}; links: {found}")

    def inbound(self, target: str) -> tuple[Link, ...]:
        """The links into a cluster: those that run there."""
        self.cluster(target)
        return tuple(link for link in self.links if link.target == target)

    def published_in(self, cluster: str) -> tuple[Publication, ...]:
        """Publications of the broker of a cluster."""
        self.cluster(cluster)
        return tuple(one for one in self.publications if one.cluster == cluster)

    def policy(self, topic: Topic) -> TopicPolicy:
        """The first policy that matches the topic; without one, nothing expires.

        For a system topic it must name such topics (`persistent://*/*/__acks`). A TTL that is meant for messages would take acknowledgements away
        before the messages they name.
        """
        return next(self.matching(topic), TopicPolicy())

    def matching(self, topic: Topic) -> Iterator[TopicPolicy]:
        """The policies that match the topic, in order."""
        for policy in self.policies:
            if topic_glob_matches(policy.match, topic) and (not topic.is_system or glob_names_system_topics(policy.match)):
                yield policy

    def dispatch_rate(self, link: Link, topic: Topic) -> DispatchRate:
        """Highest rate at which the link replicates the topic: by the first policy that matches the topic and has one; else by the link. The
        policy may be the topic's own, its namespace's or its tenant's, as the user has put them in order. Its rate replaces that of the
        link as a whole. Of a system topic only a policy that names such topics says so: acknowledgements are few, and late they are of no
        use."""
        said = (policy.dispatch_rate for policy in self.matching(topic))
        rest = DispatchRate() if topic.is_system else link.dispatch_rate
        return next((rate for rate in said if rate is not None), rest)

    def replicates_subscriptions(self, topic: Topic) -> bool:
        """True if a subscription that is created on the topic is shared by all regions, unless who creates it says otherwise. The first policy
        that matches and says so decides; without one it is shared."""
        said = (policy.replicate_subscription_state for policy in self.matching(topic))
        return next((one for one in said if one is not None), True)

    def links_of(self, topic: Topic, local: Local = MappingProxyType({})) -> tuple[Link, ...]:
        """The links that replicate the topic: their globs match it, and both ends are among its replication clusters.

        What the registry of a link's source says (`local`, as far as it was read) goes before the policy here.
        """
        ours = self.policy(topic).replication_clusters

        def replicates(link: Link) -> bool:
            among = local.get(link.source) or ours
            return link.carries(topic) and (among is None or (link.source in among and link.target in among))

        return tuple(filter(replicates, self.links))

    def hubs(self, origin: str, target: str, topic: Topic, local: Local = MappingProxyType({})) -> tuple[str, ...] | None:
        """The clusters a message of origin passes on its way to target, in order: () when it goes directly.

        None when it does not get there; () also from a cluster to itself. There is at most one way. `local` as in `links_of`.
        """
        self.cluster(origin), self.cluster(target)
        return _way(self.links_of(topic, local), origin, target)


def problems(
    clusters: Sequence[Cluster],
    names: Collection[str],
    links: Sequence[Link],
    policies: Sequence[TopicPolicy],
    publications: Sequence[Publication],
    *,
    has_all_links: bool = True,
) -> Iterator[tuple[object, str]]:
    """In what the parts of a configuration contradict each other: where, and why. `names`: those of all clusters that it has, also of one that is
    wrong. Not `has_all_links`: a gap may be a link that is wrong."""
    yield from _cluster_problems(clusters)
    yield from _link_problems(links, names)
    if has_all_links:
        yield from _gaps(links)
    for policy in policies:
        for name in policy.replication_clusters or ():
            if name not in names:
                yield policy, f"policy {policy.match}: {_unknown(name, names)}"
    yield from _publication_problems(publications, names)


def _cluster_problems(clusters: Sequence[Cluster]) -> Iterator[tuple[Cluster, str]]:
    """Clusters that would write into each other's storage, or take each other's settings away."""
    for at, cluster in enumerate(clusters):
        for other in clusters[:at]:
            if cluster.database is not None and cluster.database == other.database:
                database = f"{cluster.catalog}.{cluster.schema}"
                yield cluster, f"cluster {cluster.name} has the catalog and schema of {other.name}: {database}"
            for mine, theirs in product(cluster.locations, other.locations):
                if contains(mine, theirs) or contains(theirs, mine):
                    yield cluster, f"cluster {cluster.name} shares storage with {other.name}: {mine} and {theirs}"
                    break  # the roots; their checkpoints follow from them
    named = {cluster.name: cluster for cluster in clusters}
    for name, why in contradictions({name: (cluster.settings, cluster.locations) for name, cluster in named.items()}):
        yield named[name], f"cluster {name}: {why}"


def _link_problems(links: Sequence[Link], clusters: Collection[str]) -> Iterator[tuple[Link, str]]:
    """Links of clusters that do not exist, and messages that would arrive twice."""
    for at, link in enumerate(links):
        for name in dict.fromkeys((link.source, link.target, *link.origins)):
            if name not in clusters:
                yield link, f"link {link.name}: {_unknown(name, clusters)}"
        for other in links[:at]:
            if other.name == link.name:
                yield link, f"link {link.name} is there twice; put the globs of both in one"
            elif other.target == link.target:
                for origin in sorted({*link.origins} & {*other.origins}):
                    message = f"link {link.name}: origin {origin} already reaches {link.target} by {other.name}"
                    yield link, f"{message}; allowed: one link for an origin, whatever its topics"


def _publication_problems(publications: Sequence[Publication], clusters: Collection[str]) -> Iterator[tuple[Publication, str]]:
    """Publications in clusters that do not exist, and two of one producer."""
    for at, one in enumerate(publications):
        if one.cluster not in clusters:
            yield one, f"publish {one.name}: {_unknown(one.cluster, clusters)}"
        if any(other.name == one.name for other in publications[:at]):
            yield one, f"publish {one.name} is there twice; give each a producer of its own"


def _gaps(links: Sequence[Link]) -> Iterator[tuple[Link, str]]:
    """Links that forward what never reaches their source."""
    for link in links:
        for origin in link.origins:
            if _way(links, origin, link.source) is None:
                message = f"origin {origin} does not reach {link.source}, which is to forward it"
                yield link, f"link {link.name}: {message}; expected: a link into {link.source} with that origin"


def _way(links: Sequence[Link], origin: str, target: str) -> tuple[str, ...] | None:
    """The clusters between origin and target, in order; None when no way leads there."""
    way: list[str] = []
    here = target
    while here != origin:
        link = next((link for link in links if link.target == here and origin in link.origins), None)
        if link is None or link.source in way:  # the latter: a ring, on which the origin is not
            return None
        here = link.source
        way.append(here)
    return tuple(reversed(way[:-1]))


def check_known(name: str, clusters: Collection[str]) -> str:
    if name not in clusters:
        raise UsageError(_unknown(name, clusters))
    return name


def _unknown(name: str, clusters: Collection[str]) -> str:
    return f"cluster {show(name)} is unknown; clusters: {', '.join(clusters)}{suggestion(name, clusters)}"
