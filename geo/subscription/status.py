"""Status of subscriptions as clusters know them: which there are, how far each is, and why one is behind. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from geo.config import read
from geo.config.model import Config
from geo.coordination.runners import subscription_prefix
from geo.delta.engine import Scan
from geo.delta.predicate import Among
from geo.delta.scan import scan
from geo.delta.table import Table
from geo.faults import faults_here
from geo.ids import LedgerId, MessageId
from geo.journal.cluster import ClusterTables, connect
from geo.log.conditions import IS_POSSIBLE
from geo.log.ledger_parts import ledger_parts
from geo.log.topic_log import PUBLISH_ORDER
from geo.log.topics import Registered, absent, registered_topics
from geo.names import ALL_TOPICS, Topic, check_subscription, namespace_glob_matches, topic_glob_matches
from geo.now import now_us, utc_now
from geo.replication.absent_regions import refuse_gone
from geo.replication.link_table import read_links
from geo.schemas import TOPICS
from geo.shown import Rows
from geo.streams.life import State
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import Known, read_known
from geo.subscription.acks.consumers import ConsumerState, lacking_shares, of_shares, shares_by_prefix
from geo.subscription.acks.cursor import ends_as_text
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import RecordRefusal, key_of, parse_key
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.in_region import InRegion, Unreadable, in_region, ready
from geo.subscription.newest_records import Newest, newest_records
from geo.subscription.readiness import RATE_S, Readiness, drained_in_s
from geo.text import first_line
from geo.times import from_us, shown_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Subscribed = tuple[Topic, str]
"""A topic and the name of a subscription of it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A subscription as one cluster knows it."""

    topic: str
    subscription: str
    cluster: str
    deleted: bool
    epoch: int
    acknowledged: int
    runs: bool
    """True if a consumer of it gives signs of life in this cluster."""
    replicated: bool = True
    """True if all regions share it; else it is of this cluster's region only."""
    consumer: str = ConsumerState.STOPPED.value
    """State as ConsumerState."""
    backlog: int | None = None
    """Messages of the log here that are not acknowledged; None: they were not counted, or it was deleted, or has no log here."""
    oldest_at: datetime | None = None
    """The time when the oldest of these was published."""


@dataclass(frozen=True, slots=True)
class NewestRecord:
    """The newest record of another cluster, as it is there and as it has come here."""

    cluster: str
    newest_here: datetime | None
    age_s: float | None
    """Age of `newest_here` in seconds."""
    behind: str | None
    """The reason why not all of its records are here; None: they are."""
    unreadable: bool = False
    """That cluster cannot be read."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A subscription in one cluster. `runs`: a consumer of it, or of a share of the keys, gives signs of life. By ledger (`origin:ledger`): the entry up to which all is acknowledged, and how many ranges
    are beyond it. `backlog`: messages of the log that are not acknowledged."""

    cluster: str
    epoch: int
    deleted: bool
    backlog: int
    acknowledged: int
    mark_delete: Mapping[str, int]
    ranges_beyond: Mapping[str, int]
    runs: bool
    moved: str | None
    peers: tuple[NewestRecord, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    unreadable: str | None = None
    consumer: str = ConsumerState.STOPPED.value
    """State as ConsumerState; `unknown` where it cannot be read."""
    lacking_shares: tuple[str, ...] = ()
    """Shares of the keys that nobody has, while somebody has others: their messages wait."""
    replicated: bool = True
    """True if all regions share it; else it is of this cluster's region only, and has no peers."""
    known: bool = True
    """True if there is a record or an owner of it here; also of what cannot be read, of which nobody knows."""
    topic: str = ""
    oldest_at: datetime | None = None
    """The time when the oldest message that waits was published; None: none waits, or that is not known."""
    oldest_s: float | None = None
    """Its age in seconds."""
    acknowledged_per_s: float | None = None
    """Messages that records of the last RATE_S acknowledge; None: not known."""
    drained_in_s: float | None = None
    """Seconds as `drained_in_s` derives them."""
    failover: tuple[Readiness, ...] = ()
    """To each other cluster, if this one were lost now."""


def matching(listed: Iterable[Listed], subscriptions: str) -> list[Subscribed]:
    """Those of listed subscriptions whose names match a glob, each once, and that are not deleted."""
    found = {(Topic.parse(one.topic), one.subscription) for one in listed if not one.deleted}
    return sorted(one for one in found if fnmatchcase(one[1], subscriptions))


def subscriptions_in(tables: ClusterTables, topics: str = ALL_TOPICS, *, backlog: bool = False) -> list[Listed]:
    """The subscriptions that this cluster knows of, with their `backlog` if it is asked for."""
    found = []
    shares = shares_by_prefix(tables)
    acks = (one.topic for one in registered_topics(tables) if one.topic == one.topic.acks)
    for namespace in (topic for topic in acks if namespace_glob_matches(topics, topic)):
        known = read_known(tables, namespace)
        for key, state in sorted(known.states.items()):
            replicated = not known.known[key].is_regional
            topic, subscription = parse_key(key)
            if topic_glob_matches(topics, topic):
                consumer = of_shares(shares.get(subscription_prefix(tables, topic, subscription), {}))
                numbers = (state.deleted, state.epoch.counter, state.acked.size)
                runs = consumer is ConsumerState.RUNNING
                one = Listed(str(topic), subscription, tables.cluster.name, *numbers, runs, replicated, consumer.value)
                found.append(_with_backlog(tables, topic, state, one) if backlog and not state.deleted else one)
    return found


def _with_backlog(tables: ClusterTables, topic: Topic, state: AckState, one: Listed) -> Listed:
    log = tables.log(topic)
    if (seen := log.snapshot()) is None:
        return one
    waiting = in_region(state, log, seen.version, is_regional=not one.replicated).waiting
    return replace(one, backlog=waiting.size, oldest_at=oldest_of(log, seen.version, waiting) if waiting else None)


def status(spark: SparkSession, topic: str | Topic, subscription: str, config: Config | str | Path) -> Rows[Standing]:
    """Reads how far a subscription is in every cluster, and why one is behind."""
    config = read(config)
    clusters = {name: connect(spark, cluster) for name, cluster in config.clusters.items()}
    return Rows(standings(clusters, config, Topic.of(topic), subscription))


def standings(clusters: Mapping[str, ClusterTables], config: Config, topic: Topic, subscription: str) -> list[Standing]:
    """Reads as `status` clusters that are connected."""
    return all_standings(clusters, config, [topic], subscription)


def all_standings(
    clusters: Mapping[str, ClusterTables], config: Config, topics: Sequence[Topic], subscription: str
) -> list[Standing]:
    """Reads as `standings` several topics of one namespace, as the partitions of a topic are: of each in every cluster."""
    namespaces = {name: _read(tables, clusters, topics, check_subscription(subscription)) for name, tables in clusters.items()}
    found = []
    for topic in topics:
        here = {name: _here(clusters[name], one, topic, subscription) for name, one in namespaces.items()}
        found += [_standing(clusters, config, here, name, topic, subscription) for name in clusters]
    return found


@dataclass(frozen=True, slots=True)
class _Namespace:
    """Knowledge of a cluster about a subscription of the topics of a namespace. It has, by topic, the newest record of each origin and the newest
    failover, and what was acknowledged lately. And by prefix who runs what.
    """

    known: Known
    newest: Mapping[str, Newest]
    lately: Mapping[str, MessageSet]
    shares: Mapping[str, Mapping[str, ConsumerState]]


@dataclass(frozen=True, slots=True)
class _Here:
    """A subscription of one topic in one cluster, as its log has it (`at`), and as its records tell."""

    at: InRegion
    of_it: SubscriptionState
    refused: Mapping[RecordRefusal, int]
    newest: Newest
    lately: MessageSet
    shares: Mapping[str, ConsumerState]
    arrived: int
    """Messages of the log that were published lately."""
    oldest_at: datetime | None


def _read(
    tables: ClusterTables, clusters: Mapping[str, ClusterTables], topics: Sequence[Topic], subscription: str
) -> _Namespace | Unreadable:
    try:
        refuse_gone(tables, clusters.values())
        known = read_known(tables, topics[0], subscription if len(topics) == 1 else None)
        newest, lately = newest_records(tables, known, topics, subscription)
        only = subscription_prefix(tables, topics[0], subscription) if len(topics) == 1 else "subscription "
        return _Namespace(known, newest, lately, shares_by_prefix(tables, only))
    except faults_here() as error:
        return first_line(error)


def _here(tables: ClusterTables, one: _Namespace | Unreadable, topic: Topic, subscription: str) -> _Here | Unreadable:
    if isinstance(one, Unreadable):
        return one
    key, of_it = key_of(topic, subscription), one.known.all_of(topic, subscription)
    shares = one.shares.get(subscription_prefix(tables, topic, subscription), {})
    newest, lately = one.newest.get(key, ({}, None)), one.lately.get(key, MessageSet())
    try:
        log = tables.log(topic)
        if (seen := log.snapshot()) is None:
            one_of = tables.journal(TOPICS).one(Registered, topic=str(topic))
            if one_of is not None and not one_of.is_deleted and (lacks := absent(tables, one_of, None)) is not None:
                return str(lacks)  # what waits there nobody knows
        at = in_region(of_it.here, log, None if seen is None else seen.version, is_regional=of_it.is_regional)
        arrived, oldest = 0, None
        if at.version is not None:
            since = ledger_parts(log, at.version, from_us(now_us() - RATE_S * 1_000_000))
            arrived = sum(part.count for part in since.values())
            oldest = oldest_of(log, at.version, waiting) if (waiting := at.waiting) else None
        return _Here(at, of_it, one.known.refused.get(key, {}), newest, lately, shares, arrived, oldest)
    except faults_here() as error:
        return first_line(error)


def oldest_of(log: Table, version: int, waiting: MessageSet) -> datetime | None:
    """Tells when the oldest of some messages of a log was published: the first one of a ledger is its oldest (L1). None: it is not there."""
    firsts = {ledger: found[0][0] for ledger, found in waiting.ledgers.items()}
    one_of = Among("entry_id", frozenset(firsts.values())) & Among("ledger_id", frozenset(one.ledger_id for one in firsts))
    times = [
        row["publish_time"]
        for rows in scan(log, version, Scan([*PUBLISH_ORDER], pa.Table.to_pylist, one_of & IS_POSSIBLE))
        for row in rows
        if firsts.get(LedgerId(row["origin"], row["ledger_id"])) == row["entry_id"]
    ]
    return min(times, default=None)


def _standing(
    clusters: Mapping[str, ClusterTables],
    config: Config,
    here: Mapping[str, _Here | Unreadable],
    cluster: str,
    topic: Topic,
    subscription: str,
) -> Standing:
    one = here[cluster]
    if isinstance(one, Unreadable):
        return Standing(cluster, 0, False, 0, 0, {}, {}, False, None, unreadable=one, consumer="unknown", topic=str(topic))
    of_it, state, consumer = one.of_it, one.of_it.here or AckState(), of_shares(one.shares)
    waiting = one.at.waiting
    done = one.at.present - waiting
    first = {ledger: found[0][0] for ledger, found in one.at.present.ledgers.items()}
    mark = {ledger: done.mark_delete(ledger, begin) for ledger, begin in first.items()}
    ranges_beyond = {
        ledger: sum(begin > mark[ledger] for begin, _ in found) for ledger, found in done.ledgers.items() if ledger in mark
    }
    newest, moved = one.newest
    lately = (one.lately & state.acked).size
    return Standing(
        cluster,
        state.epoch.counter,
        state.deleted,
        waiting.size,
        state.acked.size,
        ends_as_text(mark),
        ends_as_text({ledger: count for ledger, count in ranges_beyond.items() if count}),
        consumer is ConsumerState.RUNNING,
        None if moved is None else f"{moved[1]} at {shown_time(moved[0])}",
        ()
        if of_it.is_regional
        else tuple(_peer(clusters, config, here, cluster, peer, topic, newest) for peer in clusters if peer != cluster),
        {why.value: count for why, count in sorted(one.refused.items())},
        consumer=consumer.value,
        lacking_shares=tuple(lacking_shares(one.shares)),
        replicated=not of_it.is_regional,
        known=of_it.here is not None or bool(one.refused or one.shares),
        topic=str(topic),
        oldest_at=one.oldest_at,
        oldest_s=None if one.oldest_at is None else max(0.0, (utc_now() - one.oldest_at).total_seconds()),
        acknowledged_per_s=lately / RATE_S,
        drained_in_s=drained_in_s(waiting.size, lately, one.arrived, RATE_S),
        failover=tuple(
            ready(one.at, there if isinstance(there, Unreadable) else there.at, peer)
            for peer, there in here.items()
            if peer != cluster
        ),
    )


def _peer(
    clusters: Mapping[str, ClusterTables],
    config: Config,
    all_here: Mapping[str, _Here | Unreadable],
    cluster: str,
    peer: str,
    topic: Topic,
    here: Mapping[str, tuple[datetime, MessageId]],
) -> NewestRecord:
    """Finds what has come of another cluster's records, and if some have not, why. `here`: its newest records of each origin."""
    newest = here[peer][0] if peer in here else None
    age_s = None if newest is None else (utc_now() - newest).total_seconds()
    of_peer = all_here[peer]
    if isinstance(of_peer, Unreadable):
        return NewestRecord(peer, newest, age_s, f"{peer} cannot be read: {of_peer}", unreadable=True)
    there, _ = of_peer.newest
    if peer not in there or (peer in here and here[peer][1] >= there[peer][1] and here[peer][0] >= there[peer][0]):
        return NewestRecord(peer, newest, age_s, None)
    missing = f"its newest, of {shown_time(there[peer][0])}, is not here"
    way = config.hubs(peer, cluster, topic.acks)
    if way is None:
        return NewestRecord(peer, newest, age_s, f"{missing}: no link carries acknowledgements from {peer} to {cluster}")
    stops = [peer, *way, cluster]
    reasons = []
    for source, target in pairwise(stops):
        try:
            link = read_links(clusters[target]).get((source, str(topic.acks)))
        except faults_here() as error:
            reasons.append(f"what link {source}->{target} does cannot be read: {first_line(error)}")
            continue
        if link is None:
            reasons.append(f"link {source}->{target} has not run for {topic.acks} yet")
        elif link.state is not State.RUNNING:
            reasons.append(f"link {source}->{target} is {link.state.value}" + (f": {link.reason}" if link.reason else ""))
    return NewestRecord(peer, newest, age_s, f"{missing}: {'; '.join(reasons) or 'it is on its way'}")
