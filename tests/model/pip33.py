"""Clusters whose topic logs are lists, links that bring versions of them, and the real TopicControllers driven by their journals.

Only what reads and appends is a model: a tail copies markers into the journal, a driver hears rows of it and writes what it is told,
each as far and as late as whoever plays wants, and a crash loses all that is not in a table. A second controller of each cluster hears
every row as it comes; what the driven one says must be the same, whenever it gets there, through any crash and any state kept in
between. Once a row is in the journal it is decided what follows, so that is when it is checked.

Rows that come otherwise than in the order of the source (a reconcile, a backfill, a rebuild) make their commit one that is out of
order, and so is the commit of a link that brings such rows on: before each the topic is void in the journal of its cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from geo.config.model import Snapshots
from geo.ids import Position
from geo.replication.rule import Rule, Verdict
from geo.subscription.pip33.asked import asked
from geo.subscription.pip33.controller import TopicController, concerns
from geo.subscription.pip33.controller_rows import (
    Effect,
    FinishedUpTo,
    GivenUp,
    Invalidated,
    MarkerRow,
    MayStart,
    Row,
    Subscribed,
    Tick,
    Unsubscribed,
    WriteMarker,
)
from geo.subscription.pip33.markers import (
    Marker,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    SubscriptionUpdate,
    decode,
    encode,
)
from geo.subscription.pip33.snapshot_cache import Snapshot
from tests.routed import RoutedRow, verdict

TOPIC = "persistent://shop/web/clicks"

Id = tuple[str, int]
"""Origin and number."""

MARKERS = 1_000_000
"""Their numbers are above this."""

Steps = Iterator[None]
"""Work in steps: whoever plays may leave it at any of them for good."""


@dataclass(frozen=True, slots=True)
class LogRow:
    id: Id
    replicate_to: tuple[str, ...] | None = None
    marker: str | None = None
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Commit:
    rows: tuple[LogRow, ...]
    time: float
    stamp: int
    """Of all commits of the world, which came first."""
    out_of_order: bool = False


@dataclass(slots=True)
class Link:
    source: str
    target: str
    origins: frozenset[str]
    cursor: int = 0
    up: bool = True
    delay: float = 0.0
    is_new: bool = False
    """It has brought nothing yet: what it brings first comes behind all that was here."""
    reconciles: bool = False
    """One has begun and not ended: the link brings nothing until it has."""
    withheld: set[Id] = field(default_factory=set)
    """What it passed without bringing it: it began at the latest."""

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def crosses(self, row: LogRow) -> bool:
        routed = RoutedRow(row.id[0], row.replicate_to, row.marker, None, 1, row.id[1])
        return verdict(Rule(self.source, self.target, self.origins), routed, 0) is Verdict.REPLICATE


def _link(name: str, origins: Iterable[str]) -> Link:
    source, _, target = name.partition("->")
    return Link(source, target, frozenset(origins) or frozenset({source}))


class Cluster:
    def __init__(self, name: str, settings: Snapshots) -> None:
        self.name, self.settings = name, settings
        self.log = [Commit((), 0.0, 0)]
        self.places: dict[Id, Position] = {}
        self.journal: list[Row] = []
        self.copied = 0
        """The newest version whose markers are in the journal."""
        self.truth = self.new_controller()
        self.decided: list[list[Effect]] = []
        """By place in the journal, what follows from its row."""
        self.controller = self.new_controller()
        self.heard = 0
        self.written = 0
        """By count of rows: how far the controller has heard, and up to where its effects are in the tables."""
        self.outbox: list[Effect] = []
        self.replacements = 0
        self.messages_written = self.markers_written = 0
        self.waits_for: Mapping[str, str] = {}
        self.known: list[str] = []
        """The links by whose policies it asks: those that were there when it read them last."""
        self.brought: set[str] = set()
        """Whose messages links have brought since."""
        self.told_comes: tuple[str, ...] = ()
        self.readers: dict[str, int] = {}
        """By subscription, the first version that its consumer here has not read."""

    def new_controller(self) -> TopicController:
        return TopicController(self.name, TOPIC, self.settings)

    @property
    def table(self) -> str:
        return f"table {self.replacements}"

    @property
    def newest(self) -> int:
        return len(self.log) - 1

    @property
    def newest_message(self) -> int | None:
        return self.newest_message_to(self.newest)

    def newest_message_to(self, last: int) -> int | None:
        """The newest version up to this one that brought a message."""
        found = (version for version in range(last, 0, -1) if any(not row.marker for row in self.log[version].rows))
        return next(found, None)

    def messages(self, last: int | None = None) -> Iterator[LogRow]:
        for commit in self.log[: None if last is None else last + 1]:
            yield from (row for row in commit.rows if row.marker is None)

    def next_message(self) -> Id:
        self.messages_written += 1
        return (self.name, self.messages_written)

    def next_marker(self, replicate_to: tuple[str, ...] | None) -> Id:
        """Markers have ledgers of their own, one for each way they go: what a cluster says to itself stands first in a commit."""
        self.markers_written += 1
        ledger = MARKERS * (3 if replicate_to is None else 2 if replicate_to else 1)
        return (self.name, ledger + self.markers_written)


class World:
    """`links`: `source->target` to the origins that cross, none for the source's own."""

    def __init__(self, links: Mapping[str, Iterable[str]], settings: Snapshots | None = None, *, inherit: bool = True) -> None:
        self.inherits = inherit
        """Whether a link voids where it brings rows that are out of order in its source. Without it the model must find a fault."""
        self.now, self.stamp = 0.0, 0
        self.links = {name: _link(name, origins) for name, origins in links.items()}
        names = sorted({name for link in self.links.values() for name in (link.source, link.target)})
        self.clusters = {name: Cluster(name, settings or Snapshots()) for name in names}
        for cluster in self.clusters.values():
            cluster.known = list(self.links)
        self.events: list[str] = []
        self.processed: dict[str, set[Id]] = {}
        self.excused: dict[str, set[Id]] = {}
        """Of a subscription: what a cursor may pass, for it was not routed to where everything before it was finished."""
        self.begun: dict[str, int] = {}
        """Of each snapshot, the stamp when it was begun."""
        self.answered: dict[tuple[str, str], int] = {}
        """Of each snapshot and cluster: how often that one's log had been replaced when it answered."""

    def link(self, name: str, origins: Iterable[str] = ()) -> None:
        """One more link, which brings all that there is. No cluster knows of it before it looks."""
        self.links[name] = replace(_link(name, origins), is_new=True)

    def look(self, name: str) -> None:
        """A cluster reads the policies of all."""
        cluster = self.clusters[name]
        cluster.known, cluster.brought = list(self.links), set()
        self.tick(name)

    # -- ways --------------------------------------------------------------------------------------------------------

    def way(self, origin: str, target: str, known: Iterable[str] | None = None) -> list[Link] | None:
        """The links by which messages of an origin come to a target; of those that are `known`."""
        links = self.links.values() if known is None else [self.links[name] for name in known]
        ways: dict[str, list[Link]] = {origin: []}
        line = [origin]
        while line:
            here = line.pop(0)
            for link in links:
                if link.source == here and origin in link.origins and link.target not in ways:
                    ways[link.target] = [*ways[here], link]
                    line.append(link.target)
        return ways.get(target) if target != origin else []

    def hubs(self, origin: str, target: str, known: Iterable[str] | None = None) -> tuple[str, ...]:
        return tuple(link.target for link in (self.way(origin, target, known) or ())[:-1])

    # -- logs --------------------------------------------------------------------------------------------------------

    def append(self, cluster: Cluster, rows: Iterable[LogRow], *, out_of_order: bool = False) -> None:
        found = tuple(sorted(rows, key=lambda row: row.id))
        if not found:
            return
        self.stamp += 1
        cluster.log.append(Commit(found, self.now, self.stamp, out_of_order))
        for index, row in enumerate(found):
            assert row.id not in cluster.places, f"{cluster.name}: {row.id} twice"
            cluster.places[row.id] = Position(cluster.newest, index)
            self._say(cluster, row)

    def _say(self, cluster: Cluster, row: LogRow) -> None:
        origin, number = row.id
        what = f"{origin}{number}" if row.marker is None else f"{row.marker} of {origin}: {told(decode(row.marker, row.payload))}"
        self.events.append(f"{cluster.name} {cluster.newest}: {what}")

    def publish(self, name: str, count: int = 1, to: Iterable[str] | None = None) -> None:
        cluster = self.clusters[name]
        aims = None if to is None else tuple(sorted({*to, *(hub for one in to for hub in self.hubs(name, one))}))
        self.append(cluster, [LogRow(cluster.next_message(), aims) for _ in range(count)])

    def deliver(self, name: str, most: int = 1_000_000, *, attempts: int = 1) -> None:
        """One turn of a link. Of several attempts the first commits: the cursor is in the commit that brings the rows."""
        link = self.links[name]
        source, target = self.clusters[link.source], self.clusters[link.target]
        first = link.cursor + 1
        for _ in range(attempts):
            last = link.cursor
            if not link.up or link.reconciles:
                return
            while last < min(source.newest, first + most - 1) and source.log[last + 1].time + link.delay <= self.now:
                last += 1
            commits = source.log[link.cursor + 1 : last + 1]
            rows = [row for commit in commits for row in commit.rows if link.crosses(row) and row.id not in target.places]
            late = any(commit.out_of_order and any(not row.marker and row in rows for row in commit.rows) for commit in commits)
            is_void = (late and self.inherits) or (link.is_new and bool(rows))
            if is_void:
                self.void(target, f"link {name}", begins=True)
            self.append(target, rows, out_of_order=late)
            link.cursor = last
            if rows:
                link.is_new = False
                target.brought |= link.origins
            if is_void:
                self.void(target, f"link {name}", begins=False)

    def _missing(self, link: Link) -> list[LogRow]:
        there = self.clusters[link.target].places
        return [row for row in self.clusters[link.source].messages() if link.crosses(row) and row.id not in there]

    def reconcile(self, name: str) -> Steps:
        link = self.links[name]
        source, target = self.clusters[link.source], self.clusters[link.target]
        link.reconciles = True
        self.void(target, f"reconcile {name}", begins=True)
        yield
        version, rows = source.newest, self._missing(link)
        for at in range(0, len(rows), 2):
            fresh = [row for row in rows[at : at + 2] if row.id not in target.places]
            link.withheld -= {row.id for row in fresh}
            self.append(target, fresh, out_of_order=True)
            yield
        link.cursor, link.reconciles = version, False
        self.void(target, f"reconcile {name}", begins=False)

    def reset_to_latest(self, name: str) -> None:
        link = self.links[name]
        target = self.clusters[link.target]
        self.void(target, f"reset {name}", begins=True)
        link.withheld |= {row.id for row in self._missing(link)}
        link.cursor, link.reconciles = self.clusters[link.source].newest, False
        self.void(target, f"reset {name}", begins=False)

    def backfill(self, name: str) -> Steps:
        """Beside the link."""
        link = self.links[name]
        target = self.clusters[link.target]
        self.void(target, f"backfill {name}", begins=True)
        yield
        for row in [row for row in self._missing(link) if row.id in link.withheld]:
            if row.id in link.withheld and row.id not in target.places:
                link.withheld.remove(row.id)
                self.append(target, [row], out_of_order=True)
                yield
        self.void(target, f"backfill {name}", begins=False)

    def put_back(self, name: str, version: int) -> None:
        """A log is what it was, in another table; what peers have of it comes back first, then what links bring."""
        cluster = self.clusters[name]
        before, read = cluster.table, {one: first - 1 for one, first in cluster.readers.items() if first}
        cluster.replacements += 1
        self.void(cluster, "put back", begins=True, table=cluster.table)
        del cluster.log[version + 1 :]
        cluster.places = {one: place for one, place in cluster.places.items() if place.version <= version}
        cluster.copied = min(cluster.copied, version)
        cluster.readers = dict.fromkeys(cluster.readers, 0)
        for subscription, last in read.items():  # told late, of what is gone
            self.record(cluster, FinishedUpTo(self._seq(cluster), subscription, last, before))
        own = {row.id: row for peer in self.clusters.values() for row in peer.messages() if row.id[0] == name}
        self.append(cluster, [row for one, row in own.items() if one not in cluster.places], out_of_order=True)
        for link in self.links.values():
            if link.target == name:
                self.append(cluster, self._missing(link), out_of_order=True)
                link.withheld.clear()
                link.cursor, link.reconciles = self.clusters[link.source].newest, False
        self.void(cluster, "put back", begins=False)
        for link in self.links.values():
            if link.source == name:
                for _ in self.reconcile(link.name):
                    pass

    # -- journals ----------------------------------------------------------------------------------------------------

    def record(self, cluster: Cluster, row: Row) -> None:
        """A row is in the journal: what follows from it is decided now."""
        cluster.journal.append(row)
        if isinstance(row, Tick):
            self.stamp += 1
        effects = cluster.truth.handle(row)
        cluster.decided.append(effects)
        for effect in effects:
            self._decided(cluster, effect)

    def _seq(self, cluster: Cluster) -> int:
        return len(cluster.journal) + 1

    def void(self, cluster: Cluster, what: str, *, begins: bool, table: str | None = None) -> None:
        self.events.append(f"{cluster.name}: {what} {'begins' if begins else 'has ended'}")
        self.record(cluster, Invalidated(self._seq(cluster), what, begins, table))

    def tick(self, name: str) -> None:
        cluster = self.clusters[name]
        known = cluster.known
        reaches = {one: [to for to in self.clusters if to != one and self.way(one, to, known)] for one in self.clusters}
        whom = asked(name, reaches)
        unable = dict.fromkeys(whom.no_way, "no link brings it our requests")
        for one in whom.clusters:
            for link in [*(self.way(name, one, known) or ()), *(self.way(one, name, known) or ())]:
                if not link.up:
                    unable.setdefault(one, f"{link.name} is down")
        ways = {one: self.hubs(name, one, known) for one in reaches[name]}
        cluster.told_comes = self._comes(cluster)
        self.record(
            cluster,
            Tick(
                self._seq(cluster),
                self.now,
                cluster.newest_message,
                whom.clusters,
                unable,
                ways,
                cluster.newest,
                cluster.table,
                cluster.told_comes,
            ),
        )

    def _comes(self, cluster: Cluster) -> tuple[str, ...]:
        by_policies = {one for one in self.clusters if one != cluster.name and self.way(one, cluster.name, cluster.known)}
        return tuple(sorted((by_policies | cluster.brought) - {cluster.name}))

    def tail(self, name: str) -> None:
        """Whose messages come here it tells before what it copies."""
        cluster = self.clusters[name]
        newest = cluster.newest
        if cluster.told_comes and self._comes(cluster) != cluster.told_comes:
            self.tick(name)
        for version in range(cluster.copied + 1, newest + 1):
            for index, row in enumerate(cluster.log[version].rows):
                if row.marker is not None and concerns(row.marker, row.id[0], name):
                    place, moved = Position(version, index), cluster.newest_message_to(version)
                    self.record(
                        cluster,
                        MarkerRow(self._seq(cluster), row.marker, row.payload, row.id[0], place, newest, cluster.table, moved),
                    )
        cluster.copied = newest

    # -- the driver --------------------------------------------------------------------------------------------------

    def hear(self, name: str, most: int = 1_000_000) -> None:
        cluster = self.clusters[name]
        for row in cluster.journal[cluster.heard : cluster.heard + most]:
            kept = json.loads(json.dumps(cluster.controller.to_state()))
            other = TopicController.from_state(name, TOPIC, kept, cluster.settings)
            effects = cluster.controller.handle(row)
            assert effects == other.handle(row) == cluster.decided[cluster.heard]
            assert other.to_state() == cluster.controller.to_state()
            cluster.heard += 1
            cluster.outbox += effects

    def write(self, name: str) -> None:
        """All that was said since the last time, in one commit."""
        cluster = self.clusters[name]
        rows = []
        for effect in cluster.outbox:
            if isinstance(effect, WriteMarker):
                aims = effect.replicate_to
                rows.append(LogRow(cluster.next_marker(aims), aims, effect.marker.kind.value, encode(effect.marker)))
            elif isinstance(effect, MayStart) and effect.sender is not None:
                self.events.append(f"{name}: {effect.subscription} may begin at {effect.starts[name]}, by {effect.sender}")
            elif isinstance(effect, GivenUp):
                whom = f", without an answer of {', '.join(effect.missing)}" if effect.missing else ""
                self.events.append(f"{name}: gives {name_of(effect.snapshot_id)} up{whom}")
        if (waits_for := cluster.controller.waits_for) != cluster.waits_for:
            cluster.waits_for = waits_for
            why = ", ".join(f"{one} ({what})" for one, what in sorted(waits_for.items()))
            self.events.append(f"{name}: waits for {why or 'nobody'}")
        self.append(cluster, rows)
        cluster.outbox, cluster.written = [], cluster.heard

    def crash(self, name: str) -> None:
        """Its state is lost, and built anew from the journal."""
        cluster = self.clusters[name]
        before = cluster.controller.to_state() if cluster.heard == cluster.written else None
        cluster.controller, cluster.outbox, cluster.heard = cluster.new_controller(), [], cluster.written
        for row, effects in zip(cluster.journal[: cluster.written], cluster.decided, strict=False):
            assert cluster.controller.handle(row) == effects
        assert before is None or cluster.controller.to_state() == before

    def run(self, name: str) -> None:
        """Until nothing follows any more; its own markers are read back."""
        cluster = self.clusters[name]
        while True:
            self.tail(name)
            if cluster.heard == len(cluster.journal):
                return
            self.hear(name)
            self.write(name)

    # -- consumers ---------------------------------------------------------------------------------------------------

    def subscribe(self, name: str, subscription: str) -> None:
        """A consumer begins here: where it may, by what is known here."""
        cluster = self.clusters[name]
        self.processed.setdefault(subscription, set())
        self.excused.setdefault(subscription, set())
        self.record(cluster, Subscribed(self._seq(cluster), subscription))
        cluster.readers[subscription] = self.begin(cluster, subscription)

    def begin(self, cluster: Cluster, subscription: str) -> int:
        if subscription not in cluster.truth.subscriptions:
            return 0
        finished = cluster.truth.finished(subscription)
        return max(cluster.truth.start(subscription) or 0, 0 if finished is None else finished + 1)

    def unsubscribe(self, name: str, subscription: str) -> None:
        cluster = self.clusters[name]
        cluster.readers.pop(subscription, None)
        self.record(cluster, Unsubscribed(self._seq(cluster), subscription))

    def read(self, name: str, subscription: str, most: int = 1_000_000) -> set[Id]:
        """A consumer finishes some versions. Returns what it read again."""
        cluster = self.clusters[name]
        first = cluster.readers[subscription]
        last = min(cluster.newest, first + most - 1)
        if last < first:
            return set()
        rows = {row.id for commit in cluster.log[first : last + 1] for row in commit.rows if row.marker is None}
        again = rows & self.processed[subscription]
        self.processed[subscription] |= rows
        cluster.readers[subscription] = last + 1
        self.record(cluster, FinishedUpTo(self._seq(cluster), subscription, last, cluster.table))
        return again

    # -- what must hold ----------------------------------------------------------------------------------------------

    def _decided(self, cluster: Cluster, effect: Effect) -> None:
        if isinstance(effect, MayStart) and effect.sender is not None:
            start = effect.starts[cluster.name]
            seen = self.processed.get(effect.subscription, set()) | self.excused.get(effect.subscription, set())
            passed = [row.id for row in cluster.messages(start - 1) if row.id not in seen]
            assert not passed, f"{cluster.name}: {effect.subscription} would begin at {start}, past {passed}"
        elif isinstance(effect, WriteMarker) and isinstance(effect.marker, SnapshotResponse):
            answer = effect.marker
            self.answered.setdefault((answer.snapshot_id, cluster.name), cluster.replacements)
        elif isinstance(effect, WriteMarker) and isinstance(effect.marker, SubscriptionUpdate):
            self._update_is_right(cluster, effect.marker)
        elif isinstance(effect, WriteMarker) and isinstance(effect.marker, SnapshotRequest):
            self.begun.setdefault(effect.marker.snapshot_id, self.stamp)

    def _update_is_right(self, cluster: Cluster, update: SubscriptionUpdate) -> None:
        """Of what the cursor elsewhere passes, all that was routed here too is finished."""
        finished = cluster.truth.finished(update.subscription)
        assert finished is not None
        processed, excused = self.processed[update.subscription], self.excused[update.subscription]
        unread = [row.id for row in cluster.messages(finished) if row.id not in processed | excused]
        assert not unread, f"{cluster.name}: {update.subscription} has finished {finished}, without {unread}"
        for other, position in update.clusters.items():
            lacking = self._lacking(cluster, update.snapshot_id, other, position, Position.end(finished))
            excused |= lacking - processed

    def _lacking(self, cluster: Cluster, snapshot_id: str, other: str, position: Position, local: Position) -> set[Id]:
        """What is in the other's log at or before a position and is not here at or before ours. All of it must have a reason."""
        peer = self.clusters[other]
        if self.answered[snapshot_id, other] != peer.replacements:
            return set()  # a place in a log that is gone, which that cluster knows
        lacking = set()
        for row in peer.messages():
            here = cluster.places.get(row.id)
            if peer.places[row.id] <= position and not (here is not None and here <= local):
                why = f"snapshot {snapshot_id} of {cluster.name}: {row.id} is at {peer.places[row.id]} in {other}, at or before"
                assert here is None, f"{why} {position}, and here at {here}, behind {local}"
                assert self._may_lack(cluster, row, snapshot_id), f"{why} {position}, and not here"
                lacking.add(row.id)
        return lacking

    def _may_lack(self, cluster: Cluster, row: LogRow, snapshot_id: str) -> bool:
        """It was never routed here: not addressed, no way, held back, or late at a cluster on its way since the snapshot began."""
        way = self.way(row.id[0], cluster.name)
        if not way:
            return True
        for link in way:
            if not link.crosses(row) or row.id in link.withheld or link.is_new:
                return True
            on_the_way = self.clusters[link.source]
            place = on_the_way.places.get(row.id)
            if place is not None:
                commit = on_the_way.log[place.version]
                if commit.out_of_order and commit.stamp > self.begun[snapshot_id]:
                    return True
        return False

    def check(self) -> None:
        for cluster in self.clusters.values():
            truth = cluster.truth
            settings = cluster.settings
            assert len(pending(truth)) <= settings.timeout_s / settings.frequency_s + 1
            self._a_tick_does_nothing_while_it_rests(cluster)
            seen: dict[str, Snapshot] = {}
            for subscription in truth.subscriptions:
                snapshots = truth.snapshots(subscription)
                assert len(snapshots) <= settings.max_cached
                seen |= {one.snapshot_id: one for one in snapshots}
            for snapshot in seen.values():
                for other, position in snapshot.clusters.items():
                    self._lacking(cluster, snapshot.snapshot_id, other, position, snapshot.local_position)

    def _a_tick_does_nothing_while_it_rests(self, cluster: Cluster) -> None:
        if cluster.truth.rests:
            kept = cluster.truth.to_state()
            other = TopicController.from_state(cluster.name, TOPIC, kept, cluster.settings)
            ticks = [row for row in cluster.journal if isinstance(row, Tick)]
            assert other.handle(replace(ticks[-1], seq=self._seq(cluster), now=self.now + 1_000)) == []
            after = other.to_state()
            changed = {name: (kept[name], after[name]) for name in after if after[name] != kept[name]}
            assert changed.keys() == {"seq", "tick"}, changed


def pending(controller: TopicController) -> list[str]:
    """Ids of snapshots under way, as its state has them."""
    return [one["builder"]["snapshot_id"] for one in controller.to_state()["pending"]]


def told(marker: Marker) -> str:
    """A marker in short: a snapshot is told by its cluster and the second it was begun."""
    if isinstance(marker, SnapshotTaken):
        snapshot = marker.snapshot
        return f"{name_of(snapshot.snapshot_id)}: here {snapshot.local_position}, {places(snapshot.clusters)}"
    name = name_of(marker.snapshot_id)
    if isinstance(marker, SnapshotRequest):
        return f"{name} round {marker.round_number}"
    if isinstance(marker, SnapshotResponse):
        return f"{name} round {marker.round_number}, {marker.cluster} is at {marker.position}"
    return f"{marker.subscription}, {name}: {places(marker.clusters)}"


def name_of(snapshot_id: str) -> str:
    cluster, _, rest = snapshot_id.partition(":")
    return f"{cluster}@{int(rest.rpartition(':')[2]) // 1_000_000}"


def places(clusters: Mapping[str, Position]) -> str:
    return ", ".join(f"{one} {place}" for one, place in sorted(clusters.items()))
