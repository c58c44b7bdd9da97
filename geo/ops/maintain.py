"""`geo maintain`: expiry, compaction and clean-up of one cluster's tables, beside live streams.

Only tables of the own cluster are written. Nothing that a linked cluster still has to read is removed (`held_dates.py`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone

from pyspark.sql import SparkSession

from geo.config.model import Config, TopicPolicy
from geo.coordination.storage_clock import checked_now_us
from geo.delta.commits import EXPIRED
from geo.delta.ddl import how_to_set
from geo.delta.spark_commits import vacuum_table
from geo.delta.table import Table
from geo.errors import UnsafeError, UsageError
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables, connect
from geo.log.finished import move_ended
from geo.log.housekeeping import forget_signs, open_for_writing, rows_kept
from geo.log.log_cutter import LogCut, LogCutter
from geo.log.topic_log import open_log
from geo.log.topics import registered_topics
from geo.names import ALL_TOPICS, Topic, check_topic_glob, topic_glob_matches
from geo.ops.date_files import DateFiles, compact_date, counted_by_spark, date_files, footers, remove_dates
from geo.ops.held_dates import Held, held_dates
from geo.progress import Progress, set_step
from geo.reasons import Reason
from geo.schemas import EVENTS, JOURNALS, LEDGERS
from geo.schemas.topic_log import RETENTION_PROPERTIES, retention_days
from geo.times import from_us

log = logging.getLogger(__name__)

MARGIN = timedelta(hours=1)
"""Time by which the removal of a date trails the expiry of its last message. Two clusters' clocks may differ, and what one has removed the other
must not send again.
"""

SMALL_FILES = 16
"""A date with more files than this, of less than 128 MB on average, is compacted."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """Work that was done for one table, or would be. `log`: what was cut off its log; None where Delta does it by itself."""

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
    spark: SparkSession,
    config: Config,
    cluster: str,
    topics: str = ALL_TOPICS,
    *,
    dry_run: bool = False,
    pass_silent: bool = False,
) -> list[Maintained]:
    """Drop expired dates, compact small files, remove what no version in the retention needs, cut logs; system tables too.

    `pass_silent` removes expired dates also past a silent link, never past a living one. `dry_run` writes nothing.
    Raises UsageError if no topic matches, UnsafeError if a retention is shorter than the longest outage configured, or this
    host's clock is not the storage's.
    """
    check_topic_glob(topics)
    tables = open_for_writing(connect(spark, config.cluster(cluster)), config, rehearsal=dry_run)
    found = [r.topic for r in registered_topics(tables) if topic_glob_matches(topics, r.topic)]
    if not found:
        raise UsageError(f"{cluster} has no topic that matches {topics}.")
    logs = [(topic, open_log(tables, topic)[0]) for topic in found if tables.log(topic).exists()]
    for topic, table in logs:
        _check_retention(table, topic, config.policy(topic))
    now = from_us(checked_now_us(tables, f"{cluster}: nothing is expired", writes=not dry_run))
    progress, cutter = Progress(log, f"maintain {cluster}", "topics", len(logs)), LogCutter(tables, config)
    done = []
    for topic, table in logs:
        set_step(f"maintains {topic}")
        one = _maintain_log(config, tables, topic, table, now, dry_run=dry_run, pass_silent=pass_silent)
        done.append(replace(one, log=cutter.cut(topic, dry_run=dry_run)))
        progress.add(1)
    for schema in (*JOURNALS, EVENTS):
        set_step(f"maintains system/{schema.kind}")
        journal = tables.journal(schema)
        if schema is LEDGERS and not dry_run:
            move_ended(tables, now)
        superseded = upkeep.clean(journal, rows_kept(schema, now), dry_run=dry_run)
        if not dry_run:
            upkeep.vacuum(journal)
            upkeep.cut(journal)
        done.append(Maintained(f"system/{schema.kind}", superseded_rows=superseded))
    if not dry_run:
        forget_signs(tables)
    return done


def _check_retention(table: Table, topic: Topic, policy: TopicPolicy) -> None:
    properties = table.properties()
    for key in RETENTION_PROPERTIES:
        days = retention_days(properties.get(key))
        if days is not None and days * 86_400 < policy.longest_outage_s:
            wanted = f"interval {-(-policy.longest_outage_s // 86_400)} days"
            raise UnsafeError(
                f"{topic}: {key} is {properties[key]}, shorter than longest_outage ({policy.longest_outage_s // 86_400} days). A link that "
                f"is away that long would find its place gone. Nothing was removed. Raise it: {how_to_set(table, key, wanted)}",
                code=Reason.SHORT_RETENTION,
            )


def _maintain_log(
    config: Config, tables: ClusterTables, topic: Topic, table: Table, now: datetime, *, dry_run: bool, pass_silent: bool
) -> Maintained:
    listed = date_files(table)
    files = counted_by_spark(table) if listed is None else {day: one.files for day, one in listed.items()}
    due = expired_days(files, config.policy(topic).message_ttl_s, now)
    looked_at = [day for day, count in files.items() if count > SMALL_FILES or day in due]
    by_day = footers(table, looked_at) if listed is None else {day: listed[day] for day in looked_at}
    held = held_dates(config, tables, topic, table, due, now) if due else []
    kept = {day for one in held if not (one.silent and pass_silent) for day in one.days}
    expired = [by_day[day] for day in due if day not in kept]
    gone = {one.day for one in expired}
    small = [one for day, one in by_day.items() if day not in gone and one.files > SMALL_FILES and one.bytes < one.files * 2**27]
    if not dry_run:
        if expired:
            # By its record whoever reads on tells it from anybody's DELETE.
            record = json.dumps({EXPIRED: 1, "dates": [str(one.day) for one in expired]})
            remove_dates(table, [one.day for one in expired], record)
        for one in small:
            log.info("%s: %d files of %s, %d bytes, are compacted", topic, one.files, one.day, one.bytes)
            compact_date(table, one.day)
        vacuum_table(table)
    return Maintained(str(topic), tuple(expired), tuple(held), tuple(small))
