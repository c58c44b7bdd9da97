"""`system/version_starts` of a cluster, read, and made void: where consumers of versions may go on elsewhere or here, as its topics' controllers
found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from geo.journal.cluster import ClusterTables
from geo.journal.rows import in_columns
from geo.names import Topic, topic_glob_matches
from geo.now import utc_now
from geo.schemas import VERSION_STARTS


@dataclass(frozen=True, slots=True)
class VersionStart:
    """A row of the table. `cluster`: where a consumer of the subscription may start, with version `start` of the topic's log there; None: that
    is not known. `told_by`: the cluster in which the subscription had finished what is before; None: the one whose table it is. Without a
    subscription `waits_for` and `refused` of the topic."""

    topic: Topic
    subscription: str
    cluster: str
    sequence: int = field(compare=False)
    """Number of the row of `system/markers` that it follows from."""
    start: int | None = None
    snapshot_id: str | None = None
    taken_at: datetime | None = None
    told_by: str | None = field(default=None, metadata=in_columns("sender"))
    waits_for: Mapping[str, str] | None = None
    refused: Mapping[str, int] | None = None
    updated_at: datetime = field(default_factory=utc_now, compare=False)


@dataclass(frozen=True, slots=True)
class VersionStarts:
    """Versions of one topic, as a cluster knows them. `waits_for`: the clusters because of which it takes no snapshots, and why. `refused`: markers
    in its log that changed nothing, by reason, since the state of its controller was begun.
    """

    starts: Mapping[tuple[str, str], VersionStart] = field(default_factory=dict)
    """Starts by subscription and cluster."""
    waits_for: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)


def told_here(tables: ClusterTables, topics: str) -> set[tuple[Topic, str]]:
    """The subscriptions, of topics that match a glob, of which the cluster of `tables` knows where their consumers may begin here."""
    rows = tables.journal(VERSION_STARTS).read(VersionStart, cluster=tables.cluster.name)
    named = {(row.topic, row.subscription) for row in rows if row.subscription and row.start is not None}
    return {(topic, name) for topic, name in named if topic_glob_matches(topics, topic)}


def read_starts(tables: ClusterTables, topic: Topic) -> VersionStarts:
    """Reads what the cluster of `tables` knows of the topic now; of each start who told it."""
    me, rows = tables.cluster.name, tables.journal(VERSION_STARTS).read(VersionStart, topic=str(topic))
    of_topic = max((row for row in rows if not row.subscription), key=lambda row: row.sequence, default=None)
    starts = [replace(row, told_by=row.told_by or me) for row in rows if row.subscription and row.start is not None]
    waits_for, refused = (None, None) if of_topic is None else (of_topic.waits_for, of_topic.refused)
    return VersionStarts({(one.subscription, one.cluster): one for one in starts}, dict(waits_for or {}), dict(refused or {}))


def forget(tables: ClusterTables, topic: Topic, subscription: str) -> None:
    """Let go of what this cluster found out of a subscription that was deleted here; what others told stays."""
    journal = tables.journal(VERSION_STARTS)
    rows = journal.read(VersionStart, topic=str(topic), subscription=subscription)
    # Just behind what it lets go of: of a number by the clock here, which may be ahead, the next start would be older.
    journal.append(
        [
            VersionStart(topic, subscription, row.cluster, row.sequence + 1)
            for row in rows
            if row.told_by is None and row.start is not None
        ]
    )
