"""How far a broker's targets are behind their sources while topics are written by Spark in another process, and those of as many plain
Delta streams in one application under the same load.

`python -m tests.benchmarks.lag FOLDER PACE_S NAME…` is the writer: a small commit to each of these logs below a folder, each so many seconds.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from geo.session import session
from tests.benchmarks.bench import Bench, at, commits, message_rows
from tests.benchmarks.brokers import RUNS, UP, broker_of, plain_streams, running, up_until_ended, used

PACE_S = 5.0
"""Between two commits of a topic."""

_ROWS = 10
_THREADS = 4
_SETTLES_S = 60.0
"""By then both are warm."""

_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Lags:
    """Seconds from each source commit to the commit that brings its rows, by topic."""

    by_topic: Mapping[str, Sequence[float]]
    due: int
    """How many commits there would have been at the pace."""
    reader_cores: float
    writer_cores: float

    @property
    def all(self) -> list[float]:
        return [each for found in self.by_topic.values() for each in found]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.all)

    @property
    def p95(self) -> float:
        return at(self.all, 95)

    @property
    def worst(self) -> float:
        """The greatest mean of a topic, by the mean of all."""
        return max(map(statistics.fmean, self.by_topic.values())) / self.mean

    def __str__(self) -> str:
        return (
            f"mean {self.mean:.2f} s, p95 {self.p95:.2f} s, worst topic's mean {self.worst:.2f} x the mean; {len(self.all):,} commits of "
            f"{self.due:,} due, {self.reader_cores:.2f} cores, the writer {self.writer_cores:.2f}"
        )


def lags(bench: Bench, topics: int, seconds: float) -> Iterator[str]:
    """Both, one after the other, each with topics of its own and a writer of its own."""
    found = {}
    said = f"{topics} topics, {_ROWS} rows each {PACE_S:.0f} s to each, for {seconds:.0f} s"
    for kind in ("broker", "plain"):
        found[kind] = _lags(bench, kind, [f"{kind}{number}" for number in range(topics)], seconds)
        yield f"{said}, {'a broker' if kind == 'broker' else 'as many plain streams in one application'}: {found[kind]}"
    ours, plain = found["broker"], found["plain"]
    yield (
        f"the broker's mean is {ours.mean / plain.mean:.2f} x the plain streams', its p95 {ours.p95 / plain.p95:.2f} x (wanted: at most 0.5 "
        f"each); its worst topic {ours.worst:.2f} x its mean (wanted: at most 1.5)"
    )


def _lags(bench: Bench, kind: str, names: Sequence[str], seconds: float) -> Lags:
    sources = [bench.log(name) for name in names]
    if kind == "broker":
        reader, sign, count = broker_of(bench), RUNS, len(names)
        targets = [Path(bench.world.log("eu", bench.topic(name)).name) for name in names]
    else:
        reader, sign, count = plain_streams(bench, names), UP, 1
        targets = [bench.folder / "plain" / name for name in names]
    writer = [sys.executable, "-m", "tests.benchmarks.lag", str(sources[0].parents[1]), str(PACE_S), *names]
    with running(writer, UP, 1) as (writes, _), running(reader, sign, count) as (reads, _):
        time.sleep(_SETTLES_S)
        began, before = time.time(), [used(process.pid)[0] for process in (reads, writes)]
        time.sleep(seconds)
        took = time.time() - began
        cores = [(used(process.pid)[0] - cpu) / took for process, cpu in zip((reads, writes), before, strict=True)]
        writes.terminate()
        while used(writes.pid)[1]:  # its JVM may be in a commit
            time.sleep(0.1)
            writes.poll()
        _until_there(sources, targets)
    by_topic = {name: _behind(source, target, began) for name, source, target in zip(names, sources, targets, strict=True)}
    return Lags(by_topic, round(took / PACE_S * len(names)), *cores)


def _until_there(sources: Sequence[Path], targets: Sequence[Path]) -> None:
    """Wait until the newest entry of each source is in its target."""
    deadline = time.monotonic() + _LIMIT_S
    for source, target in zip(sources, targets, strict=True):
        wanted = _newest(source)
        while _newest(target) < wanted:
            assert time.monotonic() < deadline, f"{target} has {_newest(target)}, not {wanted}"
            time.sleep(0.5)


def _newest(log: Path) -> int:
    """The greatest entry of a log, by the statistics of its files."""
    found = DeltaTable(log).get_add_actions(flatten=True)
    return max(map(int, found["max.entry_id"].to_pylist()), default=-1)


def _behind(source: Path, target: Path, since: float) -> list[float]:
    """Of the source's commits since a time, by the files' times."""
    landed = {entry: at for at, entries in commits(target) for entry in entries}
    return [landed[min(entries)] - at for at, entries in commits(source) if at >= since]


# -- the writer --------------------------------------------------------------------------------------------------------------


def _write(logs: Path, pace_s: float, names: Sequence[str]) -> None:
    spark = session("writer", master="local[2]")
    for name in names:
        _commit(spark, logs / name / "topic", 0)  # so that all begin warm
    began = time.monotonic() + pace_s
    for number in range(_THREADS):
        due = {name: began + names.index(name) * pace_s / len(names) for name in names[number::_THREADS]}
        threading.Thread(target=_keep_writing, args=(spark, logs, pace_s, due), daemon=True).start()
    up_until_ended()


def _keep_writing(spark: SparkSession, logs: Path, pace_s: float, due: dict[str, float]) -> None:
    """A commit to each of these logs when it is due, one after the other; one that is late is not made up for."""
    entry = dict.fromkeys(due, _ROWS)
    while True:
        name = min(due, key=lambda name: due[name])
        time.sleep(max(0.0, due[name] - time.monotonic()))
        _commit(spark, logs / name / "topic", entry[name])
        entry[name] += _ROWS
        due[name] = max(due[name] + pace_s, time.monotonic())


def _commit(spark: SparkSession, log: Path, first: int) -> None:
    message_rows(spark, first, _ROWS).coalesce(1).write.format("delta").mode("append").save(str(log))


if __name__ == "__main__":
    _write(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
