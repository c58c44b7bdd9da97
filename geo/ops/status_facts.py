"""Reads once, side by side where each look is a request, what a status is made of (`geo.ops.status`). Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial

from geo.asking import ask_all
from geo.config.model import Config
from geo.coordination.ownership import origin_runners
from geo.coordination.storage_clock import storage_now_us
from geo.delta.mirror import may_be_old
from geo.delta.store import read_each
from geo.delta.table import Table
from geo.faults import Tried, reason_of
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import EventKind
from geo.journal.events import read_events
from geo.log.ledgers import Batch
from geo.log.topics import known_topics
from geo.names import Topic, topic_glob_matches
from geo.now import now_us, utc_now
from geo.ops.brokers import with_runners
from geo.ops.health import Finding
from geo.ops.lag_history import LagHistory
from geo.ops.link_health import link_findings
from geo.ops.status import UNKNOWN, Backlog, ClusterFacts, Facts, Subscribed, TopicOfLink, Verified
from geo.replication.absent_regions import refuse_gone
from geo.replication.lag import Lag
from geo.replication.link_status import LinkStatus
from geo.streams.life import State
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.record import decode_all
from geo.text import first_line
from geo.times import in_us
from schemas import CURSORS, EVENTS, LINKS, OWNERS, REQUESTS, TOPICS, TableSchema

RATE_S, RATE_COMMITS = 60.0, 20
"""What was published in so many seconds is the rate; of so many commits of a log at most, those of busier ones tell a shorter time."""

BEFORE_US = 300 * 1_000_000
"""The lag of so long ago is shown beside that of now."""

VERIFIED = timedelta(days=30)
"""So long events are kept."""

ANSWERS_S = 30.0
"""How long a region may take to tell all; one that has not is one that cannot be read."""

_SAME_S = 60.0
"""Within one status a small table on a store is looked at once."""


def read_facts(clusters: Mapping[str, ClusterTables], config: Config, glob: str) -> Facts:
    """What the regions say now. One that cannot be read says why; what others know of it is told by them."""
    answers = ask_all({name: partial(_read, tables, clusters, config, glob) for name, tables in clusters.items()}, ANSWERS_S)
    read: list[ClusterFacts] = []
    topics: list[TopicOfLink] = []
    newest: dict[str, dict[Topic, int]] = {}
    subscribed: dict[tuple[Topic, str], dict[str, AckState]] = {}
    for name, answer in answers.items():
        with Tried() as tried:
            facts, of_links, states = answer.result()
            read.append(facts)
            topics += [topic for _, topic in of_links]
            for one, _ in of_links:
                if one.newest is not None:
                    newest.setdefault(one.link.source, {})[one.topic] = one.newest
            for key, state in states.items():
                subscribed.setdefault(key, {})[name] = state
        if tried.fault is not None:
            read.append(ClusterFacts(name, first_line(tried.fault), reason_of(tried.fault)))
    read = [replace(one, published=_published(clusters[one.cluster], one.topics, newest.get(one.cluster, {}))) for one in read]
    links = [(link.source, link.target) for link in config.links]
    subscriptions = [_subscribed(topic, name, states) for (topic, name), states in sorted(subscribed.items())]
    return Facts(now_us(), read, links, topics, subscriptions)


_Read = tuple[ClusterFacts, list[tuple[LinkStatus, TopicOfLink]], dict[tuple[Topic, str], AckState]]


def _read(tables: ClusterTables, clusters: Mapping[str, ClusterTables], config: Config, glob: str) -> _Read:
    for _ in read_each(tables.port, (TOPICS, LINKS, REQUESTS, OWNERS, CURSORS, EVENTS), partial(_prefetch, tables)):
        pass
    with may_be_old(_SAME_S):
        refuse_gone(tables, clusters.values())
        owned = list(with_runners(tables))
        running = frozenset(name for one, names in owned if one.is_dead is None for name in names)
        of_links = [
            (one, _topic_of_link(one, how, history, now_us(), running))
            for one, how, history in link_findings(tables, clusters, config, glob)
        ]
        known = [one.topic for one in known_topics(tables) if not one.is_deleted and topic_glob_matches(glob, one.topic)]
        states = _subscription_states(tables, glob)
        facts = ClusterFacts(
            tables.cluster.name,
            brokers=tuple(one for one, _ in owned),
            verified=_verified(tables),
            topics=tuple(topic for topic in known if not topic.is_system),
            subscriptions=len(states),
        )
    return facts, of_links, states


def _prefetch(tables: ClusterTables, schema: TableSchema) -> None:
    """Have a system table on a store read, beside the others; whoever needs it then takes what was read. What is in its way is met there."""
    if tables.port is not None:
        with Tried(), may_be_old(_SAME_S):
            tables.journal(schema).newest()


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
"""States that a row keeps when its runner has died, or has begun and brought nothing yet."""


def _state(one: LinkStatus, running: Collection[str]) -> str:
    if one.state not in _FOR_RUNNER:
        return one.state.value
    names = (runner.name for runner in origin_runners(frozenset(one.link.origins), one.topic, one.link.target))
    return str((State.RUNNING if any(name in running for name in names) else State.STOPPED).value)


def _backlog(lag: Lag | None) -> Backlog:
    return UNKNOWN if lag is None else Backlog(lag.messages, lag.seconds, lag.complete)


def _published(tables: ClusterTables, topics: Iterable[Topic], newest: Mapping[Topic, int]) -> float | None:
    """Messages a second that were published here. None: nobody knows, or each look would be a request."""
    rate = 0.0
    with Tried() as tried:
        if not tables.is_near:
            return None
        for topic in topics:
            log, now = tables.log(topic), storage_now_us(tables, writes=False)
            version = newest.get(topic, -1) if topic in newest or not log.exists() else log.latest_version()
            rate += _rate(log, version, now) if version >= 0 else 0.0
    return rate if tried.fault is None else None


def _rate(log: Table, newest: int, now: int) -> float:
    came = log.committed_at(newest)
    if came is None or now - in_us(came) > RATE_S * 1e6:
        return 0.0
    messages, since = 0, now
    first = max(0, newest - RATE_COMMITS + 1)
    for commit in log.commits(first, newest):
        batch = Batch.decode(commit.user_metadata)
        if batch is not None and now - batch.publish_time_us <= RATE_S * 1e6:
            messages, since = messages + batch.rows, min(since, batch.publish_time_us)
    is_whole = first == 0 or (now - since < RATE_S * 1e6 and messages == 0)
    return messages / RATE_S if is_whole else messages / max(1.0, (now - since) / 1e6)


def _verified(tables: ClusterTables) -> Verified | None:
    """The last verify of which an event tells; None: there is none."""
    found = read_events(tables, utc_now() - VERIFIED, EventKind.VERIFY)
    if not found:
        return None
    last = found[-1]
    clean = last.to_state == "clean"
    return Verified(in_us(last.at), clean, "clean" if clean else last.to_state)


def _subscription_states(tables: ClusterTables, glob: str) -> dict[tuple[Topic, str], AckState]:
    """The subscriptions that the cluster has folded and that are not deleted; of those of this region alone without what is acknowledged,
    since they are nowhere else."""
    found = {}
    for row in tables.journal(CURSORS).newest():
        topic = Topic.parse(row["topic"])
        if row["deleted"] or not topic_glob_matches(glob, topic):
            continue
        state = decode_all(bytes(row["state"]), limited=False)
        found[topic, str(row["subscription"])] = AckState() if state.is_regional else state.here or AckState()
    return found


def _subscribed(topic: Topic, name: str, states: Mapping[str, AckState]) -> Subscribed:
    lacking = {}
    for here, state in states.items():
        for there, other in states.items():
            if here != there and state.begins_as(other):
                lacking[here, there] = (state.acked - other.acked).size
    return Subscribed(topic, name, {cluster: state.acked.size for cluster, state in states.items()}, lacking)
