"""A day of one busy topic: what is left of its commits and of the system tables, and what a batch and a start cost then.

The day's commits are hard links of a few real ones, so that a day takes minutes; each hundredth is Spark's own, which writes the
checkpoint that is due, and so is everything that keeps house.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from geo.coordination.storage_clock import renew
from geo.delta.appending import append_frame
from geo.delta.delta_log import read_folder
from geo.delta.disk_store import on_disk
from geo.delta.history import CommitName
from geo.delta.table import Table
from geo.journal.cluster import ClusterTables
from geo.log import log_cutter
from geo.log.housekeeping import HousekeepingThread, open_for_writing
from geo.replication.link_table import append_links, read_links
from geo.schemas import LEDGERS, LINKS, PROCESSES
from geo.streams import timetable
from tests.benchmarks.bench import Bench, grown
from tests.rows import ledger_row

_CHECKPOINT = 100
"""delta.checkpointInterval of all tables."""

FLUSHES_OF_A_DAY = 20_000
_ROUND_COMMITS = round(FLUSHES_OF_A_DAY * timetable.FULL_HOUSE_ROUND_S / 86_400)
"""Of the topic, from one round of keeping house to the next."""

_EACH_S = {"links": 60, "ledgers": 10, "processes": 100}
"""Seconds between two rows of a link, a producer and a process."""


@dataclass(frozen=True, slots=True)
class Size:
    """A table as it is."""

    rows: int
    commits: int
    log_files: int
    data_files: int

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows, {self.commits:,} commits, {self.log_files:,} files in its log, {self.data_files:,} data files"
        )


class Day:
    """Topic `name` of a bench, from us to eu, with the system tables of both."""

    def __init__(self, bench: Bench, name: str) -> None:
        self._bench, self._name, self._topic = bench, name, bench.topic(name)
        self._us, self._eu = (open_for_writing(bench.world.tables(c), bench.world.config) for c in ("us", "eu"))
        self._entry = 1_000_000
        bench.log(name)
        bench.small_commit(bench.log(name))
        bench.stop(bench.link(name))
        self._us.journal(LEDGERS).append([self._ledger(0)])
        renew(self._eu)
        self.written = {"links": 0, "ledgers": 0, "processes": 0, "commits": 0}

    @property
    def logs(self) -> tuple[Table, Table]:
        return self._us.log(self._topic), self._eu.log(self._topic)

    def grow(self, commits: int) -> None:
        """So many commits more in both logs, and the link's row that says so, as if it had run."""
        for log in self.logs:
            self._grow_log(log, commits)
        self._entry += commits * 10
        self.written["commits"] += commits
        self._record()

    def _grow_log(self, log: Table, commits: int) -> None:
        until, entry = log.latest_version() + commits, self._entry
        while (newest := log.latest_version()) < until:
            last = min(until, (newest // _CHECKPOINT + 1) * _CHECKPOINT)
            entry += grown(Path(log.name), last - 1, entry) * 10
            self._bench.rows(entry, 10).coalesce(1).write.format("delta").mode("append").save(log.name)
            entry += 10

    def _record(self) -> None:
        us, eu = (CommitName.of(log.table_id(), _newest(log)) for log in self.logs)
        state = read_links(self._eu)["us", str(self._topic)]
        append_links(self._eu, [replace(state, cursor=us, target=eu, sequence=state.sequence + 1)])

    def live(self, seconds: float, commits: int) -> None:
        """So long a time of the day: commits of the topic, and the rows that links, producers and processes write meanwhile."""
        self.grow(commits)
        tables: dict[str, tuple[ClusterTables, Any, Callable[[], None]]] = {
            "links": (self._eu, LINKS, self._record),
            "ledgers": (self._us, LEDGERS, lambda: self._us.journal(LEDGERS).append([self._ledger(self.written["ledgers"])])),
            "processes": (self._eu, PROCESSES, lambda: renew(self._eu)),
        }
        for kind, (cluster, schema, append) in tables.items():
            rows = round(seconds / _EACH_S[kind])
            self.written[kind] += rows
            table = cluster.journal(schema).table
            until = table.latest_version() + rows
            append()
            while (newest := table.latest_version()) < until:
                grown(Path(table.name), min(until, (newest // _CHECKPOINT + 1) * _CHECKPOINT - 1))
                if table.latest_version() < until:
                    append()

    def keep_house(self) -> None:
        """A round of the process whose turn it is, in each cluster."""
        for tables in (self._us, self._eu):
            house = HousekeepingThread(tables, self._bench.world.config)
            house.stop()
            house.round()

    def _ledger(self, number: int) -> dict[str, Any]:
        same = {"producer": "bench", "table_version": 10**9}
        return ledger_row(self._topic, end=number, source_count=number, sequence=number, **same)

    def sizes(self) -> dict[str, Size]:
        tables = {
            "topic log, us": self.logs[0],
            "topic log, eu": self.logs[1],
            "system/ledgers, us": self._us.journal(LEDGERS).table,
            "system/links, eu": self._eu.journal(LINKS).table,
            "system/processes, eu": self._eu.journal(PROCESSES).table,
        }
        return {name: _size(table) for name, table in tables.items()}

    def costs_ms(self, batches: int) -> dict[str, float]:
        """What a start of the link, a batch of it and a producer's append take now."""
        starts = []
        for _ in range(5):
            began = time.monotonic()
            link = self._bench.link(self._name)
            starts.append((time.monotonic() - began) * 1000)
            self._bench.stop(link)
        turns, link, log = [], self._bench.link(self._name), self.logs[0]
        for _ in range(batches):
            self._bench.small_commit(Path(log.name))
            began = time.monotonic()
            link.running.run_turns(lambda: False)
            turns.append((time.monotonic() - began) * 1000)
        self._bench.stop(link)
        appends = []
        for number in range(batches):
            rows = self._bench.rows(2_000_000_000 + self._entry + number * 10, 10).coalesce(1)
            began = time.monotonic()
            append_frame(log, rows)
            appends.append((time.monotonic() - began) * 1000)
        self._bench.stop(self._bench.link(self._name))
        return {
            "start of the link": statistics.median(starts),
            "batch as a turn": statistics.median(turns[5:]),
            "batch as a stream": statistics.median(self._bench.batch_ms("link", self._name, batches)),
            "append of a producer": statistics.median(appends[5:]),
        }


def day(bench: Bench, young: int, commits: int, batches: int) -> None:
    """Print a day of `commits` flushes, or the part of it that is so many, kept small each ten minutes as a running process does it."""
    bench.warm_up()
    with mock.patch.object(log_cutter, "KEEP_S", 0.0):  # the commits of ten minutes come within a second here
        _day(bench, young, commits, batches)


def _day(bench: Bench, young: int, commits: int, batches: int) -> None:
    a_day = Day(bench, "day")
    a_day.grow(young)
    first = a_day.costs_ms(batches)
    rounds = math.ceil(commits / _ROUND_COMMITS)
    began, kept_s = time.monotonic(), 0.0
    for _ in range(rounds):
        a_day.live(timetable.FULL_HOUSE_ROUND_S, _ROUND_COMMITS)
        before = time.monotonic()
        a_day.keep_house()
        kept_s += time.monotonic() - before
    print(
        f"  a day in {time.monotonic() - began:.0f} s, of which keeping house {kept_s:.0f} s in {rounds} rounds of two clusters"
    )
    written = ", ".join(f"{count:,} {what}" for what, count in a_day.written.items())
    print(f"  written: {written} (commits: of each topic log; the others: rows, each a commit and a file)")
    a_day.live(timetable.FULL_HOUSE_ROUND_S, _ROUND_COMMITS)
    print("  what is there at the end of the day, just before a round:")
    for name, size in a_day.sizes().items():
        print(f"    {name:22} {size}")
    last = a_day.costs_ms(batches)
    for what, ms in first.items():
        print(
            f"  {what:22} at {young:,} commits {ms:6.0f} ms, at the end of the day {last[what]:6.0f} ms: {last[what] / ms:.2f} x"
        )
    print("  (wanted: a batch at most 1.5 x, a start the same)")


def _newest(log: Table) -> Any:
    commit = log.commit_at(log.latest_version())
    assert commit is not None
    return commit


def _size(table: Table) -> Size:
    folder = Path(table.name) / "_delta_log"
    return Size(
        table.read().count(), len(read_folder(on_disk(folder)).commits), len(os.listdir(folder)), sum(1 for _ in Path(table.name).rglob("*.parquet")) - sum(1 for _ in folder.glob("*.parquet"))
    )  # fmt: skip
