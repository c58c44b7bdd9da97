"""A small world for tests: clusters on a temporary folder, joined by links, driven through the public functions."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from geo.config import load
from geo.config.model import Config
from geo.config.publication import Publication
from geo.coordination.claiming import claim
from geo.coordination.ownership import Ownership
from geo.delta.arrow_rows import rows_table
from geo.delta.table import Table
from geo.fleet.replicator import Replicator
from geo.journal.cluster import ClusterTables, connect
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.log.publish import PublishOptions, publish, publish_source
from geo.log.publish_stream import SourceStream
from geo.log.publisher import Published
from geo.log.topics import create_topic
from geo.names import DEFAULT_PRODUCER, Topic
from geo.now import now_us
from geo.ops.verify.quick import verify_by_ends
from geo.ops.verify.report import VerifyReport
from geo.ops.verify.verify import verify
from geo.replication.link_state import LinkState
from geo.replication.link_table import read_links
from geo.replication.link_topics import LinkReport
from geo.replication.topic_link import TopicLink
from geo.schemas import TOPIC_LOG
from geo.streams.life import State
from geo.times import from_us

TOPIC = Topic.parse("persistent://shop/web/clicks")

Link = tuple[str, str] | Mapping[str, object]

ClusterPlace = Callable[[str], str]
"""Where the configuration says that a cluster of a name is."""


def beside(name: str) -> str:
    """Beside the configuration."""
    return f"root: {name}"


SHAPES: Mapping[str, tuple[Sequence[str], Sequence[Link]]] = {
    "pair": (("eu", "us"), [("us", "eu"), ("eu", "us")]),
    "one-way": (("a", "b"), [("a", "b")]),
    "hub": (("a", "b", "c"), [("a", "b"), {"source": "b", "target": "c", "origins": "[a, b]"}]),
    "aggregation": (("e1", "e2", "e3", "centre"), [("e1", "centre"), ("e2", "centre"), ("e3", "centre")]),
    "mesh": (("a", "b", "c"), [(one, other) for one in "abc" for other in "abc" if one != other]),
    "inlong": (("a", "b", "c"), [("a", "b"), ("b", "a"), ("a", "c")]),
}
"""Clusters and links."""


def config_text(clusters: Sequence[str], links: Iterable[Link], ttl: str | None = None, *, place: ClusterPlace = beside) -> str:
    """A configuration file."""
    maps = [{"source": k[0], "target": k[1]} if isinstance(k, tuple) else dict(k) for k in links]
    lines = [
        "version: 1",
        "clusters:",
        *(f"  {name}: {{{place(name)}}}" for name in clusters),
        "links:" if maps else "links: []",
    ]
    lines += ["  - {" + ", ".join(f"{key}: {value}" for key, value in link.items()) + "}" for link in maps]
    if ttl:
        lines += ["topics:", f'  - {{match: "persistent://*/*/*", message_ttl: {ttl}}}']
    return "\n".join(lines) + "\n"


def record_of(first: int, end: int, time_us: int) -> str:
    """What a producer's commit says of entries `first` to `end` - 1 of ledger 1."""
    return Batch("w", time_us, (Span(LedgerKey("", None), 1, first, end - 1),), {}).encode()


class World:
    """Clusters below `folder`, or in another `place`. Links are pairs (source, target); by default a full mesh."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        clusters: Sequence[str] = ("eu", "us"),
        links: Iterable[Link] | None = None,
        ttl: str | None = None,
        *,
        place: ClusterPlace = beside,
    ) -> None:
        self.spark, self.folder, self._place = spark, folder, place
        self.path = folder / "geo.yaml"
        self.rewrite(clusters, links, ttl)

    def rewrite(
        self,
        clusters: Sequence[str],
        links: Iterable[Link] | None = None,
        ttl: str | None = None,
    ) -> None:
        """Another configuration for the same folder: how a cluster joins or a link is added."""
        mesh = itertools.permutations(clusters, 2)
        self.put(config_text(clusters, mesh if links is None else links, ttl, place=self._place))
        self.reload()

    def put(self, configuration: str) -> None:
        """The text in the place of the file that there is, at once: a process may be at it. It is not read here."""
        new = self.path.with_suffix(".new")
        new.write_text(configuration)
        new.replace(self.path)

    def lines(self, name: str, first: int, end: int) -> Path:
        """A file of JSON lines numbered `first` to `end` - 1, which is there at once, in a folder of this name. Returns the folder."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / ".new").write_text("".join(f'{{"key": "k{n}", "payload": "p"}}\n' for n in range(first, end)))
        (folder / ".new").rename(folder / f"{first:06}.jsonl")
        return folder

    def configure(self, more: str) -> None:
        """The configuration has this too from now on."""
        self.path.write_text(self.path.read_text() + more)
        self.reload()

    def reload(self) -> None:
        """Read the configuration as it is now."""
        self.config: Config = load(self.path)

    def tables(self, cluster: str) -> ClusterTables:
        return connect(self.spark, self.config.cluster(cluster))

    def log(self, cluster: str, topic: Topic = TOPIC) -> Table:
        return self.tables(cluster).log(topic)

    def rows(self, first: int, end: int) -> DataFrame:
        """Messages numbered `first` to `end` - 1, with the number as order column."""
        return self.spark.range(first, end, numPartitions=1).selectExpr(
            "id AS number", "concat('k', id) AS key", "cast(concat('payload ', id) AS binary) AS payload"
        )

    def publish(self, cluster: str, end: int, *, first: int = 0, producer: str = "p") -> Published:
        """Publish rows `first` to `end` - 1 as a user would; calling it again with a higher end adds the new ones."""
        rows = self.rows(first, end)
        done = publish(rows, TOPIC, self.config, cluster, producer=producer, order_by="number")
        assert isinstance(done, Published)
        return done

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
        log.append_rows(rows_table(TOPIC_LOG.types, list(rows)), record_of(first, end, now))

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
        assert self.log(cluster, topic).own_state() is None

    def clean_up(self, cluster: str, *, first: int = 0) -> None:
        """What log cleanup does: remove the commits of a log below a checkpoint."""
        log = self.log(cluster)
        log.set_property("delta.checkpointInterval", "1")
        log.set_property("note", "makes a checkpoint")
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
        copied = World(self.spark, folder)
        copied.path.write_text(self.path.read_text())
        copied.reload()
        return copied

    def replicate(self, target: str, **options: object) -> list[LinkReport]:
        return Replicator(self.spark, self.config, target, **options).run()  # type: ignore[arg-type]

    def run_links(self, *targets: str) -> None:
        """Run the links into each of these, in turn."""
        for target in targets:
            self.replicate(target)

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

    def topic_link(self, source: str = "us", target: str = "eu", topic: Topic = TOPIC) -> TopicLink:
        """A link of a topic, which has not begun."""
        return TopicLink(self.tables(target), self.tables(source), self.config, self.config.link(source, target), topic)

    def begun(self, source: str = "us", target: str = "eu", topic: Topic = TOPIC) -> tuple[TopicLink, Ownership]:
        """A link of a topic that has begun, and what it owns."""
        link = self.topic_link(source, target, topic)
        (ownership,) = claim(link.target, [link.runners])
        link.prepare(ownership, read_links(link.target).get((source, str(topic))))
        return link, ownership

    def all_tables(self) -> dict[str, ClusterTables]:
        return {name: self.tables(name) for name in self.config.clusters}

    def verify_quick(self) -> VerifyReport:
        return verify_by_ends(self.all_tables(), self.config)

    def verify(self) -> VerifyReport:
        return verify(self.spark, self.config)

    def assert_clean(self, *topics: Topic) -> None:
        """Of each of these topics, by default `TOPIC`: everything that should be everywhere is there, once, column by column the same, without a hole.

        A naive model of what `geo verify` proves on real sizes: the rows of all logs are held in memory and compared.
        """
        for topic in topics or (TOPIC,):
            self._assert_clean(topic)

    def _assert_clean(self, topic: Topic) -> None:
        logs = {name: self.messages(name, topic) for name in self.config.clusters}
        for name, messages in logs.items():
            ledgers: dict[tuple[str, int], list[int]] = {}
            for origin, ledger_id, entry_id in messages:
                ledgers.setdefault((origin, ledger_id), []).append(entry_id)
            for ledger, entries in ledgers.items():
                assert sorted(entries) == list(range(min(entries), max(entries) + 1)), f"{name}: holes in {ledger} of {topic}"
        for link in self.config.links:
            source, target = logs[link.source], logs[link.target]
            state = read_links(self.tables(link.target)).get((link.source, str(topic)))
            floors = (state.floors if state else None) or {}
            due = {
                key: row
                for key, row in source.items()
                if key[0] in link.origins
                and (row["replicate_to"] is None or link.target in row["replicate_to"])
                and key[2] >= floors.get(f"{key[0]}:{key[1]}", 0)
            }
            there = {key: row for key, row in target.items() if key[0] in link.origins}
            assert there == due, f"{link.name}: {len(due)} messages of {topic} due, {len(there)} there"

    def messages(self, cluster: str, topic: Topic = TOPIC) -> dict[tuple[str, int, int], dict[str, Any]]:
        """What the log of a cluster holds, by message id, read without Spark where they are beside the configuration. Fails if one is there twice."""
        log = self.log(cluster, topic)
        if not log.exists():
            return {}
        rows = (log.read().toArrow() if self._place is not beside else DeltaTable(log.name).to_pyarrow_table()).to_pylist()
        by_id = {(row["origin"], row["ledger_id"], row["entry_id"]): row for row in rows}
        assert len(by_id) == len(rows), f"{cluster}: a message of {topic} is there twice"
        return by_id

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
