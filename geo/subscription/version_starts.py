"""`system/version_starts` of a cluster, read, and made void: where consumers of versions may go on elsewhere or here, as its topics' controllers
found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from geo.journal.cluster import ClusterTables
from geo.journal.rows import from_row, in_columns
from geo.names import Topic, topic_glob_matches
from geo.now import utc_now
from schemas import VERSION_STARTS


@dataclass(frozen=True, slots=True)
class VersionStart:
    """`cluster`: where a consumer of the subscription may start, with version `start` of the topic's log there. `told_by`: the cluster
    in which the subscription had finished what is before."""

    subscription: str
    cluster: str
    start: int
    snapshot_id: str | None
    taken_at: datetime | None
    told_by: str = field(metadata=in_columns("sender"))


@dataclass(frozen=True, slots=True)
class VersionStarts:
    """What a cluster knows of the versions of one topic. `waits_for`: the clusters because of which it takes no snapshots, and why.
    `refused`: markers in its log that changed nothing, by reason, since the state of its controller was begun."""

    starts: Mapping[tuple[str, str], VersionStart]
    """By subscription and cluster."""
    waits_for: Mapping[str, str]
    refused: Mapping[str, int]


def told_here(tables: ClusterTables, topics: str) -> set[tuple[Topic, str]]:
    """The subscriptions, of topics that match a glob, of which the cluster of `tables` knows where their consumers may begin here."""
    rows = tables.journal(VERSION_STARTS).newest(cluster=tables.cluster.name)
    named = {(Topic.parse(row["topic"]), row["subscription"]) for row in rows if row["subscription"] and row["start"] is not None}
    return {(topic, name) for topic, name in named if topic_glob_matches(topics, topic)}


def read_starts(tables: ClusterTables, topic: Topic) -> VersionStarts:
    """What the cluster of `tables` knows of the topic now."""
    me = tables.cluster.name
    rows = tables.journal(VERSION_STARTS).newest(topic=str(topic))
    of_topic = max((row for row in rows if not row["subscription"]), key=lambda row: row["sequence"], default=None)
    starts = [
        from_row(VersionStart, {**row, "sender": row["sender"] or me})
        for row in rows
        if row["subscription"] and row["start"] is not None
    ]
    waits_for, refused = ({} if of_topic is None else dict(of_topic[name] or {}) for name in ("waits_for", "refused"))
    return VersionStarts({(one.subscription, one.cluster): one for one in starts}, waits_for, refused)


def forget(tables: ClusterTables, topic: Topic, subscription: str) -> None:
    """Let go of what this cluster found out of a subscription that was deleted here; what others told stays."""
    journal, now = tables.journal(VERSION_STARTS), utc_now()
    told = [row for row in journal.newest(topic=str(topic), subscription=subscription) if row["sender"] is None]
    nothing = {"start": None, "snapshot_id": None, "taken_at": None, "updated_at": now}
    # Just behind what it lets go of: of a number by the clock here, which may be ahead, the next start would be older.
    gone = [{**row, **nothing, "sequence": row["sequence"] + 1} for row in told if row["start"] is not None]
    journal.append(gone)
