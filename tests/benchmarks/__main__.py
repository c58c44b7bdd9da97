"""`python -m tests.benchmarks [WHICH …] [--quick]`, WHICH as in `_WHICH`: a link beside the plain Delta-to-Delta
stream a user would write, a Kafka topic into another region beside MirrorMaker 2, and subscriptions beside what is wanted.

Two that are compared are run in turn in one process on the same data; the ratios are printed, the seconds are this machine's.
The plain stream is `readStream.format("delta")` into `writeStream.format("delta")`, exactly once by Delta's own transaction ids.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from geo.ops.maintain import maintain
from geo.session import session
from tests.benchmarks.backfills import backfills
from tests.benchmarks.bench import Bench, at, percentiles
from tests.benchmarks.brokers import idle, many_idle
from tests.benchmarks.day import FLUSHES_OF_A_DAY, day
from tests.benchmarks.faults import faults
from tests.benchmarks.kafka import Arrivals, KafkaBench
from tests.benchmarks.lag import lags
from tests.benchmarks.ledgers import producer_starts
from tests.benchmarks.looking import looked
from tests.benchmarks.outage import outage
from tests.benchmarks.placement import placed
from tests.benchmarks.publishing import PublishBench
from tests.benchmarks.regions import LINKS, effects, longest_log
from tests.benchmarks.starts import many_starts, one_start, start_after
from tests.benchmarks.state import forgotten, states
from tests.benchmarks.stores import stores
from tests.benchmarks.subscriptions import SubscriptionBench, never_acknowledged
from tests.benchmarks.versions import ages
from tests.benchmarks.versions import many as many_versions
from tests.benchmarks.waiting import waiting
from tests.world import World

_BATCHES = 25
"""Measured at each age; the first five are not counted."""


def throughput(bench: Bench, rows: int, rounds: int) -> None:
    """(a) one backlog of 1 KB rows in ten commits."""
    bench.warm_up()
    mb, ratios = rows * 1024 / 1e6, []
    for number in range(rounds):
        name = f"backlog{number}"
        bench.backlog(name, rows)
        plain, link = bench.copy_plain(name), bench.copy_link(name)
        bench.drop(name)
        ratios.append(plain / link)
        print(
            f"  round {number + 1}: plain stream {plain:6.2f} s {mb / plain:5.0f} MB/s   link {link:6.2f} s {mb / link:5.0f} MB/s"
            f"   ratio {plain / link:.2f}",
            flush=True,
        )
    print(f"(a) throughput, {rows:,} x 1 KB: link = {statistics.median(ratios):.2f} x the plain stream (wanted: at least 1.0)")


def latency(bench: Bench, commits: int, rounds: int) -> None:
    """(b) one topic, a 10-row commit each 500 ms: from source commit to replica commit."""
    bench.warm_up()
    found: dict[str, list[float]] = {"plain": [], "link": []}
    for number in range(rounds):
        for kind in found:
            seconds = bench.follow(kind, f"latency{number}", commits)
            found[kind] += seconds
            print(f"  round {number + 1}: {percentiles(kind, seconds)}", flush=True)
    for kind, seconds in found.items():
        print(f"    {percentiles(kind, seconds)}")
    ratio = {q: at(found["plain"], q) / at(found["link"], q) for q in (50, 95)}
    print(f"(b) latency: link is {ratio[50]:.2f} x better at p50 (wanted: 1.5, and p50 under 0.5 s), {ratio[95]:.2f} x at p95")


def age(bench: Bench, young: int, old: int) -> None:
    """(c) time of a micro-batch by the number of commits in both logs, and what maintenance makes of them."""
    bench.warm_up()
    times = {}
    for commits in (young, old):
        bench.age("age", commits)
        for kind in ("plain", "link"):
            found = bench.batch_ms(kind, "age", _BATCHES)
            times[kind, commits] = statistics.median(found)
            print(f"  at {commits:,} commits: {kind:5} median batch {times[kind, commits]:.0f} ms of {len(found)}", flush=True)
    ratio = {kind: times[kind, old] / times[kind, young] for kind in ("link", "plain")}
    print(
        f"(c) batch time at {old:,} commits = {ratio['link']:.2f} x that at {young:,} (wanted: at most 1.2); "
        f"the plain stream's {ratio['plain']:.2f} x; the link takes {times['link', old] / times['plain', old]:.2f} x the plain stream then"
    )
    before, began = bench.files("age"), time.monotonic()
    listed = bench.listing_ms("age")
    for cluster in ("us", "eu"):
        maintain(bench.spark, bench.world.config, cluster)
    seconds = time.monotonic() - began
    after = statistics.median(bench.batch_ms("link", "age", _BATCHES))
    print(f"    before geo maintain: {before}, newest version told in {listed:.0f} ms, median batch {times['link', old]:.0f} ms")
    print(
        f"    after it ({seconds:.0f} s): {bench.files('age')}, newest version told in {bench.listing_ms('age'):.0f} ms, "
        f"median batch {after:.0f} ms"
    )


def kafka(spark: SparkSession, folder: Path, records: int, seconds: float) -> None:
    """A Kafka topic into another region, by MirrorMaker 2 and by delta-geo: a backlog, then 200 records a second."""
    bench, mb = KafkaBench(spark, folder), 1024 / 1e6
    try:
        bench.backlog(records)
        mirror = bench.mirror()
        try:
            copied = bench.mirrored("bench-backlog", records)
            theirs = bench.mirror_latency(seconds)
        finally:
            mirror.terminate()
            mirror.wait()
        print(f"  MirrorMaker 2, broker to broker: {_rates(copied, mb)} of {records:,} x 1 KB", flush=True)
        print(f"  at 200 a second, record to consumer of the other broker: {percentiles('MM2', theirs, 'records')}", flush=True)
        print(f"  delta-geo, broker to log: {_rates(bench.published(records), mb)}", end="", flush=True)
        took = bench.replicated(records)
        print(f"; log to the other region's log, a link's start included: {records * mb / took:.0f} MB/s", flush=True)
        ours = bench.geo_latency(seconds)
        for cluster, what in (("us", "record to commit in the log"), ("eu", "record to commit in the other region's log")):
            print(f"  at 200 a second, {what}: {percentiles('geo', ours[cluster], 'records')}", flush=True)
    finally:
        bench.close()


def _rates(arrivals: Arrivals, mb: float) -> str:
    return f"{arrivals.rate() * mb:.0f} MB/s (the second half {arrivals.rate(0.5) * mb:.0f})"


def publish(bench: PublishBench, rounds: int) -> None:
    """Rows of 1 KB into a log, and by Spark alone into a table: a DataFrame sorted and not, and JSON lines."""
    mb = bench.rows * 1024 / 1e6
    for what, found in bench.measured(rounds):
        for number, (plain, ours) in enumerate(found):
            print(
                f"  round {number + 1}: plain {plain:6.2f} s {mb / plain:5.0f} MB/s   published {ours:6.2f} s {mb / ours:5.0f} MB/s",
                flush=True,
            )
        ratio = statistics.median(plain / ours for plain, ours in found)
        print(f"{what}, {bench.rows:,} x 1 KB: {ratio:.2f} x a plain read and append (wanted: at least 0.7)", flush=True)


def acks(spark: SparkSession, folder: Path, batches: int, commits: int) -> None:
    """One topic, ten messages a commit, two regions: from an acknowledgement in one to its effect in the other."""
    folder.mkdir()
    for number, (processes, aged) in enumerate(((True, 0), (False, 0), (True, commits))):
        told = "a process a region" if processes else "both regions in one process"
        print(f"{told}, logs of {aged:,} commits:" if aged else f"{told}:", flush=True)
        (folder / str(number)).mkdir()
        world = World(folder / str(number), links=LINKS, spark=spark)
        for pace_s, found in effects(world, batches, processes=processes, commits=aged).items():
            wanted = "p50 1.0, p95 2.5 s" if pace_s < 1 else "p50 0.45, p95 1 s"
            print(
                f"  a commit each {pace_s} s: {percentiles('acknowledgement in us to effect in eu', found, 'batches')} (wanted: {wanted})",
                flush=True,
            )
        if aged:
            print(f"  at the end the longest log has {longest_log(folder / str(number)):,} commits", flush=True)


def _versions(spark: SparkSession, folder: Path, part: int) -> Iterator[str]:
    folder.mkdir()
    for number, clusters in enumerate((("us", "eu"), ("us", "eu", "ap"))):
        yield from ages(spark, folder / str(number), clusters, 120.0 / part)
    yield from many_versions(spark, folder / "many", 100 // part, 60.0 / part)


def _starts(bench: Bench, part: int) -> Iterator[str]:
    bench.warm_up()
    yield from one_start(bench, "one", 5_000 // part)
    yield from many_starts(bench, 100 // part)


def _start(bench: Bench, part: int) -> list[str]:
    bench.warm_up()
    return start_after(bench, "start", 20_000 // part)


@dataclass(frozen=True, slots=True)
class _Run:
    """One benchmark: a session, a folder of its own that is not there yet, `part` of the size (10: a tenth), and what the command says."""

    spark: SparkSession
    folder: Path
    part: int
    args: argparse.Namespace

    @property
    def bench(self) -> Bench:
        return Bench(self.spark, self.folder)

    @property
    def subscriptions(self) -> SubscriptionBench:
        return SubscriptionBench(self.spark, self.folder)

    def rounds(self, most: int, least: int = 1) -> int:
        return most if self.part == 1 else least


_WHICH: Mapping[str, Callable[[_Run], Iterable[str] | None]] = {
    "throughput": lambda of: throughput(of.bench, 500_000 // of.part, of.rounds(5)),
    "latency": lambda of: latency(of.bench, 100 // of.part, of.rounds(3)),
    "age": lambda of: age(of.bench, 100 // of.part, of.args.commits // of.part),
    "start": lambda of: _start(of.bench, of.part),
    "starts": lambda of: _starts(of.bench, of.part),
    "ledgers": lambda of: producer_starts(of.bench, 1_000_000 // of.part),
    "day": lambda of: day(of.bench, 100, FLUSHES_OF_A_DAY // of.part, _BATCHES),
    "broker": lambda of: idle(of.bench, 100 // of.part, 3_000 // of.part, 60.0 / of.part),
    "broker-topics": lambda of: many_idle(of.bench, of.args.topics or 1_000 // of.part, 60.0 / of.part),
    "broker-lag": lambda of: lags(of.bench, of.args.topics or 20 // of.part, of.args.minutes * 60 / of.part),
    "backfill": lambda of: backfills(of.bench, 1_000_000 // of.part, of.rounds(3)),
    "outage": lambda of: outage(of.bench, 4_320 // of.part, 1_000, 5),
    "waiting": lambda of: waiting(of.bench, 40 // of.part),
    "faults": lambda of: faults(of.spark, of.folder, 60 // of.part),
    "placement": lambda of: (f"  {line}" for line in placed(of.spark, of.folder, 60 // of.part, 150 / of.part)),
    "versions": lambda of: _versions(of.spark, of.folder, of.part),
    "state": lambda of: (*states(1_000_000 // of.part, 10_000 // of.part, 1_000 // of.part), *forgotten(500_000 // of.part, 30)),
    "publish": lambda of: publish(PublishBench(of.spark, of.folder, 500_000 // of.part), of.rounds(3, 2)),
    "kafka": lambda of: kafka(of.spark, of.folder, 2_000_000 // of.part, 60.0 / of.part),
    "acks": lambda of: acks(of.spark, of.folder, 30 // of.part, FLUSHES_OF_A_DAY // of.part),
    "subscription": lambda of: of.subscriptions.scattered(10_000 // of.part, 1_000 // of.part),
    "long": lambda of: of.subscriptions.long_lived(10_000_000 // of.part, 500 // of.part, 10_000 // of.part),
    "many": lambda of: of.subscriptions.many(100 // of.part, 20 // of.part, 60.0 / of.part),
    "unacknowledged": lambda of: never_acknowledged(10_000 // of.part, 1_440),
    "looking": lambda of: looked(of.spark, of.folder, 200 // of.part),
    "stores": lambda of: stores(
        of.spark,
        of.folder,
        (0.0, 0.025, 0.1)[: 3 if of.part == 1 else 2],
        500_000 // of.part,
        seaweedfs=of.args.server == "seaweedfs",
    ),
}
"""What each prints, or the lines that it tells, as they are measured."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("which", nargs="*", choices=(*_WHICH, []), help="default: throughput, latency and age")
    parser.add_argument(
        "--commits", type=int, default=5_000, help="of `age`; 20,000 is a month of small commits (default: 5,000)"
    )
    parser.add_argument(
        "--topics", type=int, help="of `broker-topics` the most (default: 1,000), of `broker-lag` all (default: 20)"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of `broker-lag`, for each of the two (default: 10)")
    parser.add_argument(
        "--server", choices=("moto", "seaweedfs"), default="moto", help="of `stores`, for many rows (default: moto)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the size: does it run, not how fast")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="geo-bench-") as folder:
        spark = session("delta-geo benchmarks", master="local[2]", schemes={"s3a"} if "stores" in args.which else ())
        for which in args.which or ("throughput", "latency", "age"):
            for line in _WHICH[which](_Run(spark, Path(folder) / which, 10 if args.quick else 1, args)) or ():
                print(line, flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
