"""All inbound links of a cluster in one process: finds topics, runs a stream for each, records their states, tries again.

Which topic is in which state is decided per topic; one bad topic never stops another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from geo.config_tree import Config, Link, Start
from geo.crash import CrashPoint, reach
from geo.errors import FencedError, GeoError, RetryableError, UsageError, first_line
from geo.log.names import ALL_TOPICS, topic_glob_matches
from geo.log.ownership import Ownership, claim, release
from geo.log.tables import ClusterTables
from geo.log.topics import Registered, registered_topics
from geo.replication.link import TopicLink
from geo.replication.link_table import append_links, read_links
from geo.replication.state import State, backoff_s
from geo.session import require_delta
from geo.streams import of_spark, stop_between_batches
from geo.trigger import AVAILABLE_NOW, parse_trigger

log = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 5.0
"""How often positions are recorded. It bounds what `verify` calls in flight, and what a lost checkpoint compares anew."""

DISCOVERY_INTERVAL_S = 10.0
"""How often the sources' registries are read for new topics: a small table each, 0.1 s."""

AT_ONCE = 4
"""Streams of an available-now run that work side by side; more only queue up for the cores."""

_TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What one link did for one topic in this run."""

    link: str
    topic: str
    state: State
    reason: str | None
    replicated: int
    source_version: int | None


@dataclass(slots=True)
class _Slot:
    """One topic of one link and its fate in this process."""

    work: TopicLink
    ownership: Ownership | None = None
    state: State = State.STOPPED
    reason: str | None = None
    tries: int = 0
    again_at: float = 0.0

    @property
    def report(self) -> LinkReport:
        position = self.work.position() if self.work.state is not None else None
        return LinkReport(self.work.link.link_name, str(self.work.topic), self.state, self.reason, self.work.replicated, position)


class Replicator:
    """Runs every matching topic of every inbound link of `target`; `run` until done or stopped."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        target: str,
        *,
        source: str | None = None,
        topics: str = ALL_TOPICS,
        trigger: str = AVAILABLE_NOW,
        take_over: bool = False,
        on_event: Callable[[LinkReport], None] | None = None,
    ) -> None:
        require_delta(spark)
        self._spark, self._config, self._glob, self._take_over = spark, config, topics, take_over
        self._trigger = parse_trigger(trigger)
        self._once = trigger == AVAILABLE_NOW
        self._on_event = on_event or (lambda report: None)
        self._links = [link for link in config.inbound(target) if source in (None, link.source)]
        if not self._links:
            config.cluster(target)
            named = f" from {source}" if source else ""
            raise UsageError(
                f"no link{named} leads to {target}; the links are {', '.join(k.link_name for k in config.links) or 'none'}."
            )
        self._target = ClusterTables(spark, config.cluster(target))
        self._sources = {link.source: ClusterTables(spark, config.cluster(link.source)) for link in self._links}
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._stop = threading.Event()

    def stop(self) -> None:
        """Let running batches end, then stop; callable from a signal handler."""
        self._stop.set()

    def run(self) -> list[LinkReport]:
        """Replicate until stopped, or with the available-now trigger until everything there is has crossed.

        Raises AlreadyOwnedError if another runner has one of the links at the start. Afterwards a topic that cannot go
        on is reported as FAILED, and the others go on.
        """
        try:
            try:
                self._discover(first=True)
                if self._once:
                    self._run_once()
                else:
                    self._run_on()
            finally:
                self._stop_queries()
            self._hand_over()
        finally:
            for slot in self._slots.values():
                if slot.ownership is not None:
                    slot.ownership.abandon()
        return [slot.report for _, slot in sorted(self._slots.items())]

    # -- which topics ------------------------------------------------------------------------------------------------

    def _discover(self, *, first: bool = False) -> None:
        """Take up the topics that the sources' registries have by now, let go of those that are no longer replicated."""
        fresh: list[_Slot] = []
        for link in self._links:
            source = self._sources[link.source]
            for found in registered_topics(source):
                key = (link.source, str(found.topic))
                carried = self._carries(link, found)
                if key in self._slots and not carried:
                    self._let_go(key)
                if key in self._slots or not carried:
                    continue
                # Registered a moment ago, its log is about to be created. One that this link has read must be there.
                if not source.log(found.topic).exists() and key not in read_links(self._target):
                    continue
                self._slots[key] = _Slot(TopicLink(self._target, source, self._config, link, found.topic))
                fresh.append(self._slots[key])
        try:
            self._claim(fresh, take_over=self._take_over)
        except GeoError as error:
            if first:
                raise
            for slot in fresh:
                self._set(slot, State.FAILED, str(error))

    def _let_go(self, key: tuple[str, str]) -> None:
        """Stop one topic, whose replication clusters leave this link out by now. It goes on from here if they change again."""
        slot = self._slots[key]
        try:
            self._stop_query(slot)
            query = slot.work.query
            failed = query is not None and query.exception() is not None
            if slot.ownership is not None and slot.state is State.STOPPED and slot.work.state is not None and not failed:
                slot.work.flush(State.STOPPED)
                release([slot.ownership])
        except (GeoError, PySparkException) as error:
            log.warning("%s: not stopped cleanly: %s", slot.work, first_line(error))
        finally:
            # Whatever is not known to have ended cleanly stays owned, so that whoever goes on fences it first.
            if slot.ownership is not None:
                slot.ownership.abandon()
            del self._slots[key]
        self._set(slot, State.STOPPED, "its replication clusters leave this link out")

    def _resolved(self) -> None:
        """Let failed links go on that somebody has resolved since (`geo reconcile`)."""
        failed = [slot for slot in self._slots.values() if slot.work.recorded and slot.work.recorded.state is State.FAILED]
        if failed:
            known = read_links(self._target)
            for slot in failed:
                if known[slot.work.link.source, str(slot.work.topic)].state is not State.FAILED:
                    self._set(slot, State.STOPPED, None)

    def _carries(self, link: Link, found: Registered) -> bool:
        return topic_glob_matches(self._glob, found.topic) and _replicates(self._config, link, found)

    def _claim(self, slots: list[_Slot], *, take_over: bool) -> None:
        if slots:
            runners = [slot.work.runner for slot in slots]
            owned = claim(self._target, runners, take_over=take_over, point=CrashPoint.LINK_CLAIMED)
            known = read_links(self._target)
            for slot, ownership in zip(slots, owned, strict=True):
                slot.ownership = ownership
                slot.work.recorded = known.get((slot.work.link.source, str(slot.work.topic)))

    # -- running -------------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        waiting = list(self._slots.values())
        running: list[_Slot] = []
        while (waiting or running) and not self._stop.is_set():
            while waiting and len(running) < AT_ONCE:
                slot = waiting.pop(0)
                if slot.state is not State.FAILED and self._start(slot):
                    running.append(slot)
            for slot in list(running):
                if self._ended(slot):
                    running.remove(slot)
                    if slot.state is State.DELAYED and slot.tries < 3:
                        waiting.append(slot)
                        self._stop.wait(backoff_s(slot.tries))
            self._stop.wait(_TICK_S / 4)

    def _run_on(self) -> None:
        flushed = discovered = time.monotonic()
        for slot in self._slots.values():
            self._start(slot)
        while not self._stop.wait(_TICK_S):
            now = time.monotonic()
            for slot in list(self._slots.values()):
                if slot.state is State.RUNNING:
                    self._ended(slot)
                elif slot.state in (State.STOPPED, State.DELAYED) and now >= slot.again_at:
                    self._start(slot)
            if now - flushed >= FLUSH_INTERVAL_S:
                self._record(State.RUNNING)
                flushed = now
            if now - discovered >= DISCOVERY_INTERVAL_S:
                try:
                    self._discover()
                    self._resolved()
                except (GeoError, PySparkException) as error:
                    log.warning("topics cannot be listed, trying again: %s", first_line(error))
                discovered = now

    def _start(self, slot: _Slot) -> bool:
        """Start a topic's stream; False if it failed or has to wait."""
        work = slot.work
        try:
            if slot.ownership is None:
                self._claim([slot], take_over=False)
            assert slot.ownership is not None
            work.prepare(slot.ownership, compare=slot.tries >= 2)
            work.start(self._trigger)
        except (GeoError, PySparkException) as error:
            self._failed(slot, error)
            return False
        self._set(slot, State.RUNNING, None)
        return True

    def _ended(self, slot: _Slot) -> bool:
        """Whether the topic's stream has ended; an error is turned into FAILED or DELAYED."""
        query = slot.work.query
        assert query is not None
        if query.isActive:
            return False
        failure, slot.work.failure = slot.work.failure, None
        error = query.exception()
        if error is None:
            self._set(slot, State.STOPPED, None)
        elif isinstance(failure, GeoError):
            self._failed(slot, failure)
        elif failure is not None and not of_spark(failure):
            raise failure  # a fault of this program: not to be tried again, and nothing to be tidied up after it
        else:
            try:
                slot.work.check_source()
                self._failed(slot, error)
            except (GeoError, PySparkException) as diagnosed:
                self._failed(slot, diagnosed)
        return True

    def _failed(self, slot: _Slot, error: Exception) -> None:
        """FAILED if a person is needed, else DELAYED: tried again after a while."""
        slot.tries += 1
        transient = isinstance(error, RetryableError) or not isinstance(error, GeoError)
        if transient:
            slot.again_at = time.monotonic() + backoff_s(slot.tries)
            self._set(slot, State.DELAYED, first_line(error))
        else:
            self._set(slot, State.FAILED, str(error))
        if slot.ownership is None:
            return
        if isinstance(error, FencedError):
            slot.ownership.abandon()
            slot.ownership = None
            return
        if slot.work.state is not None:
            slot.work.flush(slot.state, slot.reason)
        if not transient:
            release([slot.ownership])  # nothing is in flight, and who resolves it must be able to take it
            slot.ownership = None

    def _set(self, slot: _Slot, state: State, reason: str | None) -> None:
        changed = (state, reason) != (slot.state, slot.reason)
        slot.state, slot.reason = state, reason
        if changed or state is State.STOPPED:
            self._on_event(slot.report)

    def _record(self, state: State) -> list[_Slot]:
        """Record the positions of all topics in this state, in one commit. Returns their slots."""
        slots = [slot for slot in self._slots.values() if slot.state is state and slot.ownership and slot.work.state]
        moved = [(slot, now) for slot in slots if (now := slot.work.progressed(state))]
        append_links(self._target, [now for _, now in moved])
        for slot, now in moved:
            if slot.work.recorded is None or now.source_version > slot.work.recorded.source_version:
                slot.tries = 0
            slot.work.note(now)
        if moved:
            reach(CrashPoint.LINK_STATE_RECORDED)
        return slots

    def _stop_queries(self) -> None:
        """Let running batches end."""
        for slot in self._slots.values():
            self._stop_query(slot)

    def _stop_query(self, slot: _Slot) -> None:
        query = slot.work.query
        if query is not None and query.isActive:
            stop_between_batches(query)
            slot.state = State.STOPPED if slot.state is State.RUNNING else slot.state

    def _hand_over(self) -> None:
        """Record and release what stopped cleanly; anything else is left to the next start."""
        release([slot.ownership for slot in self._record(State.STOPPED) if slot.ownership])


def _replicates(config: Config, link: Link, found: Registered) -> bool:
    """Whether the link replicates a topic of its source's registry."""
    return link in config.links_of(found.topic, {link.source: found.replication_clusters})


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a reconcile of one topic found and did."""

    link: str
    topic: str
    missing: int
    appended: int
    source_version: int


def reconcile_links(
    spark: SparkSession,
    config: Config,
    source: str,
    target: str,
    *,
    topics: str = ALL_TOPICS,
    start: Start | datetime | None = None,
    dry_run: bool = False,
    take_over: bool = False,
) -> list[Reconciled]:
    """Bring each matching topic of one link up to the source as it is now, and let the link go on from there.

    This is the verb that resolves a FAILED link: it takes the source as right. Idempotent; `dry_run` counts and writes nothing.
    With `start` the link begins there anew: what was published before is not fetched any more, what is there stays.
    Raises UsageError for a link or topic that is not there, AlreadyOwnedError if the link runs.
    """
    require_delta(spark)
    link = config.link(source, target)
    tables = {name: ClusterTables(spark, config.cluster(name)) for name in (source, target)}
    matching = [one for one in registered_topics(tables[source]) if topic_glob_matches(topics, one.topic)]
    found = [one.topic for one in matching if _replicates(config, link, one)]
    if not found:
        names = ", ".join(str(one.topic) for one in matching)
        why = f"{link.link_name} does not carry {names}" if matching else f"{source} has no such topic"
        raise UsageError(f"no topic that matches {topics} to reconcile: {why}.")
    done = []
    for topic in found:
        work = TopicLink(tables[target], tables[source], config, link, topic)
        if dry_run:
            work.recorded = read_links(tables[target]).get((source, str(topic)))
            missing, version = work.preview(start)
            done.append(Reconciled(link.link_name, str(topic), missing, 0, version))
            continue
        ownership = claim(tables[target], [work.runner], take_over=take_over, point=CrashPoint.LINK_CLAIMED)[0]
        try:
            work.recorded = read_links(tables[target]).get((source, str(topic)))
            work.prepare(ownership, accept_source=True, start=start)
            release([ownership])
        finally:
            ownership.abandon()
        done.append(Reconciled(link.link_name, str(topic), work.replicated, work.replicated, work.position()))
    return done
