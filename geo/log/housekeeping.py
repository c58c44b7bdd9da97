"""Keeping a cluster's tables small off everybody's path: few rows and files in system tables, few commits in logs.

Of the processes that own something in the cluster one does it, the one with the least name. Two that both think they are do no harm. What fails is
logged and done at the next occasion: nobody ends by it, and nothing is wrong without it, only slower.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from geo.config.model import Config
from geo.coordination.first_use import admit
from geo.coordination.identity import identify
from geo.coordination.liveness import silent_s
from geo.coordination.signs import forget, leave_hand, signs
from geo.coordination.storage_clock import checked_now_us, storage_now_us
from geo.delta.cut import KEEP
from geo.delta.predicate import ANY_ROW, Compare, Predicate, TimeUs
from geo.delta.put_commit import last_put_at
from geo.delta.spark_commits import sweep_table
from geo.delta.store import read_each
from geo.delta.writer import files_committed
from geo.disk import local_path
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables
from geo.journal.events import kept_since
from geo.log.finished import move_ended
from geo.log.log_cutter import LogCutter
from geo.log.topics import registered_topics
from geo.names import Topic
from geo.schemas import EVENTS, JOURNALS, LEDGERS, LOAD_REPORTS, PROCESSES, TableSchema
from geo.streams import timetable
from geo.text import first_line
from geo.times import from_us, in_us

log = logging.getLogger(__name__)

FILES = 30
"""A system table in more files is cleaned: reading thirty small files takes a tenth of a second, cleaning them half of one."""

FILES_OF_WRITERS = 45
"""On a store who writes a system table keeps it as small, though it is another's turn, who may write nothing and look each hour. A checksum lists
no more than fifty files."""

FILES_OF_SHORT_RUNS = 60
"""Runs that end before their first round clean at their end, but only what nobody else has kept smaller meanwhile."""

NEGLECTED = 10
"""Times as much as that, and whoever sees it does it: the one whose turn it is may be of another version, or hang."""

AT_EXIT_S = 30.0
"""Seconds that the end of a process waits for what it cleans."""

SILENT_FOR = timedelta(days=1)
"""A process that gave no sign of life for so long is dropped from `system/processes`; nobody asks for it any more."""

_cleaning: dict[str, threading.Thread] = {}
_cleaned_at: dict[str, float] = {}
"""Time, by the place of a cluster's tables, when the thread that cleans after the last run there was begun."""


def open_for_writing(tables: ClusterTables, config: Config, *, rehearsal: bool = False) -> ClusterTables:
    """`tables`, once it is sure that this process may write them; kept small from its first claim on. `config` says who reads
    them.

    To be called before anything of the cluster is read. Raises UnsafeError if several writers could lose
    commits there (geo.delta.storage), OtherClusterError if it is another cluster's place (geo.coordination.identity). A rehearsal is
    refused where what it rehearses always would be; it writes nothing.
    """
    tables.refuse_unsafe_storage()
    if not rehearsal:
        admit(tables)
    identify(tables, rehearsal=rehearsal)
    if rehearsal:
        return tables
    tables.start_housekeeper = partial(HousekeepingThread, config=config)
    return tables


def rows_kept(schema: TableSchema, now: datetime) -> Predicate:
    """The condition on the newest rows of a system table that are kept."""
    since_us = in_us(now - SILENT_FOR)
    if schema is LOAD_REPORTS:  # brokers whose names do not come back
        return Compare("sequence", ">", since_us)
    if schema is EVENTS:
        return kept_since(now)
    return Compare("renewed_at", ">", TimeUs(since_us)) if schema is PROCESSES else ANY_ROW


def is_keeper(me: str, alive: Collection[str]) -> bool:
    """True if it is this process's turn, among those that live."""
    return me <= min(alive, default=me)


class HousekeepingThread:
    """The thread of a process that keeps one cluster small, when it is its turn."""

    def __init__(self, tables: ClusterTables, config: Config) -> None:
        self.tables, self._config, self._stop = tables, config, threading.Event()
        self._full_at, self._vacuumed_at = -math.inf, time.monotonic()
        self._begun_at = self._looked_at = time.monotonic()
        threading.Thread(target=self._run, name=f"geo-house-{tables.cluster.name}", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def clean_once(self, tables: ClusterTables) -> None:
        after_last_run(tables, self._config)

    def _run(self) -> None:
        is_near = self.tables.is_near
        while not self._stop.wait(timetable.HOUSE_ROUND_S):
            is_late = time.monotonic() - self._begun_at >= timetable.REMOTE_HOUSE_ROUND_S
            is_full = is_near or (is_late and self.is_due())
            _try("whose turn it is to keep house", self.tables, self.round if is_full else self.keep_grown)

    def is_due(self) -> bool:
        """True if another round is worth its requests: this process has written to a system table since the last one, or that is long ago."""
        if self.tables.port is None or time.monotonic() - self._begun_at >= timetable.IDLE_HOUSE_ROUND_S:
            return True
        folders = (self.tables.journal(schema).table.log_folder for schema in JOURNALS)
        return any(folder is not None and last_put_at(folder) > self._begun_at for folder in folders)

    def keep_grown(self) -> None:
        """Keep the system tables small that by this process's own commits since the last look are in many files, sooner if it is its turn. Where
        none is, nothing is asked."""
        looked_at, self._looked_at = self._looked_at, time.monotonic()
        grown = []
        for schema in JOURNALS:
            folder = self.tables.journal(schema).table.log_folder
            if folder is not None and last_put_at(folder) > looked_at and files_committed(folder) > FILES:
                grown.append(schema)
        if grown:
            keeper = is_keeper(self.tables.me.name, _alive(self.tables))
            keep_journals(self.tables, FILES if keeper else FILES_OF_WRITERS, grown)

    def round(self) -> None:
        """Do what is due, if it is this process's turn or nobody does it."""
        self._begun_at = time.monotonic()
        keeper = is_keeper(self.tables.me.name, _alive(self.tables))
        full = time.monotonic() - self._full_at >= timetable.FULL_HOUSE_ROUND_S
        if keeper or full:
            keep_journals(self.tables, FILES if keeper else FILES * NEGLECTED)
        if full:
            self._full_at = time.monotonic()
            forget_signs(self.tables)
            topics = (registered.topic for registered in registered_topics(self.tables))
            cut_topic_logs(self.tables, self._config, topics, 2 * KEEP if keeper else 2 * KEEP * NEGLECTED)
        if time.monotonic() - self._vacuumed_at >= timetable.VACUUM_S:
            self._vacuumed_at = time.monotonic()
            for schema in (*JOURNALS, EVENTS) if keeper else ():
                _try(f"system/{schema.kind}", self.tables, partial(upkeep.vacuum, self.tables.journal(schema)))
            _try("held rows", self.tables, partial(remove_held, self.tables, timetable.VACUUM_S))


def forget_signs(tables: ClusterTables) -> None:
    """Remove what processes that ended long ago left, also short ones that never keep house."""
    _try("signs of life", tables, lambda: forget(tables, storage_now_us(tables), SILENT_FOR))


def keep_journals(tables: ClusterTables, files: int, schemas: Sequence[TableSchema] = JOURNALS) -> None:
    """Clean those of these system tables that are in more than so many files, and cut their logs."""
    for schema in tables.there(schemas):
        _try(f"system/{schema.kind}", tables, partial(_keep_journal, tables, schema, files))


def _keep_journal(tables: ClusterTables, schema: TableSchema, files: int) -> None:
    journal = tables.journal(schema)
    if upkeep.count_files(journal) > files:
        now = from_us(checked_now_us(tables, f"{journal} is not cleaned"))
        if schema is LEDGERS:
            move_ended(tables, now)
        gone = upkeep.clean(journal, rows_kept(schema, now))
        log.info("%s: %d superseded rows and %d commits removed", journal, gone, upkeep.cut(journal))


def cut_topic_logs(tables: ClusterTables, config: Config, topics: Iterable[Topic], least: int) -> None:
    """Cut the logs that have more than `least` commits, on a store some at once. `config` says who reads them."""
    cutter = LogCutter(tables, config)

    def cut(topic: Topic) -> None:
        _try(str(topic), tables, partial(_cut_topic_log, cutter, topic, least))
        _try(str(topic), tables, partial(sweep_table, tables.log(topic)))

    for _ in read_each(tables.port, topics, cut):
        pass


def _cut_topic_log(cutter: LogCutter, topic: Topic, least: int) -> None:
    done = cutter.cut(topic, least=least)
    if done is not None and (done.commits or done.held_by):
        held = f"; the rest is held by {done.held_by}" if done.held_by else ""
        log.info("%s: %d commits removed from its log, %d stay%s", topic, done.commits, done.kept, held)


def remove_held(tables: ClusterTables, older_than_s: float) -> None:
    """Remove the rows that publishers held and did not remove, since they were killed and never opened again. These are below the cluster's
    checkpoints on a local disk, or are of publishers of this host on its own disk."""
    now_s = checked_now_us(tables, "rows that publishers held stay") / 1e6
    folders = filter(None, {local_path(place) for place in (tables.checkpoint("held"), tables.run_checkpoint("held"))})
    for file in [file for folder in folders for file in folder.rglob("*.arrow")]:
        if now_s - file.stat().st_mtime > older_than_s:
            file.unlink(missing_ok=True)
            with suppress(OSError):  # others are in it
                file.parent.rmdir()


def after_last_run(tables: ClusterTables, config: Config) -> None:
    """Clean, in a thread of its own, what nobody else keeps small, since nothing is owned here any more. The end of this process waits for
    that thread a while. At most once in timetable.FULL_HOUSE_ROUND_S."""
    now = time.monotonic()
    if now - _cleaned_at.get(tables.place, -math.inf) < timetable.FULL_HOUSE_ROUND_S:
        return
    _cleaned_at[tables.place] = now

    def clean() -> None:
        keep_journals(tables, FILES_OF_SHORT_RUNS)
        forget_signs(tables)
        cut_topic_logs(tables, config, sorted(tables.topics_used), 2 * KEEP)
        remove_held(tables, timetable.VACUUM_S)
        leave_hand(tables)

    thread = threading.Thread(
        target=_try, args=("its tables", tables, clean), name=f"geo-clean-{tables.cluster.name}", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending
        return
    _cleaning[tables.place] = thread


@atexit.register
def wait_for_cleaning(limit_s: float = AT_EXIT_S) -> None:
    """Wait until everything that is being cleaned is, or the time is over."""
    deadline = time.monotonic() + limit_s
    for thread in list(_cleaning.values()):
        thread.join(max(0.0, deadline - time.monotonic()))


def _alive(tables: ClusterTables) -> set[str]:
    """Names of the processes that own something here, as far as they gave a sign of life."""
    found, now_us = {tables.me.name}, storage_now_us(tables)
    for name, (at_us, process) in signs(tables).items():
        gone = process is not None and process.is_here and not process.lives
        if silent_s(now_us, [at_us]) <= tables.cluster.owner_timeout_s and not gone:
            found.add(name)
    return found


def _try(what: str, tables: ClusterTables, action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:  # whatever it is, the tables are right without it
        log.info("cluster %s: %s was not kept small this time: %s", tables.cluster.name, what, first_line(error))
