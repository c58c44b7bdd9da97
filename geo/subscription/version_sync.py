"""Where consumers of versions may go on in other clusters (PIP-33), kept up to date for one cluster: the tail of its logs and the stateful
stream behind it, as two pieces of work of the supervisor, and so of the broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from pyspark.sql import SparkSession

from geo.asking import ask_all
from geo.config.model import Config
from geo.log.housekeeping import open_for_writing
from geo.session import require_delta
from geo.streams.again import FAILED_AGAIN_S, FailedAgain
from geo.streams.life import Life, State
from geo.streams.loop import BatchLoop
from geo.streams.query import BatchQuery
from geo.streams.query_work import QueryWork, leave
from geo.streams.supervisor import Supervisor
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.streams.work import Failed, Found
from geo.subscription.controller_query import ControllerQuery
from geo.subscription.marker_journal import Shared
from geo.subscription.marker_tail import MarkerTail
from geo.subscription.version_subscriptions import version_subscriptions
from geo.tables.cluster import ClusterTables, connect
from geo.tables.ownership import Ownership, claim, release, version_sync_runner
from geo.text import counted
from schemas import MARKERS

log = logging.getLogger(__name__)

ANSWER_S = 2.0
"""How long other clusters are waited for by who asks whether there is anything to do at all."""

STATUS_S = 60.0
"""Between two lines that say how many markers were written."""

ROUND_S = 0.1
"""Between two looks whether logs have news: some microseconds a topic."""


@dataclass(frozen=True, slots=True)
class OpenTail:
    """The loop of a tail, and what it owns."""

    ownership: Ownership
    running: BatchLoop

    def close(self, *, clean: bool) -> None:
        if clean:
            release([self.ownership])
        self.ownership.abandon()

    def abandon(self) -> None:
        self.ownership.abandon()

    def refuse_if_replaced(self) -> None:
        self.ownership.refuse_if_replaced()


@dataclass(frozen=True, slots=True)
class OpenControllers:
    """The query of the controllers, and what it owns."""

    ownership: Ownership
    query: ControllerQuery

    @property
    def running(self) -> BatchQuery:
        return self.query.running

    def close(self, *, clean: bool) -> None:
        self.query.close(clean=clean)
        if clean:
            release([self.ownership])
        self.ownership.abandon()

    def abandon(self) -> None:
        self.query.abandon()
        self.ownership.abandon()

    def refuse_if_replaced(self) -> None:
        self.ownership.refuse_if_replaced()


class TailWork(QueryWork[OpenTail]):
    """The tail of one cluster."""

    def __init__(
        self,
        tables: ClusterTables,
        peers: Mapping[str, ClusterTables],
        config: Config,
        shared: Shared,
        *,
        once: bool,
        take_over: bool,
    ) -> None:
        super().__init__(self._open, once=once, take_over=take_over)
        self._tables, self._peers, self._config, self._shared, self._once = tables, peers, config, shared, once
        self.rows = 0
        """Rounds in which there was something to tell."""

    def __str__(self) -> str:
        return f"tail of {self._tables.cluster.name}"

    @property
    def how_far(self) -> int | None:
        return self.rows or None

    def _open(self, take_over: bool) -> OpenTail:
        (ownership,) = claim(self._tables, [[version_sync_runner(self._tables, "tail")]], take_over=take_over)
        tail = MarkerTail(self._tables, self._peers, self._config, ownership, self._shared)

        def step() -> bool:
            told = tail.round()
            self.rows += told
            return told

        return OpenTail(ownership, BatchLoop(str(self), step, lambda: None, every_s=None if self._once else ROUND_S))


class ControllersWork(QueryWork[OpenControllers]):
    """The controllers of all topics of one cluster."""

    def __init__(self, tables: ClusterTables, config: Config, shared: Shared, trigger: str, *, take_over: bool) -> None:
        super().__init__(self._open, once=trigger == AVAILABLE_NOW, take_over=take_over)
        self._tables, self._config, self._shared, self._trigger = tables, config, shared, parse_trigger(trigger)
        self._before = 0

    def __str__(self) -> str:
        return f"controllers of {self._tables.cluster.name}"

    @property
    def markers(self) -> int:
        """How many were written."""
        opened = self.opened
        return self._before + (0 if opened is None else opened.query.markers)

    @property
    def how_far(self) -> int | None:
        return self.markers or None

    def take_off(self) -> OpenControllers | None:
        self._before = self.markers
        return super().take_off()

    def _open(self, take_over: bool) -> OpenControllers:
        (ownership,) = claim(self._tables, [[version_sync_runner(self._tables, "controllers")]], take_over=take_over)
        try:
            return OpenControllers(ownership, ControllerQuery(self._tables, self._config, ownership, self._trigger, self._shared))
        except BaseException:
            ownership.abandon()
            raise


SyncWork: TypeAlias = "TailWork | ControllersWork"


class Versions:
    """The two works of one cluster, as a group."""

    def __init__(
        self,
        tables: ClusterTables,
        config: Config,
        trigger: str,
        *,
        take_over: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`say` gets a line for people where there is nothing to do."""
        here, shared = tables.cluster.name, Shared()
        peers = {name: connect(tables.spark, one) for name, one in config.clusters.items() if name != here}
        once = trigger == AVAILABLE_NOW
        self._tables, self._peers, self._say, self._has_said = tables, peers, say, False
        self._works: dict[Hashable, SyncWork] = {
            "tail": TailWork(tables, peers, config, shared, once=once, take_over=take_over),
            "controllers": ControllersWork(tables, config, shared, trigger, take_over=take_over),
        }
        self._again = FailedAgain(FAILED_AGAIN_S)

    def __str__(self) -> str:
        return f"version subscriptions in {self._tables.cluster.name}"

    @property
    def markers(self) -> int:
        """How many were written."""
        return sum(work.markers for work in self._works.values() if isinstance(work, ControllersWork))

    def discover(self, known: Mapping[Hashable, tuple[SyncWork, State]]) -> Found[SyncWork]:
        # Without a version subscription anywhere there is nothing to tell, and nothing is begun. What was begun runs on when the last one
        # is deleted: it looks at no log then, and takes up the next one at once.
        told = self._tables.journal(MARKERS).exists()
        if not known and not self._are_used(told=told):
            if not self._has_said:
                self._has_said = True
                self._say(f"{self}: no cluster that can be read has one, so there is nothing to do")
            return Found()
        wanted = ["tail", "controllers"] if told else ["tail"]
        fresh = [(key, self._works[key]) for key in wanted if key not in known]
        return Found(fresh, resolved=self._again.due(known))

    def _are_used(self, *, told: bool) -> bool:
        """Whether there is a version subscription here or in another cluster. One that cannot be read now counts as having one where
        something was `told` before."""
        if version_subscriptions(self._tables):
            return True
        asked = ask_all({name: partial(version_subscriptions, at) for name, at in self._peers.items()}, ANSWER_S)
        return any(told if answer.exception() is not None else answer.result() for answer in asked.values())

    def claim(self, works: Sequence[SyncWork]) -> Failed[SyncWork]:
        return []  # each owns itself when it is begun

    def record_states(self, works: Sequence[tuple[SyncWork, State]]) -> Failed[SyncWork]:
        return []

    def release(self, works: Sequence[SyncWork]) -> Failed[SyncWork]:
        return leave(works)


@dataclass(frozen=True, slots=True)
class Synced:
    """What a run did. `unfinished`: what could not go on, and why."""

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
        self._said_at, self._said = time.monotonic(), 0
        self._supervisor = Supervisor[SyncWork](
            [self._group], once=trigger == AVAILABLE_NOW, on_change=self._changed, regroup=self._progress
        )

    def stop(self) -> None:
        """Let what runs end, then stop; callable from a signal handler."""
        self._supervisor.stop()

    def run(self) -> Synced:
        """Run until stopped, or with the available-now trigger over what is there: what the tail tells in such a pass its controllers may
        hear in the next one. Raises AlreadyOwnedError if another process does both."""
        ended = self._supervisor.run()
        unfinished = {
            str(group if work is None else work): f"{life.state.value}: {life.reason}"
            for group, work, life in ended
            if life.reason is not None
        }
        return Synced(self._group.markers, unfinished)

    def _changed(self, group: object, work: SyncWork | None, life: Life) -> None:
        head = f"{group if work is None else work}: {life.state.value}"
        if life.reason is None:
            self._say(head)
        else:
            log.warning("%s: %s", head, life.reason)

    def _progress(self) -> None:
        """Say how many markers were written, if there are more."""
        if time.monotonic() - self._said_at >= STATUS_S:
            self._said_at = time.monotonic()
            if (markers := self._group.markers) > self._said:
                self._said = markers
                self._say(f"{self._group}: {counted(markers, 'marker')} written so far")
