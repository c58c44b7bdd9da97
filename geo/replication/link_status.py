"""The place where every link stands, and how far it is behind: derived from the tables alone, whether or not anybody runs it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, islice

from geo.config.model import Config, Link
from geo.coordination.storage_clock import storage_now_us
from geo.delta.engine import TableSnapshot
from geo.delta.history import parted
from geo.delta.store import read_each
from geo.delta.table import Table
from geo.delta.versions import committed_at, is_asked_by_name
from geo.errors import OtherClusterError, RetryableError
from geo.faults import Tried, wrong_of
from geo.journal.cluster import ClusterTables
from geo.log.absence import is_new, log_gone_in_target, nothing_in_target
from geo.log.ledgers import LINK_KEY
from geo.log.topics import Registered, absent, gone_error, known_topics
from geo.names import Topic, topic_glob_matches
from geo.reasons import Reason, Wrong
from geo.replication.carried import replicates, topics_of_source
from geo.replication.lag import Lag, due_of, lag_of
from geo.replication.link_requests import Requests
from geo.replication.link_start import LinkStanding, begins_at, look_at_target, standing
from geo.replication.link_state import LinkState
from geo.replication.link_table import read_links
from geo.replication.request_table import read_requests
from geo.replication.rule import Rule
from geo.streams.life import State
from geo.times import in_us

REMOTE_COMMITS = 200
"""Commits that a target lacks and that are read at most where each is a request: the oldest, which tell since when it lacks something. The lag of
more is a lower bound.
"""


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One topic of one link.

    `at`: the version of the source up to which the target holds everything. None where that is not known, because the link has never run, its next
    start compares both logs, or its source cannot be read. `newest`: the source's newest version, `lag`: how far the link is behind it; None where
    the source cannot be read. It is a lower bound where a comparison may find more. That is of a link that is `stale`, `rewound` or `unbegun`, or
    whose target, or the log there, is gone.
    """

    link: Link
    topic: Topic
    state: State
    reason: str | None
    at: int | None
    newest: int | None
    lag: Lag | None
    came_us: int | None = None
    """The time when `newest` came, by the clock of the source's storage, in microseconds since 1970. It is known where a look at the log tells it
    with that. None: it does not."""
    expired: int | None = None
    """Messages that the link left out since they had expired; None: it has never run."""
    impossible: int | None = None
    """Rows that it left out since no producer can have written them; None: it has not counted them."""
    not_accepted: int | None = 0
    """Those of these rows that nobody has accepted; None: as before."""
    lacks: str | None = None
    """Something that should be in the source, or in the target, and is not, with its remedy."""
    row: LinkState | None = None
    """Row that its runner recorded last; None: nobody has run it."""
    since_us: int | None = None
    """Since when it is in its state, by the clock of who recorded that, or asked for it; None: nobody knows."""
    code: Reason | None = None
    """The reason why it is, as `reason`; None: nobody says."""
    is_wanted: bool = True
    """Nobody asked it to rest."""
    away: Wrong | None = None
    """The reason why its source cannot be read, or what should be there is not; None: all is there."""
    rewound: Reason | None = None
    """The reason why the source is not the one that was read last, as far as its end tells; None: it is."""
    stale: str | None = None
    """Reason why its next start compares both logs, of one that had a place."""
    unbegun: bool = False
    """It has never run, and will begin at the end of what there is: nothing is lacking, and what comes until then will not cross."""

    @property
    def in_sync(self) -> bool:
        """Tells whether the target lacks, for sure, nothing that is older than REPLICA_LAG_MAX_S. A FAILED link is not in sync."""
        is_up_to_date = self.at is not None and self.lag is not None and self.lag.in_sync
        return is_up_to_date and self.state is not State.FAILED and self.not_accepted == 0


def link_statuses(
    target: ClusterTables,
    sources: Mapping[str, ClusterTables],
    config: Config,
    glob: str,
    only: Collection[tuple[str, Topic]] | None = None,
) -> Iterator[LinkStatus]:
    """Every topic that the links into a cluster carry, and that matches. Of a source that cannot be read those that were recorded, and those of
    `only`. `only`: of these, sources and topics. Raises what is in the way of reading the target."""
    rows, requests, known = read_links(target), read_requests(target), known_topics(target)
    gone = {one.topic for one in known if one.is_deleted}
    lacks = None if rows or known else nothing_in_target(target.cluster.name, target.place)
    for link in config.inbound(target.cluster.name):
        source, replicated = sources[link.source], [Topic.parse(topic) for name, topic in rows if name == link.source]
        asked = [] if only is None else [topic for name, topic in only if name == link.source]
        with Tried(OtherClusterError) as tried:
            source.refuse_no_folder()
            registered = topics_of_source(source, replicated)
            if (replicated or asked) and not registered:
                raise gone_error(source, [link.target])
            # Those too of which nobody knows whether the link may carry them: what is in the way is said.
            carried = [one for one in registered if replicates(config, link, one) and one.topic not in gone]
        away = None
        if tried.fault is not None:
            carried = [Registered.unknown(topic, None) for topic in dict.fromkeys((*replicated, *asked))]
            away = wrong_of(tried.fault)
        matching = [
            one for one in carried if topic_glob_matches(glob, one.topic) and (only is None or (link.source, one.topic) in only)
        ]
        for found in read_each(
            source.port or target.port, matching, partial(_status, link, rows, requests, target, source, away, lacks)
        ):
            assert found is not None, "what is not there is told"
            yield found


def _status(
    link: Link,
    rows: Mapping[tuple[str, str], LinkState],
    requests: Requests,
    target: ClusterTables,
    source: ClusterTables,
    away: Wrong | None,
    target_lacks: Wrong | None,
    registered: Registered,
) -> LinkStatus:
    topic = registered.topic
    row = rows.get((link.source, str(topic)))
    state, reason = told_state(row, requests, link.source, topic)
    so_far = LinkStatus(link, topic, state, reason, None, None, None, row=row)
    so_far = replace(so_far, is_wanted=not requests.is_paused(link.source, topic))
    if row is not None:
        so_far = replace(so_far, expired=row.expired, impossible=row.impossible, not_accepted=row.not_accepted)
    if row is not None and row.state is state:
        so_far = replace(so_far, since_us=in_us(row.state_since), code=row.reason_code)
    elif state is State.PAUSED:
        so_far = replace(so_far, since_us=requests.paused_us(link.source, topic), code=Reason.ASKED_TO_PAUSE)
    if away is None:
        lacking: list[Wrong] = []
        with Tried() as tried:
            log = source.log(topic)
            seen, came = _looked(log)
            now_us = storage_now_us(target, writes=False)
            of_target = None if is_new(in_us(registered.created_at), now_us) else target_lacks
            lacking += (one for one in (absent(source, registered, seen), of_target) if one is not None)
            lacks = "; ".join(map(str, lacking)) or None
            stands, at_end = stands_at(row, link, target.log(topic)), begins_at(row, link, topic) == "latest"
            if (
                seen is not None
                and stands.cursor is not None
                and parted(stands.cursor, seen.table_id, seen.version, None) is not None
            ):
                seen, came = _looked(log, again=True)  # it was looked at first: the link may have gone on since
            if seen is None:
                raise RetryableError(f"{log}: there is no table now.", code=Reason.SOURCE_GONE)
            place = _behind(log, seen, stands, link, now_us, begins_at_end=at_end)
            told = "; ".join(filter(None, (reason or place.why, lacks))) or None
            if row is not None and row.cursor is not None and row.target is not None and stands.cursor is None:
                of_target = of_target or log_gone_in_target(str(topic), link.source, link.target)
            stale, unbegun = place.why if stands.cursor is not None else None, row is None and at_end and seen.version > 0
            is_known = of_target is None and place.rewound is None and stale is None and not unbegun
            return replace(
                so_far, reason=told, at=place.at, newest=seen.version, came_us=None if came is None else in_us(came),
                lag=place.lag if is_known else place.lag.at_least, lacks=lacks, away=next(iter(lacking), of_target),
                rewound=place.rewound, stale=stale, unbegun=unbegun,
            )  # fmt: skip
        assert tried.fault is not None
        away = lacking[0] if lacking else wrong_of(tried.fault)
    told = f"{link.source} cannot be read: {away}"
    return replace(so_far, reason=told if reason is None else f"{reason}; {told}", away=away)


def _looked(log: Table, *, again: bool = False) -> tuple[TableSnapshot | None, datetime | None]:
    """A source, and when its newest commit came where the list of its look has just told that. `again` as `Table.snapshot`."""
    seen = log.snapshot(again=again)
    return seen, committed_at(log, seen.version) if seen is not None and is_asked_by_name(log) else None


def told_state(row: LinkState | None, requests: Requests, source: str, topic: Topic) -> tuple[State, str | None]:
    """State and reason of a link's topic as people are told: those that its runner recorded, and whether it was asked to
    pause."""
    state, reason = (State.STOPPED, "it has never run") if row is None else (row.state, row.reason)
    if not requests.is_paused(source, topic):
        return state, reason
    if state in (State.PAUSED, State.STOPPED):
        return State.PAUSED, "it was asked to pause"
    asked = "it was asked to pause, and nobody has followed that yet"
    return state, asked if reason is None else f"{reason}; {asked}"


def stands_at(row: LinkState | None, link: Link, log: Table, upto: int | None = None) -> LinkStanding:
    """Tells where a link stands, by its newest row and the commits of its target's log since, up to a version. As its next start finds it."""
    if row is None or row.target is None or (seen := log.snapshot()) is None:
        return standing(row, None, link.name, link.origins)
    newest = seen.version if upto is None else upto
    commits = log.commits(row.target.version, newest, only=(LINK_KEY,))
    looked = look_at_target(link.name, row.target, seen.table_id, newest, commits)
    return standing(row, looked, link.name, link.origins)


@dataclass(frozen=True, slots=True)
class _Place:
    """Place of the link: the version up to which the target holds everything, and the lag. Why that version is not known, and why the source is not
    the one of before.
    """

    at: int | None
    lag: Lag
    why: str | None
    rewound: Reason | None


def _behind(log: Table, seen: TableSnapshot, stands: LinkStanding, link: Link, now_us: int, *, begins_at_end: bool) -> _Place:
    """Place and lag behind a source that was `seen`."""
    cursor, why = stands.cursor, stands.why
    rewound = Reason.STALE_CURSOR if stands.is_other else None
    if cursor is not None and cursor.table_id != seen.table_id:
        cursor, why, rewound = None, "the source is another table now", Reason.SOURCE_RECREATED
    newest, at = seen.version, -1 if cursor is None else cursor.version
    rule, commits = Rule.of(link), log.commits(max(0, at), newest)
    first = None if cursor is None else next(commits, None)
    there = first if first is not None and first.version == at else None
    other = None if cursor is None or there is None else parted(cursor, seen.table_id, newest, there)
    if other is not None:
        why, rewound = why or f"the source {other.how}", Reason.SOURCE_RESTORED
    lacking = islice(
        chain([] if first is None or there is not None else [first], commits), None if log.is_near else REMOTE_COMMITS
    )
    lag = lag_of(at, newest, (due_of(one, rule) for one in lacking), now_us)
    if begins_at_end:  # nothing of what is there now is due
        lag = Lag(lag.versions)
    if cursor is not None and cursor.version > newest:
        why = why or f"the source ends at version {newest}, before the one that was read last"
        rewound = Reason.SOURCE_RESTORED
    if why is not None or cursor is None:
        return _Place(None, lag, why and f"its next start compares both logs: {why}", rewound)
    return _Place(cursor.version, lag, None, None)


HighWatermarks = Mapping[tuple[str, Topic], int | None]
"""The version of a source that its targets hold, None if that is not known; by source and topic."""


def high_watermarks(statuses: Iterable[LinkStatus], away: Collection[Link] = (), *, in_sync: bool) -> HighWatermarks:
    """The version of the source that every target holds, by source and topic. None: it is not known of one, among them those of links whose target
    is `away`. With `in_sync` only the targets count that are, as Kafka's high watermark is that of the in-sync replicas. Where none is, the source
    stands alone: its newest.
    """
    found: dict[tuple[str, Topic], int | None] = {}
    for one in statuses:
        key = one.link.source, one.topic
        at = one.newest if in_sync and not one.in_sync else one.at
        unknown = any(link.source == one.link.source and link.carries(one.topic) for link in away) and not in_sync
        before = found.get(key, at)
        found[key] = None if unknown or at is None or before is None else min(before, at)
    return found
