"""Two regions on an S3 API of this machine in which nothing starts Spark: us, and eu, into which a link leads.

`python -m tests.far CONFIG HOST TOPIC END BEFORE POINT SECONDS` is a producer of us on a host of that name. It publishes messages up to END - 1 and is
halted at the next crash point POINT behind BEFORE; when it goes on its clock is so many seconds ahead. Prints a line of JSON: how many `rows` it
published, or `error` and `text`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from geo.config import load
from geo.config.model import DispatchRate
from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.crash import CrashPoint, arm, watched
from geo.delta.arrow_rows import rows_table
from geo.delta.driver import Driver, Reads
from geo.delta.object_store import ObjectStore
from geo.delta.process import this_process
from geo.delta.s3_store import port_of
from geo.delta.scan import few_rows
from geo.delta.store import read_each
from geo.delta.table import Table
from geo.errors import GeoError
from geo.fleet.backfill import Backfill, Filled, Mode, _Filling
from geo.fleet.rate import Allowance
from geo.journal.cluster import ClusterTables
from geo.log.ledger_writer import LedgerWriter
from geo.log.ledgers import Batch, LedgerKey, RowsOfKey
from geo.log.topics import ensure_topic
from geo.names import Topic
from geo.now import now_us
from geo.replication.link_table import read_links
from geo.replication.topic_replicator import TopicReplicator
from geo.schemas import LINKS, TOPIC_LOG, TOPICS
from geo.streams.life import State
from geo.testing import config_text
from geo.times import from_us
from tests.clock_off import set_clock_off
from tests.delta.on_s3 import no_spark
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3
from tests.waiting import until

TOPIC = Topic.parse("persistent://shop/web/clicks")

ALL = LedgerKey("", None)
"""Of messages for all clusters, of a source without partitions."""


class Far:
    """What this process does in both regions, on a host of another name if one is given."""

    def __init__(self, path: Path, host: str | None = None) -> None:
        os.environ.update(GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
        self.path, self.config, self._me = path, load(path), this_process(0)
        if host is not None:
            self._me = replace(self._me, host=host)

    @classmethod
    def made(cls, s3: S3, folder: Path, links: Sequence[tuple[str, str]] = (("us", "eu"),)) -> Far:
        run, reached, path = uuid.uuid4(), json.dumps(s3.storage()), folder / "geo.yaml"
        for name in ("us", "eu"):
            s3.make_bucket(f"{name}-{run}")
        place = f"storage: {reached}"
        path.write_text(config_text(("us", "eu"), links, place=lambda name: f"root: 's3a://{name}-{run}/t', {place}"))
        return cls(path)

    def on_host(self, host: str) -> Far:
        return Far(self.path, host)

    def tables(self, name: str) -> ClusterTables:
        cluster = self.config.cluster(name)
        driver = Driver(no_spark, lambda: self._me, reads=Reads.ALL, find_port=lambda: port_of(cluster))
        return ClusterTables(driver, cluster)

    def log(self, name: str, topic: Topic = TOPIC) -> Table:
        return self.tables(name).log(topic)

    def publish(self, end: int, topic: Topic = TOPIC, *, take_over: bool = False) -> int:
        """Publish what is not yet published of messages numbered up to `end` - 1, in one commit. Returns how many that were."""
        writer = self.producer(topic, take_over=take_over)
        try:
            published = self.append(writer, end)
            writer.close()
            return published
        finally:
            writer.abandon()

    def producer(self, topic: Topic = TOPIC, *, take_over: bool = False) -> LedgerWriter:
        """The producer of us, which runs from here on."""
        tables = self.tables("us")
        ensure_topic(tables, topic)
        return LedgerWriter(tables, self.config, topic, "p", tables.log(topic), clock=now_us, take_over=take_over)

    def append(self, writer: LedgerWriter, end: int) -> int:
        """As `publish`, by a producer that runs."""
        first = writer.sources[""].count if "" in writer.sources else 0

        def entries(batch: Batch) -> pa.Table:
            (span,) = batch.spans
            same = {
                "origin": "us", "ledger_id": span.ledger_id, "publish_time": from_us(batch.publish_time_us), "producer": "p",
                "publish_date": from_us(batch.publish_time_us).date(),
            }  # fmt: skip
            rows = ({**same, "entry_id": span.first + n, "key": f"k{first + n}"} for n in range(end - first))
            return rows_table(TOPIC_LOG.types, list(rows))

        if first < end:
            writer.append([RowsOfKey(ALL, end - first, 0)], {"": json.dumps([str(end)])}, entries)
        return max(0, end - first)

    def replicate(self, topic: Topic = TOPIC, source: str = "us", target: str = "eu") -> int:
        """Run a link once. Returns how many messages it brought."""
        link = TopicReplicator(self.tables(target), self.tables(source), self.config, self.config.link(source, target), topic)
        ensure_topic(link.target, topic)
        (ownership,) = claim(link.target, [link.runners], point=CrashPoint.LINK_CLAIMED)
        try:
            running = link.prepare(ownership, read_links(link.target).get((source, str(topic))))
            if running is not None:
                running.run_turns(lambda: False)
                if (now := running.progressed(State.STOPPED)) is not None:
                    link.row.append(now)
            release([ownership])
        finally:
            ownership.abandon()
        return link.row.replicated

    def backfill(self, topic: Topic = TOPIC) -> Filled:
        """Bring what eu, which has nothing of it, lacks by whole files."""
        link, what, allowance = self.config.link("us", "eu"), Backfill(mode=Mode.FILES), Allowance(DispatchRate(), 0.0)
        never, tables = threading.Event(), (self.tables("eu"), self.tables("us"))
        return _Filling(*tables, self.config, link, topic, what, allowance, never, lambda filled: None, dry_run=False).run()

    def copy(self, topic: Topic, copies: Sequence[Topic]) -> None:
        """Make copies of a topic's logs in both regions, with what registries and links say of it."""
        for name in ("us", "eu"):
            tables, port = self.tables(name), self.tables(name).port
            assert port is not None
            files = {file: port.get(f"{tables.log(topic).name}/{file}") for file in port.below(tables.log(topic).name)}
            new = [(f"{tables.log(one).name}/{file}", content) for one in copies for file, content in files.items()]
            list(read_each(port, new, partial(_put, port)))
            for schema in (TOPICS, LINKS):
                rows = tables.journal(schema).newest(topic=str(topic))
                tables.journal(schema).append([{**row, "topic": str(one)} for one in copies for row in rows])

    def messages(self, name: str, topic: Topic = TOPIC) -> dict[tuple[int, int], str]:
        """What a log has, by ledger and entry. Fails if one is there twice."""
        log = self.log(name, topic)
        if not log.exists():
            return {}
        rows = few_rows(log, log.latest_version())
        assert rows is not None
        found = {(row["ledger_id"], row["entry_id"]): row["key"] for row in rows.to_pylist()}
        assert len(found) == len(rows), f"{name}: a message is there twice"
        return found

    @contextmanager
    def halted(
        self, host: str, end: int, topic: Topic, point: CrashPoint, *, before: CrashPoint, ahead_s: float = 0
    ) -> Iterator[Halted]:
        """A process on that host that publishes to `end`, once it is halted at a crash point behind another one."""
        at = [str(self.path), host, str(topic), str(end), before.value, point.value, str(ahead_s)]
        command = [sys.executable, "-m", __name__, *at]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        halted = Halted(process)
        try:
            until(lambda: halted.is_halted, lambda: f"{host} is not halted", goes_on=lambda: process.poll() is None)
            yield halted
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _put(port: ObjectStore, file: tuple[str, bytes]) -> None:
    port.put(*file)


class Halted:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def is_halted(self) -> bool:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def goes_on(self) -> dict[str, Any]:
        """What it says at its end."""
        os.killpg(self._process.pid, signal.SIGCONT)
        said, _ = self._process.communicate(timeout=120)
        told: dict[str, Any] = json.loads(said)
        return told


def _act(path: str, host: str, topic: str, end: str, before: str, point: str, ahead_s: str) -> None:
    signal.signal(signal.SIGCONT, lambda *_: set_clock_off(float(ahead_s)))

    def look(at: CrashPoint) -> None:
        if at.value == before:
            arm(f"{point}:stop")

    try:
        with watched(look):
            print(json.dumps({"rows": Far(Path(path), host).publish(int(end), Topic.parse(topic))}), flush=True)
    except GeoError as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)


if __name__ == "__main__":
    _act(*sys.argv[1:])
