"""How long a link's start takes after others have written much into its target, and what it reads and holds for that."""

from __future__ import annotations

import os
import re
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from geo.errors import GeoError
from geo.fleet.replicator import Replicator
from geo.streams.life import State
from tests.benchmarks.bench import Bench, grown
from tests.running import Running


def start_after(bench: Bench, name: str, commits: int) -> list[str]:
    """A link that died behind an append, then `commits` commits of others in its target, then its start and a first turn.

    The data files of the target are out of reach meanwhile: whatever the start read of them it would fail.
    """
    log = bench.log(name)
    bench.small_commit(log)
    bench.stop(bench.link(name))
    target = Path(bench.world.log("eu", bench.topic(name)).name)
    young = _start(bench, name)
    died = bench.link(name)
    bench.small_commit(log)
    died.running.run_turns(lambda: False)
    bench.abandon()
    entry = 10_000_000
    entry += grown(target, commits, entry)
    bench.by_spark(target, entry * 10)
    day = next(path for path in target.iterdir() if path.name.startswith("publish_date="))
    hidden = target / "_out_of_reach"
    day.rename(hidden)
    try:
        old = _start(bench, name)
    finally:
        for path in day.iterdir() if day.is_dir() else ():
            shutil.move(path, hidden / path.name)
        if day.is_dir():
            day.rmdir()
        hidden.rename(day)
    return [
        f"start and a turn of 10 rows, {'':10} {young}",
        f"start and a turn of 10 rows, {commits:,} commits of others later: {old}; bytes read of the target's data files: 0 (out of reach)",
    ]


def _start(bench: Bench, name: str) -> str:
    bench.small_commit(bench.log(name))
    heap, peak = _heap_mb(), _peak_mb()
    began = time.monotonic()
    link = bench.link(name)
    ready = time.monotonic() - began
    link.running.run_turns(lambda: False)
    seconds = time.monotonic() - began
    grown_by = _peak_mb() - peak
    if link.row.replicated != 10:
        raise GeoError(f"{link.row.replicated} rows came, 10 were due")
    bench.stop(link)
    return f"{ready:.2f} s + {seconds - ready:.2f} s; Python's peak +{grown_by:.1f} MB, the JVM's live heap {heap:.0f} -> {_heap_mb():.0f} MB"


def _peak_mb() -> float:
    """The most memory that this process ever held. Unlike a trace of its allocations it costs no time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _heap_mb() -> float:
    """Live heap of this process's JVM, after a collection."""
    children = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True, check=False
    ).stdout.split()
    if not children:
        return float("nan")
    subprocess.run(["jcmd", children[0], "GC.run"], capture_output=True, check=False)
    told = subprocess.run(["jcmd", children[0], "GC.heap_info"], capture_output=True, text=True, check=False).stdout
    return sum(int(used) for used in re.findall(r"total \d+K, used (\d+)K", told)) / 1024


def one_start(bench: Bench, name: str, commits: int) -> list[str]:
    """The start of one link in a warm process, also once both logs have many commits."""
    log = bench.log(name)
    bench.small_commit(log)
    bench.stop(bench.link(name))
    lines = [f"one link's start: {_median_start_s(bench, name):.2f} s"]
    bench.age(name, commits)
    lines.append(
        f"one link's start at {commits:,} commits of both logs: {_median_start_s(bench, name):.2f} s (wanted: at most 0.6)"
    )
    return lines


def _median_start_s(bench: Bench, name: str) -> float:
    found = []
    for _ in range(7):
        began = time.monotonic()
        link = bench.link(name)
        found.append(time.monotonic() - began)
        bench.stop(link)
    return statistics.median(found)


def many_starts(bench: Bench, topics: int) -> Iterator[str]:
    """All links of a cluster with so many topics: the first start, one after it, passes with nothing new, and stops."""
    for number in range(topics):
        bench.small_commit(bench.log(f"many{number}"))
    glob = "persistent://bench/many*/*"
    yield f"{topics} topics, first start: {_up_s(bench, glob, topics):.1f} s (wanted: at most 180)"
    yield f"{topics} topics, start again: {_up_s(bench, glob, topics):.1f} s (wanted: at most 45)"
    passes = []
    for _ in range(3):
        began = time.monotonic()
        reports = Replicator(bench.spark, bench.world.config, "eu", topics=glob).run()
        passes.append(time.monotonic() - began)
        assert {report.state for report in reports} == {State.STOPPED}
    yield f"{topics} topics, a pass with nothing new: {', '.join(f'{one:.1f}' for one in passes)} s (wanted: at most 5)"
    stops = [_stop_s(bench, glob, after) for after in (0.2, 1.0, 3.0, 10.0)]
    yield f"{topics} topics, a stop during a start: {', '.join(f'{one:.1f}' for one in stops)} s (wanted: at most 3)"


def _up_s(bench: Bench, glob: str, topics: int) -> float:
    """From the call until every topic runs."""
    began = time.monotonic()
    with Running(bench.world, "eu", topics=glob, trigger="1 second") as links:
        links.until(lambda: len({one.topic for one in list(links.reports) if one.state is State.RUNNING}) == topics)
        return time.monotonic() - began


def _stop_s(bench: Bench, glob: str, after_s: float) -> float:
    """How long a stop takes that is asked for so long after a start."""
    links = Running(bench.world, "eu", topics=glob, trigger="1 second")
    time.sleep(after_s)
    began = time.monotonic()
    links.stop()
    links.join()
    return time.monotonic() - began
