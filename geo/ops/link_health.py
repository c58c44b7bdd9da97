"""Health of the topics of the links into a cluster: reads what `health` judges them by.

Of what is in sync nothing is read beside what `link_statuses` has. Of what is not the owner is read, and how its cursor and its
lag have moved. It looks only, and needs no Spark where tables are native.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from geo.config.model import Config, Link
from geo.coordination.claims import Liveness, Owner
from geo.coordination.holder import Holder
from geo.coordination.holders import RegionHolders
from geo.coordination.runners import origin_runners
from geo.coordination.storage_clock import storage_now_us
from geo.delta.scan import few_added
from geo.delta.store import read_each
from geo.delta.table import Table
from geo.faults import Tried
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import Event, EventKind
from geo.journal.rows import from_row
from geo.log.ledgers import LINK_KEY
from geo.names import Topic
from geo.ops.away import not_before, there_last
from geo.ops.health import APART_US, SAMPLES, Finding, Health, LinkBefore, LinkNow, judge, judge_now, longest_rest_us
from geo.ops.lag_history import LagHistory, Read, Recorded, runs_of
from geo.ops.noted import events_told, noted_since
from geo.ops.problems import Noted, dated
from geo.reasons import Reason
from geo.replication.link_state import LinkRecord, LinkState
from geo.replication.link_status import LinkStatus, link_statuses
from geo.replication.rule import Rule
from geo.schemas import LINKS
from geo.streams.life import State
from geo.times import in_us

MOST, MOST_FAR = 5_000, 50
"""So many commits of each log are read at most: a tenth of a second, and where each may be a request some."""

_ROWS_BACK = 64
"""So many of the newest commits of `system/links` are read for rows that were cleaned up since: an hour, where something moves. A clean leaves the
newest of each topic."""

_STARTS, _STARTS_LATELY_US = 2, 2 * SAMPLES * APART_US
"""So many starts within twenty minutes are those of a person, or of a broker that moved."""

_TELL_BEFORE = (Health.PAUSED, Health.FAILED, Health.REWOUND)
"""Healths that are clear now, and whose lag of before is asked for all the same."""

_RESTS = (Reason.ASKED_TO_PAUSE, Reason.PLACED_ELSEWHERE)


def link_findings(
    target: ClusterTables,
    sources: Mapping[str, ClusterTables],
    config: Config,
    glob: str,
    only: Collection[tuple[str, Topic]] | None = None,
    before: LinksBefore | None = None,
) -> Iterator[tuple[LinkStatus, Finding, LagHistory | None]]:
    """Judges each of `link_statuses`, and gives the history that tells it; None where nothing had to be looked at. Since when
    is told by events of the target where nothing else tells. Raises as that. `before`: what the target tells, for who asks it
    for more.
    """
    before = before or LinksBefore(target)
    links = {(link.source, link.target): link for link in config.inbound(target.cluster.name)}

    def judged(status: LinkStatus) -> tuple[LinkStatus, Finding, LagHistory | None]:
        now = _now(status)
        link, source = links[status.link.source, status.link.target], sources[status.link.source]
        if (found := judge_now(now)) is not None and found.health not in _TELL_BEFORE:
            found = dated(found, lambda: before.noted)
            if found.health is Health.AWAY and found.since_us is None and status.lag is None:
                found = not_before(found, link.source, before.there_us(link, status))
            return status, found, None
        now_us = storage_now_us(target, writes=False)
        history = before.history(link, source, status.topic, now_us - SAMPLES * APART_US)
        found = found or judge(now, before.of(link, status.topic, history, now_us), now_us)
        return status, dated(found, lambda: before.noted), history

    statuses = list(link_statuses(target, sources, config, glob, only))
    for status, found in zip(statuses, read_each(target.port, statuses, judged), strict=True):
        yield judged(status) if found is None else found  # a file went while it was read: once more, and then that is said


def _now(status: LinkStatus) -> LinkNow:
    link, state = status.link, status.state
    if state is State.PAUSED and status.is_wanted and status.code in _RESTS:
        state = State.STOPPED  # who runs it does not know yet that it may go on, or nobody does
    return LinkNow(
        link.source, link.target, str(status.topic), state, status.reason, status.code, status.since_us,
        status.lag, status.away, status.rewound, status.stale, status.unbegun, status.not_accepted,
        None if status.row is None or status.row.impossible_since is None else in_us(status.row.impossible_since),
    )  # fmt: skip


class LinksBefore:
    """History of a cluster's inbound links, as its tables tell it. What is of all of them is read once, when it is first
    needed.
    """

    def __init__(self, target: ClusterTables) -> None:
        self._target, self.holders = target, RegionHolders(target)

    def history(self, link: Link, source: ClusterTables, topic: Topic, since_us: int) -> LagHistory | None:
        """The lag of a topic of a link from about that time on, as far as a few thousand commits tell. Of a storage where each may be a request
        some. None: one of both logs is not there, or nobody has recorded anything."""
        rows: Sequence[Recorded] = self._rows.get((link.source, str(topic)), ())
        source_log, target_log = source.log(topic), self._target.log(topic)
        if not rows or (seen := source_log.snapshot()) is None or (there := target_log.snapshot()) is None:
            return None
        most = MOST if source_log.is_near and target_log.is_near else MOST_FAR
        rows = _from(rows, since_us, seen.version - most, there.version - most)
        of_source = min(
            0 if (cursor := one.state.cursor) is None else cursor.version for one in rows
        )  # a reset has none meanwhile
        of_target = min(0 if (at := one.state.target) is None else at.version for one in rows)
        return LagHistory(
            link.name,
            Rule.of(link),
            _read(source_log, seen.table_id, max(of_source, seen.version - most), seen.version),
            _read(target_log, there.table_id, max(of_target, there.version - most), there.version),
            rows,
            starts_at_end=link.start == "latest" and not topic.is_system,
        )

    def of(self, link: Link, topic: Topic, history: LagHistory | None, now_us: int) -> LinkBefore:
        """History by which a link's topic is judged, besides what it is now."""
        owner = self.owner(link, topic)
        rests_us = None if link.expect_every_s is None else link.expect_every_s * 1_000_000
        if rests_us is None and owner is not None and owner.liveness is Liveness.ENDED:
            rests_us = self._longest_rest_us(link, topic, owner.last_us or now_us)
        by_broker = owner is not None and any(one.holder == owner.claim.holder for one in self._brokers)
        begun_us = self._begun_us(link, topic, now_us)
        runs = LinkBefore(owner=owner, by_broker=by_broker, broker=self._broker, rests_us=rests_us, begun_us=begun_us)
        if history is None:
            return runs
        return replace(
            runs,
            samples=history.samples(now_us, SAMPLES, APART_US),
            moved_us=history.moved_at(now_us),
            behind_us=history.behind_since(now_us),
            compared_us=history.compared_us,
            stands_us=history.stands_since(now_us),
        )

    def there_us(self, link: Link, status: LinkStatus) -> int | None:
        """Time when a source that is not there now was there last. It goes by the events of the target, and where that is near by the newest commit
        that the link replicated. None: nothing tells.
        """
        found, row = [there_last(self._events, link.source)], status.row
        with Tried():
            log = self._target.log(status.topic)
            if log.is_near and row is not None and row.target is not None and (seen := log.snapshot()) is not None:
                for commit in log.commits(row.target.version, seen.version, only=(LINK_KEY,)):
                    record = LinkRecord.decode(commit.user_metadata)
                    if record is not None and record.link == link.name:
                        found.append(commit.committed_us or None)
        return max((one for one in found if one is not None), default=None)

    @cached_property
    def noted(self) -> Noted:
        """Since when each link is as it is, by events of the target."""
        return noted_since(self._events)

    @cached_property
    def _events(self) -> list[Event]:
        """Events of links, as long as they are kept."""
        return events_told(self._target, EventKind.HEALTH, EventKind.LINK)

    @cached_property
    def _rows(self) -> dict[tuple[str, str], list[Recorded]]:
        """The rows of `system/links` that are there, those too that others have replaced: none between two of a topic's is gone."""
        journal = self._target.journal(LINKS)
        found = journal.there()
        if found and journal.table.is_near:
            newest = journal.table.latest_version()
            added = few_added(journal.table, max(0, newest - _ROWS_BACK), newest)
            found += [] if added is None else added.to_pylist()
        rows: dict[tuple[str, str], dict[tuple[int, int], Recorded]] = {}
        for one in found:
            state = from_row(LinkState, {**dict.fromkeys(LINKS.names), **one})
            recorded = Recorded(in_us(one["updated_at"]), state)
            rows.setdefault((state.source, state.topic), {})[state.generation, state.sequence] = recorded
        return {key: [of[order] for order in sorted(of)] for key, of in rows.items()}

    def _begun_us(self, link: Link, topic: Topic, now_us: int) -> int | None:
        """Tells when who runs it claimed it. None: it was claimed several times lately, and who dies again and again is excused by no start."""
        runner = origin_runners(frozenset(link.origins), topic, self._target.cluster.name)[0].name
        claims = [in_us(one.since) for one in self.holders.claims if one.runner == runner and one.is_owned]
        lately = [at_us for at_us in claims if now_us - at_us <= _STARTS_LATELY_US]
        return claims[-1] if claims and len(lately) <= _STARTS else None

    def owner(self, link: Link, topic: Topic) -> Holder | None:
        """Process that replicates some of a link's origins, or did last; None: nobody ever did."""
        runners = origin_runners(frozenset(link.origins), topic, self._target.cluster.name)
        owners = [one for runner in runners if (one := self.holders.newest.get(runner.name)) is not None]
        if not owners:
            return None
        return self.holders.of(max(owners, key=lambda one: (one.generation, one.sequence)))

    @cached_property
    def _brokers(self) -> list[Owner]:
        """The newest first."""
        of = f" of {self._target.cluster.name}"
        found = [one for name, one in self.holders.newest.items() if name.startswith("broker ") and name.endswith(of)]
        return sorted(found, key=lambda one: one.since, reverse=True)

    @cached_property
    def _broker(self) -> Holder | None:
        """The broker of the cluster, one that lives if there are several; None: it never had one."""
        found = [self.holders.of(one) for one in self._brokers]
        return min(found, key=lambda one: (one.is_dead, one.liveness is Liveness.HALTED), default=None)

    def _longest_rest_us(self, link: Link, topic: Topic, ended_us: int) -> int | None:
        """Longest rest of a link whose last run ended then, as far as its rows and the commits of its target tell."""
        log = self._target.log(topic)
        if (seen := log.snapshot()) is None:
            return None
        first = max(0, seen.version - MOST) if log.is_near else seen.version
        read = _read(log, seen.table_id, first, seen.version)
        return longest_rest_us(runs_of(link.name, read, self._rows.get((link.source, str(topic)), ())), ended_us)


def _from(rows: Sequence[Recorded], since_us: int, least_source: int, least_target: int) -> Sequence[Recorded]:
    """The rows from the last one at or before a time on. They begin later where more versions would have to be read than may
    be.
    """
    first = max((at for at, one in enumerate(rows) if one.at_us <= since_us), default=0)
    for at in range(first, len(rows) - 1):
        cursor, target = rows[at].state.cursor, rows[at].state.target
        if cursor is not None and target is not None and cursor.version >= least_source and target.version >= least_target:
            return rows[at:]
    return rows[first:] if first == len(rows) - 1 or rows[-1].state.cursor is None else rows[-1:]


def _read(log: Table, table_id: str, first: int, newest: int) -> Read:
    return Read(table_id, list(log.commits(first, newest)))
