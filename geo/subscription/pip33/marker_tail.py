"""The one tail of a cluster that tells the controllers of its topics what happens: it copies the marker rows that concern them out of the
logs, says when somebody has finished a version, and lets time pass.

All of a round is one commit of `system/markers`, and what of each log was looked at stands in it; so a tail that is killed goes on
exactly there. A log of which commits are gone, or that is another table, is followed from its newest version on, and its snapshots are
void.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from itertools import permutations

import pyarrow as pa
from pyspark.sql import functions as F

from geo.config.model import Config
from geo.coordination.owners import named_owners
from geo.coordination.ownership import Ownership
from geo.coordination.runners import RunnerKind
from geo.crash import CrashPoint, reach
from geo.delta.commits import Commit, Kind
from geo.delta.history import CommitName, parted
from geo.delta.scan import added_where
from geo.delta.table import Table
from geo.delta.tail import Tail, Turn
from geo.errors import RetryableError
from geo.faults import FAULTS
from geo.ids import Position
from geo.journal.cached_view import CachedView
from geo.journal.cluster import ClusterTables
from geo.log.ledgers import LINK_KEY
from geo.names import Topic
from geo.now import now_us
from geo.replication.link_state import LinkRecord
from geo.schemas import OWNERS
from geo.streams import timetable
from geo.streams.life import State
from geo.subscription.pip33.answers import Answers
from geo.subscription.pip33.asked import Ways, ways_of
from geo.subscription.pip33.controller import concerns, is_only_noted
from geo.subscription.pip33.controller_rows import (
    Again,
    FinishedUpTo,
    MarkerRow,
    Notes,
    Row,
    Subscribed,
    Tick,
    Unsubscribed,
    Void,
)
from geo.subscription.pip33.marker_journal import Heard, LookedUpTo, MarkerJournal
from geo.subscription.pip33.markers import MAX_BYTES
from geo.subscription.pip33.peers import PEER_ANSWER_S, Peer, Registries, Said
from geo.subscription.pip33.reordering import OUT_OF_ORDER, out_of_order, replicated_out_of_order
from geo.subscription.versions.version_subscriptions import VersionSubscription, said_by, unused_subscriptions
from geo.text import first_line
from geo.times import in_us

log = logging.getLogger(__name__)

TURNS = 4
"""Turns of a topic in a round, of `tail.TURN_COMMITS` commits each: a busy one does not hold up the others."""

LINKS_LOOK = 1_000
"""So many commits are looked at for the links' cursors when a log begins to be followed."""

_ID = ("origin", "ledger_id", "entry_id")
_READ = (*_ID, "marker", "payload")


@dataclass(slots=True)
class _Followed:
    """A topic whose log is followed."""

    topic: Topic
    log: Table
    tail: Tail
    answers: Answers
    moved: int
    """The newest version that added a message, as far as is known."""
    told: Tick | None = None
    """The newest tick."""
    is_changed: bool = False
    """Something else than messages and markers was told since."""
    held: list[Row] = field(default_factory=list)
    """Rows that wait for others, not yet told."""
    waits_since: float | None = None
    """When the first answer among them came, by a clock that only goes on."""
    told_moved_at: float = 0.0
    """When one told of messages that the one before did not know of."""
    asked_how_far_at: float = -math.inf
    """When its consumers were asked last, by a clock that only goes on."""
    last_seq: int = 0
    """The number of the newest row."""
    subscriptions: dict[str, VersionSubscription] = field(default_factory=dict)
    """Subscriptions as they were told last."""
    unused: set[str] = field(default_factory=set)
    """Those deleted before, or of this region only, of which it is not known whether that was told."""
    finished: dict[str, int] = field(default_factory=dict)
    fillings: dict[str, bool] = field(default_factory=dict)
    """Fillings, which add rows behind others, as they were told last: whether each has begun and not ended."""
    cursors: dict[str, CommitName] = field(default_factory=dict)
    """Commit of its source up to which each link has replicated everything."""
    may_come: frozenset[str] = frozenset()
    """Clusters whose messages links could replicate into this one, whatever policies say."""
    brought: dict[str, float] = field(default_factory=dict)
    """Time, by origin, when the newest commit of a link that replicates it was seen, by a clock that only goes on."""
    ways: tuple[Mapping[str, Sequence[str] | None], Ways] | None = None
    """Where its messages go, and the clusters' policies by which that was derived."""

    @property
    def read_to(self) -> int:
        return self.tail.at.version

    @property
    def at(self) -> LookedUpTo:
        return LookedUpTo(self.tail.at, self.moved)


class MarkerTail:
    """Copies markers round by round; owned by whoever runs it. A new one tells each topic's controller again what it must know.

    `notes`: the controller of a topic of which an update was lost is told so. Then another snapshot is taken though nothing comes, and the entry
    goes.
    """

    def __init__(
        self, tables: ClusterTables, peers: Mapping[str, Peer], config: Config, ownership: Ownership, notes: Notes
    ) -> None:
        self._tables, self._peers, self._config, self._notes = tables, peers, config, notes
        self._journal = MarkerJournal(tables, ownership)
        wait([peer.asked for peer in peers.values()], PEER_ANSWER_S)
        self._registries, self._said = Registries(tables), Said()
        self._fillings = CachedView(tables.journal(OWNERS), lambda: _fillings(tables))
        self._fillings_now: Mapping[Topic, Mapping[str, bool]] | None = None
        """Answers of this round."""
        self._looked_at = -math.inf
        self._wanted_now: Mapping[Topic, Mapping[str, VersionSubscription]] = {}
        self._followed: dict[Topic, _Followed] = {}
        self._not_followed: dict[Topic, str] = {}
        self._unread: dict[str, str] = {}
        """Why checkpoints cannot be read, as it was said."""

    def round(self) -> bool:
        """Look at topics whose logs have news, and at all where that is due. Whether there was anything to tell."""
        heard, again = list[Heard](), dict[str, int]()
        now, self._fillings_now = time.monotonic(), None
        if is_due := now - self._looked_at >= min(timetable.MARKERS_LOOK_S, self._config.snapshots.frequency_s / 4):
            self._looked_at, self._wanted_now = now, self._wanted()
        wanted = self._wanted_now
        for topic, subscriptions in wanted.items():
            if not is_due and not self._has_news(topic):
                continue
            try:
                one = self._followed.get(topic) or self._begun(topic)
                lost_update = self._notes.lost_updates.get(str(topic))
                rows = self._news(one, subscriptions, again=lost_update is not None)
                if lost_update is not None:
                    again[str(topic)] = lost_update
                heard += [Heard(str(topic), row, one.at) for row in rows]
                one.last_seq = rows[-1].seq if rows else one.last_seq
            except FAULTS as error:
                self._followed.pop(topic, None)  # the next round begins it anew
                if (why := first_line(error)) != self._not_followed.get(topic):
                    self._not_followed[topic] = why
                    log.warning("%s in %s: its markers are not followed now: %s", topic, self._tables.cluster.name, why)
                continue
            self._not_followed.pop(topic, None)
        for topic in self._followed.keys() - wanted.keys() if is_due else ():
            heard += self._left(self._followed.pop(topic))
        if heard:
            reach(CrashPoint.MARKERS_READ)
            self._journal.append(heard)
            for name, seq in again.items():
                if self._notes.lost_updates.get(name) == seq:  # else another one was lost meanwhile
                    del self._notes.lost_updates[name]
            reach(CrashPoint.MARKERS_COPIED)
            self._journal.trim_if_due()
        return bool(heard)

    def _has_news(self, topic: Topic) -> bool:
        """Tells whether a log on a local disk has a commit that was not looked at."""
        one = self._followed.get(topic)
        return one is not None and one.log.is_near and one.log.has_commit(one.read_to + 1)

    # -- which topics ------------------------------------------------------------------------------------------------

    def _wanted(self) -> dict[Topic, dict[str, VersionSubscription]]:
        """Topics with a version subscription that is replicated here or elsewhere, and those here."""
        for peer in self._peers.values():
            peer.look()
        self._said = self._registries.now()
        found: dict[Topic, dict[str, VersionSubscription]] = {}
        for one in self._said.subscriptions:
            found.setdefault(one.topic, {})[one.subscription] = one
        for peer in self._peers.values():
            for there in peer.said.subscriptions:
                found.setdefault(there.topic, {})
        return found

    def _begun(self, topic: Topic) -> _Followed:
        """From where the last tail came to; whether that is there still is found out as ever. Raises RetryableError if there is no log
        here."""
        table = self._tables.log(topic)
        tail = Tail.at_newest(table)
        newest = tail.at.version
        # Where nothing is known of it the newest version counts: one snapshot is taken that may not be needed.
        at = self._journal.looked_at.get(str(topic)) or LookedUpTo(tail.at, newest)
        one = self._followed[topic] = _Followed(
            topic, table, Tail(table, at.commit), Answers(self._tables.cluster.name), at.moved
        )
        one.unused = set(unused_subscriptions(self._tables, topic))
        here, everywhere = self._tables.cluster.name, dict.fromkeys(self._config.clusters, tuple(self._config.clusters))
        ways = {name: self._config.hubs(name, here, topic, everywhere) for name in self._peers}
        one.may_come = frozenset(name for name, way in ways.items() if way is not None)
        begin = min(at.commit.version, newest)
        for commit in table.commits(max(0, begin - LINKS_LOOK), begin, only=(LINK_KEY,)):
            record = LinkRecord.decode(commit.user_metadata)
            if record is not None:
                one.brought |= dict.fromkeys(one.may_come.intersection(record.origins), time.monotonic())
                if not record.reconciling:
                    one.cursors[record.link] = record.cursor
        return one

    def _left(self, one: _Followed) -> Iterator[Heard]:
        for row in [*one.held, *(Unsubscribed(0, name) for name in one.subscriptions)]:
            yield Heard(str(one.topic), replace(row, seq=self._journal.next_seq()), one.at)

    # -- what its controller hears -----------------------------------------------------------------------------------

    def _news(self, one: _Followed, subscriptions: Mapping[str, VersionSubscription], *, again: bool) -> list[Row]:
        """`again`: one of its updates was lost."""
        lost, rows = list[Row](), list[Row]()
        try:
            rows += self._of_log(one)
        except RetryableError as error:
            lost = self._lost(one, error)
        # Where the log shows one, after the log: whoever has brought a row owned that before, so nothing is begun between two of its rows.
        if self._fillings_now is None or any(isinstance(row, Void) for row in rows):
            self._fillings_now = self._fillings.now()
        told = [*([Again(0)] if again else []), *lost, *self._of_fillings(one, self._fillings_now.get(one.topic, {}))]
        # By the ways that a tick tells an answer goes: it comes before what was copied.
        if (tick := self._tick(one, used=bool(subscriptions))) is not None:
            if one.told is None or tick.moved != one.told.moved:
                one.told_moved_at = tick.now
            one.told, one.is_changed = tick, False
            told.append(tick)
        told += rows
        has_waited = one.waits_since is not None and time.monotonic() - one.waits_since >= timetable.MARKERS_ANSWER_S
        waits = [self._waits(one, row) for row in told]  # of each, which notes who has answered
        is_due = has_waited or not all(waits)
        others = list(self._of_subscriptions(one, subscriptions, with_others=is_due))
        told += others
        one.is_changed |= any(isinstance(row, (Void, Again, Subscribed, Unsubscribed)) for row in told)
        one.held += told
        if not is_due and not others:
            return []  # they come with the next rows; a tail that comes after this one reads them again
        told, one.held, one.waits_since = one.held, [], None
        return [replace(row, seq=self._journal.next_seq()) for row in told]

    def _waits(self, one: _Followed, row: Row) -> bool:
        """Tells whether a row may come with later ones, as each time is a batch: neither a request nor a snapshot follows from it yet. An answer does
        so while that of another cluster lacks, but not for long.
        """
        if not isinstance(row, MarkerRow):
            return False
        if is_only_noted(row.kind, row.sender, self._tables.cluster.name):
            return True
        asked = self._ways_of(one).asked.clusters
        given = one.answers.note(row, asked)
        if not given or given >= set(asked):
            return False
        one.waits_since = one.waits_since or time.monotonic()
        return True

    def _of_fillings(self, one: _Followed, now: Mapping[str, bool]) -> Iterator[Row]:
        """Rows for fillings that have begun, or ended. A new tail does not know what of it was told, and tells all."""
        for what, begins in now.items():
            if one.fillings.get(what) != begins:
                one.fillings[what] = begins
                yield Void(0, what, begins)

    def _of_log(self, one: _Followed) -> Iterator[Row]:
        """Marker rows of new commits, and voids, in the order of the log. Takes them from its tail. Raises RetryableError, before the first
        row, where its place is lost."""
        for nth in range(TURNS):
            try:
                turn = one.tail.next()
            except RetryableError:
                if nth:
                    return  # said in the next round
                raise
            if turn is None:
                return
            for commit in turn.commits:
                yield from self._of_commit(one, commit, turn.last.version)
            one.tail.take(turn)

    def _lost(self, one: _Followed, error: RetryableError) -> list[Row]:
        """Go on at the newest version, with all snapshots void; and with all that is known of versions, where they are those of another
        history."""
        before, one.tail = one.tail.at, Tail.at_newest(one.log)
        at, one.moved = one.tail.at, one.read_to
        log.warning("%s in %s: its snapshots are void: %s", one.topic, self._tables.cluster.name, error)
        is_other = parted(before, at.table_id, at.version, one.log.commit_at(before.version)) is not None
        if is_other:
            one.finished.clear()
        return _void(str(error), at.table_id if is_other else None)

    def _of_commit(self, one: _Followed, commit: Commit, read_to: int) -> Iterator[Row]:
        if commit.kind is not Kind.APPEND:
            return
        record = LinkRecord.decode(commit.user_metadata)
        if record is not None:
            self._note_brought(one, commit, record)
        if (what := out_of_order(commit) or (None if record is None else self._brought(one, record))) is not None:
            yield from _void(what)
        markers, others = self._markers(one, commit)
        if others:
            one.moved = commit.version
        for index, row in enumerate(markers.sort_by([(name, "ascending") for name in _ID]).to_pylist()):
            if not concerns(row["marker"], row["origin"], self._tables.cluster.name):
                continue
            # Longer ones are refused as they are.
            payload = None if row["payload"] is None else bytes(row["payload"])[: MAX_BYTES + 1]
            position = Position(commit.version, index)
            yield MarkerRow(0, row["marker"], payload, row["origin"], position, read_to, one.tail.at.table_id, one.moved)

    def _note_brought(self, one: _Followed, commit: Commit, record: LinkRecord) -> None:
        """Whose messages came, of whom neither the policies say so nor was it seen."""
        unknown = one.may_come.intersection(record.origins) - {*self._ways_of(one).back, *one.brought}
        if not unknown:
            return
        found = added_where(one.log, commit.version, "origin", ("origin",))
        rows = one.tail.rows(Turn([commit])).select("origin").distinct().toArrow() if found is None else found[0]
        one.brought |= dict.fromkeys(unknown.intersection(rows["origin"].to_pylist()), time.monotonic())

    def _brought(self, one: _Followed, record: LinkRecord) -> str | None:
        """Names whose commit a link has replicated with one of this record that was out of order in its source: it is so here too."""
        before = one.cursors.get(record.link)
        one.cursors[record.link] = record.cursor
        source = self._peers.get(record.link.partition("->")[0])
        if before is None or source is None or before.table_id != record.cursor.table_id:
            return f"{record.link}: what it had brought before is not known"
        try:
            passed = source.commits(one.topic, before.version, max(before.version, record.cursor.version), OUT_OF_ORDER)
        except FAULTS as error:
            return f"{record.link}: what it brought cannot be looked at: {first_line(error)}"
        return replicated_out_of_order(record, before, passed)

    def _markers(self, one: _Followed, commit: Commit) -> tuple[pa.Table, bool]:
        """The marker rows that a commit added, and whether it added others."""
        found = added_where(one.log, commit.version, "marker", _READ)
        if found is not None:
            return found
        rows = one.tail.rows(Turn([commit]))
        markers = rows.where(F.col("marker").isNotNull()).select(*_READ).toArrow()
        return markers, commit.rows != len(markers) or not commit.rows  # it may not have counted them

    def _of_subscriptions(
        self, one: _Followed, subscriptions: Mapping[str, VersionSubscription], *, with_others: bool
    ) -> Iterator[Row]:
        """Rows for what people did, at once. The progress of consumers comes with other rows or once in `timetable.MARKERS_LOOK_S`: alone it is a
        batch of its own, and while those follow one another answers wait.
        """
        for name in one.subscriptions.keys() - subscriptions.keys() | one.unused:
            yield Unsubscribed(0, name)
            one.subscriptions.pop(name, None)
            one.finished.pop(name, None)
        one.unused = set()
        if is_due := with_others or time.monotonic() - one.asked_how_far_at >= timetable.MARKERS_LOOK_S:
            one.asked_how_far_at = time.monotonic()
        for name, now in subscriptions.items():
            before = one.subscriptions.get(name)
            if before is None or before.created_at != now.created_at:  # it may have been deleted in between
                yield Subscribed(0, name, table=now.table_id, created_us=in_us(now.created_at))
                one.finished.pop(name, None)
            one.subscriptions[name] = now
            if not is_due:
                continue
            finished = self._finished(now, one.finished.get(name)) if now.table_id == one.tail.at.table_id else None
            # One that is further than was looked at here is told once that is.
            if finished is not None and one.finished.get(name, -1) < finished <= one.read_to:
                one.finished[name] = finished
                yield FinishedUpTo(0, name, finished, now.table_id)

    def _finished(self, one: VersionSubscription, told: int | None) -> int | None:
        try:
            finished = said_by(self._tables, one)
            if finished is not None and told is not None and finished < told:
                raise RetryableError(f"it is back at version {finished}, and version {told} was told as finished, which stays")
            return finished
        except FAULTS as error:
            if (why := first_line(error)) != self._unread.get(str(one)):
                self._unread[str(one)] = why
                log.warning("%s of %s: how far it is cannot be read: %s", one.subscription, one.topic, why)
            return None

    # -- ticks -------------------------------------------------------------------------------------------------------

    def _tick(self, one: _Followed, *, used: bool) -> Tick | None:
        """The next one; None where its time has not come, or it would say what the last one did to a controller that has nothing to
        do. Where nobody here uses versions, others are answered: that needs the ways alone."""
        told, now, frequency_s = one.told, now_us() / 1e6, self._config.snapshots.frequency_s
        ways = self._ways_of(one)
        comes = self._comes(one, ways)
        is_same_way = told is not None and (told.asked, told.ways, told.comes) == (ways.asked.clusters, ways.there, comes)
        if told is not None and used and is_same_way:  # whom it must ask from now on it hears before any answer
            # Of messages it tells at once, unless it has just done so: a snapshot that can begin does not wait for the next tick.
            since = told.now if one.moved == told.moved else one.told_moved_at
            if 0 <= now - since < frequency_s:
                return None
        unable = self._unable(one.topic, ways) if used else {}
        if told is not None and is_same_way:
            same = (told.moved, told.unable) == (one.moved, unable)
            rests = self._notes.rests.get(str(one.topic), -1) >= one.last_seq
            if not used or (
                same and (rests or (not one.is_changed and 0 <= now - told.now < max(frequency_s, timetable.STILL_S)))
            ):
                return None
        return Tick(0, now, one.moved, ways.asked.clusters, unable, ways.there, one.read_to, one.tail.at.table_id, comes)

    def _comes(self, one: _Followed, ways: Ways) -> tuple[str, ...]:
        """The clusters whose messages come here: by the policies, and by what links have replicated since those were read of all clusters that could
        have them come. One of these that has never answered may be one.
        """
        could = [self._peers[name] for name in one.may_come]
        read_at = min([self._looked_at, *(peer.said_at for peer in could)])
        one.brought = {origin: at for origin, at in one.brought.items() if at >= read_at}
        unheard = {name for name in one.may_come if not self._peers[name].has_answered}
        return tuple(sorted({*ways.back, *one.brought, *unheard}))

    def _all_said(self) -> dict[str, Said]:
        """Answers of all clusters, this one too."""
        return {self._tables.cluster.name: self._said, **{name: peer.said for name, peer in self._peers.items()}}

    def _ways_of(self, one: _Followed) -> Ways:
        """Derived once, and again when a cluster's policy of the topic has changed."""
        policies = {name: said.policies.get(one.topic) for name, said in self._all_said().items()}
        local = {name: None if policy is None else policy.replication_clusters for name, policy in policies.items()}
        if one.ways is None or one.ways[0] != local:
            pairs = permutations(sorted(self._config.clusters), 2)
            hubs = {pair: way for pair in pairs if (way := self._config.hubs(*pair, one.topic, local)) is not None}
            one.ways = local, ways_of(self._tables.cluster.name, hubs)
        return one.ways[1]

    def _unable(self, topic: Topic, ways: Ways) -> dict[str, str]:
        """Who cannot answer now, and why."""
        links = {name: said.links for name, said in self._all_said().items()}

        def fault(source: str, target: str) -> str | None:
            if target in self._peers and (why := self._peers[target].unreadable) is not None:
                return f"{target} cannot be read: {why}"
            if (row := links[target].get((source, str(topic)))) is None:
                return f"link {source}->{target} has not run for the topic yet"
            if row.state in (State.RUNNING, State.STOPPED):
                return None
            return f"link {source}->{target} is {row.state.value}: {row.reason or 'nobody says why'}"

        return ways.unable(fault)


def _void(what: str, table: str | None = None) -> list[Row]:
    """Rows came otherwise than in order: begun and ended. Of another table one row says all, which is kept (geo.subscription.pip33.marker_journal)."""
    begins = [Void(0, what, begins=True)] if table is None else []
    return [*begins, Void(0, what, begins=False, table=table)]


def _fillings(tables: ClusterTables) -> Mapping[Topic, Mapping[str, bool]]:
    """The backfills, comparisons and rebuilds into each topic's log here that there ever were, and whether they are under way. One that was killed
    is, until somebody ends it.
    """
    found: dict[Topic, dict[str, bool]] = {}
    for name, one in named_owners(tables, RunnerKind.FILLING):
        found.setdefault(name.topic, {})[str(name)] = one.is_owned
    return found
