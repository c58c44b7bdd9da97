"""`geo rebuild`: a region that lost data gets its own messages back from a peer that holds them.

Only rows whose origin is the region itself; what others wrote comes by its links, as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from geo.config.model import Config, Link
from geo.coordination.claiming import claim
from geo.coordination.owners import refuse_producers
from geo.coordination.ownership import giving_back
from geo.coordination.runners import filling_runners, origin_runners
from geo.crash import CrashPoint, reach
from geo.delta.ddl import find_checked
from geo.delta.predicate import Among, Predicate
from geo.errors import UsageError
from geo.faults import Tried
from geo.journal.cluster import ClusterTables, connect
from geo.log.absence import lost_by_registry
from geo.log.conditions import IS_MESSAGE
from geo.log.housekeeping import open_for_writing
from geo.log.ledger_parts import count_where
from geo.log.ledgers import REBUILD_RECORD
from geo.log.topic_log import open_log, user_columns
from geo.log.topics import deleted_topics, ensure_topic, known_topics, register_unclear, registered_topics
from geo.names import ALL_TOPICS, Topic, check_topic_glob, topic_glob_matches
from geo.replication.carried import has_carried
from geo.replication.link_table import read_links
from geo.replication.link_target import TargetWatch, newest_commit
from geo.replication.missing import count_rows, find_missing
from geo.replication.shape import shape_for
from geo.schemas import TOPIC_LOG, TOPICS


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Count of the region's own messages of a topic that came back, or would."""

    topic: str
    messages: int
    unclear: str | None = None
    """The reason why only links that have carried it do, and what to do; None: where it may go is known. (Of a rehearsal: None.)"""


def rebuild(
    spark: SparkSession, config: Config, cluster: str, peer: str, topics: str = ALL_TOPICS, *, dry_run: bool = False
) -> list[Rebuilt]:
    """Append to the logs of `cluster` its own messages that `peer` holds and it does not, by message id. Idempotent.

    Producers of these topics must not run: they would go on in ledgers that the peer holds more of. When they start afterwards they open new ones.
    A topic that was deleted in `cluster` stays so. Of some topics `cluster` knows nothing any more, nor to where they may replicate. Of these a
    person is to say that again (`geo topics set`), if a link that has not carried one would. Until then only links that have carried it do. What no
    peer holds (`replicate_to` this cluster only, or not yet replicated) is lost. Raises UsageError if the peer has no such topic, AlreadyOwnedError
    if a producer lives.
    """
    check_topic_glob(topics)
    if cluster == peer:
        raise UsageError("a cluster is rebuilt from another one.")
    own, other = connect(spark, config.cluster(cluster)), connect(spark, config.cluster(peer))
    open_for_writing(own, config, rehearsal=dry_run)
    matching = [r for r in registered_topics(other) if topic_glob_matches(topics, r.topic)]
    gone = deleted_topics(own)
    found = [r for r in matching if r.topic not in gone]
    if not found:
        of = f"no topic that matches {topics}"
        raise UsageError(f"{peer} has {of}{' and was not deleted in ' + cluster if matching else ''}.")
    refuse_producers(own, {r.topic for r in found})
    if dry_run:
        return [Rebuilt(str(r.topic), _rehearsed(own, other, r.topic, cluster)) for r in found]
    others = [link for link in config.links if link.source == cluster and link.target != peer]
    carried = {link: _carried(spark, config, link) for link in others}

    def may_go_elsewhere(topic: Topic) -> bool:
        """Tells whether the configuration lets a link carry it to another place than the peer. So it is where such a link has not carried it, or
        where nobody can tell: what the cluster's registry said of that is lost.
        """
        return any(link in carried and str(topic) not in carried[link] for link in config.links_of(topic))

    done = [
        Rebuilt(str(r.topic), _rebuild(own, other, r.topic, cluster, may_go_elsewhere=may_go_elsewhere(r.topic))) for r in found
    ]
    registry = str(own.journal(TOPICS))
    unclear = {str(one.topic): lost_by_registry(one, cluster, registry) for one in known_topics(own)}
    return [replace(one, unclear=None if (lost := unclear.get(one.topic)) is None else str(lost)) for one in done]


def _carried(spark: SparkSession, config: Config, link: Link) -> set[str]:
    """The topics that a link has carried; none where its target cannot tell."""
    with Tried():
        rows = read_links(connect(spark, config.cluster(link.target)))
        return {topic for (source, topic), row in rows.items() if source == link.source and has_carried(row)}
    return set()


def _rehearsed(own: ClusterTables, other: ClusterTables, topic: Topic, cluster: str) -> int:
    """Counts the messages that would come back. Writes nothing."""
    source, target = open_log(other, topic)[0], own.log(topic)
    version = source.latest_version()
    if find_checked(target, TOPIC_LOG) is None:
        return count_where(source, version, _mine(cluster))
    steps = find_missing(source, version, target, target.latest_version(), _mine(cluster), f"rebuild of {target}")
    return sum(map(count_rows, steps))


def _rebuild(own: ClusterTables, other: ClusterTables, topic: Topic, cluster: str, *, may_go_elsewhere: bool) -> int:
    source, columns = open_log(other, topic)
    target = own.log(topic)
    what, version = f"rebuild of {topic}", source.latest_version()
    ways = [*origin_runners({cluster}, topic, cluster), *filling_runners({cluster}, topic, cluster)]
    (ownership,) = claim(own, [ways])
    with giving_back([ownership]):
        if may_go_elsewhere:
            register_unclear(own, topic, user_columns(columns))
        there = ensure_topic(own, topic, user_columns(columns))
        shape = shape_for(target, there, user_columns(columns), what, other.cluster.name)
        ownership.fence(target)
        messages, pinned = 0, newest_commit(target, what)
        watch = TargetWatch(target, pinned, shape, what)
        for rows in find_missing(source, version, target, pinned.version, _mine(cluster), f"rebuild of {target}"):
            messages += watch.append(ownership, rows, REBUILD_RECORD)
            reach(CrashPoint.REBUILD_APPENDED)
    return messages


def _mine(cluster: str) -> Predicate:
    """The messages that the cluster itself wrote."""
    return IS_MESSAGE & Among("origin", frozenset({cluster}))
