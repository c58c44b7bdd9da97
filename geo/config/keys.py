"""Every key of the configuration: what is written behind it, what it does, and its default. `reader.py` reads what stands here, and `page.py` makes
docs/configuration.md of it. Pure.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import Enum

from geo.config.cluster import Cluster
from geo.config.model import LEAST_CACHED, MOST_CACHED, DispatchRate, Link, Snapshots, TopicPolicy
from geo.config.placement import SHEDDERS, STRATEGIES, Placement
from geo.config.publication import Publication
from geo.times import duration_text


class KeyKind(Enum):
    """Kind of value behind a key."""

    DURATION = "a duration"
    NUMBER = "a whole number"
    FLAG = "`true` or `false`"
    START = "`earliest` or `latest`"
    CARRY = "`messages`, `acks` or `both`"
    UPDATES = "`allow` or `deny`"
    SCHEMA = "`grow` or `fixed`"
    CLUSTER = "a cluster's name"
    CLUSTERS = "a list of clusters' names"
    GLOB = "a glob of topics"
    GLOBS = "a list of globs of topics"
    LOCATION = "a path or URI"
    TABLE = "a path with a slash in it, a URI, or a catalog's name"
    COLUMNS = "a list of columns"
    IDENTIFIER = "a catalog's identifier"
    TOPIC = "a topic"
    PRODUCER = "a producer's name"
    NAME = "a name"
    TEXT = "text"
    RATE = "a rate"
    SETTINGS = "settings by name"


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `default`: in words, where the value that holds without it is not one to be written; None: it is that value."""

    name: str
    kind: KeyKind
    does: str
    default: str | None = None
    required: bool = False

    @property
    def parameter(self) -> str:
        """Parameter of the object that is configured."""
        return f"{self.name}_s" if self.kind is KeyKind.DURATION else self.name


@dataclass(frozen=True, slots=True)
class KeysOf:
    """The keys of one part of the file, and what is made of them."""

    title: str
    does: str
    made: type
    keys: tuple[Key, ...]

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys if key.required)

    @property
    def optional(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys if not key.required)

    def default(self, key: Key) -> str:
        """Value that holds without the key, as people read it."""
        if key.required:
            return "required"
        if key.default is not None:
            return key.default
        value = next((one.default for one in fields(self.made) if one.name == key.parameter), MISSING)
        if key.kind is KeyKind.DURATION and isinstance(value, int):
            return duration_text(value)
        return "none" if value in (None, MISSING) else f"`{value}`"


RATE = KeysOf(
    "dispatch_rate",
    "How much of each topic comes per second at most, of a link or of the topics that match.",
    DispatchRate,
    (
        Key("messages_per_second", KeyKind.NUMBER, "so many messages", "any number"),
        Key("bytes_per_second", KeyKind.NUMBER, "so many bytes", "any number"),
    ),
)

CLUSTERS = KeysOf(
    "clusters",
    "By name, which is lower case; at least one. Each is one region's storage: it has either `root`, or `catalog` and `schema`.",
    Cluster,
    (
        Key("root", KeyKind.LOCATION, "tables are folders below it"),
        Key("catalog", KeyKind.IDENTIFIER, "tables are of this catalog, Unity Catalog or another"),
        Key("schema", KeyKind.IDENTIFIER, "and in this schema of it"),
        Key("checkpoints", KeyKind.LOCATION, "where streaming checkpoints lie, outside of any table", "`<root>/checkpoints`; required with a catalog"),
        Key("spark_conf", KeyKind.SETTINGS, "Spark settings by which the cluster is reached; secrets only as references"),
        Key("storage", KeyKind.SETTINGS, "how an S3 root is reached, in object_store's words (deltalake's `storage_options`); secrets only as references"),
        Key("owner_timeout", KeyKind.DURATION, "a runner on another host that is silent for so long is replaced; 30 seconds or more"),
    ),
)  # fmt: skip

LINKS = KeysOf(
    "links",
    "A list. Each brings what one cluster has to another; an origin reaches a cluster by one link only.",
    Link,
    (
        Key("source", KeyKind.CLUSTER, "the cluster that is read", required=True),
        Key("target", KeyKind.CLUSTER, "the cluster that reads, runs the link and is written", required=True),
        Key("topics", KeyKind.GLOBS, "which topics", "all"),
        Key("start", KeyKind.START, "where the link begins in a topic that it has not met"),
        Key(
            "origins",
            KeyKind.CLUSTERS,
            "whose messages cross; more than the source's is forwarding through a hub",
            "the source's own",
        ),
        Key("carry", KeyKind.CARRY, "messages of topics, acknowledgements of subscriptions, or both"),
        Key("num_fetchers", KeyKind.NUMBER, "how many batches of the link run at once"),
        Key("dispatch_rate", KeyKind.RATE, "how much of each topic it brings per second, where no policy says one", "any number"),
        Key(
            "schema_updates",
            KeyKind.UPDATES,
            "whether it brings columns, and wider types, that topics of the source got; with `deny` such a topic is FAILED until the target has them and `geo links restart`",
        ),
        Key(
            "expect_every",
            KeyKind.DURATION,
            "where a schedule runs it, how often: only after one and a half of it it is missed ([health.md](health.md))",
        ),
    ),
)

TOPICS = KeysOf(
    "topics",
    "A list of policies: the first that matches a topic holds for it. Without one its messages do not expire.",
    TopicPolicy,
    (
        Key("match", KeyKind.GLOB, "which topics", required=True),
        Key("message_ttl", KeyKind.DURATION, "after so long messages expire", "messages do not expire"),
        Key("longest_outage", KeyKind.DURATION, "how long a link may be away and still find what it has to read"),
        Key(
            "replication_clusters", KeyKind.CLUSTERS, "only links between these carry the topic; one alone: no replication", "all"
        ),
        Key("dispatch_rate", KeyKind.RATE, "in the place of the link's; the first match that has one counts", "the link's"),
        Key(
            "replicate_subscription_state",
            KeyKind.FLAG,
            "whether regions share a subscription that is created on it, or it is of its own region only; the first match that says so counts",
            "`true`",
        ),
    ),
)

SNAPSHOTS = KeysOf(
    "snapshots",
    "Of topics with version subscriptions. Each snapshot is some commits of the log ([guarantees.md](guarantees.md)).",
    Snapshots,
    (
        Key("frequency", KeyKind.DURATION, "at most so often one is taken"),
        Key("timeout", KeyKind.DURATION, "after so long one is given up"),
        Key(
            "max_cached",
            KeyKind.NUMBER,
            f"so many each subscription keeps that it has still to pass; {LEAST_CACHED} to {MOST_CACHED}",
        ),
    ),
)

PLACEMENT = KeysOf(
    "placement",
    "Without it a cluster has one broker. With it, be it `{}`, several share its topics.",
    Placement,
    (
        Key("broker_timeout", KeyKind.DURATION, "a broker that says nothing for so long is taken for dead"),
        Key("bundles", KeyKind.NUMBER, "how many parts a namespace has at first"),
        Key("strategy", KeyKind.NAME, f"who gets a bundle: {', '.join(STRATEGIES)}"),
        Key("shedder", KeyKind.NAME, f"who gives one up: {', '.join(SHEDDERS)}"),
        Key("settings", KeyKind.SETTINGS, "of the load balancer, below", "those below"),
    ),
)

PUBLISH = KeysOf(
    "publish",
    "A list: what `geo broker` publishes. Each has `jsonl`, or `kafka` and `kafka_topic`, or `delta`.",
    Publication,
    (
        Key("cluster", KeyKind.CLUSTER, "the cluster whose broker does it", required=True),
        Key("topic", KeyKind.TOPIC, "into which it goes", required=True),
        Key("producer", KeyKind.PRODUCER, "the name under which progress is kept"),
        Key("jsonl", KeyKind.LOCATION, "a file of JSON lines, or a directory of them"),
        Key("kafka", KeyKind.TEXT, "bootstrap servers of Kafka, `host:port,…`"),
        Key("kafka_topic", KeyKind.TEXT, "the Kafka topic to read, one ledger per partition"),
        Key("kafka_start", KeyKind.START, "where to begin when nothing was published yet"),
        Key("delta", KeyKind.TABLE, "a Delta table of yours ([own-table.md](own-table.md))"),
        Key("delta_start", KeyKind.START, "with the rows that the table has at first, or with what comes from then on"),
        Key("key", KeyKind.TEXT, "the table's column whose text is the key of a message", "its column `key`, if there is one"),
        Key(
            "order_by",
            KeyKind.COLUMNS,
            "the rows of one commit of the table are put in the order of these",
            "as they are in its files",
        ),
        Key("only_inserts", KeyKind.FLAG, "deletes and changes in the table are passed over; they stop it otherwise", "`false`"),
        Key(
            "schema",
            KeyKind.SCHEMA,
            "whether the topic gets columns, and wider types, that the table gets; with `fixed` they stop it",
        ),
    ),
)

PARTS = (CLUSTERS, LINKS, RATE, TOPICS, SNAPSHOTS, PLACEMENT, PUBLISH)
