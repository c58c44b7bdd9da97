"""Verify: every cluster's log of a topic against every other, by message id and content, under the routing rule.

An auditor shares no code with what it audits: nothing that publishes, routes, replicates or reconciles is imported. (One file
is shared, `geo/log/promises.py`: which recorded ends a log has to keep.) The rule is stated once more, from design section 5.
Everything is derived from the tables alone: topic logs, `system/topics`, `system/links`, `system/ledgers` and `system/owners`.
Only reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from geo.config import read
from geo.config.model import Config, Link
from geo.coordination.owners import named_owners
from geo.coordination.runners import RunnerKind
from geo.coordination.storage_clock import checked_now_us
from geo.delta.table import Table
from geo.errors import UsageError
from geo.journal.cluster import ClusterTables, connect
from geo.log.promised_ends import read_promises
from geo.log.topics import Registered, all_topics, unlike
from geo.names import ALL_TOPICS, Topic, glob_of, topic_glob_matches
from geo.ops.verify.checks import Way
from geo.ops.verify.comparison import Comparison, Pinned, Promises, Registries, TopicIn
from geo.ops.verify.faults import faults, gone
from geo.ops.verify.link_ends import End, Ends, key, limits, overdue
from geo.ops.verify.report import ClusterResult, LinkResult, VerifyReport
from geo.progress import Progress, set_step
from geo.schemas import LINKS
from geo.text import counted
from geo.times import in_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Logs and topics looked at side by side: most of a small topic's time is planning, which leaves the cores idle."""


@dataclass(frozen=True, slots=True)
class TopicResult:
    """Result of one topic."""

    links: Iterable[LinkResult]
    clusters: Iterable[ClusterResult]
    notes: Iterable[str]
    faults: Iterable[str]


def read_ends(clusters: Mapping[str, ClusterTables]) -> Ends:
    """Tells where every link stands by its newest row."""
    return {
        (target, row["source"], row["topic"]): End(
            row["state"],
            row["reason"],
            row["source_table_id"],
            row["source_version"],
            row["floors"] or {},
            row["impossible"],
            in_us(row["updated_at"]),
            row["impossible_accepted"] or 0,
        )
        for target, tables in clusters.items()
        for row in tables.journal(LINKS).newest()
    }


def checked_now(clusters: Mapping[str, ClusterTables]) -> int:
    """Now, in microseconds since 1970, by the latest of the storages' clocks. Raises WrongClockError on a host whose clock is not
    theirs: by it what is missing would seem to have expired."""
    return max(checked_now_us(tables, f"{name}: is not verified", writes=False) for name, tables in clusters.items())


def read_ways(clusters: Mapping[str, ClusterTables]) -> set[Way]:
    """Finds the origins that are no cluster now and ever had a way into a topic of a cluster. Of a cluster that was removed nothing else tells. (Of
    others a claim may be that of a deletion.)
    """
    ways = (way for tables in clusters.values() for way, _ in named_owners(tables, RunnerKind.ORIGIN))
    return {(way.cluster, way.who, str(way.topic)) for way in ways if way.who not in clusters}


def read_all_promises(clusters: Mapping[str, ClusterTables], topics: Collection[Topic]) -> dict[Topic, Promises]:
    """The ends that each cluster's producers recorded, by topic."""
    of_cluster = {name: read_promises(tables, topics) for name, tables in clusters.items()}
    return {topic: {name: found[topic] for name, found in of_cluster.items()} for topic in topics}


def verify(spark: SparkSession, config: Config | str | Path, topics: str | Topic = ALL_TOPICS) -> VerifyReport:
    """Compare all clusters' logs of the topics that match the glob. Raises UsageError if there is none.

    It may run beside live producers and links, and reports no fault that is not there. Commits go on while it reads, so each claim is made between
    versions whose order proves it. All clusters go through each step before the next begins:

    1. read the end E of every link: all of the source up to E *was* in the target by then. And the ends of ledgers that producers
       recorded (`geo.log.promises`): the log *had* these entries by then;
    2. pin every log: the early pin;
    3. pin every log again: the late pin;
    4. read the links again, for their floors, and the clock.

    - missing compares E with the target's late pin. E was recorded after what it vouches for was committed.
    - unexpected compares the target's early pin with the source's and the origin's late pin. A row was in these before
      any link could copy it. Were there one pin per log, this could be asked in one direction of a two-way link only.
    - duplicates, holes and differences are claims about single versions, as rows never change: they need no order.
    - floors are fixed when a link starts and recorded before its first row is appended, so those read last hold for all
      rows seen. An end must be read first. A link that starts between steps 1 and 4 has floors and no end: in flight.
    - whatever had expired when a link or an expiry looked at it has expired by the clock of step 4. Clocks that differ
      by more than these steps take can misjudge messages that are just about to expire, and no others.

    Cost per topic: one scan of the ids of each log and one of its rows. The ids at the older pins come to that if the log has moved. Rows are
    shuffled as digests; only counts, examples and the ends of ledgers are collected.
    """
    config = read(config)
    clusters = {name: connect(spark, cluster) for name, cluster in config.clusters.items()}
    return verify_each(clusters, config, str(topics), 2, _compared)


def _compared(seen: Pinned) -> Callable[[Topic], TopicResult]:
    later, ways = read_registries(seen.clusters, seen.floors), read_ways(seen.clusters)
    progress = Progress(log, "verify", "topics", len(seen.topics))

    def compare(topic: Topic) -> TopicResult:
        set_step(f"compares {topic}")
        *_, late = seen.of(topic)
        # Those that replicated it before the pins or after: a policy may change meanwhile.
        carried = {*carrying(seen.config, topic, seen.registries, seen.ends), *carrying(seen.config, topic, later, seen.floors)}
        links = tuple(link for link in seen.config.links if link in carried)
        due_before = limits(topic, links, seen.ends, seen.now_us, seen.config.policy(topic).longest_outage_s)
        comparison = Comparison(seen, topic, links, ways, due_before)
        comparison.notes += [
            *notes(topic, seen.registries, late, links, seen.floors),
            *_of_removed(topic, links, seen.floors, ways),
        ]
        comparison.run()
        found = (
            *faults(topic, seen.registries, late, links, seen.ends),
            *overdue(topic, links, seen.ends, comparison.overdue(), due_before),
        )
        progress.add(1)
        return TopicResult(comparison.links(), comparison.clusters(), comparison.notes, found)

    return compare


def verify_each(
    clusters: Mapping[str, ClusterTables],
    config: Config,
    glob: str,
    pins: int,
    checks: Callable[[Pinned], Callable[[Topic], TopicResult]],
    *noted: str,
    by_content: bool = True,
) -> VerifyReport:
    """Pin all logs of the topics that match so many times, then check each topic by what `checks` makes of it. All clusters go through each
    step before the next begins. Raises UsageError if there is no topic."""
    set_step("reads registries")
    registries = read_registries(clusters, read_ends(clusters))
    topics = matching_topics(registries, glob)
    # A log whose registry row is not written yet counts too.
    logs = {(topic, name): tables.log(topic) for topic in topics for name, tables in clusters.items()}
    set_step(f"pins {len(logs)} logs")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends, promises = read_ends(clusters), read_all_promises(clusters, topics)  # step 1
        pinned = [pin(pool, logs) for _ in range(pins)]  # a step each
        floors, now_us = read_ends(clusters), checked_now(clusters)  # the last one
        seen = Pinned(config, clusters, registries, topics, logs, ends, promises, pinned, floors, now_us)
        found = list(pool.map(checks(seen), topics))
    return VerifyReport(
        tuple(map(str, topics)),
        tuple(result for one in found for result in one.links),
        tuple(result for one in found for result in one.clusters),
        (*(note for one in found for note in one.notes), *noted),
        by_content=by_content,
        faults=(
            *gone(config, registries, ends, now_us),
            *unlike_logs(clusters, registries, topics),
            *(fault for one in found for fault in one.faults),
        ),
    )


def read_registries(clusters: Mapping[str, ClusterTables], ends: Ends) -> Registries:
    """The topics that each cluster knows of, those too that were deleted there, and those that its registry lacks though its log
    is there."""
    found: dict[str, dict[Topic, Registered]] = {}
    for name, tables in clusters.items():
        mentioned = [Topic.parse(topic) for target, source, topic in ends if name in (target, source)]
        found[name] = {one.topic: one for one in all_topics(tables, mentioned)}
    return found


def unlike_logs(clusters: Mapping[str, ClusterTables], registries: Registries, topics: Sequence[Topic]) -> Iterable[str]:
    """The fault of each topic of which a cluster's registry says otherwise than its log where it may go."""
    for topic in topics:
        for name, registry in registries.items():
            if topic in registry and (why := unlike(clusters[name], registry[topic])) is not None:
                yield f"{topic}: {why}."


def matching_topics(registries: Registries, glob: str) -> list[Topic]:
    """The topics that match; by the name of a partitioned one its partitions. Raises UsageError if there is none."""
    known = sorted({topic for registry in registries.values() for topic, found in registry.items() if not found.is_deleted})
    glob = glob_of(glob, known)
    matching = [topic for topic in known if topic_glob_matches(glob, topic)]
    if not matching:
        there = ", ".join(map(str, known[:20])) or "none"
        raise UsageError(f"no topic matches {glob}; the topics of {', '.join(registries)} are: {there}")
    return matching


def carrying(config: Config, topic: Topic, registries: Registries, ends: Ends) -> tuple[Link, ...]:
    """The links that carry a topic: between clusters in which it was not deleted. Of one of which nobody knows where it may go those that have
    carried it."""
    of_topic = {name: registry[topic] for name, registry in registries.items() if topic in registry}
    gone, unclear = _deleted_in(topic, registries), {name for name, one in of_topic.items() if one.is_unclear}
    links = config.links_of(topic, {name: one.replication_clusters for name, one in of_topic.items()})
    return tuple(
        link
        for link in links
        if gone.isdisjoint((link.source, link.target))
        and (link.source not in unclear or ((end := ends.get(key(link, topic))) is not None and end.version is not None))
    )


def _of_removed(topic: Topic, links: Sequence[Link], ends: Ends, ways: Collection[Way]) -> Iterable[str]:
    """Notes of origins that came once and of which no link tells any more."""
    told = {(target, source) for target, source, of in ends if of == str(topic)}
    told |= {(link.target, origin) for link in links for origin in link.origins}
    for target, origin, of in sorted(ways):
        if of == str(topic) and origin != target and (target, origin) not in told:
            yield f"{topic}: {origin} reached {target} once and no longer does: what came from there is not compared"


def _deleted_in(topic: Topic, registries: Registries) -> set[str]:
    return {name for name, registry in registries.items() if topic in registry and registry[topic].is_deleted}


def pin(pool: ThreadPoolExecutor, logs: Mapping[TopicIn, Table]) -> dict[TopicIn, int]:
    """The newest version of every log that is there. Returns when all are known."""
    versions = pool.map(lambda table: table.latest_version() if table.exists() else None, logs.values())
    return {place: version for place, version in zip(logs, versions, strict=True) if version is not None}


def notes(topic: Topic, registered: Registries, logs: Container[str], links: Sequence[Link], ends: Ends) -> Iterable[str]:
    """Notes for a person beside the counts."""
    gone = _deleted_in(topic, registered)
    for name in sorted(gone):
        unended = ", but its log is still there: run `geo topics delete` again" if name in logs else ""
        yield f"{topic}: was deleted in {name}{unended}"
    for name in registered:
        if topic not in registered[name] or name in gone:
            continue
        if name not in logs and not registered[name][topic].is_unknown:
            yield f"{topic}: is registered in {name}, where it has no log"
        if len(registered) > 1 and all(link.source != name for link in links):
            yield f"{topic}: no link carries it out of {name}"
    for target, source, of in sorted(ends):
        if of == str(topic) and all((link.target, link.source) != (target, source) for link in links):
            yield f"{topic}: {source}->{target} replicated it once and no longer does: what it brought to {target} is not compared"
    for link in links:
        end = ends.get(key(link, topic))
        if end is not None and end.state == "DELAYED":
            yield f"{topic}: {link.name} is {end.state}: {end.reason or 'no reason recorded'}"
        if end is not None and end.accepted:
            yield f"{topic}: {link.name} left out {counted(end.accepted, 'row')} that no producer can have written, which was accepted"
