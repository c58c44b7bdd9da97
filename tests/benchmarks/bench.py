"""What the benchmarks measure: the plain stream and the link on the same logs, and when each commit landed."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from geo.coordination.ownership import release
from geo.delta.appending import append_rows
from geo.delta.driver import Driver
from geo.delta.table import Table
from geo.log.topics import create_topic
from geo.names import Topic
from geo.now import now_us
from geo.replication.link_state import LinkRecord
from geo.replication.topic_replicator import TopicReplicator
from geo.streams.life import State
from tests.running import Running
from tests.world import World, record_of

_TRIGGER = {"processingTime": "100 milliseconds"}
"""The same for both. With 0 an idle query polls a hundred times a second."""

_CHECKSUMS = 3
"""Files that Spark leaves beside each commit on a local disk: Delta's checksum and Hadoop's of both. Only their number counts: they
are listed with the commits."""

_PACE_S = 0.5
_LIMIT_S = 120.0
_ROWS = 10


class Bench:
    """Logs and copies below one folder; clusters us (source) and eu (target), and plain copies beside them."""

    def __init__(self, spark: SparkSession, folder: Path, links: Sequence[tuple[str, str]] = (("us", "eu"),)) -> None:
        folder.mkdir(parents=True)
        self.spark, self.folder, self._entry = spark, folder, 0
        self.world = World(folder, links=links, spark=spark)
        self._warm = False

    # -- logs ------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        return Topic.parse(f"persistent://bench/{name}/topic")

    def log(self, name: str) -> Path:
        table = self.world.log("us", self.topic(name))
        if not table.exists():
            create_topic(self.world.tables("us"), self.topic(name))
        return Path(table.name)

    def rows(self, first: int, count: int) -> DataFrame:
        return message_rows(self.spark, first, count)

    def fill(self, name: str, rows: int, commits: int) -> None:
        """By Spark, and each commit says that a producer of ours wrote it: rows of which nobody says that are compared with the
        target."""
        log, of_each = self.log(name), rows // commits
        for first in range(0, of_each * commits, of_each):
            self.by_spark(log, first, of_each, files=2)

    def by_spark(self, table: Path, first: int, rows: int = _ROWS, files: int = 1) -> None:
        """A commit of the JVM's own, as a producer's: at a round version it writes the checkpoint that is due."""
        told = record_of(first, first + rows, now_us())
        part = self.rows(first, rows).coalesce(files)
        part.write.format("delta").mode("append").option("userMetadata", told).save(str(table))

    def small_commit(self, log: Path, first: int | None = None) -> None:
        """Ten rows, written as publishers do; their entries begin at `first`, or where those of no log have been yet."""
        now, day = datetime.now(timezone.utc), datetime.now(timezone.utc).date()
        if first is None:
            first, self._entry = self._entry, self._entry + _ROWS
        size = range(_ROWS)
        table = pa.table(
            {
                "origin": ["us"] * _ROWS, "ledger_id": [1] * _ROWS, "entry_id": [first + i for i in size],
                "publish_time": pa.array([now] * _ROWS, pa.timestamp("us", "UTC")),
                "event_time": pa.nulls(_ROWS, pa.timestamp("us", "UTC")), "producer": ["bench"] * _ROWS,
                "key": [f"k{i}" for i in size], "properties": pa.nulls(_ROWS, pa.map_(pa.string(), pa.string())),
                "replicate_to": pa.nulls(_ROWS, pa.list_(pa.string())), "payload": pa.array([b"x" * 1024] * _ROWS, pa.binary()),
                "marker": pa.nulls(_ROWS, pa.string()), "publish_date": pa.array([day] * _ROWS, pa.date32()),
            }
        )  # fmt: skip
        append_rows(
            Table(Driver.of(self.spark), str(log), by_path=True, lock=None), table, record_of(first, first + _ROWS, now_us())
        )

    # -- the two ways ------------------------------------------------------------------------------------------------

    def plain(self, log: Path, target: Path, trigger: dict[str, Any]) -> Any:
        stream = self.spark.readStream.format("delta").load(str(log)).writeStream.format("delta")
        return stream.option("checkpointLocation", f"{target}-checkpoint").trigger(**trigger).start(str(target))

    def link(self, name: str) -> TopicReplicator:
        """A link that is prepared: its target holds what the source had."""
        link, self._ownership = self.world.begun(topic=self.topic(name))
        return link

    def stream(self, link: TopicReplicator) -> StreamingQuery:
        """The query of a link, which begins with the first commit that is new to it."""
        running = link.running
        assert running.has_news()
        running.start_stream(_TRIGGER)
        assert running.stream is not None
        return running.stream.query.query

    def stop(self, link: TopicReplicator) -> None:
        link.running.end_stream()
        if (now := link.running.progressed(State.STOPPED)) is not None:
            link.row.append(now)
        release([self._ownership])

    def abandon(self) -> None:
        """As if the link had died here."""
        self._ownership.abandon()

    def warm_up(self) -> None:
        """Both once on small data, so that neither pays for the first time."""
        if not self._warm:
            self.backlog("warm", 2_000)
            self.copy_plain("warm")
            self.copy_link("warm")
            self._warm = True

    def copy_plain(self, name: str) -> float:
        target = self.folder / f"plain-{name}"
        began = time.monotonic()
        self.plain(self.log(name), target, {"availableNow": True}).awaitTermination()
        seconds = time.monotonic() - began
        shutil.rmtree(target)
        return seconds

    def backlog(self, name: str, rows: int) -> None:
        """A source with `rows` rows in ten commits, written after the link had read all there was: nothing."""
        self.log(name)
        self.stop(self.link(name))
        self.fill(name, rows, commits=10)

    def copy_link(self, name: str) -> float:
        """The turns of a link over a backlog, from its start to its end."""
        link = self.link(name)
        began = time.monotonic()
        link.running.run_turns(lambda: False)
        seconds = time.monotonic() - began
        self.stop(link)
        found, wanted = (self.world.log(c, self.topic(name)).read().count() for c in ("eu", "us"))
        assert found == wanted, f"the link copied {found} of {wanted} rows"
        return seconds

    def verified(self) -> str:
        report = self.world.verify()
        return f"verify: {'clean' if report.clean else 'NOT CLEAN: ' + '; '.join(report.lines())}"

    def drop(self, name: str, *clusters: str) -> None:
        for cluster in clusters or ("eu", "us"):
            shutil.rmtree(self.world.log(cluster, self.topic(name)).name)

    # -- latency and age -------------------------------------------------------------------------------------------

    def follow(self, kind: str, name: str, count: int) -> list[float]:
        """Seconds from each source commit to the commit that brings its rows, by the files' times."""
        name = f"{name}-{kind}"
        log, target = self.log(name), self.folder / f"plain-{name}"
        self.small_commit(log)
        if kind == "plain":
            query = self.plain(log, target, _TRIGGER)
            query.processAllAvailable()
        else:
            target = Path(self.world.log("eu", self.topic(name)).name)
            links = Running(self.world, "eu", topics=str(self.topic(name)), trigger="100 ms")
            self._until_there(target, self._entry - 1)
        first = _latest(log) + 1
        for _ in range(count):
            began = time.monotonic()
            self.small_commit(log)
            time.sleep(max(0.0, _PACE_S - (time.monotonic() - began)))
        if kind == "plain":
            query.processAllAvailable()
            query.stop()
        else:
            self._until_there(target, self._entry - 1)
            links.stop()
            links.join()
        landed = {entry: at for at, entries in commits(target, 0) for entry in entries}
        return [landed[min(entries)] - at for at, entries in commits(log, first)]

    def _until_there(self, target: Path, entry: int) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not any(entry in entries for _, entries in commits(target, 0)):
            assert time.monotonic() < deadline, "the link did not bring it"
            time.sleep(0.2)

    def age(self, name: str, commits: int) -> None:
        """Bring the source, the link's target and the plain stream's to that many commits, as small commits would have."""
        log, plain = self.log(name), self.folder / f"plain-{name}"
        if not plain.exists():
            self.small_commit(log)
            self.stop(self.link(name))  # by a comparison, whose commits are not to be repeated
            self.small_commit(log)
            self.copy_link(name)
            query = self.plain(log, plain, _TRIGGER)
            query.processAllAvailable()
            query.stop()
        first = self._entry
        for table in (log, Path(self.world.log("eu", self.topic(name)).name), plain):
            self._entry = first + grown(table, commits - 1, first) * _ROWS
            self.by_spark(table, self._entry)
        self._entry += _ROWS

    def files(self, name: str) -> str:
        """Files that the newest versions of both logs have, and files in their `_delta_log` folders."""
        logs = [self.world.log(cluster, self.topic(name)) for cluster in ("us", "eu")]
        data = sum(len(log.read().inputFiles()) for log in logs)
        return f"{data:,} data files, {sum(len(os.listdir(Path(log.name) / '_delta_log')) for log in logs):,} files of the Delta logs"

    def listing_ms(self, name: str) -> float:
        """Time to be told the source's newest version, for which Delta lists its log."""
        log = self.world.log("us", self.topic(name))
        log.latest_version()
        began = time.monotonic()
        for _ in range(5):
            log.latest_version()
        return (time.monotonic() - began) / 5 * 1000

    def batch_ms(self, kind: str, name: str, batches: int) -> list[float]:
        """Time of each batch that brings one small commit, in milliseconds, as Spark reports it."""
        log, link = self.log(name), None
        if kind == "plain":
            query = self.plain(log, self.folder / f"plain-{name}", _TRIGGER)
        else:
            link = self.link(name)
            self.small_commit(log)
            query = self.stream(link)
        query.processAllAvailable()
        for _ in range(batches):
            self.small_commit(log)
            query.processAllAvailable()
        # A link reads few rows without Spark, which knows of none then.
        progress = [p for p in query.recentProgress if "addBatch" in p["durationMs"]]
        if link is None:
            query.stop()
        else:
            self.stop(link)
        return [p["durationMs"]["triggerExecution"] for p in progress][5:]


def message_rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    """1 KB of hexadecimal hashes each: half as random as random bytes, as JSON payloads are."""
    payload = F.concat(*(F.sha2(F.concat(F.col("id").cast("string"), F.lit(f"#{i}")), 256) for i in range(16)))
    return spark.range(first, first + count, numPartitions=2).select(
        F.lit("us").alias("origin"), F.lit(1).cast("bigint").alias("ledger_id"), F.col("id").alias("entry_id"),
        F.current_timestamp().alias("publish_time"), F.lit(None).cast("timestamp").alias("event_time"),
        F.lit("bench").alias("producer"), F.concat(F.lit("k"), F.col("id") % 1000).alias("key"),
        F.lit(None).cast("map<string,string>").alias("properties"), F.lit(None).cast("array<string>").alias("replicate_to"),
        payload.cast("binary").alias("payload"), F.lit(None).cast("string").alias("marker"), F.current_date().alias("publish_date"),
    )  # fmt: skip


def _latest(log: Path) -> int:
    return max(int(path.stem) for path in (log / "_delta_log").glob("*.json"))


def commits(log: Path, first: int = 0, column: str = "entry_id") -> list[tuple[float, list[Any]]]:
    """When each commit since version `first` landed, and a column of the rows it brought."""
    found = []
    for path in sorted((log / "_delta_log").glob("*.json")):
        added = [json.loads(line)["add"]["path"] for line in path.read_text().splitlines() if line.startswith('{"add"')]
        if int(path.stem) >= first and added:
            values = [v for file in added for v in pq.ParquetFile(log / unquote(file)).read([column])[column].to_pylist()]
            found.append((path.stat().st_mtime, values))
    return found


def at(seconds: Sequence[float], percentile: int) -> float:
    return statistics.quantiles(seconds, n=100)[percentile - 1]


def percentiles(kind: str, seconds: Sequence[float], of: str = "commits") -> str:
    return f"{kind:5} p50 {at(seconds, 50):.2f} s  p95 {at(seconds, 95):.2f} s  ({len(seconds):,} {of})"


def replica_lags(world: World, topic: Topic) -> Iterator[float]:
    """Of each commit of us, how many seconds later that of eu came which brought it, but for what a comparison brought."""
    source, target = world.log("us", topic), world.log("eu", topic)
    came = {commit.version: commit.committed_us for commit in source.commits(1, source.latest_version())}
    at = 1
    for commit in target.commits(1, target.latest_version()):
        record = LinkRecord.decode(commit.user_metadata)
        if record is None:
            continue
        for version in range(at, record.cursor.version + 1):
            if version in came and not record.reconciling:
                yield (commit.committed_us - came[version]) / 1e6
        at = max(at, record.cursor.version + 1)


def grown(log: Path, until: int, entry: int | None = None) -> int:
    """Repeat the newest small commit of a table up to version `until`, in a log with the entries that follow: hard links to its file and
    a commit file each, which takes a second where writing them took a quarter of an hour. Returns how many."""
    newest = _latest(log)
    lines = [json.loads(line) for line in (log / "_delta_log" / f"{newest:020}.json").read_text().splitlines()]
    add = next(line["add"] for line in lines if "add" in line)
    info = next(line["commitInfo"] for line in lines if "commitInfo" in line)
    for version in range(newest + 1, until + 1):
        path = Path(add["path"]).with_name(f"part-{version:05}-aged.snappy.parquet")
        os.link(log / unquote(add["path"]), log / unquote(str(path)))
        stats = json.loads(add["stats"])
        if entry is not None:
            first = entry + (version - newest - 1) * _ROWS
            stats["minValues"]["entry_id"], stats["maxValues"]["entry_id"] = first, first + _ROWS - 1
        commit = [{"commitInfo": info}, {"add": {**add, "path": str(path), "stats": json.dumps(stats)}}]
        text = "".join(json.dumps(line) + "\n" for line in commit)
        (log / "_delta_log" / f"{version:020}.json").write_text(text)
        for number in range(_CHECKSUMS):
            (log / "_delta_log" / f".{version:020}.checksum{number}").touch()
    return max(0, until - newest)
