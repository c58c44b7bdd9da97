"""`python -m tests.own_table [--rows N] [--minutes N] [--seed S]`: two regions publish Delta tables that somebody else appends to, killed at random, then compared.

Each region has a table with nested columns, by default of a million rows and of a tenth of that in the end, half of them there at the first start,
and a broker that publishes it and runs the link into the region. Rows come in commits of all sizes, files are compacted now and then, and in
the middle the tables get a column. Every some seconds a broker gets SIGKILL, with its JVM, and is started again. Then commits come while
nothing is killed: how long they take to the other region, and how much of that is the link's, is told by the times of the commits' files. At the end
`geo verify` must be clean, brokers killed, files compacted, and what the topic holds of each region, in both, equal to its table, row by row. Exit code 1 if anything is otherwise.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

from geo.cli.running import start_spark
from geo.config import load
from geo.delta.commits import commit_file
from geo.journal.cluster import connect
from geo.log.ledgers import Batch
from geo.names import Topic
from geo.ops.verify.verify import verify
from geo.replication.link_state import LinkRecord
from geo.testing import config_text
from tests.processes import GeoProcess

CLUSTERS = ("eu", "us")
SHARE = {"eu": 1.0, "us": 0.1}
"""Of the rows that are asked for, those of each region's table."""

TRIGGER = "100 ms"
CALM_COMMITS, CALM_ROWS, CALM_S = 60, 10, 0.7
MOST = 0.1
"""Of a table's rows in one commit, and one row at least: of a million as many commits have 1 to 10 rows as have 10,000 to 100,000, of which Spark's
tasks read the largest."""

MORE_S = 0.3
"""What publishing a commit may take longer than its link, at the median."""

TOPIC = Topic.parse("persistent://own/shop/orders")
"""Into which both tables are published."""

_ITEM = pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string())), ("by", pa.map_(pa.string(), pa.int64()))])
_COLUMNS = ("id", "item", "day", "price")


class Table:
    """Somebody's table in a region's own words: no part of delta-geo writes it."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows, self.compactions = str(path), 0, 0
        self.has_price = False
        """From now on its rows have that column, too."""

    def add(self, count: int) -> int:
        """Rows in one commit, numbered on. Returns its version."""
        numbers = range(self.rows, self.rows + count)
        items = [{"name": f"item {n}", "tags": ["t", str(n % 7)], "by": [("n", n)]} for n in numbers]
        columns = {
            "id": pa.array(numbers, pa.int64()),
            "item": pa.array(items, _ITEM),
            "day": [f"d{n // 400_000}" for n in numbers],
        }
        if self.has_price:
            columns["price"] = pa.array([n / 4 for n in numbers], pa.float64())
        write_deltalake(self.path, pa.table(columns), mode="append", schema_mode="merge", partition_by=["day"])
        self.rows += count
        return DeltaTable(self.path).version()

    def compact(self) -> None:
        self.compactions += DeltaTable(self.path).optimize.compact()["numFilesRemoved"] > 0


class OwnTables:
    """The regions, their tables and brokers."""

    def __init__(self, folder: Path, seed: int, rows: int) -> None:
        self.folder, self.random, self.wanted = folder, random.Random(seed), {name: int(rows * SHARE[name]) for name in CLUSTERS}
        self.path = folder / "geo.yaml"
        lines = [f'  - {{cluster: {name}, topic: "{TOPIC}", delta: ./orders-{name}, key: id}}' for name in CLUSTERS]
        self.path.write_text(config_text(CLUSTERS, [("eu", "us"), ("us", "eu")]) + "publish:\n" + "\n".join(lines) + "\n")
        self.config = load(self.path)
        self.tables = {name: Table(folder / f"orders-{name}") for name in CLUSTERS}
        self.starts = self.kills = 0
        self.next_rows = dict.fromkeys(CLUSTERS, 1)
        """How many the next commit of each table has."""
        self.took: dict[str, tuple[float, float]] = {}
        """Of each region's commits, as `measured`."""
        for name, table in self.tables.items():
            for _ in range(4):
                table.add(self.wanted[name] // 8)
        self.brokers = {name: self.start(name) for name in CLUSTERS}

    def start(self, cluster: str, trigger: str = TRIGGER) -> GeoProcess:
        self.starts += 1
        log = self.folder / f"broker-{cluster}-{self.starts}.log"
        return GeoProcess(log, "broker", "--config", str(self.path), "--cluster", cluster, "--trigger", trigger)

    def kill_one(self) -> None:
        name = self.random.choice(CLUSTERS)
        broker = self.running(name)
        broker.signal(signal.SIGKILL)
        broker.wait()
        self.kills += 1
        told = ", ".join(f"{one} {table.rows:,} rows" for one, table in self.tables.items())
        print(f"  SIGKILL broker {name} ({self.kills} so far), {told}", flush=True)
        self.brokers[name] = self.start(name)

    def running(self, name: str) -> GeoProcess:
        broker = self.brokers[name]
        assert broker.poll() is None, f"broker {name} ended by itself:\n{broker.log.read_text()[-3000:]}"
        return broker

    def feed(self, part: float) -> None:
        """Commit what is due when this `part` of the time is over, in commits of any size: a large one waits until so many rows are."""
        for name, table in self.tables.items():
            due = int(self.wanted[name] * (0.5 + part / 2)) - table.rows
            table.has_price |= part > 0.5
            if due >= self.next_rows[name] or (due > 0 and part == 1):
                table.add(min(due, self.next_rows[name]))
                self.next_rows[name] = math.ceil((self.wanted[name] * MOST) ** self.random.random())
            if self.random.random() < 0.03:
                table.compact()

    def log_folder(self, cluster: str) -> Path:
        return self.folder / cluster / "topics" / TOPIC.path / "_delta_log"

    def holds(self, cluster: str, origin: str) -> int:
        """Up to which version of the origin's table the log of a cluster holds it; -1: none."""
        found = arrivals(self.log_folder(origin), self.log_folder(cluster))
        return max(found, default=-1)

    def calm(self) -> None:
        """Commits one after the other while nothing is killed, and how long each took."""
        for name in CLUSTERS:
            self.wait_for(name, DeltaTable(self.tables[name].path).version())
        at = {name: [self.tables[name].add(CALM_ROWS)] for name in CLUSTERS}
        for _ in range(CALM_COMMITS - 1):
            time.sleep(CALM_S)
            for name, table in self.tables.items():
                at[name].append(table.add(CALM_ROWS))
        for name in CLUSTERS:
            self.wait_for(name, at[name][-1])
        self.took = {name: self.measured(name, at[name]) for name in CLUSTERS}

    def wait_for(self, origin: str, version: int) -> None:
        """Wait until the other region's log says that it holds the table up to a version. What came by a comparison of both logs no commit says: only
        one that follows it, so a row is added at each look."""
        (other,) = set(CLUSTERS) - {origin}

        def says() -> bool:
            self.tables[origin].add(1)
            return self.holds(other, origin) >= version

        self.running(other).until(says, every_s=1.0)

    def measured(self, origin: str, versions: list[int]) -> tuple[float, float]:
        """Median seconds from a commit of the table to the other region's log, and from the own log to there."""
        (other,) = set(CLUSTERS) - {origin}
        own, far = self.log_folder(origin), self.log_folder(other)
        published, arrived = publications(own), arrivals(own, far)
        whole, link = [], []
        for version in versions:
            came = (Path(self.tables[origin].path) / "_delta_log" / commit_file(version)).stat().st_mtime
            here = next(at for said, at in sorted(published.items()) if said >= version)
            there = next(at for said, at in sorted(arrived.items()) if said >= version)
            whole.append(there - came)
            link.append(there - here)
        return statistics.median(whole), statistics.median(link)

    def settle(self) -> None:
        for name in CLUSTERS:
            self.running(name).signal_python(signal.SIGTERM)
        for broker in self.brokers.values():
            assert broker.wait() == 0, broker.log.read_text()[-3000:]
        for name in (*CLUSTERS, *CLUSTERS):  # twice: what the other published after the first's turn
            process = self.start(name, "available-now")
            assert process.wait() == 0, process.log.read_text()[-3000:]

    def check(self) -> bool:
        """Whether both regions hold each table's rows and no others, soon enough. Says what was done and found."""
        spark = start_spark("delta-geo own table", self.config)
        report = verify(spark, self.config)
        print("\n".join(report.lines()))
        without = untried(self.kills, sum(table.compactions for table in self.tables.values()))
        print(f"{self.kills} kills", *without, sep="\n")
        clean = report.clean and not without
        for name, table in self.tables.items():
            source = spark.read.format("delta").load(table.path)
            priced = source.where("price IS NOT NULL").count()
            print(
                f"{name}'s table: {table.rows:,} rows in {DeltaTable(table.path).version() + 1} commits, {priced:,} of them with the column that was added, "
                f"{table.compactions} compactions"
            )
            clean = clean and 0 < priced < table.rows
            rows = _as_text(source.selectExpr("CAST(id AS STRING) AS key", *_COLUMNS))
            for cluster in CLUSTERS:
                log = connect(spark, self.config.cluster(cluster)).log(TOPIC).read().where(f"origin = '{name}'")
                there = _as_text(log.select("key", *_COLUMNS))
                count, lacks, more = there.count(), rows.exceptAll(there).count(), there.exceptAll(rows).count()
                print(f"  in {cluster}: {count:,} messages, {lacks} rows lacking, {more} that are not its")
                clean = clean and count == table.rows and not lacks and not more
            whole, link = self.took[name]
            print(
                f"  a commit of it is in the other region after {whole:.3f} s at the median, of which its link takes {link:.3f} s: {whole - link:.3f} s more "
                f"(at most {MORE_S} s)"
            )
            clean = clean and whole - link <= MORE_S
        return clean


def untried(kills: int, compactions: int) -> list[str]:
    """What a run was to show and did not meet, in a sentence each: it is not clean then."""
    met = {"No broker was killed": kills, "No file was compacted": compactions}
    return [f"{what}: take more --minutes." for what, times in met.items() if not times]


def _as_text(rows: DataFrame) -> DataFrame:
    """One column: each row as JSON, of which two are equal only if all values are."""
    return rows.selectExpr("to_json(struct(*)) AS row")


def _commits(log: Path) -> list[tuple[int, float, str]]:
    """Version, time and userMetadata of what a log has."""
    found = []
    for file in sorted(log.glob("*.json")):
        with file.open() as lines:
            info = json.loads(lines.readline()).get("commitInfo", {})
        found.append((int(file.stem), file.stat().st_mtime, info.get("userMetadata") or ""))
    return found


def _said(metadata: str) -> int | None:
    """Up to which version of the table a batch says that it is published; None of what is no batch. (The first start's batches, which divide
    a version, all name it: the commits that are measured come later.)"""
    batch = Batch.decode(metadata)
    return None if batch is None else int(json.loads(next(iter(batch.sources.values())).parts[1])[0])


def publications(own: Path) -> dict[int, float]:
    """By version of the table, when the log held all up to it."""
    return {said: at for _, at, metadata in _commits(own) if (said := _said(metadata)) is not None}


def arrivals(own: Path, far: Path) -> dict[int, float]:
    """By version of the table, when the other region's log held all up to it."""
    said = {version: up_to for version, _, metadata in _commits(own) if (up_to := _said(metadata)) is not None}
    found: dict[int, float] = {}
    for _, at, metadata in _commits(far):
        if (record := LinkRecord.decode(metadata)) is not None and not record.reconciling:
            reached = [up_to for version, up_to in said.items() if version <= record.cursor.version]
            if reached:
                found.setdefault(max(reached), at)
    return found


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.own_table", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the larger table in the end (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=8.0, help="with kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args(words)
    if not args.minutes > 0:
        parser.error(f"--minutes {args.minutes}: brokers are killed in that time, so it is to be more than 0")
    print(f"seed {args.seed}, {args.rows:,} rows, {args.minutes} minutes")
    with tempfile.TemporaryDirectory(prefix="geo-own-table-") as folder:
        run = OwnTables(Path(folder), args.seed, args.rows)
        try:
            began = time.monotonic()
            next_kill = began + run.random.uniform(10.0, 40.0)
            while (part := (time.monotonic() - began) / (args.minutes * 60)) < 1:
                run.feed(part)
                time.sleep(run.random.uniform(0.1, 2.0))
                if time.monotonic() >= next_kill:
                    run.kill_one()
                    next_kill = time.monotonic() + run.random.uniform(10.0, 60.0)
            while any(table.rows < run.wanted[name] for name, table in run.tables.items()):
                run.feed(1.0)
            run.calm()
            run.settle()
            clean = run.check()
        finally:
            for broker in run.brokers.values():
                broker.end()
    print("clean" if clean else "NOT CLEAN")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
