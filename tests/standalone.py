"""`python -m tests.standalone`: two regions run by the jobs of this repository on a real Spark standalone master with two workers, as
users start them: by spark-submit.sh, which sends the code along. Prints what is shown; exit code 0, or 1 with what failed.

The Python of the executors has the packages that a cluster has and no delta-geo: what they import of it came with the job. What arrived
is told by the tables alone, which executor did what by Spark's event log.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from geo.config import load
from geo.journal.cluster import connect_later
from geo.log.topic_log import ID
from geo.names import Topic
from geo.testing import config_text
from tests.kafka_broker import free_ports
from tests.object_store import ObjectStore
from tests.spark_master import WORKERS, Application, Failed, Standalone, Work, on_both, tell

CLUSTERS = ("eu", "us")
CLICKS, ORDERS = (Topic.parse(f"persistent://shop/web/{name}") for name in ("clicks", "orders"))
SUBSCRIPTION = "billing"

FILES, LINES = 4, 4_000
"""Of clicks in each region: more bytes than a broker reads by itself (a megabyte), more rows than a link brings by itself (ten thousand)."""

FEW = 200
"""Lines of orders."""


class Regions:
    """Two clusters on this disk, linked both ways, each with lines to publish; and what is in their tables, read without Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "geo.yaml"
        self.lines: dict[Topic, dict[str, str]] = {CLICKS: {}, ORDERS: {}}
        """By topic, the payload of each key that was given to a broker."""
        text = config_text(CLUSTERS, [("us", "eu"), ("eu", "us")]) + "publish:\n"
        for cluster in CLUSTERS:
            for topic, files, lines in ((CLICKS, FILES, LINES), (ORDERS, 1, FEW)):
                text += f'  - {{cluster: {cluster}, topic: "{topic}", jsonl: {cluster}-{topic.name}}}\n'
                (folder / f"{cluster}-{topic.name}").mkdir()
                for number in range(files):
                    self.give(cluster, topic, number * lines, lines)
        self.path.write_text(text)

    def give(self, cluster: str, topic: Topic, first: int, count: int) -> None:
        """A file of lines more to publish."""
        given = {f"{cluster}-{number}": f"{number} " + "x" * 300 for number in range(first, first + count)}
        text = "".join(json.dumps({"key": key, "payload": payload}) + "\n" for key, payload in given.items())
        path = self.folder / f"{cluster}-{topic.name}" / f"{first:06}.jsonl"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)
        self.lines[topic] |= given

    def log(self, cluster: str, topic: Topic) -> pa.Table:
        """The rows of a log, by id."""
        rows = DeltaTable(connect_later(_no_spark, load(self.path).cluster(cluster)).log(topic).name).to_pyarrow_table()
        return rows.sort_by([(name, "ascending") for name in ID])

    def holds(self, cluster: str, topic: Topic, count: int) -> bool:
        """Whether a log has so many rows by now."""
        try:
            return len(self.log(cluster, topic)) == count
        except TableNotFoundError:
            return False

    def check(self, topic: Topic) -> int:
        """How many messages each region has: each line once, and in both regions the same, column by column. Raises Failed."""
        eu, us = (self.log(cluster, topic) for cluster in CLUSTERS)
        if not eu.equals(us.select(eu.column_names)):
            raise Failed(f"{topic}: {len(eu)} rows in eu, {len(us)} in us, and they are not the same")
        if len(eu.group_by(list(ID)).aggregate([])) != len(eu):
            raise Failed(f"{topic}: a message id is there twice")
        there = dict(zip(eu["key"].to_pylist(), map(bytes.decode, eu["payload"].to_pylist()), strict=True))
        if len(there) != len(eu) or there != self.lines[topic]:
            raise Failed(f"{topic}: {len(eu)} rows of {len(there)} keys, not those of the {len(self.lines[topic])} lines")
        return len(eu)

    def acknowledged(self, cluster: str) -> list[tuple[str, str, int]]:
        """Topic, subscription and count of acknowledged messages, as cursors were folded."""
        rows = DeltaTable(str(self.folder / cluster / "system" / "cursors")).to_pyarrow_table()
        return list(zip(*(rows[name].to_pylist() for name in ("topic", "subscription", "acknowledged")), strict=True))


def _no_spark() -> Any:
    raise Failed("tables on this disk are looked at without Spark")


def _by_spark(work: Work, least: int) -> int:
    """How many rows executors wrote. Raises Failed if a link's large batch was not among them."""
    if work.written < least:
        raise Failed(f"executors wrote {work.written} rows; a link had {least} to bring by Spark")
    return work.written


def show(folder: Path, running: ExitStack) -> Iterator[str]:
    """Do it, and say what was seen."""
    spark, regions = Standalone(folder, running), Regions(folder)
    yield f"a master at {spark.url} and {WORKERS} workers, a core and 1 GB each, registered; their Python has no delta-geo"
    many = FILES * LINES

    def submit(name: str, job: str, *arguments: str) -> Application:
        return spark.submit(name, job, "--config", str(regions.path), *arguments)

    once = "--trigger", "available-now"
    broker = submit("broker-us", "broker", "--cluster", "us", "--trigger", "1 second")
    for topic, count in ((CLICKS, many), (ORDERS, FEW)):
        broker.process.until(f"all of {topic} in us", partial(regions.holds, "us", topic, count))
    regions.give("us", ORDERS, FEW, FEW)
    broker.process.until("what came later in us", lambda: regions.holds("us", ORDERS, 2 * FEW))
    broker.process.signal(signal.SIGTERM)
    broker.process.ends(128 + signal.SIGTERM)
    held = broker.work().of("MapInArrow", least=FILES)
    yield (
        f"a broker of us, each second: published {many + 2 * FEW:,} JSON lines; {many:,} of them were read by tasks of executors: {held}. "
        "SIGTERM ended it and all its processes"
    )

    consumer = submit("consumer-us", "consume", "--cluster", "us", "--topic", str(ORDERS), "--subscription", SUBSCRIPTION, *once)
    consumer.process.ends(0)
    yield f"a consumer in us: acknowledged {2 * FEW} messages"

    first = submit("broker-eu", "broker", "--cluster", "eu", *once)
    first.process.ends(0)
    work = first.work()
    held = work.of("MapInArrow", least=FILES)
    yield (
        f"a broker of eu, one pass: published {many + FEW:,} lines (tasks: {held}), and brought {many + 2 * FEW:,} messages of us "
        f"({_by_spark(work, many):,} rows written by executors)"
    )

    again = submit("broker-us-again", "broker", "--cluster", "us", *once)
    again.process.ends(0)
    work = again.work()
    if (found := regions.acknowledged("us")) != [(str(ORDERS), SUBSCRIPTION, 2 * FEW)]:
        raise Failed(f"cursors of us: {found}")
    yield (
        f"a broker of us after the SIGTERM, one pass: published nothing twice, brought {many + FEW:,} messages of eu "
        f"({_by_spark(work, many):,} rows written by executors), and folded the acknowledgements into a cursor"
    )

    verified = submit("verify", "verify")
    verified.process.ends(0)
    yield f"geo verify, on both workers ({on_both(verified.work().tasks, 'verify', WORKERS)}): {verified.process.finds(r'(?m)^(clean: .*)')}"
    counts = ", ".join(f"{regions.check(topic):,} messages of {topic.name}" for topic in regions.lines)
    yield f"the tables alone: {counts}; each line once, both regions equal"
    yield from _on_s3(spark, folder, running)


def _on_s3(spark: Standalone, folder: Path, running: ExitStack) -> Iterator[str]:
    """A large batch into a region on S3, whose keys lie in files: once with executors that lack what writes there."""
    store = ObjectStore(free_ports(1)[0], folder / "store.log")
    running.callback(store.close)
    store.make_bucket("geo-eu")
    keys = {"aws_access_key_id": "canary of the key", "aws_secret_access_key": "canary of the secret"}
    for name, key in keys.items():
        (folder / name).write_text(key)
    storage = store.options() | {name: f"secret://file{folder / name}" for name in keys}
    (folder / "s3.yaml").write_text(f"version: 1\nclusters:\n  eu: {{root: 's3a://geo-eu/t', storage: {json.dumps(storage)}}}\n")
    (folder / "lines").mkdir()
    for number in range(FILES):
        lines = (json.dumps({"key": f"{number}-{n}", "payload": "x" * 300}) + "\n" for n in range(LINES))
        (folder / "lines" / f"{number}.jsonl").write_text("".join(lines))
    without = folder / "without"
    without.mkdir()
    (without / "obstore.py").write_text("raise ModuleNotFoundError(\"No module named 'obstore'\", name='obstore')\n")

    def publish(name: str, *options: str) -> Application:
        what = ("--cluster", "eu", "--topic", str(CLICKS), "--jsonl", str(folder / "lines"))
        return spark.submit(name, "publish", "--config", str(folder / "s3.yaml"), *what, options=options)

    refused = publish("publish-refused", "--conf", f"spark.executorEnv.PYTHONPATH={without}")
    refused.process.ends(2)
    why = refused.process.finds(r"Spark's tasks cannot write there\. (on \S+: the Python of executors has no obstore)")
    published = publish("publish-s3")
    published.process.ends(0)
    place = "s3://geo-eu/t/topics/" + CLICKS.path
    rows = DeltaTable(place, storage_options=store.options()).to_pyarrow_table(columns=["key"])
    if len(set(rows["key"].to_pylist())) != len(rows) or len(rows) != FILES * LINES:
        raise Failed(f"on S3: {len(rows)} rows of {FILES * LINES} lines")
    for one in (refused, published):
        (log,) = one.events.iterdir()
        if found := [name for name, key in keys.items() if key in one.process.said + log.read_text()]:
            raise Failed(f"{one.process.name}: {found} in what it says, or in its event log")
    held = published.work().of("MapInArrow", least=FILES)
    yield (
        f"on S3: {why} (exit code 2, nothing published); with it {len(rows):,} rows by tasks ({held}), with keys that are in no event log"
    )


def main() -> int:
    return tell("standalone", {"standalone": show})


if __name__ == "__main__":
    sys.exit(main())
