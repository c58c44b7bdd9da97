"""Reads once, side by side where each look is a request, what a status is made of (`geo.ops.status`). Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from geo.asking import Late
from geo.config import read
from geo.config.model import Config
from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.coordination.runners import origin_runners
from geo.coordination.storage_clock import storage_now_us
from geo.delta.ddl import how_to_set
from geo.delta.driver import Reads
from geo.faults import Tried, wrong_of
from geo.journal.cluster import ClusterTables, connect_later
from geo.journal.event_rate import Event, EventKind
from geo.log.topics import known_topics
from geo.names import ALL_TOPICS, Topic, topic_glob_matches
from geo.now import now_us
from geo.ops.backlog import UNKNOWN, Backlog
from geo.ops.commit_rates import published_lately, rests
from geo.ops.failed_works import failed_works
from geo.ops.health import Finding
from geo.ops.lag_history import LagHistory
from geo.ops.link_health import LinksBefore, link_findings
from geo.ops.looks import second, secrets
from geo.ops.looks.overdue import CLEAN, WHOLE
from geo.ops.looks.retention import of_log
from geo.ops.named import chosen
from geo.ops.noted import events_told, noted_since, works_told
from geo.ops.problems import at_risk
from geo.ops.region_process import RegionProcess
from geo.ops.region_processes import region_processes
from geo.ops.regions import OF_ALL, Regions
from geo.ops.status import (
    ClusterFacts,
    OfVersions,
    Status,
    StatusFacts,
    SubscriptionFacts,
    TopicOfLink,
    Verified,
    status_of,
)
from geo.replication.lag import Lag
from geo.replication.link_status import LinkStatus
from geo.schemas import LEDGERS
from geo.session import session
from geo.streams.life import State
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import parse_key
from geo.subscription.in_region import InRegion, in_region, ready
from geo.subscription.versions.version_subscriptions import version_subscriptions, versions_behind
from geo.times import in_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE_US = 300 * 1_000_000
"""The lag of so long ago is shown beside that of now."""


def status(config: Config | str | Path, topics: str | Topic = ALL_TOPICS, *, max_lag_s: float | None = None) -> Status:
    """All regions at once, worst first, of the topics that match (of a partitioned topic: of its partitions). This process reads their tables
    itself where it can, else the Spark session that is there or is then started. A topic that is further behind than `max_lag_s` is a problem.
    Raises ConfigError, InvalidNameError, and UsageError for a topic that no region has; a region that cannot be read is a problem of what is
    returned."""
    config = read(config)

    def start() -> SparkSession:
        return session(schemes=config.schemes)

    each = {name: connect_later(start, cluster, reads=Reads.ALL, looks_once=True) for name, cluster in config.clusters.items()}
    regions = Regions(each, OF_ALL)
    return status_of(read_facts(regions, config, chosen(regions, str(topics))), max_lag_s)


def read_facts(regions: Regions, config: Config, glob: str) -> StatusFacts:
    """Reads the facts of all regions. One that cannot be read says why; what others know of it is told by them."""
    each = regions.ask(lambda tables: _read(tables, regions.clusters, config, glob))
    clusters, read = regions.clusters, list[ClusterFacts]()
    topics: list[TopicOfLink] = []
    events: list[Event] = []
    newest: dict[str, dict[Topic, tuple[int, int | None]]] = {}
    subscribed: dict[tuple[Topic, str], dict[str, _SubscriptionIn]] = {}
    for name, of_one in each.items():
        with Tried() as tried:
            facts, of_links, subscriptions_here, of_events = of_one.result()
            read.append(facts)
            events += of_events
            topics += [topic for _, topic in of_links]
            for one, _ in of_links:
                if one.newest is not None:
                    newest.setdefault(one.link.source, {})[one.topic] = one.newest, one.came_us
            for key, one_here in subscriptions_here.items():
                subscribed.setdefault(key, {})[name] = one_here
        if tried.fault is not None:
            read.append(ClusterFacts(name, wrong_of(tried.fault)))
    read.sort(key=lambda one: list(clusters).index(one.cluster))
    carried = {(one.source, one.topic) for one in topics}
    read = [
        replace(one, own=_own(clusters[one.cluster], [of for of in one.topics if (one.cluster, of) not in carried]))
        for one in read
    ]
    read = [replace(one, published=_published(clusters[one.cluster], one.topics, newest.get(one.cluster, {}))) for one in read]
    links = [(link.source, link.target) for link in config.links]
    subscriptions = [
        _subscribed(topic, name, _with_others(topic, here, read, clusters)) for (topic, name), here in sorted(subscribed.items())
    ]
    return StatusFacts(now_us(), read, links, topics, subscriptions, noted_since(events))


def regions_around(cluster: str, clusters: Mapping[str, ClusterTables], config: Config, late: Late) -> Regions:
    """A picture of a cluster and of those that it reads, as they are now: who asks may run for long. `late`: as `Regions`."""
    names = dict.fromkeys((cluster, *(link.source for link in config.inbound(cluster))))
    return Regions({name: clusters[name] for name in names}, OF_ALL, late)


def facts_of_topics(
    cluster: str, clusters: Mapping[str, ClusterTables], config: Config, only: Collection[tuple[str, Topic]]
) -> StatusFacts:
    """Reads as `read_facts` these topics, by their sources, of the links into one cluster."""
    links = [(link.source, link.target) for link in config.links]
    return StatusFacts(now_us(), (), links, _some_topics(clusters[cluster], clusters, config, only, None))


def facts_around(cluster: str, seen: Regions, config: Config, only: Collection[tuple[str, Topic]]) -> StatusFacts:
    """Reads as `facts_of_topics`, and the facts of the regions themselves."""
    links = [(link.source, link.target) for link in config.links]
    read, topics = list[ClusterFacts](), list[TopicOfLink]()

    def facts(tables: ClusterTables) -> tuple[ClusterFacts, list[TopicOfLink]]:
        before, events = LinksBefore(tables), events_told(tables, *_OF_REGION)
        is_it = tables.cluster.name == cluster
        found = _some_topics(tables, seen.clusters, config, only, before) if is_it else []
        return _of_region(tables, region_processes(before.holders), events), found

    for name, answer in seen.ask(facts).items():
        with Tried() as tried:
            of_one, of_links = answer.result()
            read.append(of_one)
            topics += of_links
        if tried.fault is not None:
            read.append(ClusterFacts(name, wrong_of(tried.fault)))
    return StatusFacts(now_us(), read, links, topics)


def _some_topics(
    tables: ClusterTables,
    clusters: Mapping[str, ClusterTables],
    config: Config,
    only: Collection[tuple[str, Topic]],
    before: LinksBefore | None,
) -> list[TopicOfLink]:
    found = link_findings(tables, clusters, config, ALL_TOPICS, only, before) if only else ()
    return [
        replace(_topic_of_link(one, how, None, now_us(), ()), risks=_risks_of_log(one, clusters, config)) for one, how, _ in found
    ]


_OF_REGION = (EventKind.VERIFY, EventKind.HEALTH, EventKind.OWNER)


_Read = tuple[ClusterFacts, list[tuple[LinkStatus, TopicOfLink]], dict[tuple[Topic, str], "_SubscriptionIn"], list[Event]]


def _read(tables: ClusterTables, clusters: Mapping[str, ClusterTables], config: Config, glob: str) -> _Read:
    before, events = LinksBefore(tables), events_told(tables, *_OF_REGION)
    owned = region_processes(before.holders)
    running = frozenset(name for one in owned if not one.holder.is_dead for name in one.owns)
    of_links = [
        (one, replace(_topic_of_link(one, how, history, now_us(), running), risks=_risks_of_log(one, clusters, config)))
        for one, how, history in link_findings(tables, clusters, config, glob, before=before)
    ]
    known = [one.topic for one in known_topics(tables) if not one.is_deleted]
    here = _subscriptions(tables, [topic for topic in known if topic == topic.acks], glob)
    facts = replace(
        _of_region(tables, owned, events),
        topics=tuple(topic for topic in known if not topic.is_system and topic_glob_matches(glob, topic)),
        of_versions=tuple(
            OfVersions(one.topic, one.subscription, tables.cluster.name, versions_behind(tables, one) if tables.is_near else None)
            for one in version_subscriptions(tables, glob)
        ),
    )
    return facts, of_links, here, events


def _of_region(tables: ClusterTables, brokers: Sequence[RegionProcess], events: Sequence[Event]) -> ClusterFacts:
    """Facts of a region without a look at its topics."""
    name, storage_us = tables.cluster.name, storage_now_us(tables, writes=False)
    second_ones = second.refused(name, events, [one.since_us for one in brokers if not one.holder.is_dead], storage_us)
    living = {one.name: one.since_us for one in brokers if not one.holder.is_dead}
    works = failed_works(works_told(tables, min(living.values()) - CLOCK_TOLERANCE_US), living) if living else []
    risks = (*(at_risk(one) for one in (*secrets.of_cluster(tables.cluster), *second_ones)), *works)
    return ClusterFacts(
        name,
        brokers=tuple(brokers),
        verified=_verified(events),
        host_ahead_us=now_us() - storage_us,
        risks=tuple(one for one in risks if one is not None),
    )


def _risks_of_log(one: LinkStatus, clusters: Mapping[str, ClusterTables], config: Config) -> tuple[Finding, ...]:
    """Risks of a log that a link reads: it was looked at."""
    if one.lag is None:
        return ()
    log, found = clusters[one.link.source].log(one.topic), list[Finding | None]()
    with Tried():  # what is in the way of reading it is the link's finding
        outage_s = config.policy(one.topic).longest_outage_s
        looks = of_log(f"cluster {one.link.source}, {one.topic}", log.properties(), outage_s, partial(how_to_set, log))
        found = [at_risk(each, str(one.topic)) for each in looks]
    return tuple(risk for risk in found if risk is not None)


def _topic_of_link(
    one: LinkStatus, finding: Finding, history: LagHistory | None, now: int, running: Collection[str]
) -> TopicOfLink:
    """`running`: what living processes own."""
    backlog = _backlog(one.lag)
    before = None if history is None else history.at(now - BEFORE_US)
    known = _backlog(before.lag) if before is not None else None
    if history is None and backlog.is_nothing:
        known = Backlog(complete=False)  # it rests; nothing of what was before was read
    return TopicOfLink(one.link.source, one.link.target, one.topic, _state(one, running), finding, backlog, known)


_FOR_RUNNER = (State.RUNNING, State.STOPPED)
"""States that a row keeps when its runner has died, or has begun and replicated nothing yet."""


def _state(one: LinkStatus, running: Collection[str]) -> str:
    if one.state not in _FOR_RUNNER:
        return one.state.value
    names = (runner.name for runner in origin_runners(frozenset(one.link.origins), one.topic, one.link.target))
    return str((State.RUNNING if any(name in running for name in names) else State.STOPPED).value)


def _backlog(lag: Lag | None) -> Backlog:
    return UNKNOWN if lag is None else Backlog(lag.messages, lag.seconds, lag.complete)


def _own(tables: ClusterTables, topics: Collection[Topic]) -> tuple[Topic, ...]:
    """Those of some topics into which a producer of the cluster has published; all of them where nobody can tell."""
    with Tried():
        published = {row["topic"] for row in tables.journal(LEDGERS).newest() if row["end"] >= 0} if topics else set()
        return tuple(topic for topic in topics if str(topic) in published)
    return tuple(topics)


def _published(tables: ClusterTables, topics: Iterable[Topic], newest: Mapping[Topic, tuple[int, int | None]]) -> float | None:
    """Messages a second that were published here; `newest`: of topics the newest version, and when it came. None: nobody knows, or each look would
    be a request."""
    rate = 0.0
    with Tried() as tried:
        now = storage_now_us(tables, writes=False)
        for topic in topics:
            log, (version, came_us) = tables.log(topic), newest.get(topic, (-1, None))
            if not tables.is_near:
                if came_us is None or not rests(came_us, now):
                    return None
                continue
            version = version if topic in newest or not log.exists() else log.latest_version()
            of_log = published_lately(log, version, now) if version >= 0 else 0.0
            if of_log is None:
                return None
            rate += of_log
    return rate if tried.fault is None else None


def _verified(events: Iterable[Event]) -> Verified | None:
    """The last verify of all topics of which an event tells; None: there is none."""
    of_verify = [one for one in events if one.kind is EventKind.VERIFY and one.to_state in WHOLE[EventKind.VERIFY]]
    last = of_verify[-1] if of_verify else None
    return None if last is None else Verified(in_us(last.at), last.to_state == CLEAN, last.to_state)


@dataclass(frozen=True, slots=True)
class _SubscriptionIn:
    """A subscription in one region, by its records; and as the log there has it (`at`), None where each look at that is a request."""

    state: AckState | None
    is_regional: bool
    at: InRegion | None


def _subscriptions(tables: ClusterTables, namespaces: Iterable[Topic], glob: str) -> dict[tuple[Topic, str], _SubscriptionIn]:
    """Those that the cluster knows of and that are not deleted."""
    found = {}
    for namespace in namespaces:
        known = read_known(tables, namespace)
        for key, state in known.states.items():
            topic, name = parse_key(key)
            if not state.deleted and topic_glob_matches(glob, topic):
                found[topic, name] = _subscription_in(tables, topic, state, is_regional=known.known[key].is_regional)
    return found


def _subscription_in(tables: ClusterTables, topic: Topic, state: AckState | None, *, is_regional: bool) -> _SubscriptionIn:
    at = None
    if tables.is_near:
        log = tables.log(topic)
        seen = log.snapshot()
        at = in_region(state, log, None if seen is None else seen.version, is_regional=is_regional)
    return _SubscriptionIn(state, is_regional, at)


def _with_others(
    topic: Topic, regions: Mapping[str, _SubscriptionIn], read: Iterable[ClusterFacts], clusters: Mapping[str, ClusterTables]
) -> dict[str, _SubscriptionIn]:
    """With the regions that have the topic and do not know the subscription: there it would begin at its beginning."""
    found = dict(regions)
    for name in (one.cluster for one in read if topic in one.topics and one.cluster not in regions):
        found[name] = _SubscriptionIn(None, is_regional=False, at=None)
        with Tried():
            found[name] = _subscription_in(clusters[name], topic, None, is_regional=False)
    return found


def _subscribed(topic: Topic, name: str, regions: Mapping[str, _SubscriptionIn]) -> SubscriptionFacts:
    """A subscription by what each region knows of it."""
    repeats, skips = dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    for here, one in regions.items():
        for there, other in regions.items():
            if here == there or one.is_regional or other.is_regional:
                continue
            found = None if one.at is None or other.at is None else ready(one.at, other.at, there)
            if found is not None and found.repeated is not None and found.skipped is not None:
                repeats[here, there], skips[here, there] = found.repeated, found.skipped
            elif one.state is not None:
                known = MessageSet() if other.state is None else other.state.acked
                repeats[here, there] = (one.state.acked - known).size
    acknowledged = {cluster: 0 if one.state is None else one.state.acked.size for cluster, one in regions.items()}
    first = max(regions, key=lambda cluster: acknowledged[cluster])
    at = regions[first].at
    return SubscriptionFacts(topic, name, first, None if at is None or at.version is None else at.waiting.size, repeats, skips)
