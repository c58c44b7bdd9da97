"""Topics by the names that people give, partitioned or not: how they are made, and get partitions and columns.

A partitioned topic is nothing of its own: it is the topics `name-partition-0…n-1` that are registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from geo.crash import CrashPoint, reach
from geo.delta.columns import Growth, growth, why_not_grown
from geo.delta.ddl import add_columns, find_columns
from geo.delta.store import ask_all
from geo.errors import SchemaError, UsageError
from geo.journal.cluster import ClusterTables
from geo.late import spark_types
from geo.log.topic_log import open_log, user_columns
from geo.log.topics import Registered, create_topic, registered_partitions
from geo.names import Topic
from geo.reasons import Reason
from geo.schemas import TOPIC_LOG, TOPICS
from geo.text import counted

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


def partitions(tables: ClusterTables, topic: Topic) -> list[Topic]:
    """The partitions of a partitioned topic that a cluster has, in order; none if it is not partitioned there."""
    return [one.topic for one in registered_partitions(tables.journal(TOPICS), topic)]


def create_partitions(tables: ClusterTables, topic: Topic, count: int, columns: Sequence[StructField] = ()) -> list[Topic]:
    """Make `topic` a partitioned topic with `count` partitions, or give it more. Idempotent. Returns those created now.

    New ones have the columns and policies of the others. Raises UsageError if there are more already (a partition cannot be taken away: its
    messages are in it). So it does if they have other columns, or if `topic` is a topic of its own.
    """
    single = tables.journal(TOPICS).one(Registered, topic=str(topic))
    if topic.partition is not None or (single is not None and not single.is_deleted):
        raise UsageError(
            f"{topic} is a topic of its own in {tables.cluster.name}, it cannot be partitioned. Choose another name."
        )
    there = partitions(tables, topic)
    if len(there) > count:
        raise UsageError(
            f"{topic} has {counted(len(there), 'partition')} in {tables.cluster.name}; they can grow in number, not shrink to {count}."
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
            f"{topic} has {counted(len(there), 'partition')} in {tables.cluster.name}: say how many there shall be (--partitions)."
        )
    _refuse_others(topic, user_columns(create_topic(tables, topic, columns, again=True)), columns)


def _refuse_others(topic: Topic, own: Sequence[StructField], wanted: Sequence[StructField]) -> None:
    """Raises UsageError if a topic that is there lacks some of the columns that it is wanted with. It may have grown since it was made."""
    needed = growth(spark_types.StructType(list(own)), wanted)
    if wanted and (needed or needed.clashes or not own):
        has = spark_types.StructType(list(own)).simpleString() if own else "none: it is a bytes topic"
        more = " `geo topics set --add-columns` gives it more." if own and not needed.clashes else ""
        raise UsageError(f"{topic} is there and has other columns, {has}. Nothing was changed.{more}")


def grow_topic(tables: ClusterTables, topic: Topic, columns: Sequence[StructField]) -> dict[Topic, Growth]:
    """Give a typed topic those of the columns that it lacks, behind its own, and its own wider types; of a partitioned topic all partitions.
    Idempotent. Returns what each of its logs lacked. Links replicate it to the other clusters.

    The partitions get them in the order of their numbers. So of two who want a column of different types at the same time the second is refused at
    the first partition. Whoever is stopped between two of them does the rest when he comes again.

    Raises UsageError, with nothing changed, for an unknown topic, one of bytes, and columns that do not go with those that are there. It does so,
    too, if somebody gave it such meanwhile, when partitions before that one may have been changed.
    """
    logs = [(one, tables.log(one)) for one in (partitions(tables, topic.partitioned or topic) or [topic])]
    seen = ask_all(tables.port, [partial(find_columns, log, TOPIC_LOG) for _, log in logs])
    found = {one: there for (one, _), there in zip(logs, seen, strict=True) if there is not None}
    if not found:
        raise UsageError(f"{tables.cluster.name} has no topic {topic}.")
    for one, there in found.items():
        if not user_columns(there):
            raise UsageError(f"{one} is a bytes topic, which has no columns of its own. Nothing was changed.")
    needed = {one: growth(there, columns) for one, there in found.items()}
    for one, need in needed.items():
        if why := why_not_grown(found[one], need, f"in {one.name}"):
            raise UsageError(f"{topic}: {why}. Nothing was changed. Only new columns can be added, and types be made wider.")
    for one, log in logs:
        if needed.get(one):
            try:
                add_columns(log, columns)
            except SchemaError as error:
                if error.code is not Reason.COLUMNS:
                    raise
                raise UsageError(
                    f"{topic}: somebody gave {one.name} other columns at the same time: {error} Look at what it has now (`geo topics describe`): "
                    "only new columns can be added, and types be made wider."
                ) from None
            reach(CrashPoint.COLUMNS_ADDED)
    return needed


def refuse_partitioned(tables: ClusterTables, topic: Topic) -> None:
    """Raises UsageError for the name of a partitioned topic, which has no log of its own."""
    if parts := partitions(tables, topic):
        raise UsageError(f"{topic} is partitioned: publish to one of {parts[0]} to {parts[-1].name}.")
