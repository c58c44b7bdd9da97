"""Facts for `explain.decide`, read once from every cluster that can be read; and where the link stands. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import permutations

from geo.config.model import Config, Link
from geo.coordination.storage_clock import storage_now_us
from geo.delta.commits import Commit
from geo.errors import OtherClusterError
from geo.faults import Tried
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import Event
from geo.journal.events import read_events
from geo.log.ledgers import LINK_KEY, RECORD_KEY, Batch
from geo.log.topics import Registered, all_topics
from geo.names import Topic
from geo.now import utc_now
from geo.ops.explain import Addressed, Decision, addressed, decide
from geo.ops.health import Finding
from geo.ops.link_health import LinksBefore, link_findings
from geo.replication.absent_regions import refuse_gone
from geo.replication.carried import unclear
from geo.replication.lag import Lag
from geo.replication.link_state import LinkRecord, LinkState
from geo.replication.link_status import LinkStatus
from geo.replication.link_table import read_links
from geo.replication.rule import Rule
from geo.schemas.table import POLICIES_PROPERTY
from geo.text import first_line
from geo.times import from_us

MINUTES_AGO = (60, 30, 15, 5)
"""The time when the lag of the last hour is told, before that of now."""

EVENTS_BACK, MOST_EVENTS = timedelta(days=1), 10

NEWEST_COMMITS = 50
"""So many of a source are asked for whom their messages are: of a few minutes, and of a store some requests."""


@dataclass(frozen=True, slots=True)
class CommitAt:
    """A commit of a log. `by`: the producer or link that made it, with the user if Spark says one; `at` None: its writer did not say."""

    version: int
    commit_id: str
    by: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class CursorAt:
    """Place of a link. `source` is the commit of the source up to which the target holds everything, `target` the commit of the target that says
    so. None of either: it is gone by now. `owner`: who runs the link, and why not if nobody does.
    """

    version: int
    source: CommitAt | None
    target: CommitAt | None
    owner: str


@dataclass(frozen=True, slots=True)
class Then:
    """Lag of the link so many minutes ago, 0: now. `lag` None: both logs do not tell of that any more, or one cannot be read."""

    minutes_ago: int
    lag: Lag | None


@dataclass(frozen=True, slots=True)
class Explained:
    """A topic and one way that it may go. `status` None: the link does not carry it. `unread`: why the target cannot be read."""

    source: str
    target: str
    decision: Decision
    messages: Addressed
    status: LinkStatus | None = None
    finding: Finding | None = None
    cursor: CursorAt | None = None
    history: Sequence[Then] = ()
    history_since_us: int | None = None
    """Since when both logs tell of the lag; None: of no time."""
    unread: str | None = None

    def is_problem(self, now_us: int) -> bool:
        """Tells whether a person has to do something, or nobody knows."""
        is_bad = self.finding is not None and self.finding.is_problem(now_us)
        return self.decision.replicated is None or self.unread is not None or is_bad


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Facts of a topic in a cluster. `unread`: why it cannot be read."""

    found: Registered | None = None
    rows: Mapping[str, LinkState] | None = None
    told: str | None = None
    version: int | None = None
    unread: str | None = None


def explain(
    clusters: Mapping[str, ClusterTables], config: Config, topics: Sequence[Topic], glob: str
) -> dict[Topic, list[Explained]]:
    """Explains each of some topics, all of which match `glob`. It does so for each way between two clusters that has a link, and for each other by
    which messages would have to go.
    """
    said = {name: _look(tables, clusters, topics) for name, tables in clusters.items()}
    linked = {(link.source, link.target): link for link in config.links}
    standing: dict[tuple[Topic, str, str], tuple[LinkStatus, Finding]] = {}
    unread: dict[str, str] = {}
    before = {name: LinksBefore(tables) for name, tables in clusters.items()}
    for target, tables in clusters.items():
        with Tried() as tried:
            found = link_findings(tables, clusters, config, glob, before=before[target])
            standing |= {(status.topic, status.link.source, target): (status, finding) for status, finding, _ in found}
        if tried.fault is not None:
            unread[target] = first_line(tried.fault)
    explained = {}
    for topic in topics:
        of_it = {name: replace(one[topic], unread=one[topic].unread or unread.get(name)) for name, one in said.items()}
        ways = [*linked, *(way for way in permutations(clusters, 2) if way not in linked and _is_there(of_it[way[0]]))]
        explained[topic] = [
            _explained(clusters, config, topic, of_it, way, linked.get(way), standing.get((topic, *way)), before[way[1]])
            for way in ways
        ]
    return explained


def events_of(clusters: Mapping[str, ClusterTables], topics: Sequence[Topic]) -> dict[Topic, list[Event]]:
    """The newest events of the last day by topic, oldest first, of the clusters that can be read."""
    found: dict[Topic, list[Event]] = {topic: [] for topic in topics}
    for tables in clusters.values():
        with Tried():
            for one in read_events(tables, utc_now() - EVENTS_BACK):
                for topic in topics:
                    if one.may_be_about(str(topic)):
                        found[topic].append(one)
    return {topic: sorted(events, key=lambda one: (one.at, one.id))[-MOST_EVENTS:] for topic, events in found.items()}


def _look(tables: ClusterTables, clusters: Mapping[str, ClusterTables], topics: Sequence[Topic]) -> dict[Topic, _Cluster]:
    """Reads a cluster's facts of each topic."""
    with Tried(OtherClusterError) as tried:
        refuse_gone(tables, clusters.values())
        links = read_links(tables).items()
        known = {one.topic: one for one in all_topics(tables, topics)}
        return {
            topic: _of_topic(
                tables, topic, known.get(topic), {source: row for (source, name), row in links if name == str(topic)}
            )
            for topic in topics
        }
    assert tried.fault is not None
    return dict.fromkeys(topics, _Cluster(unread=first_line(tried.fault)))


def _of_topic(tables: ClusterTables, topic: Topic, found: Registered | None, rows: Mapping[str, LinkState]) -> _Cluster:
    with Tried() as tried:
        if (seen := tables.log(topic).snapshot()) is None:
            return _Cluster(found, rows)
        return _Cluster(found, rows, seen.properties.get(POLICIES_PROPERTY), seen.version)
    assert tried.fault is not None
    return _Cluster(found, rows, unread=first_line(tried.fault))


def _is_there(one: _Cluster) -> bool:
    return one.found is not None and not one.found.is_deleted


def _explained(
    clusters: Mapping[str, ClusterTables],
    config: Config,
    topic: Topic,
    said: Mapping[str, _Cluster],
    way: tuple[str, str],
    link: Link | None,
    stands: tuple[LinkStatus, Finding] | None,
    before: LinksBefore,
) -> Explained:
    source, target = way
    at_source, at_target = said[source], said[target]
    row = (at_target.rows or {}).get(source)
    messages = Addressed()
    if link is not None and at_source.version is not None:
        with Tried():  # what they say is a line more
            log, newest = clusters[source].log(topic), at_source.version
            messages = addressed(log.commits(max(0, newest - NEWEST_COMMITS + 1), newest, only=(RECORD_KEY,)), Rule.of(link))
    decision = decide(
        config, source, target, topic, at_source.found,
        unread=at_source.unread,
        deleted_in_target=at_target.found is not None and at_target.found.is_deleted,
        unclear=None if at_source.found is None else unclear(at_source.found, row, clusters[source]),
        told=at_source.told,
        messages=messages,
    )  # fmt: skip
    cursor = None
    if link is not None and row is not None and row.cursor is not None:
        with Tried():
            cursor = _cursor(clusters[target], clusters[source], link, topic, row, before)
    status, finding = (None, None) if stands is None or at_target.rows is None else stands  # its rows tell where it stands
    then, since_us = list[Then](), None
    if link is not None and row is not None and status is not None:
        with Tried():
            then, since_us = _before(before, clusters[target], clusters[source], link, topic)
        then.append(Then(0, status.lag))
    return Explained(source, target, decision, messages, status, finding, cursor, then, since_us, at_target.unread)


def _before(
    before: LinksBefore, target: ClusterTables, source: ClusterTables, link: Link, topic: Topic
) -> tuple[list[Then], int | None]:
    now_us = storage_now_us(target, writes=False)
    times = {minutes: now_us - minutes * 60_000_000 for minutes in MINUTES_AGO}
    history = before.history(link, source, topic, min(times.values()))
    if history is None:
        return [], None
    samples = {minutes: history.at(at_us) for minutes, at_us in times.items()}
    return [Then(minutes, None if one is None else one.lag) for minutes, one in samples.items()], history.since_us


def _cursor(
    target: ClusterTables, source: ClusterTables, link: Link, topic: Topic, row: LinkState, before: LinksBefore
) -> CursorAt | None:
    """The newest cursor: that of the row, or of a later commit of the link in its target."""
    assert row.cursor is not None
    at, held_by = row.cursor, None
    log = target.log(topic)
    if row.target is not None and (seen := log.snapshot()) is not None:
        for commit in log.commits(row.target.version, seen.version, only=(LINK_KEY,)):
            record = LinkRecord.decode(commit.user_metadata)
            if commit.version == row.target.version:
                held_by = _commit_at(commit)
            elif record is not None and record.link == link.name and not record.reconciling:
                at, held_by = record.cursor, _commit_at(commit)
    there = None
    with Tried():  # the source may be away
        found = source.log(topic).commit_at(at.version)
        there = None if found is None or found.commit_id != at.commit_id else _commit_at(found)
    owner = before.owner(link, topic)
    return CursorAt(at.version, there, held_by, "nobody ever ran it" if owner is None else owner.shown)


def _commit_at(commit: Commit) -> CommitAt:
    batch, record = Batch.decode(commit.user_metadata), LinkRecord.decode(commit.user_metadata)
    by = commit.operation if commit.user is None else f"{commit.operation} by {commit.user}"
    if batch is not None:
        by = f"producer {batch.producer}"
    elif record is not None:
        by = f"link {record.link}"
    return CommitAt(commit.version, commit.commit_id, by, from_us(commit.committed_us) if commit.committed_us else None)
