"""How long a link's start takes after others have written much into its target, and what it reads and holds for that."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path

from geo.errors import GeoError
from tests.benchmarks.bench import Bench, grown


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
    died.run_turns(lambda: False)
    bench.abandon()
    entry = 10_000_000
    entry += grown(target, commits, entry)
    bench.rows(entry * 10, 10).coalesce(1).write.format("delta").mode("append").save(str(target))
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
    link.run_turns(lambda: False)
    seconds = time.monotonic() - began
    grown_by = _peak_mb() - peak
    if link.replicated != 10:
        raise GeoError(f"{link.replicated} rows came, 10 were due")
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
