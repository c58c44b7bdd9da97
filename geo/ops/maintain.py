"""`geo maintain`: expiry, compaction and clean-up of one cluster's tables, beside live streams.

Only tables of the own cluster are written. Nothing that a linked cluster still has to read is removed: how far each link
has come is read from the link's own table, in its target.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from geo.config.model import Config, Link, TopicPolicy
from geo.errors import UnsafeError, UsageError
from geo.faults import FAULTS
from geo.ids import LedgerId
from geo.log.housekeeping import JOURNALS, open_for_writing, rows_kept
from geo.log.log_cutter import LogCut, LogCutter
from geo.log.topic_log import is_message, open_log
from geo.log.topics import deleted_topics, registered_topics, replication_clusters
from geo.names import ALL_TOPICS, Topic, check_topic_glob, topic_glob_matches
from geo.progress import Progress
from geo.subscription.acks.record import RefusedRecordError, parse_key
from geo.tables.clock import Stamp, refuse_wrong
from geo.tables.cluster import ClusterTables, connect
from geo.tables.commits import EXPIRED
from geo.tables.heartbeat import renew
from geo.tables.table import Table
from geo.text import first_line
from geo.times import in_us, utc
from schemas import CURSORS, LINKS, PROCESSES
from schemas.topic_log import RETENTION_PROPERTIES, retention_days

log = logging.getLogger(__name__)

MARGIN = timedelta(hours=1)
"""By how much the removal of a date trails the expiry of its last message: two clusters' clocks may differ, and what one has
removed the other must not send again."""

GRACE = timedelta(days=1)
"""After this long without a sign of life a link is silent: whether it will ever read on, a person must say."""

_OF_A_DATE = re.compile(r"/publish_date=(\d{4}-\d{2}-\d{2})/[^/]+$")

SMALL_FILES = 16
"""A date with more files than this, of less than 128 MB on average, is compacted."""


@dataclass(frozen=True, slots=True)
class DateFiles:
    """What a topic log has of one publish_date."""

    day: date
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Held:
    """Expired dates that one link (or for acknowledgements, the folding query) has not read to the end, so they stay. `silent`:
    it has not moved for longer than GRACE."""

    link: str
    days: tuple[date, ...]
    why: str
    silent: bool


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done for one table, or would be. `log`: what was cut off its log; None where Delta does it by itself."""

    table: str
    expired: tuple[DateFiles, ...] = ()
    held: tuple[Held, ...] = ()
    compacted: tuple[DateFiles, ...] = ()
    superseded_rows: int = 0
    log: LogCut | None = None


def expired_days(days: Collection[date], ttl_s: int | None, now: datetime) -> list[date]:
    """The dates of which every message has expired MARGIN ago: whole dates, so that nothing is rewritten."""
    if ttl_s is None:
        return []
    horizon = now - timedelta(seconds=ttl_s) - MARGIN
    return sorted(d for d in days if datetime(d.year, d.month, d.day, tzinfo=timezone.utc) + timedelta(days=1) <= horizon)


def maintain(
    spark: SparkSession, config: Config, cluster: str, topics: str = ALL_TOPICS, *, dry_run: bool = False, yes: bool = False
) -> list[Maintained]:
    """Drop expired dates, compact small files, remove what no version in the retention needs, cut logs; system tables too.

    `yes` removes expired dates also past a silent link, never past a living one. `dry_run` writes nothing.
    Raises UsageError if no topic matches, UnsafeError if a retention is shorter than the longest outage configured, or this
    host's clock is not the storage's.
    """
    check_topic_glob(topics)
    tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
    found = [r.topic for r in registered_topics(tables) if topic_glob_matches(topics, r.topic)]
    if not found:
        raise UsageError(f"{cluster} has no topic that matches {topics}.")
    logs = [(topic, open_log(tables, topic)[0]) for topic in found if tables.log(topic).exists()]
    for topic, table in logs:
        _check_retention(table, topic, config.policy(topic))
    now = datetime.now(timezone.utc)
    if not dry_run and any(config.policy(topic).message_ttl_s for topic, _ in logs):
        renew(tables)
        signs = tables.journal(PROCESSES)
        came_us = in_us(signs.committed_at(signs.version()))
        refuse_wrong(f"{cluster}: nothing is expired", in_us(datetime.now(timezone.utc)), came_us, Stamp.of(in_us(now), came_us))
    progress, cutter = Progress(log, f"maintain {cluster}", "topics", len(logs)), LogCutter(tables, config)
    done = []
    for topic, table in logs:
        one = _maintain_log(config, tables, topic, table, now, dry_run=dry_run, yes=yes)
        done.append(replace(one, log=cutter.cut(topic, dry_run=dry_run)))
        progress.add(1)
    for schema in JOURNALS:
        journal = tables.journal(schema)
        superseded = journal.clean(rows_kept(schema, now), dry_run=dry_run)
        if not dry_run:
            journal.vacuum()
            journal.cut()
        done.append(Maintained(f"system/{schema.kind}", superseded_rows=superseded))
    return done


def _check_retention(table: Table, topic: Topic, policy: TopicPolicy) -> None:
    properties = table.properties()
    for key in RETENTION_PROPERTIES:
        days = retention_days(properties.get(key))
        if days is not None and days * 86_400 < policy.longest_outage_s:
            raise UnsafeError(
                f"{topic}: {key} is {properties[key]}, shorter than longest_outage ({policy.longest_outage_s // 86_400} days). A link that "
                f"is away that long would find its place gone. Nothing was removed. Raise it: ALTER TABLE {table.sql} SET "
                f"TBLPROPERTIES ('{key}' = 'interval {-(-policy.longest_outage_s // 86_400)} days')"
            )


def _maintain_log(
    config: Config, tables: ClusterTables, topic: Topic, table: Table, now: datetime, *, dry_run: bool, yes: bool
) -> Maintained:
    files = _files_by_day(table)
    due = expired_days(files, config.policy(topic).message_ttl_s, now)
    by_day = _footers(table, [day for day, count in files.items() if count > SMALL_FILES or day in due])
    held = _all_held(config, tables, topic, table, due, now) if due else []
    if due and topic == topic.acks and (unfolded := _unfolded(tables, topic, table, due)):
        held.append(unfolded)
    kept = {day for one in held if not (one.silent and yes) for day in one.days}
    expired = [by_day[day] for day in due if day not in kept]
    if expired and not dry_run:
        listed = ", ".join(f"DATE'{one.day}'" for one in expired)
        # Whole partitions: files are dropped, none is rewritten. By its record whoever reads on tells it from anybody's DELETE.
        expiring = table.saying(json.dumps({EXPIRED: 1, "dates": [str(one.day) for one in expired]}))
        expiring.commit(lambda: expiring.delta().delete(f"publish_date IN ({listed})"))
    gone = {one.day for one in expired}
    small = [one for day, one in by_day.items() if day not in gone and one.files > SMALL_FILES and one.bytes < one.files * 2**27]
    if small and not dry_run:
        listed = ", ".join(f"DATE'{one.day}'" for one in small)
        table.commit(lambda: table.delta().optimize().where(f"publish_date IN ({listed})").executeCompaction())
    if not dry_run:
        table.commit(lambda: table.delta().vacuum())
    return Maintained(str(topic), tuple(expired), tuple(held), tuple(small))


def _files_by_day(table: Table) -> dict[date, int]:
    """How many files each date has, derived from their names alone."""
    found = (_OF_A_DATE.search(name) for name in table.read().inputFiles())
    return Counter(date.fromisoformat(of[1]) for of in found if of)


def _footers(table: Table, days: Collection[date]) -> dict[date, DateFiles]:
    """Rows, files and bytes of these dates, derived from the files' footers, each of which is opened."""
    if not days:
        return {}
    rows = table.read().where(F.col("publish_date").isin(list(days)))
    by_file = rows.groupBy("publish_date", F.col("_metadata.file_path"), F.col("_metadata.file_size").alias("size"))
    counted = by_file.agg(F.count("*").alias("rows")).groupBy("publish_date")
    totals = counted.agg(F.sum("rows").alias("rows"), F.count("*").alias("files"), F.sum("size").alias("bytes"))
    return {r["publish_date"]: DateFiles(r["publish_date"], r["rows"], r["files"], r["bytes"]) for r in totals.collect()}


def _all_held(
    config: Config, tables: ClusterTables, topic: Topic, table: Table, due: Sequence[date], now: datetime
) -> list[Held]:
    local = {tables.cluster.name: replication_clusters(tables, topic)}
    links = [link for link in config.links_of(topic, local) if link.source == tables.cluster.name]
    return [one for link in links if (one := _held(config, tables, link, topic, table, due, now))]


def _held(
    config: Config, tables: ClusterTables, link: Link, topic: Topic, table: Table, due: Sequence[date], now: datetime
) -> Held | None:
    """Which of the dates `due` the link has not read to the end; None if it has."""
    try:
        target = connect(tables.spark, config.cluster(link.target))
        states = target.journal(LINKS).newest(source=link.source, topic=str(topic))
        if not states and topic in deleted_topics(target):
            return None
    except FAULTS as error:
        return Held(link.name, tuple(due), f"{link.target} cannot be read: {first_line(error)}", silent=True)
    if not states:
        return Held(link.name, tuple(due), "it has never run", silent=True)
    (state,) = states
    last = utc(state["updated_at"])
    silent = now - last > GRACE
    when = f"last heard of at {last:%Y-%m-%d %H:%M:%S} UTC, {state['state']}"
    if state["source_version"] is None:
        return Held(link.name, tuple(due), f"it has read nothing yet, {when}", silent)
    if state["source_table_id"] != table.table_id():
        return Held(link.name, tuple(due), f"it has read another table, {when}", silent)
    behind = _unread(table, state["source_version"], link, due)
    return Held(link.name, behind, f"it has read up to version {state['source_version']}, {when}", silent) if behind else None


def _unfolded(tables: ClusterTables, acks: Topic, table: Table, due: Sequence[date]) -> Held | None:
    """Which of the dates `due` hold acknowledgements that are not all in younger compact records; None if none does."""
    cursors = {f"{row['topic']}/{row['subscription']}": row for row in tables.journal(CURSORS).newest()}

    def needed(row: Row) -> bool:
        try:
            parse_key(row["key"] or "")
        except RefusedRecordError:
            return False
        cursor = cursors.get(row["key"])
        if cursor is None or cursor["compacted_at"] is None or utc(cursor["compacted_at"]).date() <= row["publish_date"]:
            return True
        return bool(cursor["folded"].get(str(LedgerId(row["origin"], row["ledger_id"])), -1) < row["end"])

    rows = table.read().where(F.col("publish_date").isin(list(due)) & is_message())
    ends = rows.groupBy("publish_date", "key", "origin", "ledger_id").agg(F.max("entry_id").alias("end")).collect()
    days = tuple(sorted({row["publish_date"] for row in ends if needed(row)}))
    return (
        Held("the folding query", days, f"run `geo subscriptions fold --cluster {tables.cluster.name}`", False) if days else None
    )


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
