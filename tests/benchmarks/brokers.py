"""One broker with many inbound links, and as many plain Delta streams in one application: from the start until all run, and what
they cost while nothing comes.

`python -m tests.benchmarks.brokers FOLDER TARGET NAME…` is the second: of the logs of these names below a folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from threading import Thread

from deltalake import DeltaTable

from geo.delta.history import CommitName
from geo.fleet.replicator import Replicator
from geo.names import Topic
from geo.replication.link_table import append_links, read_links
from geo.schemas import TOPICS
from geo.session import session
from geo.streams.life import State
from tests.benchmarks.bench import Bench, grown

_SETTLES_S = 20.0
UP = "all run"
"""What a program prints once it does all that it will do."""

_MANY = (10, 100, 1_000)


def idle(bench: Bench, topics: int, commits: int, seconds: float) -> Iterator[str]:
    """So many topics of us, the logs of every second of them with so many commits."""
    names = [f"many{number}" for number in range(topics)]
    for name in names:
        bench.small_commit(bench.log(name))
    Replicator(bench.spark, bench.world.config, "eu").run()
    for name in names[::2]:
        _age(bench, name, commits)
    _catch_up(bench)
    said = f"{topics} topics, half of their logs with {commits:,} commits"
    with running(broker_of(bench), RUNS, topics) as (process, up_s):
        yield f"{said}, a broker: all run after {up_s:.0f} s (wanted: 45), {_cost(process, seconds)} (wanted: under 0.1 core, 3 GB)"
    with running(plain_streams(bench, names), UP, 1) as (process, up_s):
        yield f"{said}, as many plain streams in one application: all run after {up_s:.0f} s, {_cost(process, seconds)}"


def many_idle(bench: Bench, most: int, seconds: float) -> Iterator[str]:
    """A broker that starts again, of 10, 100 and so on up to `most` topics of us that are at rest."""
    found: list[tuple[int, float, float]] = []
    names = ["many0"]
    bench.small_commit(bench.log(names[0]))
    Replicator(bench.spark, bench.world.config, "eu").run()
    for topics in [size for size in _MANY if size < most] + [most]:
        fresh = [f"many{number}" for number in range(len(names), topics)]
        _multiply(bench, names[0], fresh)
        names += fresh
        began = time.monotonic()
        reports = Replicator(bench.spark, bench.world.config, "eu").run()
        assert Counter(report.state for report in reports) == {State.STOPPED: topics}, reports
        first_s = time.monotonic() - began
        with running(broker_of(bench), RUNS, topics) as (process, up_s):
            cores, resident = _at_rest(process, seconds)
        found.append((topics, up_s, cores))
        yield (
            f"{topics:,} topics, a broker that starts again: all run after {up_s:.0f} s (wanted of 1,000: 300), idle {cores:.3f} cores (0.3), "
            f"{resident / 1e9:.1f} GB resident (4); a topic: {cores / topics * 1e6:.0f} millionths of a core, {up_s / topics:.3f} s; a first "
            f"pass over all, in a warm process: {first_s:.0f} s"
        )
    (few, few_s, few_cores), (_, most_s, most_cores) = found[0], found[-1]
    if more := most - few:
        yield (
            f"from {few:,} to {most:,} topics each costs {(most_cores - few_cores) / more * 1e6:.0f} millionths of a core and "
            f"{(most_s - few_s) / more:.3f} s of the start"
        )


def _multiply(bench: Bench, name: str, more: Sequence[str]) -> None:
    """More topics as this one, in both clusters, and their links where its link is: copies of its logs that have ids of their own, which
    takes a hundredth of the time of making them."""
    source, target = bench.world.tables("us"), bench.world.tables("eu")
    topic = bench.topic(name)
    state = read_links(target)["us", str(topic)]
    assert state.cursor is not None
    assert state.target is not None
    ids = [tables.log(topic).table_id() for tables in (source, target)]
    states, rows = [], []
    for other in map(bench.topic, more):
        own = {old: str(uuid.uuid4()) for old in ids} | {str(topic): str(other)}
        for tables in (source, target):
            _copy_log(Path(tables.log(topic).name), Path(tables.log(other).name), own)
        states.append(
            replace(
                state,
                topic=str(other),
                generation=0,
                cursor=replace(state.cursor, table_id=own[state.cursor.table_id]),
                target=replace(state.target, table_id=own[state.target.table_id]),
            )
        )
        rows.append(
            {"topic": str(other), "created_at": datetime.now(timezone.utc), "typed": False, "policies": None, "sequence": 1}
        )
    for tables in (source, target):
        tables.journal(TOPICS).append(rows)
    append_links(target, states)


def _copy_log(log: Path, copy: Path, texts: Mapping[str, str]) -> None:
    """A copy of a log in whose commits some texts are others. Hadoop's checksums stay behind: they would be wrong."""
    shutil.copytree(log, copy, ignore=shutil.ignore_patterns(".*.crc"))
    for path in (copy / "_delta_log").iterdir():
        if path.suffix in (".json", ".crc"):
            text = path.read_text()
            for old, new in texts.items():
                text = text.replace(old, new)
            path.write_text(text)


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


RUNS = ": RUNNING"
"""In the line by which a broker says that a link runs."""


def broker_of(bench: Bench, cluster: str = "eu") -> list[str]:
    """The broker of a cluster, as a command."""
    return [sys.executable, "-m", "geo", "broker", "--config", str(bench.world.path), "--cluster", cluster]


def plain_streams(bench: Bench, names: Sequence[str]) -> list[str]:
    """A plain stream of each of these logs of us, in one application, as a command; their copies are below `plain`."""
    logs = Path(bench.world.log("us", bench.topic(names[0])).name).parents[1]
    return [sys.executable, "-m", "tests.benchmarks.brokers", str(logs), str(bench.folder / "plain"), *names]


@contextmanager
def running(command: Sequence[str], sign: str, count: int) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """A program that has printed `count` lines with a sign that it is up, and how many seconds that took."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
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
    cores, resident = _at_rest(process, seconds)
    return f"idle {cores:.3f} cores, {resident / 1e9:.1f} GB resident"


def _at_rest(process: subprocess.Popen[str], seconds: float) -> tuple[float, int]:
    """Cores and resident bytes of its process group, while nothing comes."""
    time.sleep(_SETTLES_S)
    before, began = used(process.pid)[0], time.monotonic()
    time.sleep(seconds)
    after, resident = used(process.pid)
    return (after - before) / (time.monotonic() - began), resident


def used(group: int) -> tuple[float, int]:
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


def _plain(logs: Path, target: Path, names: Sequence[str]) -> None:
    spark = session("plain streams", master="local[2]")
    queries = []
    for name in names:
        rows = spark.readStream.format("delta").option("startingVersion", "latest").load(str(logs / name / "topic"))
        place = target / name
        writer = rows.writeStream.format("delta").option("checkpointLocation", f"{place}-checkpoint")
        queries.append(writer.trigger(processingTime="1 second").start(str(place)))
    while not all(query.lastProgress is not None for query in queries):
        time.sleep(0.5)
    up_until_ended()


def up_until_ended() -> None:
    """Say that all runs, and let it run until SIGTERM."""
    print(UP, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.pause()


if __name__ == "__main__":
    _plain(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
