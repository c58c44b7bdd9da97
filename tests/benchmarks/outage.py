"""Six hours of a topic's commits that a broker finds at once, beside topics that go on: bounded memory and batches, nobody starved, and a
kill once all but the last turn is brought."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone

import pyarrow as pa

from geo.delta.appending import append_rows
from geo.delta.frames import bytes_of
from geo.delta.table import Table
from geo.log.topics import create_topic
from geo.names import Topic
from geo.replication.link_state import LinkRecord
from geo.replication.turns import TURN_BYTES
from tests.benchmarks.bench import Bench, at, replica_lags
from tests.benchmarks.brokers import RUNS, broker_of, running, used

_EVERY_S = 1.0
"""Between two commits of a topic that goes on."""


def outage(bench: Bench, commits: int, rows: int, others: int) -> Iterator[str]:
    """A topic with `commits` commits of so many rows of 1 KB, and some that get a small commit each second meanwhile."""
    world, behind = bench.world, bench.topic("behind")
    log = _made(bench, behind)
    for number in range(commits):
        payload = [os.urandom(512).hex().encode() for _ in range(rows)]
        append_rows(log, _rows(number * rows, payload))
    active = [bench.topic(f"active{number}") for number in range(others)]
    logs = [_made(bench, topic) for topic in active]
    for one in logs:
        append_rows(one, _rows(0, payload[:10]))
    size, stop = bytes_of(log), threading.Event()
    writer = threading.Thread(target=_write, args=(logs, payload[:10], stop))
    due, peak, began = commits * rows, 0, time.monotonic()
    turn = TURN_BYTES * due // size
    killed_at = caught_up_s = 0.0
    try:
        while not caught_up_s:
            with running(broker_of(bench), RUNS, others) as (process, _):  # those that go on
                if not writer.is_alive():
                    writer.start()
                while process.poll() is None:
                    peak = max(peak, used(process.pid)[1])
                    found = _count(bench, behind)
                    if found >= due:
                        caught_up_s = time.monotonic() - began
                        break
                    if not killed_at and found >= due - turn:
                        killed_at = found / due
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                    time.sleep(0.1)
        time.sleep(2 * _EVERY_S)
    finally:
        stop.set()
        writer.join()
    turns = [
        (commit.rows or 0, commit.bytes, LinkRecord.decode(commit.user_metadata))
        for commit in world.log("eu", behind).commits(0, world.log("eu", behind).latest_version())
    ]
    brought = [(found, of) for found, of, record in turns if record is not None]
    yield (
        f"{commits:,} commits of {rows} rows, {size / 1e6:,.0f} MB, caught up after {caught_up_s:.0f} s, killed at {killed_at:.0%}; "
        f"in {len(brought)} appends, the largest {max(found for found, _ in brought):,} rows and {max(of for _, of in brought) / 1e6:,.0f} MB; "
        f"the broker had {peak / 1e9:.1f} GB at most"
    )
    with running(broker_of(bench), RUNS, others + 1):
        pass
    lags = sorted(lag for topic in active for lag in replica_lags(bench.world, topic))
    yield (
        f"{others} topics with a commit each {_EVERY_S:.0f} s meanwhile, {len(lags):,} commits: "
        f"behind by {at(lags, 50):.2f} s (p50), {at(lags, 95):.2f} s (p95), {lags[-1]:.1f} s at most (the kill and the start after it are in it)"
    )
    yield bench.verified()


def _made(bench: Bench, topic: Topic) -> Table:
    log = bench.world.log("us", topic)
    create_topic(bench.world.tables("us"), topic)
    return log


def _rows(first: int, payload: list[bytes]) -> pa.Table:
    now, count = datetime.now(timezone.utc), len(payload)
    return pa.table(
        {
            "origin": ["us"] * count, "ledger_id": [1] * count, "entry_id": range(first, first + count),
            "publish_time": pa.array([now] * count, pa.timestamp("us", "UTC")), "producer": ["bench"] * count,
            "key": [f"k{number}" for number in range(count)], "payload": pa.array(payload, pa.binary()),
            "publish_date": pa.array([now.date()] * count, pa.date32()),
        }
    )  # fmt: skip


def _write(logs: list[Table], payload: list[bytes], stop: threading.Event) -> None:
    entry = len(payload)
    while not stop.wait(_EVERY_S):
        for log in logs:
            append_rows(log, _rows(entry, payload))
        entry += len(payload)


def _count(bench: Bench, topic: Topic) -> int:
    """By the commits' own counts; nobody is kept busy by it."""
    log = bench.world.log("eu", topic)
    return sum(commit.rows or 0 for commit in log.commits(0, log.latest_version())) if log.exists() else 0
