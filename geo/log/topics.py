"""The registry of a cluster's topics and how a topic comes into being. `system/topics` is how links discover topics.

A topic that was deleted keeps a row that says so, until somebody makes it again: links neither carry nor restore it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from geo.crash import CrashPoint, reach
from geo.delta.ddl import create_table, find_checked, refuse_columns, set_property, set_property_once
from geo.delta.engine import TableSnapshot
from geo.delta.mirror import LOOKED_S, may_be_old
from geo.delta.object_reads import has_any
from geo.delta.store import meanwhile
from geo.disk import local_path
from geo.errors import InvalidNameError, RetryableError, UnsafeError
from geo.journal.cluster import ClusterTables
from geo.journal.journal import Journal
from geo.log.absence import emptied_region, gone_region, log_gone, lost_by_registry, unlike_log
from geo.log.kept_policies import DELETED, UNCLEAR, UNENDED, Policies, clusters_of, kept, restored
from geo.log.topic_log import open_log, user_columns
from geo.names import Topic
from geo.now import utc_now
from geo.reasons import Reason, Wrong
from geo.schemas import LEDGERS, LINKS, TOPIC_LOG, TOPICS
from geo.schemas.table import POLICIES_PROPERTY
from geo.times import EPOCH

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

log = logging.getLogger(__name__)


class Unended(str, Enum):
    """The stage of a delete that has not ended."""

    BEGUN = "begun"
    """All is as it was, and can be again."""
    REMOVES = "removes"
    """Some of it may be gone."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A topic in one cluster's registry, or one that it lacks though its log is there or others have read it."""

    topic: Topic
    created_at: datetime
    typed: bool
    policies: Policies | None
    sequence: int = field(default=0, compare=False)
    """Number of its newest row; 0: the registry lacks it."""

    @classmethod
    def unknown(cls, topic: Topic, told: str | None) -> Registered:
        """`told`: what its log says of its policies (POLICIES_PROPERTY)."""
        return cls(topic, EPOCH, False, restored(told))

    @property
    def is_unknown(self) -> bool:
        return self.sequence == 0

    @property
    def replication_clusters(self) -> tuple[str, ...] | None:
        """None: as the configuration says."""
        return clusters_of(self.policies)

    @property
    def is_deleted(self) -> bool:
        """It was here."""
        return DELETED in (self.policies or {})

    @property
    def unended(self) -> Unended | None:
        """The stage of the topic's delete.

        None: it has ended, or there was none.
        """
        found = (self.policies or {}).get(UNENDED)
        return None if found is None else Unended(found)

    @property
    def is_unclear(self) -> bool:
        """Nobody knows where it may go: the registry lost it, and its log does not say. Links that have carried it do so; no other does."""
        return UNCLEAR in (self.policies or {})

    @property
    def kept(self) -> str | None:
        """Its policies, as its log keeps them (`geo.log.kept_policies.kept`)."""
        return kept(self.policies)


def known_topics(tables: ClusterTables) -> list[Registered]:
    """The topics of a cluster by name, and those that were deleted there. None if it has no registry yet (nothing was ever published or replicated
    there)."""
    return sorted(tables.journal(TOPICS).read(Registered), key=lambda found: found.topic)


def registered_topics(tables: ClusterTables) -> list[Registered]:
    """The topics that a cluster has, by name."""
    return [found for found in known_topics(tables) if not found.is_deleted]


def deleted_topics(tables: ClusterTables) -> set[Topic]:
    """The topics that were deleted in a cluster, and not made again."""
    return {found.topic for found in known_topics(tables) if found.is_deleted}


def all_topics(tables: ClusterTables, mentioned: Iterable[Topic] = ()) -> list[Registered]:
    """The topics of a cluster's registry by name, then those that it lacks though their logs are there. `system/topics` was put back from an older
    backup.

    They are looked for among those that are `mentioned` in others' tables, and on a local disk by the folders of logs. A folder alone is no topic,
    as a log that somebody moved aside: the cluster's own ledgers or links have to name it.
    """
    # Folders first: whoever creates a topic registers it before its log is there.
    by_folder, named = _topics_by_folder(tables), frozenset(mentioned)
    known = known_topics(tables)
    lost = []
    for topic in sorted({*by_folder, *named}.difference(one.topic for one in known)):
        if (topic in named or _is_used(tables, topic)) and (seen := tables.log(topic).snapshot()) is not None:
            lost.append(Registered.unknown(topic, seen.properties.get(POLICIES_PROPERTY)))
    return [*known, *lost]


def _is_used(tables: ClusterTables, topic: Topic) -> bool:
    return any(tables.journal(schema).newest(topic=str(topic)) for schema in (LEDGERS, LINKS))


def absent(tables: ClusterTables, one: Registered, seen: TableSnapshot | None) -> Wrong | None:
    """Describe what of a topic that was not deleted is not in its cluster, with the remedy.

    None: its log, which was just `seen`, and its row are there, and say the same.
    """
    name = tables.cluster.name
    if seen is None:
        return log_gone(str(tables.log(one.topic)), name, one.topic)
    return lost_by_registry(one, name, str(tables.journal(TOPICS))) or unlike(tables, one, seen)


def unlike(tables: ClusterTables, one: Registered, seen: TableSnapshot | None = None) -> Wrong | None:
    """In what the registry says of a topic otherwise than its log (which was `seen`), with the remedy; None: in nothing. Where it seems so
    both are asked again: somebody may set it just now."""
    for again in (False, True):
        if again:
            one, seen = tables.journal(TOPICS).one(Registered, topic=str(one.topic)) or one, None
        if one.is_deleted or (seen := seen or tables.log(one.topic).snapshot(again=again)) is None:
            return None
        why = unlike_log(one.topic, one.kept, seen.properties.get(POLICIES_PROPERTY), tables.cluster.name)
        if why is None:
            return None
    return why


def _topics_by_folder(tables: ClusterTables) -> list[Topic]:
    root = tables.cluster.root
    local = None if root is None else local_path(root)
    found = []
    for folder in () if local is None else (local / "topics").glob("*/*/*"):
        with suppress(InvalidNameError):
            found.append(Topic.from_path("/".join(folder.parts[-3:])))
    return found


def gone_error(tables: ClusterTables, readers: Sequence[str], who: str = "") -> RetryableError:
    """The error of a region in which nothing is registered, though the links of others (`readers`) have read it."""
    wrong = (emptied_region if _has_logs(tables) else gone_region)(tables.cluster.name, tables.place, readers)
    return RetryableError(replace(wrong, what=f"{who}{wrong.what}"))


def _has_logs(tables: ClusterTables) -> bool:
    """True if a log of a topic is there, whatever the registry says; False also where that cannot be looked for."""
    if tables.port is not None and tables.location is not None:
        return has_any(tables.port.s3, f"{tables.location}/topics")
    return any(tables.log(topic).exists() for topic in _topics_by_folder(tables))


def ensure_topic(
    tables: ClusterTables,
    topic: Topic,
    columns: Sequence[StructField] = (),
    *,
    again: bool = False,
    seen: TableSnapshot | None = None,
) -> StructType:
    """The columns of the topic's log, which is created as by `create_topic` if it is missing. A log that is there and that the registry lacks is
    registered, with the policies that it keeps. One that keeps none yet gets those of the registry.

    `seen`: the log, as the caller has just found it by `find_checked`; None: it is looked for."""
    table, registry = tables.log(topic), tables.journal(TOPICS)
    if (seen := seen or find_checked(table, TOPIC_LOG)) is None:
        return create_topic(tables, topic, columns, again=again)
    told = seen.properties.get(POLICIES_PROPERTY)
    with may_be_old(LOOKED_S):  # who was registered stays so; who is not is asked for once more, now that the log is there
        one = registry.one(Registered, topic=str(topic))
    if one is None and (one := registry.one(Registered, topic=str(topic))) is None:
        one = Registered.unknown(topic, told)
        log.warning("%s: registered again; %s", topic, lost_by_registry(one, tables.cluster.name, str(registry)))
        _register(registry, topic, one.policies, typed=bool(user_columns(seen.columns)))
    elif told is None and one.kept is not None:
        set_property_once(table, POLICIES_PROPERTY, one.kept)
    return seen.columns


def create_topic(tables: ClusterTables, topic: Topic, columns: Sequence[StructField] = (), *, again: bool = False) -> StructType:
    """The topic's log, created with `columns` as the user's own unless another process is quicker, and registered.

    A new partition has the policies of the others, whoever creates it. `again`: also if the topic was deleted here, as a person asks who creates it
    or publishes to it; nothing else restores it. Raises RetryableError without. Raises UnsafeError for one of which a delete has not ended, or whose
    log is still there. Raises UsageError for columns that the log cannot have together.

    1. Add the registry row → 2. create the log, which keeps its policies. So a log that is there is registered. A registered topic whose log is not
    there yet is passed over by links. The next call for it creates the log.
    """
    registry, table = tables.journal(TOPICS), tables.log(topic)
    refuse_columns(table, TOPIC_LOG, columns)  # before anything of it is there
    with meanwhile(tables.port) as begin:
        has_log = begin(table.exists)
        there = registry.one(Registered, topic=str(topic))
    if there is not None and there.is_deleted:
        if not again:
            raise RetryableError(
                f"{topic} was deleted in {tables.cluster.name}. `geo topics create` makes it again.", code=Reason.DELETED
            )
        if there.unended is not None or has_log():
            raise half_deleted_error(tables, topic)
    if there is None and has_log():
        return ensure_topic(tables, topic)
    if there is None or there.is_deleted:
        policies = _inherited(registry, topic)
        _register(registry, topic, policies, typed=bool(columns), sequence=1 if there is None else there.sequence + 1)
    else:
        policies = there.policies
    reach(CrashPoint.TOPIC_REGISTERED)
    told = kept(policies)
    create_table(table, TOPIC_LOG, columns, own={} if told is None else {POLICIES_PROPERTY: told})
    with meanwhile(tables.port) as begin:
        opened = begin(partial(open_log, tables, topic))
        # Who set them meanwhile found no log.
        one = registry.one(Registered, topic=str(topic))
        since = kept(None) if one is None else one.kept
        if since is not None and since != told:
            set_property(table, POLICIES_PROPERTY, since)
        return opened()[1]


def register_unclear(tables: ClusterTables, topic: Topic, columns: Sequence[StructField]) -> None:
    """Register a topic that is to come back into a cluster which has neither its row nor its log. Only links that have carried it do, until a
    person says where it may go. (A partition has the policies of those that are there.)"""
    registry = tables.journal(TOPICS)
    is_there = registry.one(Registered, topic=str(topic)) is not None or tables.log(topic).exists()
    if not is_there and not (topic.partitioned and registered_partitions(registry, topic.partitioned)):
        _register(registry, topic, restored(None), typed=bool(columns))
        reach(CrashPoint.TOPIC_REGISTERED)


def _register(registry: Journal, topic: Topic, policies: Policies | None, *, typed: bool, sequence: int = 1) -> None:
    registry.append([Registered(topic, utc_now(), typed, policies or None, sequence)])


def refuse_deleted(tables: ClusterTables, topic: Topic) -> None:
    """Raises UnsafeError for a topic that was deleted here: a person says whether it is to be again."""
    if topic in deleted_topics(tables):
        raise UnsafeError(
            f"{topic} was deleted in {tables.cluster.name}. Nothing was published. `geo topics create` makes it again; who does not want "
            "that lets nobody publish to it.",
            code=Reason.DELETED,
        )


def set_deleted(tables: ClusterTables, topic: Topic, *, deleted: bool, unended: Unended | None = None) -> None:
    """Say in the registry that a registered topic was deleted, and how far that is, or that it was not. Whoever deletes it owns what may write it."""

    def change(policies: dict[str, str]) -> None:
        when = policies.pop(DELETED, f"{utc_now():%Y-%m-%dT%H:%M:%SZ}")
        policies.pop(UNENDED, None)
        if deleted:
            policies |= {DELETED: when, **({UNENDED: unended.value} if unended is not None else {})}

    with tables.journal(TOPICS).alone() as registry:
        change_policies(registry, registry.read(Registered, topic=str(topic)), change)


def half_deleted_error(tables: ClusterTables, topic: Topic) -> UnsafeError:
    """The error of a topic of which a delete has not ended, with the remedy."""
    name, log = tables.cluster.name, tables.log(topic)
    left = f"its log {log} is still there" if log.exists() else "that has not ended"
    return UnsafeError(
        f"{topic} was deleted in {name}, and {left}. Nothing was written. To end that: "
        f"geo topics delete --cluster {name} --topic {topic}. Then it can be made again."
    )


def change_policies(registry: Journal, topics: Iterable[Registered], change: Callable[[dict[str, str]], None]) -> None:
    """Append the next row of each of these topics, with policies that were changed. `registry`: nobody else writes it meanwhile,
    where there is a lock that sees to that."""
    changed = []
    for one in topics:
        change(policies := dict(one.policies or {}))
        changed.append(replace(one, policies=policies or None, sequence=one.sequence + 1))
    registry.append(changed)


def registered_partitions(registry: Journal, topic: Topic) -> list[Registered]:
    """A topic's partitions in a registry, in order."""
    found = (one for one in registry.read(Registered, ("topic", f"{topic}-partition-")) if not one.is_deleted)
    return sorted((one for one in found if one.topic.partitioned == topic), key=lambda one: one.topic.partition or 0)


def _inherited(registry: Journal, topic: Topic) -> Policies | None:
    """The policies of the partitions that are there already."""
    there = registered_partitions(registry, topic.partitioned) if topic.partitioned else []
    return next((one.policies for one in there if one.policies), None)
