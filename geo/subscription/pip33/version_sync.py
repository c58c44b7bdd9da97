"""The place where consumers of versions may go on in other clusters (PIP-33), kept up to date for one cluster. The tail of its logs and the
stateful stream behind it are one piece of work of the supervisor, and so of the broker."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, replace
from threading import Thread

from pyspark.sql import SparkSession

from geo.config.model import Config
from geo.coordination.claiming import claim
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import version_sync_runner
from geo.errors import RetryableError
from geo.journal.cluster import ClusterTables, connect
from geo.journal.events import events_of
from geo.log.housekeeping import open_for_writing
from geo.names import Topic
from geo.schemas import MARKERS
from geo.session import require_delta
from geo.streams import timetable
from geo.streams.life import Life, State, Why
from geo.streams.life_events import LifeEvents
from geo.streams.loop import BatchLoop
from geo.streams.query_work import Both, QueryWork, QueryWorks
from geo.streams.share import ALL, Share
from geo.streams.supervisor import Supervisor, log_fault, unfinished
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.streams.work import Found, Group, WorkReport
from geo.subscription.pip33.controller_query import ControllerQuery
from geo.subscription.pip33.controller_rows import Notes
from geo.subscription.pip33.marker_tail import MarkerTail
from geo.subscription.pip33.peers import Peer
from geo.subscription.versions.version_subscriptions import replicated_subscriptions
from geo.text import counted

log = logging.getLogger(__name__)

ANSWER_S = 2.0
"""Seconds that other clusters are waited for by who asks whether there is anything to do at all."""

ENDS_S = 10.0
"""Seconds that one of the two parts is waited for when the other has failed."""

PLACE = Topic.parse("persistent://geo/system/version-sync")
"""Topic in whose place the works that are done once in a cluster are placed, where several brokers share the topics. There is no such topic."""


@dataclass(frozen=True, slots=True)
class OpenSync:
    """The tail and the controllers of a cluster, and what is owned for both."""

    ownership: Ownership
    controllers: ControllerQuery
    running: Both

    def close(self, *, clean: bool) -> None:
        try:
            if clean:
                self.running.stop()
                self.controllers.close()
                release([self.ownership])
        finally:
            self.abandon()

    def abandon(self) -> None:
        self.controllers.abandon()
        self.ownership.abandon()

    def refuse_if_replaced(self) -> None:
        self.ownership.refuse_if_replaced()


class SyncWork(QueryWork[OpenSync]):
    """The tail of one cluster and the controllers of all its topics. There is one claim for both. They tell each other, in this process, which
    topics rest. What the tail must give controllers that begin without a state it gives whenever both begin."""

    def __init__(
        self, tables: ClusterTables, peers: Mapping[str, Peer], config: Config, trigger: str, *, take_over: bool
    ) -> None:
        super().__init__(lambda take_over, _: self._open(take_over), PLACE, once=trigger == AVAILABLE_NOW, take_over=take_over)
        self._tables, self._peers, self._config = tables, peers, config
        self._trigger, self._every_s = parse_trigger(trigger), None if trigger == AVAILABLE_NOW else timetable.MARKERS_ROUND_S
        self._before = 0
        self._notes = Notes()
        self._closing: Thread | None = None

    def __str__(self) -> str:
        return f"version sync of {self._tables.cluster.name}"

    @property
    def markers(self) -> int:
        """Count of markers that were written."""
        last = self.lease.last
        return self._before + (0 if last is None else last.controllers.markers)

    @property
    def progress_marker(self) -> int | None:
        """Markers written. Rounds of the tail are no progress: a new one tells each topic's controller something in any case."""
        return self.markers or None

    def note(self, opened: OpenSync) -> None:
        self._before = self.markers

    def give_up(self, owned: OpenSync, state: State, why: Why) -> None:
        """Without waiting for long for the other part, which may hang: nothing that it does lands any more."""
        super().give_up(owned, state, why)
        self._closing = Thread(target=owned.running.stop, name=f"ends {self}", daemon=True)
        self._closing.start()
        self._closing.join(ENDS_S)

    def _open(self, take_over: bool) -> OpenSync:
        if self._closing is not None and self._closing.is_alive():
            raise RetryableError(f"{self}: what ran before has not ended yet, and two must not read one checkpoint.")
        (ownership,) = claim(self._tables, [[version_sync_runner(self._tables)]], take_over=take_over)
        try:
            self._notes = replace(self._notes, rests={})
            tail = MarkerTail(self._tables, self._peers, self._config, ownership, self._notes)
            controllers = ControllerQuery(self._tables, self._config, ownership, self._trigger, self._notes)
        except BaseException:
            ownership.abandon()
            raise
        loop = BatchLoop(f"tail of {self._tables.cluster.name}", tail.round, lambda: None, every_s=self._every_s)
        return OpenSync(ownership, controllers, Both(loop, controllers.running, once=self._every_s is None))


class Versions(QueryWorks[SyncWork]):
    """The work of one cluster, as a group."""

    def __init__(
        self,
        tables: ClusterTables,
        config: Config,
        trigger: str,
        *,
        take_over: bool = False,
        say: Callable[[str], None] = lambda line: None,
        share: Share = ALL,
    ) -> None:
        """`say` gets a line for people where there is nothing to do. `share`: it is done by the process whose the topic PLACE is."""
        super().__init__(share)
        here = tables.cluster.name
        self._tables, self._say, self._has_said = tables, say, False
        self._peers = {name: Peer(connect(lambda: tables.spark, one)) for name, one in config.clusters.items() if name != here}
        self._work = SyncWork(tables, self._peers, config, trigger, take_over=take_over)
        self._ask_at = -math.inf
        """The time when it is asked next whether there is anything to do (monotonic)."""

    def __str__(self) -> str:
        return f"version subscriptions in {self._tables.cluster.name}"

    @property
    def markers(self) -> int:
        """Count of markers that were written."""
        return self._work.markers

    def discover(self, known: Mapping[Hashable, tuple[SyncWork, State]]) -> Found[SyncWork]:
        # Where no cluster has a version subscription that is replicated there is nothing to tell, and nothing is begun. What was begun runs
        # on when the last one is deleted: it looks at no log then, and takes up the next one at once.
        if known:
            return self._found(known)
        if self._share.elsewhere(PLACE) is None and time.monotonic() >= self._ask_at:
            if self._are_used():
                return self._found(known, [("sync", self._work)])
            if not self._tables.is_near and all(peer.has_answered and peer.asked.done() for peer in self._peers.values()):
                self._ask_at = time.monotonic() + timetable.REMOTE_VERSIONS_LOOK_S
        if not self._has_said:
            self._has_said = True
            self._say(f"{self}: no cluster that can be read has one that regions share, so there is nothing to do")
        return Found()

    def report(self, work: SyncWork | None) -> WorkReport:
        name, markers = str(self if work is None else work), 0 if work is None else work.markers
        return WorkReport(name, markers, {"name": name, "markers": markers})

    def _are_used(self) -> bool:
        """Tells whether there is one that is replicated here or in another cluster. One that cannot be read now counts as having one where something
        was told before.
        """
        if replicated_subscriptions(self._tables):
            return True
        for peer in self._peers.values():
            peer.look()  # what it answered may be as old as the last time that this was asked
        wait([peer.asked for peer in self._peers.values()], ANSWER_S)
        for peer in self._peers.values():
            peer.look()
        if any(peer.said.subscriptions for peer in self._peers.values()):
            return True
        return any(not peer.has_answered for peer in self._peers.values()) and self._tables.journal(MARKERS).exists()


@dataclass(frozen=True, slots=True)
class Synced:
    """Result of a run. `unfinished`: what could not go on, and why."""

    markers: int
    unfinished: Mapping[str, str]


class VersionSync:
    """Tells where version subscriptions of a cluster may go on elsewhere, and answers other clusters; `run` until done or stopped."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        cluster: str,
        *,
        trigger: str = AVAILABLE_NOW,
        take_over: bool = False,
        say: Callable[[str], None] = log.info,
    ) -> None:
        """`say` gets lines for people: what begins and ends, and now and then how many markers were written; faults are logged. Raises
        ConfigError for an unknown cluster, UnsafeError for a storage that several writers would break."""
        require_delta(spark)
        parse_trigger(trigger)
        tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
        self._group, self._say = Versions(tables, config, trigger, take_over=take_over, say=say), say
        self._lives = LifeEvents(events_of(tables))
        self._said_at, self._said = time.monotonic(), 0
        self._supervisor = Supervisor[SyncWork](
            [self._group], once=trigger == AVAILABLE_NOW, on_change=self._changed, regroup=self._progress
        )

    def stop(self) -> None:
        """Let what runs end, then stop; callable from a signal handler."""
        self._supervisor.stop()

    def run(self) -> Synced:
        """Run until stopped, or with the available-now trigger over what is there. What the tail tells in such a pass its controllers may handle in
        the next one. While another process does it, it is DELAYED, and taken up once that one has ended.
        """
        left = unfinished(self._supervisor.run())
        return Synced(self._group.markers, left)

    def _changed(self, group: Group[SyncWork], work: SyncWork | None, life: Life) -> None:
        log_fault(group, work, life)
        self._lives.note_work(group, work, life)
        if life.reason is None:
            self._say(f"{group if work is None else work}: {life.state.value}")

    def _progress(self) -> None:
        """Say how many markers were written, if there are more."""
        if time.monotonic() - self._said_at >= timetable.STATUS_S:
            self._said_at = time.monotonic()
            if (markers := self._group.markers) > self._said:
                self._said = markers
                self._say(f"{self._group}: {counted(markers, 'marker')} written so far")
