"""What clusters know of subscriptions: which there are, how far each is, and why one is behind. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from geo.config.model import Config
from geo.coordination.ownership import subscription_prefix
from geo.delta.engine import Scan
from geo.delta.predicate import Among, IsNull
from geo.delta.scan import scan
from geo.faults import FAULTS
from geo.ids import MessageId
from geo.journal.cluster import ClusterTables, connect
from geo.log.conditions import IS_POSSIBLE
from geo.log.topic_log import PUBLISH_ORDER
from geo.log.topics import registered_topics
from geo.names import ALL_TOPICS, Topic, check_subscription, topic_glob_matches
from geo.now import utc_now
from geo.replication.absent_regions import refuse_gone
from geo.replication.link_table import read_links
from geo.streams.life import State
from geo.subscription.acks.ack_publisher import MOVED, ConsumerState, lacking_shares, of_shares, shares_by_prefix
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import Known, read_known
from geo.subscription.acks.cursor import ends_as_text
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import key_of, parse_key
from geo.subscription.acks.start_position import split_at
from geo.text import first_line

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
    """Whether a consumer of it gives signs of life in this cluster."""
    replicated: bool = True
    """Whether all regions share it; else it is of this cluster's region only."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The newest record of another cluster, as it is there and as it has come here."""

    cluster: str
    newest_here: datetime | None
    age_s: float | None
    """Age of `newest_here` in seconds."""
    behind: str | None
    """Why not all of its records are here; None: they are."""


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
    peers: tuple[Peer, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    unreadable: str | None = None
    consumer: str = ConsumerState.STOPPED.value
    """As ConsumerState."""
    lacking_shares: tuple[str, ...] = ()
    """Shares of the keys that nobody has, while somebody has others: their messages wait."""
    replicated: bool = True
    """Whether all regions share it; else it is of this cluster's region only, and has no peers."""
    known: bool = True
    """Whether there is any record of it here; also true of what cannot be read, of which nobody knows."""


def matching(listed: Iterable[Listed], subscriptions: str) -> list[Subscribed]:
    """Those of listed subscriptions whose names match a glob, each once, and that are not deleted."""
    found = {(Topic.parse(one.topic), one.subscription) for one in listed if not one.deleted}
    return sorted(one for one in found if fnmatchcase(one[1], subscriptions))


def subscriptions_in(tables: ClusterTables, topics: str = ALL_TOPICS) -> list[Listed]:
    """The subscriptions that this cluster knows of."""
    found = []
    shares = shares_by_prefix(tables)
    for namespace in (one.topic for one in registered_topics(tables) if one.topic == one.topic.acks):
        known = read_known(tables, namespace)
        for key, state in sorted(known.states.items()):
            replicated = not known.known[key].is_regional
            topic, subscription = parse_key(key)
            if topic_glob_matches(topics, topic):
                consumer = of_shares(shares.get(subscription_prefix(tables, topic, subscription), {}))
                numbers = (state.deleted, state.epoch.counter, state.acked.size)
                runs = consumer is ConsumerState.RUNNING
                found.append(Listed(str(topic), subscription, tables.cluster.name, *numbers, runs, replicated))
    return found


def status(spark: SparkSession, config: Config, topic: Topic, subscription: str) -> list[Standing]:
    """How far a subscription is in every cluster, and why one is behind."""
    return standings({name: connect(spark, cluster) for name, cluster in config.clusters.items()}, config, topic, subscription)


def standings(clusters: Mapping[str, ClusterTables], config: Config, topic: Topic, subscription: str) -> list[Standing]:
    """As `status`, of clusters that are connected."""
    return [_standing(clusters, config, name, topic, check_subscription(subscription)) for name in clusters]


def _standing(clusters: Mapping[str, ClusterTables], config: Config, cluster: str, topic: Topic, subscription: str) -> Standing:
    tables = clusters[cluster]
    try:
        refuse_gone(tables, clusters.values())
        known = read_known(tables, topic, subscription)
        of_it = known.all_of(topic, subscription)
        state, is_regional = of_it.here or AckState(), of_it.is_regional
        log = tables.log(topic)
        present, left_out = split_at(state.base, log, log.latest_version()) if log.exists() else (MessageSet(), MessageSet())
        here, moved = _newest_records(tables, known, topic, subscription)
        whole = subscription_prefix(tables, topic, subscription)
        shares = shares_by_prefix(tables, whole).get(whole, {})
    except FAULTS as error:
        return Standing(cluster, 0, False, 0, 0, {}, {}, False, None, unreadable=first_line(error))
    consumer = of_shares(shares)
    done = (state.acked | left_out) & present
    first = {ledger: found[0][0] for ledger, found in present.ledgers.items()}
    mark = {ledger: done.mark_delete(ledger, begin) for ledger, begin in first.items()}
    ranges_beyond = {
        ledger: sum(begin > mark[ledger] for begin, _ in found) for ledger, found in done.ledgers.items() if ledger in mark
    }
    return Standing(
        cluster,
        state.epoch.counter,
        state.deleted,
        (present - done).size,
        state.acked.size,
        ends_as_text(mark),
        ends_as_text({ledger: count for ledger, count in ranges_beyond.items() if count}),
        consumer is ConsumerState.RUNNING,
        moved,
        ()
        if is_regional
        else tuple(_peer(clusters, config, cluster, peer, topic, subscription, here) for peer in clusters if peer != cluster),
        {why.value: count for why, count in sorted(known.refused.get(key_of(topic, subscription), {}).items())},
        consumer=consumer.value,
        lacking_shares=tuple(lacking_shares(shares)),
        replicated=not is_regional,
        known=key_of(topic, subscription) in {*known.known, *known.refused},
    )


def _peer(
    clusters: Mapping[str, ClusterTables],
    config: Config,
    cluster: str,
    peer: str,
    topic: Topic,
    subscription: str,
    here: Mapping[str, tuple[datetime, MessageId]],
) -> Peer:
    """What has come of another cluster's records, and if some have not, why."""
    newest = here[peer][0] if peer in here else None
    age_s = None if newest is None else (utc_now() - newest).total_seconds()
    tables = clusters[peer]
    try:
        there, _ = _newest_records(tables, read_known(tables, topic, subscription), topic, subscription)
    except FAULTS as error:
        return Peer(peer, newest, age_s, f"{peer} cannot be read: {first_line(error)}")
    if peer not in there or (peer in here and here[peer][1] >= there[peer][1] and here[peer][0] >= there[peer][0]):
        return Peer(peer, newest, age_s, None)
    missing = f"its newest, of {there[peer][0]:%Y-%m-%d %H:%M:%S} UTC, is not here"
    way = config.hubs(peer, cluster, topic.acks)
    if way is None:
        return Peer(peer, newest, age_s, f"{missing}: no link carries acknowledgements from {peer} to {cluster}")
    stops = [peer, *way, cluster]
    reasons = []
    for source, target in pairwise(stops):
        try:
            link = read_links(clusters[target]).get((source, str(topic.acks)))
        except FAULTS as error:
            reasons.append(f"what link {source}->{target} does cannot be read: {first_line(error)}")
            continue
        if link is None:
            reasons.append(f"link {source}->{target} has not run for {topic.acks} yet")
        elif link.state is not State.RUNNING:
            reasons.append(f"link {source}->{target} is {link.state.value}" + (f": {link.reason}" if link.reason else ""))
    return Peer(peer, newest, age_s, f"{missing}: {'; '.join(reasons) or 'it is on its way'}")


def _newest_records(
    tables: ClusterTables, known: Known, topic: Topic, subscription: str
) -> tuple[dict[str, tuple[datetime, MessageId]], str | None]:
    """Of each cluster the newest record of the subscription here that is for all, and the newest failover."""
    if known.version is None:
        return {}, None
    log, key = tables.log(topic.acks), key_of(topic, subscription)
    for_all = IS_POSSIBLE & Among("key", frozenset({key})) & IsNull("replicate_to")
    newest, last = _newest(scan(log, known.version, Scan([*PUBLISH_ORDER, "properties"], _newest_of, for_all, _newest)))
    return newest, None if last is None else f"{last[1]} at {last[0]:%Y-%m-%d %H:%M:%S} UTC"


Newest = tuple[dict[str, tuple[datetime, MessageId]], tuple[datetime, str] | None]
"""Of each origin the newest record, and the newest failover."""


def _newest_of(rows: pa.Table) -> Newest:
    ids = rows.select(PUBLISH_ORDER).drop_null().to_pylist()
    each = ((row["origin"], (row["publish_time"], MessageId(row["origin"], row["ledger_id"], row["entry_id"]))) for row in ids)
    moves = zip(rows["publish_time"].to_pylist(), pc.map_lookup(rows["properties"], MOVED, "last").to_pylist(), strict=True)
    last = max(((time, move) for time, move in moves if move is not None), default=None)
    return _newest([*(({origin: one}, None) for origin, one in each), ({}, last)])


def _newest(parts: Iterable[Newest]) -> Newest:
    """The newest of all parts."""
    found: dict[str, tuple[datetime, MessageId]] = {}
    moves = []
    for newest, move in parts:
        found |= {origin: max(one, found.get(origin, one)) for origin, one in newest.items()}
        moves += [] if move is None else [move]
    return found, max(moves, default=None)
