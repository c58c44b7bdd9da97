"""Expired dates of a topic log that somebody has still to read, so that they stay. That is links out of the cluster, and for acknowledgements the
fold. Reads only.

The place of each link is read from the link's own table, in its target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pyspark.sql import Row
from pyspark.sql import functions as F

from geo.config.model import Config, Link
from geo.delta.table import Table
from geo.faults import FAULTS
from geo.ids import LedgerId
from geo.journal.cluster import ClusterTables
from geo.log.topic_log import is_message
from geo.log.topic_policies import replication_clusters, told_clusters
from geo.log.topics import deleted_topics
from geo.names import Topic
from geo.schemas import CURSORS, LINKS
from geo.subscription.acks.record import RefusedRecordError, parse_key
from geo.text import first_line
from geo.times import shown_time

GRACE = timedelta(days=1)
"""After this long without a sign of life a link is silent: whether it will ever read on, a person must say."""


@dataclass(frozen=True, slots=True)
class Held:
    """Expired dates that one link (or for acknowledgements, the fold) has not read to the end, so they stay. `silent`:
    it has not moved for longer than GRACE."""

    link: str
    days: tuple[date, ...]
    why: str
    silent: bool


def held_dates(
    config: Config, tables: ClusterTables, topic: Topic, table: Table, due: Sequence[date], now: datetime
) -> list[Held]:
    """Names who holds which of the dates `due`, that have expired; nobody if all that is left has been read."""
    name = tables.cluster.name
    # Where an older row of the registry says less than the log, the links that it leaves out go on once somebody says it again.
    ways = (replication_clusters(tables, topic), told_clusters(tables, topic))
    links = dict.fromkeys(link for way in ways for link in config.links_of(topic, {name: way}) if link.source == name)
    held = [_held_by(config, tables, link, topic, table, due, now) for link in links]
    if topic == topic.acks:
        held.append(_unfolded(tables, topic, table, due))
    return [one for one in held if one is not None]


def _held_by(
    config: Config, tables: ClusterTables, link: Link, topic: Topic, table: Table, due: Sequence[date], now: datetime
) -> Held | None:
    """Finds which of the dates `due` the link has not read to the end; None: it has read all."""
    try:
        target = tables.beside(config.cluster(link.target))
        target.refuse_other_cluster()  # what another one's links have read says nothing of this one's
        states = target.journal(LINKS).newest(source=link.source, topic=str(topic))
        if not states and topic in deleted_topics(target):
            return None
    except FAULTS as error:
        return Held(link.name, tuple(due), f"{link.target} cannot be read: {first_line(error)}", silent=True)
    if not states:
        return Held(link.name, tuple(due), "it has never run", silent=True)
    (state,) = states
    last = state["updated_at"]
    silent = now - last > GRACE
    when = f"last heard of at {shown_time(last)}, {state['state']}"
    if state["source_version"] is None:
        return Held(link.name, tuple(due), f"it has read nothing yet, {when}", silent)
    if state["source_table_id"] != table.table_id():
        return Held(link.name, tuple(due), f"it has read another table, {when}", silent)
    behind = _unread(table, state["source_version"], link, due)
    return Held(link.name, behind, f"it has read up to version {state['source_version']}, {when}", silent) if behind else None


def _unfolded(tables: ClusterTables, acks: Topic, table: Table, due: Sequence[date]) -> Held | None:
    """Finds which of the dates `due` hold acknowledgements that are not all in younger compact records; None: none does."""
    cursors = {f"{row['topic']}/{row['subscription']}": row for row in tables.journal(CURSORS).newest()}

    def needed(row: Row) -> bool:
        try:
            parse_key(row["key"] or "")
        except RefusedRecordError:
            return False
        cursor = cursors.get(row["key"])
        if cursor is None or cursor["compacted_at"] is None or cursor["compacted_at"].date() <= row["publish_date"]:
            return True
        return bool(cursor["folded"].get(str(LedgerId(row["origin"], row["ledger_id"])), -1) < row["end"])

    rows = table.read().where(F.col("publish_date").isin(list(due)) & is_message())
    ends = rows.groupBy("publish_date", "key", "origin", "ledger_id").agg(F.max("entry_id").alias("end")).collect()
    days = tuple(sorted({row["publish_date"] for row in ends if needed(row)}))
    return Held("the fold", days, f"run `geo subscriptions fold --cluster {tables.cluster.name}`", False) if days else None


def _unread(table: Table, version: int, link: Link, due: Sequence[date]) -> tuple[date, ...]:
    def counted(at: int | None) -> Mapping[date, int]:
        rows = table.read(at).where(F.col("publish_date").isin(list(due)) & F.col("origin").isin(*link.origins))
        return {row["publish_date"]: row["count"] for row in rows.groupBy("publish_date").count().collect()}

    now = counted(None)
    try:
        then = counted(version)
    except FAULTS:  # the commits from before it are gone
        return tuple(due)
    return tuple(day for day in due if now.get(day, 0) > then.get(day, 0))
