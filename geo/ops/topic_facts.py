"""Facts for `topic_stats.py`, read once from a cluster, and what becomes of them for each topic. Reads only; without Spark
where tables are read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from geo.coordination.claims import Owner
from geo.coordination.holders import RegionHolders
from geo.coordination.runners import RunnerKind, RunnerName
from geo.coordination.storage_clock import storage_now_us
from geo.delta.scan import data_files
from geo.journal.cluster import ClusterTables
from geo.journal.rows import Row
from geo.log.ledger_parts import ledger_parts
from geo.log.topic_log import count_messages
from geo.log.topics import Registered, absent, all_topics
from geo.names import Topic, topic_glob_matches
from geo.ops.commit_rates import newest_commits
from geo.ops.topic_stats import WINDOWS_S, OfLedger, Produced, Rates, produced, rates
from geo.replication.link_table import read_links
from geo.schemas import LEDGERS, OWNERS
from geo.subscription.status import Listed, subscriptions_in
from geo.subscription.versions.version_subscriptions import version_subscriptions, versions_behind
from geo.times import in_us

T = TypeVar("T")

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic in one cluster. `rates` by the names of WINDOWS_S. None of a number: nobody knows without Spark, or the log is not there."""

    topic: Topic
    cluster: str
    version: int | None
    messages: int | None
    files: int | None
    bytes: int | None
    rates: dict[str, Rates | None]
    ledgers: int | None
    producers: list[Produced]
    subscriptions: list[Listed]
    of_versions: dict[str, int | None]
    """Those of consumers that know only versions, by name, with how many versions of the log they have not finished; None: nobody knows."""
    lacks: str | None
    """Thing that should be there and is not, with its remedy."""


def topic_stats(tables: ClusterTables, glob: str) -> list[TopicStats]:
    """Statistics of the topics of a cluster that match, by name."""
    known = all_topics(tables, (Topic.parse(topic) for _, topic in read_links(tables)))
    wanted = [one for one in known if not one.is_deleted and topic_glob_matches(glob, one.topic)]
    rows = _by_topic(tables.journal(LEDGERS).newest(topic=[str(one.topic) for one in wanted]), lambda row: str(row["topic"]))
    runs = _by_topic(_running(tables, rows), lambda one: str(one.topic))
    listed = (one for one in subscriptions_in(tables, glob, backlog=True) if not one.deleted)
    subscriptions = _by_topic(listed, lambda one: one.topic)

    by_versions = _by_topic(version_subscriptions(tables, glob), lambda one: str(one.topic))

    def stats(one: Registered) -> TopicStats:
        name = str(one.topic)
        running = frozenset(of.who for of in runs.get(name, ()))
        of_versions = {of.subscription: versions_behind(tables, of) for of in by_versions.get(name, ())}
        of_topic = [_of_ledger(row) for row in rows.get(name, ())]
        return _stats(tables, one, of_topic, running, subscriptions.get(name, []), of_versions)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(stats, wanted))


def _running(tables: ClusterTables, rows: Mapping[str, list[Row]]) -> list[RunnerName]:
    """The producers of these ledgers that give signs of life."""
    names = {
        str(name): name
        for topic, of_topic in rows.items()
        for producer in {row["producer"] for row in of_topic}
        for name in [RunnerName(RunnerKind.PRODUCER, producer, Topic.parse(topic), tables.cluster.name)]
    }
    owners = tables.journal(OWNERS).read(Owner, runner=[*names])
    holders = RegionHolders(tables, owners)
    return [names[one.runner] for one in owners if not holders.of(one).is_dead]


def _stats(
    tables: ClusterTables,
    one: Registered,
    rows: list[OfLedger],
    running: frozenset[str],
    subscriptions: list[Listed],
    of_versions: dict[str, int | None],
) -> TopicStats:
    topic, log, name = one.topic, tables.log(one.topic), tables.cluster.name
    seen = log.snapshot()
    lacks = None if (wrong := absent(tables, one, seen)) is None else str(wrong)
    if seen is None:
        gone = dict.fromkeys(WINDOWS_S)
        return TopicStats(
            topic, name, None, None, None, None, gone, None, produced(rows, [], running), subscriptions, of_versions, lacks
        )
    now, version = storage_now_us(tables, writes=False), seen.version
    commits, reaches_back = newest_commits(log, version, now - int(max(WINDOWS_S.values()) * 1e6))
    files = data_files(log, version)
    sizes = None if files is None else [file.statistics.get("size_bytes") for file in files]
    size = None if sizes is None or None in sizes else sum(int(one) for one in sizes if one is not None)
    return TopicStats(
        topic, name, version, count_messages(log, version), log.count_files() if files is None else len(files), size,
        {name: rates(commits, now, window_s, reaches_back=reaches_back) for name, window_s in WINDOWS_S.items()},
        len(ledger_parts(log, version)), produced(rows, commits, running), subscriptions, of_versions, lacks,
    )  # fmt: skip


def _of_ledger(row: Row) -> OfLedger:
    return OfLedger(row["producer"], row["ledger_id"], row["end"], row["closed"] is not None, in_us(row["publish_time"]))


def _by_topic(found: Iterable[T], topic: Callable[[T], str]) -> dict[str, list[T]]:
    by_topic: dict[str, list[T]] = {}
    for one in found:
        by_topic.setdefault(topic(one), []).append(one)
    return by_topic
