"""A backlog that a backfill brings by rows, by whole files, and that a hand-written job copies, in turn in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from geo.delta.frames import bytes_of
from geo.fleet.backfill import Backfill, Mode, backfill
from tests.benchmarks.bench import Bench


def backfills(bench: Bench, rows: int, rounds: int) -> Iterator[str]:
    """Of so many rows of 1 KB in ten commits; the first round is not counted."""
    seconds: dict[str, list[float]] = {"rows": [], "files": [], "plain": []}
    size = 0
    for number in range(rounds + 1):
        for way in seconds:
            name = f"fill{number}{way}"
            bench.fill(name, rows if number else rows // 10, commits=10)
            took = _timed(lambda way=way, name=name: _bring(bench, way, name))  # type: ignore[misc]
            if number:
                seconds[way].append(took)
                size = bytes_of(bench.world.log("us", bench.topic(name)))
            if way != "plain":
                there, due = (bench.world.log(one, bench.topic(name)).read().count() for one in ("eu", "us"))
                assert there == due, f"{way}: {there} of {due} rows came"
            if number < rounds:
                bench.drop(name, *(["us"] if way == "plain" else ["eu", "us"]))
    mb = size / 1e6
    for way, found in seconds.items():
        yield f"{way:5} {mb / statistics.median(found):7.1f} MB/s (median of {[round(one, 1) for one in found]} s, {mb:,.0f} MB of files)"
    ratios = [by_rows / by_files for by_rows, by_files in zip(seconds["rows"], seconds["files"], strict=True)]
    yield f"files are {statistics.median(ratios):.1f} times as fast as rows (wanted: 3), each round: {[round(one, 1) for one in ratios]}"
    yield bench.verified()


def _timed(call: Callable[[], None]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def _bring(bench: Bench, way: str, name: str) -> None:
    topic = bench.topic(name)
    if way == "plain":
        rows = bench.spark.read.format("delta").load(bench.world.log("us", topic).name)
        rows.write.format("delta").mode("append").save(str(bench.folder / "plain" / name))
        return
    (filled,), _ = backfill(bench.spark, bench.world.config, "us", "eu", topics=str(topic), what=Backfill(mode=Mode(way)))
    assert filled.complete
    assert (filled.by_file > 0) is (way == "files")
