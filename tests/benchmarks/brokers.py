"""One broker with many inbound links, and as many plain Delta streams in one application: from the start until all run, and what
they cost while nothing comes.

`python -m tests.benchmarks.brokers plain FOLDER TARGET TOPICS` is the second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

from deltalake import DeltaTable

from geo.fleet.replicator import Replicator
from geo.names import Topic
from geo.replication.link_table import append_links, read_links
from geo.session import session
from geo.tables.history import CommitName
from tests.benchmarks.bench import Bench, grown

_SETTLES_S = 20.0
_UP = "all run"


def idle(bench: Bench, topics: int, commits: int, seconds: float) -> Iterator[str]:
    """So many topics of us, the logs of every second of them with so many commits."""
    names = [f"many{number}" for number in range(topics)]
    for name in names:
        bench.small_commit(bench.log(name))
    Replicator(bench.spark, bench.world.config, "eu").run()
    for name in names[::2]:
        _age(bench, name, commits)
    _catch_up(bench)
    geo = [sys.executable, "-m", "geo", "broker", "--config", str(bench.world.path), "--cluster", "eu"]
    said = f"{topics} topics, half of their logs with {commits:,} commits"
    with _running(geo, ": RUNNING", topics) as (process, up_s):
        yield f"{said}, a broker: all run after {up_s:.0f} s (wanted: 45), {_cost(process, seconds)} (wanted: under 0.1 core, 3 GB)"
    logs = Path(bench.world.log("us", bench.topic(names[0])).name).parents[1]
    plain = [sys.executable, "-m", "tests.benchmarks.brokers", "plain", str(logs), str(bench.folder / "plain"), str(topics)]
    with _running(plain, _UP, 1) as (process, up_s):
        yield f"{said}, as many plain streams in one application: all run after {up_s:.0f} s, {_cost(process, seconds)}"


def _age(bench: Bench, name: str, commits: int) -> None:
    log = bench.log(name)
    grown(log, commits - 1, 10_000_000)
    DeltaTable(log).create_checkpoint()
    bench.rows(20_000_000, 10).coalesce(1).write.format("delta").mode("append").save(str(log))


def _catch_up(bench: Bench) -> None:
    """The links stand at the ends of all logs, as if they had run meanwhile."""
    source, target = bench.world.tables("us"), bench.world.tables("eu")
    states = []
    for (_, topic), row in read_links(target).items():
        log = source.log(Topic.parse(topic))
        newest = log.commit_at(log.latest_version())
        assert newest is not None
        states.append(replace(row, cursor=CommitName.of(log.table_id(), newest), sequence=row.sequence + 1))
    append_links(target, states)


@contextmanager
def _running(command: Sequence[str], sign: str, count: int) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """A program that has printed `count` lines with a sign that it is up, and how many seconds that took."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            found = 0
            for line in process.stdout:
                found += sign in line
                if found == count:
                    break
            assert found == count, f"it ended with {found} of {count}"
            up_s = time.monotonic() - began
            Thread(target=process.stdout.read, daemon=True).start()
            yield process, up_s
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _cost(process: subprocess.Popen[str], seconds: float) -> str:
    """Cores and memory of its process group, while nothing comes."""
    time.sleep(_SETTLES_S)
    before, began = _used(process.pid)[0], time.monotonic()
    time.sleep(seconds)
    after, resident = _used(process.pid)
    return f"idle {(after - before) / (time.monotonic() - began):.3f} cores, {resident / 1e9:.1f} GB resident"


def _used(group: int) -> tuple[float, int]:
    """Seconds of CPU and resident bytes of a process group."""
    cpu, resident = 0.0, 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[2]) == group:
                cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                resident += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
    return cpu, resident


def _plain(logs: Path, target: Path, topics: int) -> None:
    spark = session("plain streams", master="local[2]")
    queries = []
    for number in range(topics):
        rows = spark.readStream.format("delta").option("startingVersion", "latest").load(str(logs / f"many{number}" / "topic"))
        place = target / str(number)
        writer = rows.writeStream.format("delta").option("checkpointLocation", f"{place}-checkpoint")
        queries.append(writer.trigger(processingTime="1 second").start(str(place)))
    while not all(query.lastProgress is not None for query in queries):
        time.sleep(0.5)
    print(_UP, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.pause()


if __name__ == "__main__" and sys.argv[1:2] == ["plain"]:
    _plain(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
