"""The world of the house's own tests: what `geo.testing.World` offers, and reaches into rooms that no user sees."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from geo import testing
from geo.config.publication import Publication
from geo.coordination.claiming import claim
from geo.coordination.ownership import Ownership
from geo.delta.appending import append_rows
from geo.delta.arrow_rows import rows_table
from geo.delta.ddl import set_property
from geo.delta.local_state import own_state
from geo.journal.cluster import ClusterTables
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.log.publish import PublishOptions, publish_source
from geo.log.publish_stream import SourceStream
from geo.log.topics import create_topic
from geo.names import DEFAULT_PRODUCER, Topic
from geo.now import now_us
from geo.ops.verify.quick import verify_by_ends
from geo.ops.verify.report import VerifyReport
from geo.replication.link_state import LinkState
from geo.replication.link_table import read_links
from geo.replication.topic_replicator import TopicReplicator
from geo.schemas import TOPIC_LOG
from geo.streams.life import State
from geo.testing import TOPIC as TOPIC
from geo.testing.world import Link
from geo.times import from_us

SHAPES: Mapping[str, tuple[Sequence[str], Sequence[Link]]] = {
    "pair": (("eu", "us"), [("us", "eu"), ("eu", "us")]),
    "one-way": (("a", "b"), [("a", "b")]),
    "hub": (("a", "b", "c"), [("a", "b"), {"source": "b", "target": "c", "origins": "[a, b]"}]),
    "aggregation": (("e1", "e2", "e3", "centre"), [("e1", "centre"), ("e2", "centre"), ("e3", "centre")]),
    "mesh": (("a", "b", "c"), [(one, other) for one in "abc" for other in "abc" if one != other]),
    "inlong": (("a", "b", "c"), [("a", "b"), ("b", "a"), ("a", "c")]),
}
"""Clusters and links."""


def record_of(first: int, end: int, time_us: int) -> str:
    """What a producer's commit says of entries `first` to `end` - 1 of ledger 1."""
    return Batch("w", time_us, (Span(LedgerKey("", None), 1, first, end - 1),), {}).encode()


class World(testing.World):
    """A world whose tests look into logs, links and claims."""

    def lines(self, name: str, first: int, end: int) -> Path:
        """A file of JSON lines numbered `first` to `end` - 1, which is there at once, in a folder of this name. Returns the folder."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / ".new").write_text("".join(f'{{"key": "k{n}", "payload": "p"}}\n' for n in range(first, end)))
        (folder / ".new").rename(folder / f"{first:06}.jsonl")
        return folder

    def published(self, what: Publication, **options: Any) -> SourceStream:
        """Publish what a publication says, to its end. `options`: of PublishOptions."""
        stream = publish_source(self.spark, self.config, what, options=PublishOptions(**options))
        stream.await_termination()
        return stream

    def publish_lines(self, cluster: str, path: Path, *, producer: str = DEFAULT_PRODUCER, **options: Any) -> SourceStream:
        """As `published`, of JSON lines."""
        return self.published(Publication(cluster, TOPIC, producer, jsonl=str(path)), **options)

    def write(self, cluster: str, first: int, end: int, *, topic: Topic = TOPIC) -> None:
        """Entries `first` to `end` - 1 of ledger 1 in one commit, past the publisher: for tests that are about links."""
        log = self.log(cluster, topic)
        if not log.exists():
            create_topic(self.tables(cluster), topic)
        now = now_us()
        same = {
            "origin": cluster,
            "ledger_id": 1,
            "publish_time": from_us(now),
            "producer": "w",
            "publish_date": from_us(now).date(),
        }
        rows = ({**same, "entry_id": n, "key": f"k{n}", "payload": f"payload {n}".encode()} for n in range(first, end))
        append_rows(log, rows_table(TOPIC_LOG.types, list(rows)), record_of(first, end, now))

    def entries(self, cluster: str, first: int, end: int) -> DataFrame:
        """Entries `first` to `end` - 1 of ledger 1 as a log has them, published now."""
        return self.rows(first, end).selectExpr(
            f"'{cluster}' AS origin", "1L AS ledger_id", "number AS entry_id", "current_timestamp() AS publish_time",
            "CAST(NULL AS TIMESTAMP) AS event_time", "'w' AS producer", "key", "CAST(NULL AS MAP<STRING, STRING>) AS properties",
            "CAST(NULL AS ARRAY<STRING>) AS replicate_to", "payload", "CAST(NULL AS STRING) AS marker",
            "current_date() AS publish_date",
        )  # fmt: skip

    def leave_to_spark(self, cluster: str, topic: Topic = TOPIC) -> None:
        """From now on the log of a topic, made if need be, asks more of a writer than this program does by itself."""
        if not self.log(cluster, topic).exists():
            create_topic(self.tables(cluster), topic)
        self.spark.sql(f"ALTER TABLE {self.log(cluster, topic).sql} ADD CONSTRAINT entries CHECK (entry_id >= 0)")
        assert own_state(self.log(cluster, topic)) is None

    def clean_up(self, cluster: str, *, first: int = 0) -> None:
        """What log cleanup does: remove the commits of a log below a checkpoint."""
        log = self.log(cluster)
        set_property(log, "delta.checkpointInterval", "1")
        set_property(log, "note", "makes a checkpoint")
        for version in range(first, log.latest_version() - 1):
            (Path(log.name) / "_delta_log" / f"{version:020}.json").unlink()

    def kept(self, cluster: str) -> Callable[[], None]:
        """Copy a log's files as they are now. Calling what this returns puts them back."""
        log = self.log(cluster).name
        kept = shutil.copytree(log, self.folder / f"{cluster}-kept")

        def put_back() -> None:
            shutil.rmtree(log)
            shutil.copytree(kept, log)

        return put_back

    def copy(self, folder: Path) -> World:
        """The same world once more, in another folder."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        copied = World(folder, spark=self.spark)
        copied.path.write_text(self.path.read_text())
        copied.reload()
        return copied

    def brought(self, target: str, **options: object) -> tuple[State, int]:
        """Run the only topic's only link into a cluster: how it ended, and how many messages it brought."""
        (report,) = self.replicate(target, **options)
        return report.state, report.replicated

    def ended(self, target: str) -> tuple[State, str]:
        """As `brought`: how it ended, and why."""
        (report,) = self.replicate(target)
        return report.state, report.reason or ""

    def fails(self, target: str, *told: str) -> str:
        """As `ended`: it is FAILED, and its reason, which is returned, says all this."""
        state, reason = self.ended(target)
        assert state is State.FAILED
        assert [text for text in told if text not in reason] == [], reason
        return reason

    def settle(self, *targets: str) -> None:
        """Run the links into these; then all is clean."""
        self.run_links(*targets)
        self.assert_clean()

    def topic_replicator(self, source: str = "us", target: str = "eu", topic: Topic = TOPIC) -> TopicReplicator:
        """A link of a topic, which has not begun."""
        return TopicReplicator(self.tables(target), self.tables(source), self.config, self.config.link(source, target), topic)

    def begun(self, source: str = "us", target: str = "eu", topic: Topic = TOPIC) -> tuple[TopicReplicator, Ownership]:
        """A link of a topic that has begun, and what it owns."""
        link = self.topic_replicator(source, target, topic)
        (ownership,) = claim(link.target, [link.runners])
        link.prepare(ownership, read_links(link.target).get((source, str(topic))))
        return link, ownership

    def all_tables(self) -> dict[str, ClusterTables]:
        return {name: self.tables(name) for name in self.config.clusters}

    def verify_quick(self) -> VerifyReport:
        return verify_by_ends(self.all_tables(), self.config)

    def arrived(self, cluster: str, origin: str = "us") -> list[int]:
        """The entries of an origin that the log of a cluster has, in their order. Fails if one is there twice."""
        return sorted(entry for name, _, entry in self.messages(cluster) if name == origin)

    def count(self, cluster: str, topic: Topic = TOPIC) -> int:
        """How many rows the log of a cluster has, 0 if there is none: told by another engine, which leaves the cores to what is waited for."""
        name = self.log(cluster, topic).name
        return DeltaTable(name).count() if DeltaTable.is_deltatable(name) else 0

    def link_state(self, target: str, source: str) -> LinkState:
        return read_links(self.tables(target))[source, str(TOPIC)]

    def versions(self) -> dict[str, int]:
        return {name: self.log(name).latest_version() for name in self.config.clusters}
