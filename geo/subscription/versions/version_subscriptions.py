"""Version subscriptions of a cluster. Their consumers only know versions of its topic logs, such as a Delta stream, a dbt model or a SQL job.
`system/version_subscriptions`, read and written.

How far one has come is said by people (`finish`), or by the checkpoint folder of its streaming query. Each is of one cluster; where it may go on
elsewhere is found out by the topic's controller (`geo.subscription.pip33.controller`) and stands in `system/version_starts`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from geo.delta.table import Table
from geo.disk import local_path
from geo.errors import UnsafeError, UsageError
from geo.faults import Tried
from geo.journal.cluster import ClusterTables
from geo.journal.rows import as_row
from geo.late import spark_errors
from geo.log.topic_log import seen_log
from geo.names import ALL_TOPICS, Topic, check_subscription, topic_glob_matches
from geo.now import utc_now
from geo.schemas import VERSION_SUBSCRIPTIONS
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.record import key_of
from geo.subscription.pip33.subscription_cursors import MAX_SUBSCRIPTIONS
from geo.subscription.versions.stream_progress import read_progress
from geo.subscription.versions.version_reader import VIEW_SUFFIX, query
from geo.subscription.versions.version_starts import forget
from geo.text import first_line

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VersionSubscription:
    """`finished`: every version up to this one is processed, as people said. None: nothing is, or `checkpoint` says it, as long as it is that of
    the query `query_id`. Versions are those of the topic log whose Delta id is `table_id`. Created again it is another one, which `created_at`
    says. Not `replicated`: it is of this region only, and nobody finds out where it may go on elsewhere."""

    topic: Topic
    subscription: str
    table_id: str
    finished: int | None
    checkpoint: str | None
    query_id: str | None
    """Spark's id of it, if there is a checkpoint."""
    created_at: datetime
    replicated: bool = True
    deleted: bool = False
    """Unsubscribed here, until somebody creates it again."""
    sequence: int = field(default=0, compare=False)
    """Number of its newest row."""

    def __str__(self) -> str:
        return f"version subscription {self.subscription} of {self.topic}"


def replicated_subscriptions(tables: ClusterTables) -> list[VersionSubscription]:
    """Those of a cluster that need snapshots: without any here or elsewhere a topic gets no markers."""
    return [one for one in version_subscriptions(tables) if one.replicated]


def version_subscriptions(tables: ClusterTables, topics: str = ALL_TOPICS) -> list[VersionSubscription]:
    """Those of a cluster whose topics match a glob, by name; not those that were deleted."""
    found = tables.journal(VERSION_SUBSCRIPTIONS).read(VersionSubscription)
    matching = [one for one in found if not one.deleted and topic_glob_matches(topics, one.topic)]
    return sorted(matching, key=lambda one: (one.topic, one.subscription))


def unused_subscriptions(tables: ClusterTables, topic: Topic) -> list[str]:
    """Names of those of a topic that need no snapshots any more: they were deleted, or are of this region only."""
    found = tables.journal(VERSION_SUBSCRIPTIONS).read(VersionSubscription, topic=str(topic))
    return [one.subscription for one in found if one.deleted or not one.replicated]


def version_subscription(tables: ClusterTables, topic: Topic, subscription: str) -> VersionSubscription | None:
    """The one of that name; None if there is none, or it was deleted."""
    name = check_subscription(subscription)
    found = tables.journal(VERSION_SUBSCRIPTIONS).one(VersionSubscription, topic=str(topic), subscription=name)
    return None if found is None or found.deleted else found


def progress(tables: ClusterTables, one: VersionSubscription) -> int | None:
    """The version up to which its consumer has finished all, now; None: nothing yet.

    Raises UnsafeError if that is of another log than the one that is here, beside what `said_by` raises.
    """
    finished, _ = _progress(tables, one)
    return finished


def versions_behind(tables: ClusterTables, one: VersionSubscription) -> int | None:
    """Counts the versions of the log that its consumer has not finished; None: nobody knows, as where the log is another one now."""
    with Tried():
        finished, newest = _progress(tables, one)
        return newest - (-1 if finished is None else finished)
    return None


def _progress(tables: ClusterTables, one: VersionSubscription) -> tuple[int | None, int]:
    """Reads `progress`, and the newest version of the log."""
    log, _ = seen_log(tables, one.topic)
    _refuse_other_log(tables, one, log.table_id())
    finished = said_by(tables, one)
    newest = log.latest_version()
    if finished is not None and finished > newest:
        raise UnsafeError(
            f"{one} in {tables.cluster.name} has finished version {finished}, and its log ends at version {newest}: an older copy was put "
            f"back. What comes now under the same numbers it has not seen. To go on here, {_ANEW}"
        )
    return finished, newest


def said_by(tables: ClusterTables, one: VersionSubscription) -> int | None:
    """The version up to which its consumer has finished all, by people or its checkpoint, of the log it was created for; None: nothing yet.

    Raises UnsafeError if the checkpoint is another query's by now, beside what `read_progress` raises.
    """
    if one.checkpoint is None:
        return one.finished
    found = read_progress(tables.files, one.checkpoint, one.table_id)
    _refuse_other_query(one, found.query_id)
    return found.finished


def is_of_messages(tables: ClusterTables, topic: Topic, subscription: str) -> bool:
    """Tells whether the cluster knows a subscription of that name whose messages are acknowledged one by one."""
    state = read_known(tables, topic, subscription).states.get(key_of(topic, subscription))
    return state is not None and not state.deleted


def create(
    tables: ClusterTables, topic: Topic, subscription: str, checkpoint: str | None = None, *, replicated: bool | None = None
) -> VersionSubscription:
    """Create it here, with `checkpoint` followed by its query's checkpoint folder. Again it changes nothing. `replicated` None: true, or as it is
    there.

    Raises UsageError if the name is that of an ordinary subscription here, or if it is there with another checkpoint. So it does if the topic has
    MAX_SUBSCRIPTIONS of them here, and for a folder that is no checkpoint of a query over this log. Raises UnsafeError if it is there for another
    query or another log; SchemaError if the topic has no log here.
    """
    log, _ = seen_log(tables, topic)
    name, now = check_subscription(subscription), utc_now()
    new = VersionSubscription(topic, name, log.table_id(), None, _absolute(checkpoint), None, now, replicated is not False)
    if is_of_messages(tables, topic, subscription):
        raise UsageError(
            f"{subscription} is a subscription of {topic} whose messages are acknowledged one by one, and moves without versions. "
            "Give the consumer that knows only versions another name."
        )
    if new.checkpoint is not None:
        new = replace(new, query_id=read_progress(tables.files, new.checkpoint, new.table_id).query_id)

    def begun(there: VersionSubscription | None) -> VersionSubscription:
        if there is None:
            if len(version_subscriptions(tables, str(topic))) >= MAX_SUBSCRIPTIONS:
                raise UsageError(
                    f"{topic} has {MAX_SUBSCRIPTIONS:,} version subscriptions in {tables.cluster.name}, and can have no more: where another "
                    "one goes on elsewhere nobody would find out. Delete one that is not used (`geo subscriptions delete`)."
                )
            return new
        _refuse_other_log(tables, there, new.table_id)
        if there.checkpoint != new.checkpoint:
            how = f"by the checkpoint {there.checkpoint}" if there.checkpoint else "by what is said with `geo subscriptions ack`"
            raise UsageError(f"{there} in {tables.cluster.name} is there already, and goes {how}. To change that, {_ANEW}")
        if replicated is not None and there.replicated is not replicated:
            how = "is shared by all regions" if there.replicated else "is of this region only"
            raise UsageError(
                f"{there} in {tables.cluster.name} is there already, and {how}. `geo subscriptions set` changes that."
            )
        _refuse_other_query(there, new.query_id)
        return there

    return _change(tables, topic, subscription, begun)[1]


def make_view(tables: ClusterTables, topic: Topic) -> str | None:
    """Make or renew a view of the topic's messages beside its log, where a catalog has it. Returns the view's name in SQL; None
    where there is no catalog, or it gives no right to make one, which is logged."""
    topic_log = tables.log(topic)
    if not topic_log.is_in_catalog:
        return None
    name = _view_of(topic_log)
    try:
        tables.spark.sql(f"CREATE OR REPLACE VIEW {name} AS {query(topic_log.sql)}")
    except spark_errors.PySparkException as error:
        log.warning("the view %s of the messages of %s could not be made: %s", name, topic, first_line(error))
        return None
    return name


def drop_view(tables: ClusterTables, topic: Topic) -> None:
    """Remove the view that `make_view` made, if there is one."""
    if (topic_log := tables.log(topic)).is_in_catalog:
        tables.spark.sql(f"DROP VIEW IF EXISTS {_view_of(topic_log)}")


def _view_of(topic_log: Table) -> str:
    """The name of the view of a log's messages, in SQL."""
    return f"{topic_log.sql[:-1]}{VIEW_SUFFIX}`"


def finish(tables: ClusterTables, topic: Topic, subscription: str, version: int) -> VersionSubscription:
    """Record that its consumer has processed every version up to this one.

    Raises UsageError for one that is not known here, one that goes by a checkpoint, and a version that is not in the log. UnsafeError if the log is
    another one by now, or the version is before what was finished.
    """
    log, _ = seen_log(tables, topic)
    table_id, newest = log.table_id(), log.latest_version()

    def further(found: VersionSubscription | None) -> VersionSubscription:
        there = _known(tables, topic, subscription, found)
        _refuse_other_log(tables, there, table_id)
        if there.checkpoint is not None:
            raise UsageError(
                f"{there} goes by the checkpoint {there.checkpoint}, which says how far it is. Nothing was recorded."
            )
        if version > newest or not log.has_commit(version):
            where = f"ends at version {newest}" if version > newest else "does not have its commit any more (log cleanup)"
            raise UsageError(
                f"version {version} is not in the log of {topic} in {tables.cluster.name}, which {where}. Nothing was recorded."
            )
        if there.finished is not None and version < there.finished:
            raise UnsafeError(
                f"{there} in {tables.cluster.name} has finished version {there.finished}, and progress never goes back to {version}: other "
                f"clusters go by it. To process again what it had, start the consumer where it is to begin. To count anew, {_ANEW}"
            )
        return replace(there, finished=version)

    return _change(tables, topic, subscription, further)[1]


def switch(tables: ClusterTables, topic: Topic, subscription: str, *, replicated: bool) -> bool:
    """Let it be found out from here on where it may go on elsewhere, or not any more. Then what is known of that here is forgotten, and other
    clusters keep what they were told. Returns whether that changes anything. Raises UsageError if it is not known here."""
    there, now = _change(
        tables, topic, subscription, lambda there: replace(_known(tables, topic, subscription, there), replicated=replicated)
    )
    if not replicated:
        forget(tables, topic, subscription)
    return there != now


def delete(tables: ClusterTables, topic: Topic, subscription: str) -> None:
    """Delete it in this cluster, with where it might have gone on elsewhere. Raises UsageError if it is not known here."""
    _change(tables, topic, subscription, lambda there: replace(_known(tables, topic, subscription, there), deleted=True))
    forget(tables, topic, subscription)


_ANEW = "delete it and create it anew (`geo subscriptions delete`, `create --mode version`)."


def _absolute(checkpoint: str | None) -> str | None:
    """Path as every process finds it."""
    local = None if checkpoint is None else local_path(checkpoint)
    return checkpoint if local is None else os.path.abspath(local)


def _known(tables: ClusterTables, topic: Topic, subscription: str, there: VersionSubscription | None) -> VersionSubscription:
    if there is None:
        raise UsageError(
            f"{tables.cluster.name} knows no version subscription {subscription} of {topic}. To make it: geo subscriptions create --mode version "
            f"--cluster {tables.cluster.name} --topic {topic} --subscription {subscription}"
        )
    return there


def _refuse_other_log(tables: ClusterTables, one: VersionSubscription, table_id: str) -> None:
    if one.table_id != table_id:
        raise UnsafeError(
            f"{one} in {tables.cluster.name} counts versions of the table with the id {one.table_id}, and the log there has the id {table_id} "
            f"now: it was made anew, and its versions mean something else. To go on with this log, {_ANEW}"
        )


def _refuse_other_query(one: VersionSubscription, found: str | None) -> None:
    if one.query_id != found:
        raise UnsafeError(
            f"{one} follows the streaming query with the id {one.query_id}, and {one.checkpoint} is of one with the id {found} now. How far that "
            f"one is says nothing of what this consumer has finished, so it does not count. Bring the first one's folder back. Or {_ANEW}"
        )


def _change(
    tables: ClusterTables,
    topic: Topic,
    subscription: str,
    change: Callable[[VersionSubscription | None], VersionSubscription],
) -> tuple[VersionSubscription | None, VersionSubscription]:
    """It as it was there, and what `change` makes of it, recorded if that is something else."""
    # Where there is no lock two at the same moment get one number.
    with tables.journal(VERSION_SUBSCRIPTIONS).alone() as subscriptions:
        last = subscriptions.one(VersionSubscription, topic=str(topic), subscription=subscription)
        there = None if last is None or last.deleted else last
        new = replace(change(there), sequence=1 if last is None else last.sequence + 1)
        if new != there:
            subscriptions.append([{**as_row(new), "by": str(tables.me), "updated_at": utc_now()}])
    return there, new
