"""Where consumers of versions may go on in other clusters (PIP-33), kept up to date for one cluster: the tail of its logs and the stateful
stream behind it, as two pieces of work of the supervisor, and so of the broker."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
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
from schemas import MARKERS

log = logging.getLogger(__name__)

ANSWER_S = 2.0
"""How long other clusters are waited for by who asks whether there is anything to do at all."""

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

    def __init__(self, tables: ClusterTables, config: Config, trigger: str, *, take_over: bool = False) -> None:
        here, shared = tables.cluster.name, Shared()
        peers = {name: connect(tables.spark, one) for name, one in config.clusters.items() if name != here}
        once = trigger == AVAILABLE_NOW
        self._tables, self._peers = tables, peers
        self._works: dict[Hashable, SyncWork] = {
            "tail": TailWork(tables, peers, config, shared, once=once, take_over=take_over),
            "controllers": ControllersWork(tables, config, shared, trigger, take_over=take_over),
        }
        self._again = FailedAgain(FAILED_AGAIN_S)

    def __str__(self) -> str:
        return f"version subscriptions in {self._tables.cluster.name}"

    def discover(self, known: Mapping[Hashable, tuple[SyncWork, State]]) -> Found[SyncWork]:
        # Without a version subscription anywhere there is nothing to tell, and nothing runs.
        told = self._tables.journal(MARKERS).exists()
        wanted = ["tail", "controllers"] if told else ["tail"] if self._are_used() else []
        fresh = [(key, self._works[key]) for key in wanted if key not in known]
        return Found(fresh, resolved=self._again.due(known))

    def _are_used(self) -> bool:
        """Whether there is a version subscription here, or in another cluster that can be read now."""
        if version_subscriptions(self._tables):
            return True
        asked = ask_all({name: partial(version_subscriptions, at) for name, at in self._peers.items()}, ANSWER_S)
        return any(answer.exception() is None and answer.result() for answer in asked.values())

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
    ) -> None:
        """Raises ConfigError for an unknown cluster, UnsafeError for a storage that several writers would break."""
        require_delta(spark)
        parse_trigger(trigger)
        tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
        group = Versions(tables, config, trigger, take_over=take_over)
        self._supervisor = Supervisor[SyncWork]([group], once=trigger == AVAILABLE_NOW, on_change=_log_fault)

    def stop(self) -> None:
        """Let what runs end, then stop; callable from a signal handler."""
        self._supervisor.stop()

    def run(self) -> Synced:
        """Run until stopped, or with the available-now trigger over what is there: what the tail tells in such a pass its controllers may
        hear in the next one. Raises AlreadyOwnedError if another process does both."""
        ended = self._supervisor.run()
        markers = sum(work.markers for _, work, _ in ended if isinstance(work, ControllersWork))
        unfinished = {
            str(group if work is None else work): f"{life.state.value}: {life.reason}"
            for group, work, life in ended
            if life.reason is not None
        }
        return Synced(markers, unfinished)


def _log_fault(group: object, work: SyncWork | None, life: Life) -> None:
    if life.reason is not None:
        log.warning("%s: %s: %s", group if work is None else work, life.state.value, life.reason)
