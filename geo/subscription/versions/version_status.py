"""Status of version subscriptions, and where their consumers may go on in other clusters: for who looks, and who moves one. Reads only, and no link
is needed. What a cluster's controller found out stands in its own tables, and in those of the other clusters once its update has come there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase

from geo.asking import ask_all
from geo.config.model import Config
from geo.delta.predicate import Among
from geo.delta.scan import rows_where
from geo.delta.table import Table
from geo.errors import UsageError
from geo.faults import Tried, faults_here
from geo.ids import LedgerId
from geo.journal.cluster import ClusterTables
from geo.log.conditions import IS_MESSAGE
from geo.log.ledger_parts import ledger_parts
from geo.log.topic_log import ID
from geo.log.topic_policies import replication_clusters
from geo.names import Topic, check_subscription
from geo.now import utc_now
from geo.remedies import how_to_share
from geo.replication.absent_regions import refuse_gone
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.message_set_frames import message_set
from geo.subscription.acks.record import key_of
from geo.subscription.status import Subscribed
from geo.subscription.versions.handoff_report import LogAt, handoff_report
from geo.subscription.versions.sync_state import unread_of, why_not_run
from geo.subscription.versions.version_starts import VersionStart, VersionStarts, read_starts, told_here
from geo.subscription.versions.version_subscriptions import (
    VersionSubscription,
    progress,
    version_subscription,
    version_subscriptions,
)
from geo.text import first_line

ANSWER_S = 30.0
"""Seconds that a failover waits for the cluster that is left. One that does not answer counts as gone."""


@dataclass(frozen=True, slots=True)
class StartElsewhere:
    """The place where the consumer of a version subscription in `source` may go on in `target`: `start` is the first version to read there
    (`startingVersion`). None: nothing is known, and `why_not` says why.

    Messages are those in the target's log. `at_most_repeated`: at or after the start, and finished in the source, by what is known of its progress.
    `unseen`: before it and not finished in the source, by why (`handoff_report.Why`); `unseen_ids` as `origin:ledger:first-last`, at most 100
    ranges.
    """

    topic: str
    subscription: str
    source: str
    target: str
    start: int | None
    why_not: str | None
    told_by: str | None
    """The place where the subscription had finished what is before the start: the source, or without it another cluster."""
    snapshot_id: str | None
    taken_at: datetime | None
    age_s: float | None
    finished: int | None
    """The version of the source's log up to which its consumer has finished all; None: not known."""
    checkpoint: str | None
    """Checkpoint of its streaming query in the source, if that says how far it is."""
    source_unreadable: str | None
    waits_for: Mapping[str, str]
    """Because of these clusters the source takes no snapshots, so the start grows old."""
    not_run: Mapping[str, str]
    """So it does where nobody runs version sync in one of the two: in which, and why."""
    at_most_repeated: int | None = None
    unseen: Mapping[str, int] | None = None
    unseen_ids: str = ""
    uncounted: str | None = None
    """The reason why the counts are not there, or are of what the rule tells alone."""


@dataclass(frozen=True, slots=True)
class VersionStanding:
    """A version subscription in one cluster, `known` there or only told by others. `refused`: markers of the topic's log there that
    changed nothing, by reason."""

    cluster: str
    known: bool = False
    finished: int | None = None
    unfinished_why: str | None = None
    """The reason why it is not known how far it is."""
    checkpoint: str | None = None
    newest: int | None = None
    """The newest version of the log."""
    waits_for: Mapping[str, str] | None = None
    not_run: str | None = None
    """The reason why nobody runs version sync there, where the subscription is known."""
    unread: str | None = None
    """Part of the log that whoever runs it has not read, though it is there for long."""
    start_here: int | None = None
    """The place where a consumer may begin in this cluster, as another one told."""
    told_by: str | None = None
    age_s: float | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    elsewhere: tuple[StartElsewhere, ...] = ()
    unreadable: str | None = None
    replicated: bool = True
    """Else it is of this cluster's region only, and nobody finds out where it may go on elsewhere."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Facts where the consumer is; nothing where that is `unreadable`, which says why."""

    subscription: VersionSubscription | None = None
    starts: VersionStarts = field(default_factory=VersionStarts)
    newest: int | None = None
    finished: int | None = None
    problem: str | None = None
    """The reason why it is not known how far it is, or what that held."""
    not_run: str | None = None
    """The reason why nobody runs version sync there."""
    done: MessageSet | None = None
    """Messages that are finished."""
    held: MessageSet = field(default_factory=MessageSet)
    """All that the log has now; nothing if it is not known what is finished."""
    replication_clusters: tuple[str, ...] | None = None
    unreadable: str | None = None


def is_version_subscription(tables: ClusterTables, topic: Topic, subscription: str) -> bool:
    """Tells whether the cluster has such a version subscription, or was told where its consumer may begin here."""
    if version_subscription(tables, topic, subscription) is not None:
        return True
    return (subscription, tables.cluster.name) in read_starts(tables, topic).starts


def goes_by_versions(
    clusters: Mapping[str, ClusterTables], topic: Topic, subscription: str, source: str, target: str, *, source_gone: bool
) -> bool:
    """Tells whether a subscription that is to move is one of versions. The source is asked, for ANSWER_S at most, only if the target does not know."""
    if is_version_subscription(clusters[target], topic, subscription):
        return True
    if source_gone or key_of(topic, subscription) in read_known(clusters[target], topic, subscription).states:
        return False
    try:
        asked = ask_all({source: lambda: version_subscription(clusters[source], topic, subscription)}, ANSWER_S)
        return asked[source].result() is not None
    except faults_here():
        return False  # who moves messages meets it too, and says it


def matching_versions(
    clusters: Mapping[str, ClusterTables], topics: str, subscriptions: str, source: str, target: str, *, source_gone: bool
) -> list[Subscribed]:
    """The version subscriptions that match both globs and that one of the clusters knows, the source as far as it answers within
    ANSWER_S."""
    named = told_here(clusters[target], topics)
    if not source_gone:
        with Tried():  # each of them says it
            asked = ask_all({source: lambda: version_subscriptions(clusters[source], topics)}, ANSWER_S)
            named |= {(one.topic, one.subscription) for one in asked[source].result()}
    return sorted(one for one in named if fnmatchcase(one[1], subscriptions))


def version_standings(
    clusters: Mapping[str, ClusterTables], config: Config, topic: Topic, subscription: str
) -> list[VersionStanding]:
    """The subscription in each cluster; none if no cluster that can be read knows it."""
    known, name = set[str](), check_subscription(subscription)
    for cluster, tables in clusters.items():
        with Tried():  # where another one knows it, this one's standing says that it cannot be read
            if is_version_subscription(tables, topic, name):
                known.add(cluster)
    return [_standing(clusters, config, one, topic, name, is_known=one in known) for one in clusters] if known else []


def _standing(
    clusters: Mapping[str, ClusterTables], config: Config, cluster: str, topic: Topic, subscription: str, *, is_known: bool
) -> VersionStanding:
    tables, unread = clusters[cluster], None
    try:
        refuse_gone(tables, clusters.values())
        if not is_known:
            return VersionStanding(cluster, refused=read_starts(tables, topic).refused)
        here = _look(tables, topic, subscription)
        one = here.subscription
        shared = None if one is None or not one.replicated else one
        if shared is not None and here.not_run is None and here.newest is not None:
            unread = unread_of(tables, shared, here.newest, config.snapshots.frequency_s)
    except faults_here() as error:
        return VersionStanding(cluster, unreadable=first_line(error))
    own = here.starts.starts.get((subscription, cluster), _nowhere(topic, subscription, cluster))
    others = [name for name in clusters if name != cluster and shared is not None]
    return VersionStanding(
        cluster,
        known=one is not None,
        finished=here.finished,
        unfinished_why=here.problem,
        checkpoint=None if one is None else one.checkpoint,
        newest=here.newest,
        waits_for=here.starts.waits_for,
        not_run=None if shared is None else here.not_run,
        unread=unread,
        start_here=own.start,
        told_by=own.told_by,
        age_s=_age_s(own),
        refused=here.starts.refused,
        elsewhere=tuple(_start(here, clusters[name], config, topic, subscription, cluster) for name in others),
        replicated=one is None or one.replicated,
    )


def _nowhere(topic: Topic, subscription: str, cluster: str) -> VersionStart:
    """No start is known in a cluster."""
    return VersionStart(topic, subscription, cluster, 0)


def start_elsewhere(
    clusters: Mapping[str, ClusterTables],
    config: Config,
    topic: Topic,
    subscription: str,
    source: str,
    target: str,
    *,
    source_gone: bool,
) -> StartElsewhere:
    """Tells where the subscription's consumer in `source` may go on in `target`. With `source_gone`, and if it does not answer within ANSWER_S, by
    what had come to the target. Raises UsageError if neither knows it, or if it is of the source's region only."""
    if source == target:
        raise UsageError(f"--from and --to are both {source}.")
    here = _Source(unreadable="not looked at: it is said to be gone")
    if not source_gone:
        try:
            asked = ask_all({source: lambda: _look(clusters[source], topic, subscription)}, ANSWER_S)
            here = asked[source].result()
        except faults_here() as error:
            here = _Source(unreadable=first_line(error))
    if here.subscription is not None and not here.subscription.replicated:
        raise UsageError(
            f"{here.subscription} in {source} is of that region only: nobody finds out where it may go on elsewhere. To have that found out from "
            f"here on: {how_to_share(source, topic, subscription)}"
        )
    if here.subscription is None and not is_version_subscription(clusters[target], topic, subscription):
        raise UsageError(f"neither {source} nor {target} knows a version subscription {subscription} of {topic}.")
    return _start(here, clusters[target], config, topic, subscription, source)


def _look(tables: ClusterTables, topic: Topic, subscription: str) -> _Source:
    tables.refuse_no_folder()
    one, log = version_subscription(tables, topic, subscription), tables.log(topic)
    starts, not_run = read_starts(tables, topic), why_not_run(tables)
    seen = log.snapshot()
    if seen is None:
        return _Source(one, starts, problem=f"{topic} has no log in {tables.cluster.name}", not_run=not_run)
    finished, problem, done = None, None, None
    if one is not None:
        try:
            finished = progress(tables, one)
            done = MessageSet() if finished is None else _messages(log, finished).messages
        except faults_here() as error:
            problem = first_line(error)
    held = MessageSet() if done is None else _messages(log, seen.version).messages
    return _Source(one, starts, seen.version, finished, problem, not_run, done, held, replication_clusters(tables, topic))


def _start(here: _Source, there: ClusterTables, config: Config, topic: Topic, subscription: str, source: str) -> StartElsewhere:
    """Tells where the consumer in `source` may go on in the cluster of `there`. `here`: what is known in the source."""
    target, one = there.cluster.name, here.subscription
    unreadable = None
    best = nowhere = _nowhere(topic, subscription, target)
    not_run = {} if one is None else {source: here.not_run}
    try:
        there.refuse_no_folder()
        if not_run:
            not_run[target] = why_not_run(there)
        own = read_starts(there, topic).starts.get((subscription, target), nowhere)
        best = nowhere if here.unreadable is None else own
    except faults_here() as error:
        unreadable = f"{target} cannot be read: {first_line(error)}"
    if one is not None and (here.finished is not None or here.problem is not None):
        best = here.starts.starts.get((subscription, target), nowhere)  # what it told others is no newer
    found = StartElsewhere(
        topic=str(topic),
        subscription=subscription,
        source=source,
        target=target,
        start=best.start,
        why_not=None
        if best.start is not None
        else unreadable or _no_way(here, config, topic, source, target) or _why_not(here, source),
        told_by=best.told_by,
        snapshot_id=best.snapshot_id,
        taken_at=best.taken_at,
        age_s=_age_s(best),
        finished=here.finished,
        checkpoint=None if one is None else one.checkpoint,
        source_unreadable=here.unreadable,
        waits_for=here.starts.waits_for,
        not_run={cluster: why for cluster, why in not_run.items() if why is not None},
        uncounted=unreadable or here.problem,
    )
    if best.start is None or unreadable is not None:
        return found
    try:
        return _counted(found, best.start, here, there, config, topic)
    except faults_here() as error:
        return replace(found, uncounted=first_line(error))


def _no_way(here: _Source, config: Config, topic: Topic, source: str, target: str) -> str | None:
    """Tells why nobody will ever tell: an answer must come back."""
    there_and_back = (source, target), (target, source)
    if all(config.hubs(one, other, topic, {source: here.replication_clusters}) is not None for one, other in there_and_back):
        return None
    return f"no links lead from {source} to {target} and back, by which one asks and is answered"


def _why_not(here: _Source, source: str) -> str:
    """Tells why nobody told where to go on."""
    if here.unreadable is not None:
        return f"nothing had come of what {source} found out"
    if here.subscription is None:
        return f"{source} knows no such version subscription"
    if here.problem is not None:
        return here.problem
    if here.finished is None:
        return f"its consumer has finished no version in {source} yet"
    if here.starts.waits_for:
        return f"{source} takes no snapshots"
    return f"no snapshot is at or before version {here.finished} of {source} yet"


def _age_s(one: VersionStart) -> float | None:
    return None if one.taken_at is None else (utc_now() - one.taken_at).total_seconds()


def _counted(
    found: StartElsewhere, start: int, here: _Source, there: ClusterTables, config: Config, topic: Topic
) -> StartElsewhere:
    """`found` with what comes again and what is not seen, if its start is a place in the log that is there."""
    log, target = there.log(topic), there.cluster.name
    newest = log.latest_version()
    if start > newest:  # its answer to the snapshot stands in it, after all that is before the start
        why = f"the log of {target} ends at version {newest}: it is another one than that of which {found.told_by} told version {start}"
        return replace(found, start=None, why_not=why)
    if not log.has_commit(start):
        why = f"{target} does not have the commit of version {start} any more (log cleanup), so no stream can begin there"
        return replace(found, start=None, why_not=why)
    before, now = _messages(log, start - 1), _messages(log, newest)
    local = {target: replication_clusters(there, topic), found.source: here.replication_clusters}
    reached_by = {name for name in config.clusters if config.hubs(name, found.source, topic, local) is not None}
    result = handoff_report(found.source, reached_by, here.done, here.held, before, now.messages - before.messages)
    return replace(
        found,
        at_most_repeated=result.repeated.size,
        unseen={why.value: messages.size for why, messages in result.unseen.items()},
        unseen_ids=MessageSet.union(result.unseen.values()).shown(),
    )


def _messages(log: Table, version: int) -> LogAt:
    """The messages of a log at a version; -1: none. Of ledgers without a hole (L5) the first and the last entry tell, others are read."""
    if version < 0:
        return LogAt(MessageSet(), {})
    parts = ledger_parts(log, version)
    aims = {ledger: part.replicate_to for ledger, part in parts.items() if part.replicate_to is not None}
    whole = {ledger: ((part.first, part.last),) for ledger, part in parts.items() if part.count == part.last - part.first + 1}
    broken = parts.keys() - whole.keys()
    return LogAt(MessageSet({**whole, **(_read(log, version, broken).ledgers if broken else {})}), aims)


def _read(log: Table, version: int, ledgers: Collection[LedgerId]) -> MessageSet:
    """The messages of some ledgers, one by one."""
    where = IS_MESSAGE & Among("ledger_id", frozenset(ledger.ledger_id for ledger in ledgers))
    found = message_set(rows_where(log, version, ID, where)).ledgers
    return MessageSet({ledger: ranges for ledger, ranges in found.items() if ledger in ledgers})
