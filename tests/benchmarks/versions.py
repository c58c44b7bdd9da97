"""Version subscriptions: how old the version is that is handed out, what many topics with one cost, and what markers add to a busy topic."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

from pyspark.sql import SparkSession

from geo.fleet.replicator import Replicator
from geo.names import Topic
from geo.schemas import MARKERS
from geo.subscription.versions.version_starts import read_starts
from geo.subscription.versions.version_status import start_elsewhere
from geo.subscription.versions.version_subscriptions import create, finish
from tests.benchmarks.bench import Bench, at
from tests.benchmarks.brokers import RUNS, broker_of, running, used

NAME = "reports"
COMMIT_S, SAMPLE_S = 2.0, 0.25
_RESTS_S = 40.0
"""Without a marker for so long all topics rest."""

_COMPILES_S = 300.0
"""Half of a broker's time is Java's compiler in its first minutes; it is made to run for months."""
MESSAGES = 10
"""Of a commit."""


def ages(spark: SparkSession, folder: Path, clusters: tuple[str, ...], seconds: float) -> Iterator[str]:
    """One topic, a commit of ten rows each two seconds in us, whose consumer there finishes each at once; snapshots each second."""
    bench = _bench(spark, folder, clusters, "1 seconds")
    topic, us = bench.topic("busy"), bench.world.tables("us")
    log = bench.log("busy")
    bench.small_commit(log)
    create(us, topic, NAME)
    others = [name for name in clusters if name != "us"]
    with ExitStack() as processes:
        for cluster in clusters:
            processes.enter_context(running(broker_of(bench, cluster), RUNS, 1))
        _followed(bench, topic, log, others, _COMPILES_S)
        before = us.log(topic).latest_version()
        found = _followed(bench, topic, log, others, seconds)
        tables = {name: bench.world.tables(name) for name in clusters}
        moves = [start_elsewhere(tables, bench.world.config, topic, NAME, "us", name, source_gone=False) for name in others]
        after, messages = us.log(topic).latest_version(), seconds / COMMIT_S
    wanted = 3 if len(clusters) == 2 else 5
    for name, each in found.items():
        yield (
            f"{len(clusters)} clusters, a commit each {COMMIT_S:.0f} s, snapshots each second: the version for {name} is {at(each, 50):.2f} s "
            f"old (p50; wanted: at most {wanted}), {at(each, 95):.2f} s (p95)"
        )
    for one in moves:
        yield (
            f"who moves from us to {one.target} at the end begins at version {one.start}, {one.age_s or 0.0:.1f} s old: at most {one.at_most_repeated} "
            f"messages come again, with {MESSAGES / COMMIT_S:.0f} a second; {sum((one.unseen or {}).values())} are not seen"
        )
    markers = after - before - messages
    yield (
        f"markers added {markers:,.0f} commits to {messages:,.0f} of messages in {seconds:.0f} s: {markers / seconds * 86_400:,.0f} a day with a "
        "snapshot each second, a tenth of it with one each ten seconds"
    )


def many(spark: SparkSession, folder: Path, topics: int, seconds: float) -> Iterator[str]:
    """Topics of us with a version subscription each, in two brokers: at rest, and with a commit each ten seconds in each."""
    bench = _bench(spark, folder, ("us", "eu"), "10 seconds")
    us, names = bench.world.tables("us"), [f"many{number}" for number in range(topics)]
    logs = {name: bench.log(name) for name in names}
    for name, log in logs.items():
        bench.small_commit(log)
        create(us, bench.topic(name), NAME)
    for cluster in ("eu", "us"):  # what a link's first comparison costs is not asked here
        Replicator(spark, bench.world.config, cluster).run()
    with running(broker_of(bench, "eu"), RUNS, topics) as (eu, _), running(broker_of(bench, "us"), RUNS, topics) as (own, _):
        settled_s = _at_rest(bench, (eu, own))
        for state, writes in (("at rest", False), ("with a commit each 10 s", True)):
            before, began = {p.pid: used(p.pid)[0] for p in (own, eu)}, time.monotonic()
            while time.monotonic() - began < seconds:
                if writes:
                    _once_each(bench, logs, 10.0)
                else:
                    time.sleep(0.5)
            took = time.monotonic() - began
            cores = {p.pid: (used(p.pid)[0] - before[p.pid]) / took for p in (own, eu)}
            yield (
                f"{topics} topics with version subscriptions {state}: {cores[own.pid]:.2f} cores for the broker of us, "
                f"{cores[eu.pid]:.2f} for that of eu, {used(own.pid)[1] / 1e9:.1f} GB (wanted at rest: 0.2 cores, which it was after {settled_s:.0f} s)"
            )


def _at_rest(bench: Bench, brokers: Sequence[subprocess.Popen[str]]) -> float:
    """Wait until no marker was told for long; after how many seconds the last one was."""
    began, changed, stood = time.monotonic(), time.monotonic(), dict[str, int]()
    while time.monotonic() - changed < _RESTS_S:
        assert all(broker.poll() is None for broker in brokers)
        journals = {name: bench.world.tables(name).journal(MARKERS) for name in ("us", "eu")}
        now = {name: journal.table.latest_version() for name, journal in journals.items() if journal.exists()}
        if now != stood:
            stood, changed = now, time.monotonic()
        time.sleep(1.0)
    return changed - began


def _bench(spark: SparkSession, folder: Path, clusters: tuple[str, ...], frequency: str) -> Bench:
    bench = Bench(spark, folder)
    world = bench.world
    world.rewrite(clusters)
    world.configure(f"snapshots: {{frequency: {frequency}}}\n")
    return bench


def _followed(bench: Bench, topic: Topic, log: Path, others: list[str], seconds: float) -> dict[str, list[float]]:
    """Ages of what is handed out, sampled while the topic is written."""
    us = bench.world.tables("us")
    table, found = us.log(topic), {name: list[float]() for name in others}
    began, due = time.monotonic(), time.monotonic()
    while time.monotonic() - began < seconds:
        if time.monotonic() >= due:
            bench.small_commit(log)
            due += COMMIT_S
        finish(us, topic, NAME, table.latest_version())
        starts = read_starts(us, topic).starts
        for name in others:
            one = starts.get((NAME, name))
            if one is not None and one.taken_at is not None:
                found[name].append((datetime.now(timezone.utc) - one.taken_at).total_seconds())
        time.sleep(SAMPLE_S)
    return found


def _once_each(bench: Bench, logs: dict[str, Path], seconds: float) -> None:
    """A commit to each, spread over so long."""
    us, began = bench.world.tables("us"), time.monotonic()
    for number, (name, log) in enumerate(logs.items()):
        bench.small_commit(log)
        topic = bench.topic(name)
        finish(us, topic, NAME, us.log(topic).latest_version())
        time.sleep(max(0.0, began + (number + 1) * seconds / len(logs) - time.monotonic()))
