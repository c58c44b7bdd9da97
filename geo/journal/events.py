"""`system/events`: what changed in a cluster, when, why and by whom. What is noted is written by a thread of its own, and never holds up or
ends who notes it.

An event follows what it tells, which is durable by then: who dies in between loses the event and nothing else. Nobody decides anything by
events.
"""

from __future__ import annotations

import atexit
import getpass
import logging
import os
import socket
import threading
import time
import uuid
from datetime import datetime, timedelta
from functools import cache

from geo.crash import CrashPoint, reach
from geo.delta.locks import without_waiting
from geo.delta.predicate import ANY_ROW, All, Among, Compare, Predicate, TimeUs
from geo.delta.writer import files_committed
from geo.disk import local_path
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables, without_spark
from geo.journal.event_rate import Event, EventKind, EventRate
from geo.journal.journal import Journal
from geo.journal.rows import from_row
from geo.names import Topic
from geo.now import utc_now
from geo.reasons import Reason
from geo.schemas import EVENTS, TOPICS
from geo.text import counted, first_line
from geo.times import in_us

log = logging.getLogger(__name__)

SETTING = "GEO_EVENTS"
"""`off` in the environment: nothing is written, for a storage on which each request counts."""

KEPT = timedelta(days=30)

FILES = 30
"""In more files than that they are put into one by whoever writes the next."""

EVERY_S, REMOTE_EVERY_S, AGAIN_S, MOST_PAUSE_S = 1.0, 5.0, 10.0, 60.0
"""After so long what was noted is written in one commit. On a local disk, where that is requests, after a fault, and at most, as where Spark writes
it."""

SHARE = 250
"""While events keep coming their thread pauses for so many times as long as it computed: it takes less than a hundredth of a core."""

AT_EXIT_S = 2.0
"""So long the end of a process waits for its last events."""


class Events:
    """Notes the events of this process in one cluster. `events_of` has the one of its place."""

    def __init__(self, tables: ClusterTables) -> None:
        self._given, self._own = tables, without_spark(tables.cluster)
        self._rate, self._lock = EventRate(uuid.uuid4().hex[:16]), threading.Lock()
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._has_told = False

    def note(
        self,
        kind: EventKind,
        subject: str,
        to_state: str,
        *,
        topic: Topic | str | None = None,
        from_state: str | None = None,
        code: Reason | None = None,
        reason: str | None = None,
        at: datetime | None = None,
    ) -> None:
        """Note what has happened, `at` a time, or now. Returns at once and raises nothing, whatever the storage does. What cannot be written
        is written with what comes next; where too much waits the oldest is forgotten."""
        if are_off():
            return
        try:
            named = None if topic is None else str(topic)
            cluster, when = self._given.cluster.name, at or utc_now()
            event = Event("", when, cluster, kind, subject, named, from_state, to_state, code, reason, this_writer())
            with self._lock:
                self._rate.note(event)
                if self._thread is None:
                    self._hurry.clear()
                    thread = threading.Thread(target=self._run, name=f"geo-events-{cluster}", daemon=True)
                    thread.start()
                    self._thread = thread
        except Exception as error:  # an event stops nobody
            # Also at the end of the interpreter, where no thread begins.
            log.debug("%s %s: no event was noted: %s", kind.value, subject, error)

    def flush(self, limit_s: float = AT_EXIT_S) -> bool:
        """Have what was noted written now, and wait for that so long. Whether all is."""
        self._hurry.set()
        if (thread := self._thread) is not None:
            thread.join(limit_s)
        return not self._rate.due

    def _run(self) -> None:
        pause_s, is_last = self._pause_s(), False
        while not is_last:
            is_last = self._hurry.wait(pause_s)
            began = time.thread_time()
            if not self._write():
                pause_s = min(MOST_PAUSE_S, max(AGAIN_S, 2 * pause_s))
            else:
                pause_s = min(MOST_PAUSE_S, max(pause_s, SHARE * (time.thread_time() - began)))
            with self._lock:
                if not self._rate.due or is_last:
                    self._thread = None
                    return

    def _pause_s(self) -> float:
        """Before the first commit."""
        try:
            return EVERY_S if self._own.is_near else REMOTE_EVERY_S if self._is_here else MOST_PAUSE_S
        except Exception:  # where it lies is not known now, or it has no keys
            return MOST_PAUSE_S

    @property
    def _is_here(self) -> bool:
        """True if this process writes the cluster's tables without Spark."""
        root = self._own.cluster.root
        return root is not None and (local_path(root) is not None or self._own.port is not None)

    def _write(self) -> bool:
        """Write what is due in one commit. Whether that is done, or there is nothing to do."""
        with self._lock:
            due, forgotten = self._rate.due, self._rate.forgotten
        if not due:
            return True
        try:
            reach(CrashPoint.EVENTS_BEFORE_APPEND)
            with without_waiting():
                tables = self._writable()
                journal = tables.journal(EVENTS)
                journal.append(due)
                with self._lock:
                    self._rate.written(due)
                reach(CrashPoint.EVENTS_AFTER_APPEND)
                self._keep_small(journal)
        except Exception as error:  # whatever it is: nobody waits for events, and nothing is wrong without them
            (log.debug if self._has_told else log.info)(
                "cluster %s: %s cannot be written now: %s",
                self._given.cluster.name,
                counted(len(due), "event"),
                first_line(error),
            )
            self._has_told = True
            return False
        if self._has_told and forgotten:
            log.warning("cluster %s: %d events were never written, since too many waited", self._given.cluster.name, forgotten)
        self._has_told = False
        return True

    def _writable(self) -> ClusterTables:
        """The tables by which to write. Raises where nobody may: nothing is made where the cluster's registry is not, as in a region that was
        moved away."""
        is_here = self._is_here
        tables = self._own if is_here else self._given
        if not is_here and not tables.has_spark:
            raise FileNotFoundError(f"{tables.place} is written by Spark alone, which does not run")
        tables.refuse_unsafe_storage()
        tables.refuse_other_cluster()
        registry = tables.journal(TOPICS).table
        if not (bool(registry.log_folder.names()) if registry.log_folder is not None else registry.exists()):
            raise FileNotFoundError(f"{registry} is not there")
        return tables

    def _keep_small(self, journal: Journal) -> None:
        """Put them into one file, without those of long ago, if they are in many."""
        folder = journal.table.log_folder
        files = upkeep.count_files(journal) if folder is None or folder.store.is_near else files_committed(folder)
        if files > FILES:
            of_spark = self._given.journal(EVENTS) if self._given.has_spark else journal  # where they are many
            came_at = journal.came_at()  # by the storage's clock: this host's may be years ahead
            upkeep.clean(of_spark, ANY_ROW if came_at is None else kept_since(came_at))
            upkeep.cut(journal)


_events: dict[str, Events] = {}
"""Events by the place of a cluster's tables."""

_lock = threading.Lock()


def are_off() -> bool:
    """True if nothing is written, as `SETTING` says."""
    return os.environ.get(SETTING, "").lower() == "off"


def events_of(tables: ClusterTables) -> Events:
    """Return what notes this process's events in a cluster."""
    with _lock:
        found = _events.get(tables.place)
        if found is None or found._given.cluster != tables.cluster:
            found = _events[tables.place] = Events(tables)
        elif tables.has_spark and not found._given.has_spark:
            found._given = tables
        return found


@atexit.register
def flush_all(limit_s: float = AT_EXIT_S) -> None:
    """Have all that was noted written now, and wait for it so long in all."""
    deadline, noted = time.monotonic() + limit_s, list(_events.values())
    for one in noted:
        one._hurry.set()
    for one in noted:
        one.flush(max(0.0, deadline - time.monotonic()))


@cache
def this_writer() -> str:
    """Names who writes here: user, host and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "?"
    return f"{user}@{socket.gethostname()} {os.getpid()}"


def is_of_this_host(one: Event) -> bool:
    """True if a process of this host noted the event."""
    return this_writer().rpartition("@")[2].partition(" ")[0] == one.by.rpartition("@")[2].partition(" ")[0]


def kept_since(now: datetime) -> Predicate:
    """The condition on the events that are kept."""
    return since(now - KEPT)


def since(moment: datetime) -> Predicate:
    """The condition on the events of a moment and later."""
    return Compare("at", ">=", TimeUs(in_us(moment)))


def read_events(tables: ClusterTables, begin: datetime, *kinds: EventKind) -> list[Event]:
    """The events of a cluster since `begin`, oldest first; of these kinds, if some are given."""
    where = since(begin) if not kinds else All((since(begin), Among("kind", frozenset(kinds))))
    found = [from_row(Event, row) for row in tables.journal(EVENTS).newest_where(where)]
    return sorted(found, key=lambda one: (one.at, one.id))
