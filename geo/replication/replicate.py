"""All inbound links of a cluster in one process: finds topics, runs a stream for each, records their states, tries again.

Which topic is in which state is decided per topic; one bad topic never stops another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import SparkSession

from geo.config_tree import Config, Link
from geo.crash import CrashPoint, reach
from geo.errors import FencedError, GeoError, RetryableError, UsageError, first_line
from geo.log.history import CommitName
from geo.log.names import ALL_TOPICS, topic_glob_matches
from geo.log.ownership import Ownership, claim, release
from geo.log.tables import ClusterTables
from geo.log.topics import Registered, registered_topics
from geo.replication.link_state import LinkState, State, backoff_s
from geo.replication.link_table import append_links, read_links
from geo.replication.topic_link import TopicLink
from geo.session import require_delta
from geo.streams import FAULTS, stop_between_batches
from geo.trigger import AVAILABLE_NOW, parse_trigger

log = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 60.0
"""How often rows of links that moved are recorded. It bounds what `verify` calls in flight, and how many commits of the target a
start looks at; the cursor itself is in each append."""

DISCOVERY_INTERVAL_S = 10.0
"""How often the sources' registries are read for new topics: a small table each, 0.1 s."""

AT_ONCE = 4
"""Topics that are brought up side by side; more only queue up for the cores."""

REMOTE_LOOK_S = 1.0
"""How often the source of an idle topic is asked for news where that is a request; on a local disk it is asked at each tick."""

LOOK_INTERVAL_S, REMOTE_LOOK_INTERVAL_S = 60.0, 600.0
"""How often a topic gets a full look beside those by name, and beside its query: Delta's stream need not notice that an older copy of
the source was put back. On a local disk it is a matter of milliseconds."""

STEADY_S = 60.0
"""A topic that went on for so long since its last fault begins anew to count them. (In a run that ends: one that came further.)"""

_TICK_S = 0.2

_TRIES = 3
"""Of a topic in an available-now run."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What one link did for one topic in this run."""

    link: str
    topic: str
    state: State
    reason: str | None
    replicated: int
    source_version: int | None
    expired: int = 0
    """Messages left out because they had expired when they were read."""


@dataclass(slots=True)
class _Slot:
    """One topic of one link and its fate in this process.

    A topic is brought up by a thread (`bringing`): its start, and turns up to what the source has then. In a run that goes on its
    source is then looked at by name; the first news start a streaming query.
    """

    work: TopicLink
    ownership: Ownership | None = None
    previous: Ownership | None = None
    """What it owned until a fault, while it owns nothing: if somebody took that over, it does not come back."""
    replaced: bool = False
    recorded: LinkState | None = None
    """The newest row of the link when it was claimed."""
    state: State = State.STOPPED
    reason: str | None = None
    tries: int = 0
    """That failed in a row."""
    stuck: int = 0
    """Of these, those that failed behind the start, the cursor being `stuck_at`."""
    stuck_at: CommitName | None = None
    again_at: float = 0.0
    looked_at: float = 0.0
    asked_at: float = 0.0
    bringing: Future[None] | None = None
    done: bool = False
    """In an available-now run: there is nothing more to do for it."""

    @property
    def report(self) -> LinkReport:
        work = self.work
        position = work.cursor.version if work.cursor is not None else None
        return LinkReport(
            work.link.link_name, str(work.topic), self.state, self.reason, work.replicated, position, work.row.expired
        )


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
        self._target = ClusterTables(spark, config.cluster(target)).open_for_writing(config)
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
                with ThreadPoolExecutor(AT_ONCE, "geo-links") as self._pool:
                    try:
                        self._discover(first=True)
                        self._run()
                    finally:
                        self._stop.set()  # turns end after the one they are in
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
                slot.again_at = time.monotonic() + backoff_s(1)
                self._set(slot, State.DELAYED, str(error))

    def _let_go(self, key: tuple[str, str]) -> None:
        """Stop one topic, whose replication clusters leave this link out by now. It goes on from here if they change again."""
        slot = self._slots[key]
        if slot.bringing is not None:
            return  # it is looked at again once it is brought up
        try:
            clean = self._stop_query(slot)
            if slot.ownership is not None and slot.state is State.STOPPED and slot.work.cursor is not None and clean:
                slot.work.flush(State.STOPPED)
                release([slot.ownership])
        except FAULTS as error:
            log.warning("%s: not stopped cleanly: %s", slot.work, first_line(error))
        finally:
            # Whatever is not known to have ended cleanly stays owned, so that whoever goes on fences it first.
            if slot.ownership is not None:
                slot.ownership.abandon()
            del self._slots[key]
        self._set(slot, State.STOPPED, "its replication clusters leave this link out")

    def _resolved(self) -> None:
        """Let failed links go on that somebody has resolved since (`geo reconcile`)."""
        failed = [slot for slot in self._slots.values() if slot.state is State.FAILED and not slot.replaced]
        if failed:
            known = read_links(self._target)
            for slot in failed:
                now = known.get((slot.work.link.source, str(slot.work.topic)))
                if now is not None and now.state is not State.FAILED:
                    self._set(slot, State.STOPPED, None)

    def _carries(self, link: Link, found: Registered) -> bool:
        return topic_glob_matches(self._glob, found.topic) and replicates(self._config, link, found)

    def _claim(self, slots: list[_Slot], *, take_over: bool) -> None:
        if slots:
            runners = [slot.work.runners for slot in slots]
            owned = claim(self._target, runners, take_over=take_over, point=CrashPoint.LINK_CLAIMED)
            try:
                known = read_links(self._target)  # since it is owned nobody else's row comes after these
            except FAULTS:
                for ownership in owned:
                    ownership.abandon()
                raise
            for slot, ownership in zip(slots, owned, strict=True):
                slot.ownership = ownership
                slot.recorded = known.get((slot.work.link.source, str(slot.work.topic)))

    # -- running -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        recorded = discovered = time.monotonic()
        while not self._stop.is_set():
            for slot in list(self._slots.values()):
                self._step(slot)
            if self._once and all(slot.done for slot in self._slots.values()):
                return
            now = time.monotonic()
            if now - recorded >= FLUSH_INTERVAL_S:
                self._record(State.RUNNING)
                recorded = now
            if now - discovered >= DISCOVERY_INTERVAL_S and not self._once:
                try:
                    self._discover()
                    self._resolved()
                except FAULTS as error:
                    log.warning("topics cannot be listed, trying again: %s", first_line(error))
                discovered = now
            self._stop.wait(_TICK_S / 4 if self._once else _TICK_S)

    def _step(self, slot: _Slot) -> None:
        """What is due for one topic now. Its faults are its own; a fault of this program ends the run."""
        try:
            if slot.bringing is not None:
                if slot.bringing.done():
                    bringing, slot.bringing = slot.bringing, None
                    bringing.result()
                    slot.looked_at = time.monotonic()
                    slot.stuck = 0  # its turns have passed the place
                    slot.done = self._once
                    self._set(slot, State.STOPPED if self._once else State.RUNNING, None)
            elif slot.state is State.RUNNING:
                self._follow(slot)
            elif slot.state in (State.STOPPED, State.DELAYED) and not slot.done and time.monotonic() >= slot.again_at:
                slot.bringing = self._pool.submit(self._bring_up, slot)
        except FAULTS as error:
            self._failed(slot, error)

    def _bring_up(self, slot: _Slot) -> None:
        """Own the topic, start its link, and bring what the source has now."""
        work = slot.work
        if slot.ownership is None:
            work.look_for_source(slot.recorded)
            if slot.previous is not None:
                slot.previous.refuse_if_replaced()
            slot.previous = None
            self._claim([slot], take_over=False)
        assert slot.ownership is not None
        work.prepare(slot.ownership, slot.recorded, failed_before=slot.stuck)
        work.run_turns(self._stop.is_set)

    def _follow(self, slot: _Slot) -> None:
        """A topic that is brought up: start a query if there is news, see whether one has ended. Raises what ended it."""
        work = slot.work
        now = time.monotonic()
        is_due = now - slot.looked_at > (LOOK_INTERVAL_S if work.source_is_local else REMOTE_LOOK_INTERVAL_S)
        if work.query is not None:
            if work.query.isActive:
                if is_due:
                    slot.looked_at = now
                    try:
                        work.check_source()
                    except FAULTS:
                        self._stop_query(slot)
                        raise
                return
            failure, error = work.failure, work.query.exception()
            work.stream_ended()
            if isinstance(failure, GeoError) or (failure is not None and not isinstance(failure, FAULTS)):
                raise failure
            if error is not None:
                raise error
        if not work.source_is_local and now - slot.asked_at < REMOTE_LOOK_S:
            return
        slot.asked_at = now
        if work.has_news():
            work.start_stream(self._trigger)
        elif is_due:
            slot.looked_at = now
            work.check_source()

    def _failed(self, slot: _Slot, error: Exception) -> None:
        """FAILED if a person is needed, else DELAYED: tried again after a while.

        Something may be in flight whose fate is not known, so the ownership is given up for one with a new token, before the cursor
        is read again. A changed source or schema is noticed before an append: then nothing is in flight.
        """
        moved = False
        if (stood := slot.work.cursor) is not None:
            moved = stood != slot.stuck_at
            slot.stuck_at, slot.stuck = stood, 1 if moved else slot.stuck + 1
        steady = moved if self._once else time.monotonic() - slot.again_at > STEADY_S
        slot.tries = 1 if steady else slot.tries + 1
        slot.replaced = isinstance(error, FencedError)
        # What fails before it is owned is nobody's row to write, and may pass: a clock is set, another runner ends.
        refused = isinstance(error, GeoError) and not isinstance(error, RetryableError)
        needs_person = slot.replaced or (refused and slot.ownership is not None)
        slot.again_at = time.monotonic() + backoff_s(slot.tries)
        slot.done = self._once and (needs_person or slot.tries >= _TRIES)
        state, reason = (State.FAILED, str(error)) if needs_person else (State.DELAYED, first_line(error))
        if slot.ownership is not None:
            self._give_up(slot, state, reason)
        self._set(slot, state, reason)  # told when whoever resolves it can

    def _give_up(self, slot: _Slot, state: State, reason: str) -> None:
        """Record why, and give the ownership of a topic up."""
        ownership, slot.ownership = slot.ownership, None
        assert ownership is not None
        needs_person, slot.previous = state is State.FAILED, ownership
        try:
            if not slot.replaced:
                slot.work.flush_failure(state, reason)
            if needs_person and not slot.replaced:
                release([ownership])  # nothing is in flight, and who resolves it must be able to take it
                slot.previous = None
        except FAULTS as another:
            log.warning("%s: its state could not be recorded: %s", slot.work, first_line(another))
        finally:
            ownership.abandon()

    def _set(self, slot: _Slot, state: State, reason: str | None) -> None:
        changed = (state, reason) != (slot.state, slot.reason)
        slot.state, slot.reason = state, reason
        if changed or state is State.STOPPED:
            self._on_event(slot.report)

    def _record(self, state: State) -> list[_Slot]:
        """Record the rows of all topics in this state, in one commit. Returns the slots that are recorded now."""
        kept, moved = [], []
        for slot in self._slots.values():
            if slot.state is not state or slot.ownership is None or slot.work.cursor is None or slot.bringing is not None:
                continue
            try:
                if now := slot.work.progressed(state):
                    moved.append((slot, now))
                kept.append(slot)
            except FAULTS as error:
                self._stop_query(slot)
                self._failed(slot, error)
        try:
            append_links(self._target, [now for _, now in moved])
        except FAULTS as error:
            log.warning("positions could not be recorded, the next time says more: %s", first_line(error))
            return [slot for slot in kept if all(slot is not other for other, _ in moved)]
        for slot, now in moved:
            slot.work.row.note(now)
        if moved:
            reach(CrashPoint.LINK_STATE_RECORDED)
        return kept

    def _stop_queries(self) -> None:
        """Let running batches end."""
        for slot in self._slots.values():
            try:
                if slot.bringing is not None:
                    bringing, slot.bringing = slot.bringing, None
                    bringing.result()  # it has stopped between two turns
                    slot.state = State.STOPPED
                if not self._stop_query(slot):
                    slot.state = State.DELAYED
            except FAULTS as error:
                self._failed(slot, error)

    def _stop_query(self, slot: _Slot) -> bool:
        """Whether it ended well, if there was one."""
        query, clean = slot.work.query, True
        if query is not None:
            if query.isActive:
                stop_between_batches(query)
            clean = query.exception() is None and slot.work.failure is None
            slot.work.stream_ended()
        if slot.state is State.RUNNING:
            slot.state = State.STOPPED
        return clean

    def _hand_over(self) -> None:
        """Record and release what stopped cleanly; anything else is left to the next start."""
        stopped = self._record(State.STOPPED)
        try:
            release([slot.ownership for slot in stopped if slot.ownership])
        except FAULTS as error:
            log.warning("the links could not be released, the next start fences them: %s", first_line(error))


def replicates(config: Config, link: Link, found: Registered) -> bool:
    """Whether the link replicates a topic of its source's registry."""
    return link in config.links_of(found.topic, {link.source: found.replication_clusters})
