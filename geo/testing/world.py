"""A world for tests: regions on a folder, joined by links, driven through the public functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from geo.config import load
from geo.config.model import Config
from geo.delta.table import Table
from geo.fleet.replicator import Replicator
from geo.journal.cluster import ClusterTables, connect
from geo.log.publish import publish
from geo.log.publisher import Published
from geo.names import Topic
from geo.ops.verify.report import VerifyReport
from geo.ops.verify.verify import verify
from geo.replication.link_table import read_links
from geo.replication.link_topics import LinkReport
from geo.session import session
from geo.subscription.consumer import Subscription
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.user_function import Listener

TOPIC = Topic.parse("persistent://shop/web/clicks")
"""The topic of a world, where no other is named."""

Link = tuple[str, str] | Mapping[str, object]
"""Source and target, or all keys of a link as the configuration has them."""

ClusterPlace = Callable[[str], str]
"""Returns the keys of a cluster in the configuration that say where it is."""


def beside(name: str) -> str:
    """Place a cluster in a folder beside the configuration."""
    return f"root: {name}"


def config_text(clusters: Sequence[str], links: Iterable[Link], ttl: str | None = None, *, place: ClusterPlace = beside) -> str:
    """Write a configuration. `ttl`: the `message_ttl` of all topics."""
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


class World:
    """Clusters below `folder`, or in another `place`, and the links between them; by default a full mesh.

    Everything is real: tables, links, consumers. Nothing runs by itself: each call runs one thing to its end, so a test needs no waiting.
    A session of your own is given as `spark`. Without it `geo.session.session` makes one when something first needs it.
    """

    def __init__(
        self,
        folder: Path,
        clusters: Sequence[str] = ("eu", "us"),
        links: Iterable[Link] | None = None,
        ttl: str | None = None,
        *,
        spark: SparkSession | None = None,
        place: ClusterPlace = beside,
    ) -> None:
        self.folder, self._place = folder, place
        if spark is not None:
            self.spark = spark
        self.path = folder / "geo.yaml"
        """The configuration, for commands and for processes of your own."""
        self.rewrite(clusters, links, ttl)

    @cached_property
    def spark(self) -> SparkSession:
        """The session, which starts now if none was given."""
        return session("geo.testing")

    def rewrite(self, clusters: Sequence[str], links: Iterable[Link] | None = None, ttl: str | None = None) -> None:
        """Replace the configuration: a cluster joins or leaves, a link is added or goes."""
        mesh = itertools.permutations(clusters, 2)
        self.put(config_text(clusters, mesh if links is None else links, ttl, place=self._place))
        self.reload()

    def put(self, configuration: str) -> None:
        """Replace the text of the configuration at once, for a process that may be reading it. This world does not read it yet."""
        new = self.path.with_suffix(".new")
        new.write_text(configuration)
        new.replace(self.path)

    def configure(self, more: str) -> None:
        """Add these lines to the configuration, such as policies of topics."""
        self.path.write_text(self.path.read_text() + more)
        self.reload()

    def reload(self) -> None:
        """Read the configuration as it is now."""
        self.config: Config = load(self.path)

    def tables(self, cluster: str) -> ClusterTables:
        """Return the tables of a cluster."""
        given = self.spark if "spark" in vars(self) else lambda: self.spark
        return connect(given, self.config.cluster(cluster))

    def log(self, cluster: str, topic: Topic = TOPIC) -> Table:
        """Return the log of a topic in a cluster; its rows are `log(…).read()`."""
        return self.tables(cluster).log(topic)

    def rows(self, first: int, end: int) -> DataFrame:
        """Make messages numbered `first` to `end` - 1: `key` is k0, k1, …, `payload` names the number, `number` orders them."""
        return self.spark.range(first, end, numPartitions=1).selectExpr(
            "id AS number", "concat('k', id) AS key", "cast(concat('payload ', id) AS binary) AS payload"
        )

    def publish(self, cluster: str, end: int, *, first: int = 0, producer: str = "p", topic: str | Topic = TOPIC) -> Published:
        """Publish `rows(first, end)` as a user would. A call with a higher end adds the new ones."""
        rows = self.rows(first, end)
        done = publish(rows, topic, self.config, cluster, producer=producer, order_by="number")
        assert isinstance(done, Published)
        return done

    def replicate(self, target: str, **options: Any) -> list[LinkReport]:
        """Run the links into a cluster until everything there is has crossed, and report each topic of each link.

        `options`: those of `geo.fleet.replicator.Replicator`. Links that fail are reported, not raised.
        """
        given = self.spark if "spark" in vars(self) else lambda: self.spark
        return Replicator(given, self.config, target, **options).run()

    def run_links(self, *targets: str) -> None:
        """Run the links into each of these, in turn; by default into all that have any."""
        for target in targets or dict.fromkeys(link.target for link in self.config.links):
            self.replicate(target)

    def consume(
        self, cluster: str, listener: Listener, subscription: str = "test", *, topic: str | Topic = TOPIC, **options: Any
    ) -> Consumed:
        """Hand all messages that are there and not acknowledged to `listener`, a function of a DataFrame, as `geo.Subscription` does.

        `options`: those of `geo.Subscription`. Raises what `listener` raises.
        """
        return Subscription(self.spark, topic, subscription, self.config, cluster, **options).run(
            listener, trigger="available-now"
        )

    def verify(self) -> VerifyReport:
        """Compare the logs of all clusters as `geo verify` does."""
        return verify(self.spark, self.config)

    def assert_clean(self, *topics: Topic) -> None:
        """Assert that each topic's messages that should be somewhere are there, once, column by column the same, without a hole.

        A naive model of what `verify` proves on real sizes: the rows of all logs are held in memory and compared.
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
        """Return the rows that the log of a cluster has, by origin, ledger and entry. Asserts that none is there twice.

        They are read without Spark where clusters are beside the configuration.
        """
        log = self.log(cluster, topic)
        if not log.exists():
            return {}
        rows = (log.read().toArrow() if self._place is not beside else DeltaTable(log.name).to_pyarrow_table()).to_pylist()
        by_id = {(row["origin"], row["ledger_id"], row["entry_id"]): row for row in rows}
        assert len(by_id) == len(rows), f"{cluster}: a message of {topic} is there twice"
        return by_id
