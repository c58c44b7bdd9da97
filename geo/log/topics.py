"""The registry of a cluster's topics and how a topic comes into being. `system/topics` is how links discover topics.

A partitioned topic is nothing of its own: it is the topics `name-partition-0…n-1` that are registered. A topic that was deleted keeps
a row that says so, until somebody makes it again: links neither carry it nor bring it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from pyspark.sql import Row
from pyspark.sql.types import StructField, StructType

from geo.config.model import Config
from geo.crash import CrashPoint, reach
from geo.disk import local_path
from geo.errors import InvalidNameError, RetryableError, SchemaError, UnsafeError, UsageError
from geo.log.topic_log import open_log, user_columns
from geo.names import Topic
from geo.now import utc_now
from geo.tables.cluster import ClusterTables
from geo.tables.journal import Journal
from geo.tables.table import Table
from geo.times import EPOCH, utc
from schemas import LEDGERS, LINKS, TOPIC_LOG, TOPICS

log = logging.getLogger(__name__)

REPLICATION_CLUSTERS = "replication_clusters"
"""The policy a topic may have in a registry: names of clusters, joined by commas."""

DELETED = "deleted"
"""The policy of a topic that somebody deleted here: when. It stands in the topic's newest row until it is made again."""

UNENDED = "unended"
"""The policy beside it as long as the delete has not ended: an `Unended`. Until then the topic is not made again."""


class Unended(str, Enum):
    """How far a delete is that has not ended."""

    BEGUN = "begun"
    """All is as it was, and can be again."""
    REMOVES = "removes"
    """Some of it may be gone."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A topic in one cluster's registry. `replication_clusters` None: as the configuration says. `is_deleted`: it was here.
    `unended`: how far its delete is; None: it has ended, or there was none."""

    topic: Topic
    created_at: datetime
    typed: bool
    replication_clusters: tuple[str, ...] | None
    is_deleted: bool = False
    unended: Unended | None = None
    is_unknown: bool = False
    """The registry lacks it, though its log is there or others have read it."""

    @classmethod
    def unknown(cls, topic: Topic) -> Registered:
        return cls(topic, EPOCH, False, None, is_unknown=True)

    @classmethod
    def of(cls, row: Row) -> Registered:
        policies = row["policies"] or {}
        clusters = policies.get(REPLICATION_CLUSTERS)
        topic, named = Topic.parse(row["topic"]), tuple(clusters.split(",")) if clusters else None
        unended = Unended(policies[UNENDED]) if UNENDED in policies else None
        return cls(topic, row["created_at"], row["typed"], named, DELETED in policies, unended)


def known_topics(tables: ClusterTables) -> list[Registered]:
    """The topics of a cluster by name, and those that were deleted there; none if it has no registry yet (nothing was ever
    published or replicated there)."""
    return sorted(map(Registered.of, tables.journal(TOPICS).newest()), key=lambda found: found.topic)


def registered_topics(tables: ClusterTables) -> list[Registered]:
    """The topics that a cluster has, by name."""
    return [found for found in known_topics(tables) if not found.is_deleted]


def deleted_topics(tables: ClusterTables) -> set[Topic]:
    """The topics that were deleted in a cluster, and not made again."""
    return {found.topic for found in known_topics(tables) if found.is_deleted}


def unregistered_topics(tables: ClusterTables, mentioned: Iterable[Topic] = ()) -> list[Topic]:
    """The topics whose logs are in a cluster and that its registry lacks: `system/topics` was put back from an older backup.

    They are looked for among those that are `mentioned` in others' tables, and on a local disk by the folders of logs. A folder alone
    is no topic, as a log that somebody moved aside: the cluster's own ledgers or links have to name it.
    """
    # Folders first: whoever creates a topic registers it before its log is there.
    by_folder, named = _topics_by_folder(tables), frozenset(mentioned)
    maybe = {*by_folder, *named}
    lacking = maybe.difference(one.topic for one in known_topics(tables)) if maybe else ()
    return sorted(topic for topic in lacking if (topic in named or _is_used(tables, topic)) and tables.log(topic).exists())


def _is_used(tables: ClusterTables, topic: Topic) -> bool:
    return any(tables.journal(schema).newest(topic=str(topic)) for schema in (LEDGERS, LINKS))


def absent(tables: ClusterTables, one: Registered) -> str | None:
    """What of a topic that was not deleted is not in its cluster, with the remedy; None: its log and its row are there."""
    name, table, registry = tables.cluster.name, tables.log(one.topic), tables.journal(TOPICS)
    if not table.exists():
        return (
            f"its log {table} is not there. Put it back. If nobody is to have it: `geo topics create` and `geo topics delete` "
            f"it in {name}"
        )
    if one.is_unknown:
        return (
            f"{registry} of {name} lacks it, though its log is there: an older copy was put back. Whoever publishes into it, or "
            f"replicates into {name}, registers it again"
        )
    return None


def _topics_by_folder(tables: ClusterTables) -> list[Topic]:
    root = tables.cluster.root
    local = None if root is None else local_path(root)
    found = []
    for folder in () if local is None else (local / "topics").glob("*/*/*"):
        with suppress(InvalidNameError):
            found.append(Topic.from_path("/".join(folder.parts[-3:])))
    return found


def replication_clusters(tables: ClusterTables, topic: Topic) -> tuple[str, ...] | None:
    """What this cluster's registry says of the topic: `Registered.replication_clusters`; None also for an unknown topic.

    Raises UnsafeError for one that was deleted. (Who asks has its log: a delete has not ended.)
    """
    rows = tables.journal(TOPICS).newest(topic=str(topic))
    found = Registered.of(rows[0]) if rows else None
    if found is not None and found.is_deleted:
        raise _half_deleted(tables, topic)
    return None if found is None else found.replication_clusters


def ensure_topic(tables: ClusterTables, topic: Topic, columns: Sequence[StructField] = (), *, again: bool = False) -> StructType:
    """The columns of the topic's log, which is created as by `create_topic` if it is missing. A log that is there and that the
    registry lacks is registered, with the policies of the configuration: its own are not known any more."""
    if (found := tables.log(topic).find(TOPIC_LOG)) is None:
        return create_topic(tables, topic, columns, again=again)
    if not tables.journal(TOPICS).newest(topic=str(topic)):
        log.warning("%s: its log is in %s and %s lacked it: registered again", topic, tables.cluster.name, tables.journal(TOPICS))
        _register(tables, topic, typed=bool(user_columns(found)))
    return found


def create_topic(tables: ClusterTables, topic: Topic, columns: Sequence[StructField] = (), *, again: bool = False) -> StructType:
    """The topic's log, created with `columns` as the user's own unless another process is quicker, and registered.

    A new partition has the policies of the others, whoever creates it. `again`: also if the topic was deleted here, as a person asks
    who creates it or publishes to it; nothing else brings it back. Raises RetryableError without, UnsafeError for one of which a
    delete has not ended, or whose log is still there.

    1. Add the registry row → 2. create the log. So a log that is there is registered; a registered topic whose log is not
    there yet is passed over by links, and the next call for it creates the log.
    """
    registry = tables.journal(TOPICS)
    rows = registry.newest(topic=str(topic))
    if rows and (there := Registered.of(rows[0])).is_deleted:
        if not again:
            raise RetryableError(f"{topic} was deleted in {tables.cluster.name}. `geo topics create` makes it again.")
        if there.unended is not None or tables.log(topic).exists():
            raise _half_deleted(tables, topic)
    if not rows or Registered.of(rows[0]).is_deleted:
        _register(tables, topic, typed=bool(columns), sequence=rows[0]["sequence"] + 1 if rows else 1)
    reach(CrashPoint.TOPIC_REGISTERED)
    tables.log(topic).create(TOPIC_LOG, columns)
    return open_log(tables, topic)[1]


def _register(tables: ClusterTables, topic: Topic, *, typed: bool, sequence: int = 1) -> None:
    row = {
        "topic": str(topic),
        "created_at": utc_now(),
        "typed": typed,
        "policies": _inherited(tables, topic),
        "sequence": sequence,
    }
    tables.journal(TOPICS).append([row])


def refuse_deleted(tables: ClusterTables, topic: Topic) -> None:
    """Raises UnsafeError for a topic that was deleted here: a person says whether it is to be again."""
    if topic in deleted_topics(tables):
        raise UnsafeError(
            f"{topic} was deleted in {tables.cluster.name}. Nothing was published. `geo topics create` makes it again; who does not want "
            "that lets nobody publish to it."
        )


def set_deleted(tables: ClusterTables, topic: Topic, *, deleted: bool, unended: Unended | None = None) -> None:
    """Say in the registry that a registered topic was deleted, and how far that is, or that it was not; whoever deletes it owns what
    may write it."""

    def change(policies: dict[str, str]) -> None:
        when = policies.pop(DELETED, f"{utc_now():%Y-%m-%dT%H:%M:%SZ}")
        policies.pop(UNENDED, None)
        if deleted:
            policies |= {DELETED: when, **({UNENDED: unended.value} if unended is not None else {})}

    with tables.journal(TOPICS).alone() as alone:
        registry = tables.journal(TOPICS) if alone is None else alone
        _change_policies(registry, registry.newest(topic=str(topic)), change)


def _half_deleted(tables: ClusterTables, topic: Topic) -> UnsafeError:
    name, log = tables.cluster.name, tables.log(topic)
    left = f"its log {log} is still there" if log.exists() else "that has not ended"
    return UnsafeError(
        f"{topic} was deleted in {name}, and {left}. Nothing was written. To end that: "
        f"geo topics delete --cluster {name} --topic {topic}. Then it can be made again."
    )


def _change_policies(registry: Journal, rows: Sequence[Row], change: Callable[[dict[str, str]], None]) -> None:
    """Append the next row of each of these topics, with policies that were changed. `registry`: nobody else writes it meanwhile,
    where there is a lock that sees to that."""
    changed = []
    for row in rows:
        change(policies := dict(row["policies"] or {}))
        same = {**row.asDict(), "created_at": utc(row["created_at"])}
        changed.append({**same, "policies": policies or None, "sequence": row["sequence"] + 1})
    registry.append(changed)


def grow(log: Table, there: StructType, wanted: Sequence[StructField], who: str) -> list[str]:
    """The log's column names, after adding those of `wanted` that it lacks. Raises SchemaError for any other difference."""
    kinds = {field.name: field.dataType for field in there}
    for column in wanted:
        kind = kinds.get(column.name)
        if kind is not None and kind != column.dataType:
            raise SchemaError(
                f"{who}: column {column.name} is {column.dataType.simpleString()} in the source and {kind.simpleString()} in "
                f"{log}; only new columns replicate. Nothing was written. Give the changed column a new name."
            )
    added = [column for column in wanted if column.name not in kinds]
    if added:
        columns = ", ".join(f"`{c.name}` {c.dataType.simpleString()}" for c in added)
        log.commit(lambda: log.spark.sql(f"ALTER TABLE {log.sql} ADD COLUMNS ({columns})"))
    return [*kinds, *(column.name for column in added)]


def partitions(tables: ClusterTables, topic: Topic) -> list[Topic]:
    """The partitions of a partitioned topic that a cluster has, in order; none if it is not partitioned there."""
    return [Topic.parse(row["topic"]) for row in _partition_rows(tables.journal(TOPICS), topic)]


def _partition_rows(registry: Journal, topic: Topic) -> list[Row]:
    """The newest registry rows of a topic's partitions, in order."""
    rows = registry.newest(("topic", f"{topic}-partition-"))
    named = [(Topic.parse(row["topic"]), row) for row in _living(rows)]
    return [
        row
        for _, row in sorted(
            ((one.partition, row) for one, row in named if one.partitioned == topic), key=lambda found: found[0] or 0
        )
    ]


def _living(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if DELETED not in (row["policies"] or {})]


def create_partitions(tables: ClusterTables, topic: Topic, count: int, columns: Sequence[StructField] = ()) -> list[Topic]:
    """Make `topic` a partitioned topic with `count` partitions, or give it more. Idempotent. Returns those created now.

    New ones have the columns and policies of the others. Raises UsageError if there are more already (a partition cannot be
    taken away: its messages are in it), if they have other columns, or if `topic` is a topic of its own.
    """
    registry = tables.journal(TOPICS)
    if topic.partition is not None or _living(registry.newest(topic=str(topic))):
        raise UsageError(
            f"{topic} is a topic of its own in {tables.cluster.name}, it cannot be partitioned. Choose another name."
        )
    there = partitions(tables, topic)
    if len(there) > count:
        raise UsageError(
            f"{topic} has {len(there)} partitions in {tables.cluster.name}; they can grow in number, not shrink to {count}."
        )
    whole = [one for one in there if tables.log(one).exists()]  # others were registered when their creator died
    if whole:
        own = user_columns(open_log(tables, whole[0])[1])
        _refuse_others(whole[0], own, columns)
        columns = own
    missing = [one for one in map(topic.with_partition, range(count)) if one not in whole]
    for one in missing:
        create_topic(tables, one, columns, again=True)
    return missing


def create_single(tables: ClusterTables, topic: Topic, columns: Sequence[StructField] = ()) -> None:
    """Make a topic that is not partitioned. Idempotent. Raises UsageError if it is partitioned or has other columns."""
    if there := partitions(tables, topic):
        raise UsageError(
            f"{topic} has {len(there)} partitions in {tables.cluster.name}: say how many there shall be (--partitions)."
        )
    _refuse_others(topic, user_columns(create_topic(tables, topic, columns, again=True)), columns)


def _refuse_others(topic: Topic, own: Sequence[StructField], wanted: Sequence[StructField]) -> None:
    def shape(columns: Sequence[StructField]) -> list[tuple[str, str]]:
        return [(column.name, column.dataType.simpleString()) for column in columns]

    if wanted and shape(own) != shape(wanted):
        has = StructType(list(own)).simpleString() if own else "none: it is a bytes topic"
        raise UsageError(f"{topic} is there and has other columns, {has}. Nothing was changed.")


def _inherited(tables: ClusterTables, topic: Topic) -> Mapping[str, str] | None:
    """The policies of the partitions that are there already."""
    rows = _partition_rows(tables.journal(TOPICS), topic.partitioned) if topic.partitioned else []
    return next((row["policies"] for row in rows if row["policies"]), None)


def set_replication_clusters(
    tables: ClusterTables, config: Config, topic: Topic, clusters: Collection[str] | None
) -> list[Topic]:
    """Let only links between `clusters` carry the topic out of this one; None: as the configuration says again.

    For a partitioned topic, all its partitions. A link that runs follows within seconds; one that is withdrawn keeps its
    place and goes on from there. (Pulsar's topic policy, which goes before the namespace's.)
    Returns the topics changed. Raises UsageError for an unknown cluster or topic.
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
        if clusters is not None:
            policies[REPLICATION_CLUSTERS] = ",".join(sorted(set(clusters)))

    with tables.journal(TOPICS).alone() as alone:
        registry = tables.journal(TOPICS) if alone is None else alone
        rows = [*_living(registry.newest(topic=str(topic))), *_partition_rows(registry, topic)]
        if not rows:
            raise UsageError(f"{tables.cluster.name} has no topic {topic}.")
        _change_policies(registry, rows, change)
    return [Topic.parse(row["topic"]) for row in rows]
