"""`geo reconcile` and `geo links reset`. They replicate the topics of one link up to its source as it is now, and let the link go on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pyspark.sql import SparkSession

from geo.config.choices import Start
from geo.config.model import Config, Link
from geo.coordination.claiming import claim
from geo.coordination.ownership import giving_back
from geo.coordination.storage_clock import checked_now_us
from geo.crash import CrashPoint
from geo.delta.store import meanwhile
from geo.errors import UsageError
from geo.faults import Tried
from geo.journal.cluster import ClusterTables, connect
from geo.log.housekeeping import open_for_writing
from geo.log.topics import deleted_topics, gone_error
from geo.names import ALL_TOPICS, Topic, glob_of, is_glob, nearest_topic, topic_glob_matches
from geo.progress import set_step
from geo.replication.both_logs import BothLogs
from geo.replication.carried import has_log, replicates, topics_of_source, unclear
from geo.replication.link_start import begins_at
from geo.replication.link_state import LinkState, accepted_of
from geo.replication.link_table import read_links
from geo.replication.source_history import beside_words
from geo.replication.source_look import open_source_log
from geo.replication.topic_replicator import TopicReplicator
from geo.session import require_delta
from geo.streams.life import State
from geo.text import counted, first_line

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Result of a reconcile of one topic.

    `impossible`: the rows of the source that no producer can have written, which are left out. `not_accepted`: those of them that nobody has
    accepted, also after it.
    """

    link: str
    topic: str
    missing: int
    appended: int
    source_version: int
    impossible: int
    not_accepted: int
    beside: str = ""
    """Messages that the target holds beside it of another log that the source had before, for people; empty: none."""


def reconcile_links(
    spark: SparkSession,
    config: Config,
    source: str,
    target: str,
    *,
    topics: str = ALL_TOPICS,
    start: Start | datetime | None = None,
    dry_run: bool = False,
    take_over: bool = False,
    accept_impossible: bool = False,
    accept_type: bool = False,
) -> list[Reconciled]:
    """Replicate each matching topic of one link up to the source as it is now, and let the link go on from there.

    This is the verb that resolves a FAILED link: it takes the source as right. Idempotent; `dry_run` counts and writes nothing. With `start` the link
    begins there again: what was published before is not fetched any more, what is there stays. Rows that no producer can have written are left out
    and counted; `accept_impossible` says that they are rightly, once it has told how many. With `accept_type` values of a column whose type, or case,
    differs come as the target's type, where they are exactly that, from now on. Raises UsageError for a link or topic that is not there, and as
    `refuse_rehearsed_types`; AlreadyOwnedError if the link runs.
    """
    refuse_rehearsed_types(dry_run=dry_run, accept_type=accept_type)
    require_delta(spark)
    link = config.link(source, target)
    tables = {name: connect(spark, config.cluster(name)) for name in (source, target)}
    open_for_writing(tables[target], config, rehearsal=dry_run)
    done = []
    for topic in carried_topics(config, link, tables[source], tables[target], topics):
        set_step(f"compares both logs of {topic}")
        work = TopicReplicator(tables[target], tables[source], config, link, topic)
        if dry_run:
            done.append(_preview(work, read_links(tables[target]).get((source, str(topic))), start))
            continue
        (ownership,) = claim(tables[target], [work.runners], take_over=take_over, point=CrashPoint.LINK_CLAIMED)
        with giving_back([ownership]):
            recorded = read_links(tables[target]).get((source, str(topic)))
            work.prepare(ownership, recorded, accept_source=True, accept_type=accept_type, start_at=start, take_over=take_over)
            if accept_impossible and (left_out := work.row.not_accepted):
                log.warning(
                    "%s: accepts that %s are left out, which no producer can have written", work, counted(left_out, "row")
                )
                work.row.accept()
        replicated, row, version = work.row.replicated, work.row.recorded, work.running.cursor.version
        assert row is not None, "a comparison that ended is recorded"
        done.append(
            Reconciled(link.name, str(topic), replicated, replicated, version, row.impossible or 0, row.not_accepted or 0)
        )
    return done


def refuse_rehearsed_types(*, dry_run: bool, accept_type: bool) -> None:
    """Raises UsageError where types are to be accepted by a rehearsal, which would tell nothing of them."""
    if dry_run and accept_type:
        raise UsageError(
            "a rehearsal (--dry-run) counts messages and does not look at types; leave out --accept-type, or --dry-run."
        )


def _preview(work: TopicReplicator, recorded: LinkState | None, start: Start | datetime | None) -> Reconciled:
    """Rehearses a comparison. Writes nothing. `recorded`: the link's newest row. Raises RetryableError if it would be refused."""
    link, topic = work.link, work.topic
    clock = partial(checked_now_us, work.target, f"{work}: nothing is compared", writes=False)
    log_table, _ = open_source_log(work.source, topic, link, str(work))
    logs, version = BothLogs(log_table, work.target.log(topic), work.rule, str(work), clock), log_table.latest_version()
    begin = start or begins_at(recorded, link, topic)
    floors = logs.floors(begin, version) if begin is not None else recorded.floors if recorded is not None else None
    cursor = recorded.cursor if recorded is not None else None
    is_new = cursor is not None and cursor.table_id != log_table.table_id()
    missing, impossible = logs.count_missing(version, floors), logs.count_impossible(version)
    left_out = impossible
    if recorded is not None:
        was_failed = recorded.state is State.FAILED
        left_out -= accepted_of(impossible, recorded.impossible_accepted or 0, recorded.not_accepted, was_failed=was_failed)
    beside = beside_words(logs.beside(version) if is_new else 0, link.source, link.target, str(topic)).rstrip()
    return Reconciled(link.name, str(topic), missing, 0, version, impossible, left_out, beside)


def carried_topics(config: Config, link: Link, source: ClusterTables, target: ClusterTables, glob: str) -> list[Topic]:
    """The topics of a link's source that match, that it carries, and that were not deleted in its target. The name of a partitioned topic is its
    partitions. Among them are those that the source's registry lacks, though their logs are there. A topic of which nobody knows where it may go is
    carried if it was before.

    Raises UsageError if there are none, RetryableError if the source's registry, which the link has read, is not there.
    """
    with meanwhile(target.port) as begin:
        deleted = begin(partial(deleted_topics, target))
        rows = {Topic.parse(topic): row for (name, topic), row in read_links(target).items() if name == link.source}
        known, gone = topics_of_source(source, rows), deleted()
    if not known and rows:
        raise gone_error(source, [link.target], f"{link.name}: ")
    glob = glob_of(glob, there := [one.topic for one in known if not one.is_deleted])
    registered = [one for one in known if not one.is_deleted and topic_glob_matches(glob, one.topic)]
    matching = [one for one in registered if not one.is_unknown or has_log(source, one.topic)]
    carried = [one for one in matching if replicates(config, link, one) and one.topic not in gone]
    not_carried = {one.topic: why for one in carried if (why := unclear(one, rows.get(one.topic), source)) is not None}
    told = [f"{topic} is not carried: {why}" for topic, why in not_carried.items()]
    found = [one.topic for one in carried if one.topic not in not_carried]
    if not matching and not is_glob(glob):
        listed = "`geo topics` lists those that are there"
        raise UsageError(f"{link.source} has no topic {glob}. {listed}{nearest_topic(Topic.parse(glob), there)}")
    if not found:
        names = ", ".join(str(one.topic) for one in matching)
        why = f"{link.name} does not carry {names}" if matching else f"{link.source} has no such topic"
        if was := ", ".join(str(one.topic) for one in matching if one.topic in gone):
            why = f"{was} was deleted in {link.target}; `geo topics create` makes it again"
        raise UsageError(f"no topic that matches {glob}: {'; '.join(told) or why}.")
    for why in told:
        log.warning("%s: %s", link.name, why)
    return found


def failed_topics(target: ClusterTables, source: str, glob: str) -> list[str]:
    """The matching topics of the link from `source` into this cluster that are FAILED, as it says itself."""
    rows = {Topic.parse(topic): row for (name, topic), row in read_links(target).items() if name == source}
    glob = glob_of(glob, rows)
    return sorted(str(topic) for topic, row in rows.items() if row.state is State.FAILED and topic_glob_matches(glob, topic))


def resolve_links(
    spark: SparkSession,
    config: Config,
    source: str,
    target: str,
    topics: str = ALL_TOPICS,
    *,
    dry_run: bool = False,
    take_over: bool = False,
    accept_type: bool = False,
) -> tuple[list[Reconciled], dict[str, str]]:
    """`reconcile_links` of each matching topic of one link that is FAILED. One that cannot be reconciled stops no other. With `accept_type`
    values of a column whose type differs come as the target's type, where they are exactly that, from now on.

    Returns what was done, and by topic why the others were not. Raises UsageError for an unknown link, and as `refuse_rehearsed_types`.
    """
    refuse_rehearsed_types(dry_run=dry_run, accept_type=accept_type)
    require_delta(spark)
    config.link(source, target)
    done: list[Reconciled] = []
    not_done: dict[str, str] = {}
    for topic in failed_topics(connect(spark, config.cluster(target)), source, topics):
        with Tried() as tried:
            done += reconcile_links(
                spark, config, source, target, topics=topic, dry_run=dry_run, take_over=take_over, accept_type=accept_type
            )
        if tried.fault is not None:
            not_done[topic] = first_line(tried.fault)
    return done, not_done
