"""Where every link stands, and how far it is behind: derived from the tables alone, whether or not anybody runs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from geo.config.model import Config, Link
from geo.log.topics import registered_topics
from geo.names import Topic, topic_glob_matches
from geo.now import now_us
from geo.replication.lag import Lag, lag_of
from geo.replication.link_requests import Request, is_paused, read_requests
from geo.replication.link_start import look_at_target
from geo.replication.link_state import RECORD_KEY, LinkState
from geo.replication.link_table import read_links
from geo.replication.replicator import replicates
from geo.streams.life import State
from geo.tables.cluster import ClusterTables
from geo.tables.history import CommitName
from geo.tables.table import Table


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One topic of one link. `at`: the version of the source up to which the target holds everything, None before its first
    comparison has ended; `newest`: the source's newest."""

    link: Link
    topic: Topic
    state: State
    reason: str | None
    at: int | None
    newest: int
    lag: Lag


def link_statuses(target: ClusterTables, sources: Mapping[str, ClusterTables], config: Config, glob: str) -> Iterator[LinkStatus]:
    """Every topic that the links into a cluster carry, and that matches."""
    rows, requests = read_links(target), read_requests(target)
    for link in config.inbound(target.cluster.name):
        source = sources[link.source]
        for found in registered_topics(source):
            topic = found.topic
            if not topic_glob_matches(glob, topic) or not replicates(config, link, found) or not source.log(topic).exists():
                continue
            row = rows.get((link.source, str(topic)))
            state, reason = told_state(row, requests, link.source, topic)
            cursor = None if row is None else cursor_of(row, link, target.log(topic))
            newest, lag = behind(source.log(topic), cursor, link)
            yield LinkStatus(link, topic, state, reason, None if cursor is None else cursor.version, newest, lag)


def told_state(row: LinkState | None, requests: Sequence[Request], source: str, topic: Topic) -> tuple[State, str | None]:
    """State and reason of a link's topic as people are told: what was asked of it goes before what its last runner recorded."""
    if is_paused(requests, source, topic):
        return State.PAUSED, "it was asked to pause"
    return (State.STOPPED, "it has never run") if row is None else (row.state, row.reason)


def cursor_of(row: LinkState, link: Link, log: Table) -> CommitName | None:
    """The newest cursor of a link: the recorded one, or that of a commit it has made in its target's log since."""
    if row.cursor is None or row.target is None or (seen := log.look()) is None:
        return row.cursor
    commits = log.commits(row.target.version, seen.version, only=(RECORD_KEY,))
    own = look_at_target(link.name, row.target, seen.table_id, seen.version, commits).own
    return row.cursor if own is None else own.cursor


def behind(log: Table, cursor: CommitName | None, link: Link) -> tuple[int, Lag]:
    """The newest version of a source's log, and how far a link with that cursor is behind."""
    seen = log.look()
    if seen is None:
        return -1, Lag()
    at = cursor.version if cursor is not None and cursor.table_id == seen.table_id else -1
    commits = log.commits(at + 1, seen.version)
    return seen.version, lag_of(at, seen.version, commits, frozenset(link.origins), link.source, now_us())


def high_watermarks(statuses: Iterable[LinkStatus], *, in_sync: bool) -> dict[tuple[str, Topic], int]:
    """By source and topic: the version of the source that every target holds (-1: one holds nothing yet), or every one that is in
    sync, as Kafka's high watermark is that of the in-sync replicas. Where none is in sync the source stands alone: its newest."""
    found: dict[tuple[str, Topic], int] = {}
    for one in statuses:
        key = one.link.source, one.topic
        at = one.newest if in_sync and not one.lag.in_sync else (-1 if one.at is None else one.at)
        found[key] = min(found.get(key, at), at)
    return found
