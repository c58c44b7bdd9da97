"""`geo topics describe`: where a topic's table is in each cluster, what stands in it, which policies hold, and how others read it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from geo.cli.arguments import TOPIC_FORM, Verbs, add_engine
from geo.cli.output import Output
from geo.cli.running import LookedAt, say_unreadable
from geo.config import Config, load
from geo.config.model import DispatchRate, TopicPolicy
from geo.journal.cluster import ClusterTables
from geo.log.topics import absent, known_topics
from geo.names import Topic
from geo.ops.named import Named
from geo.schemas import ENVELOPE
from geo.subscription.versions.version_reader import MESSAGES, batch_code, pandas_code, query, stream_code
from geo.text import lasting

_OWN = "the topic's own"


def add_describe(of_topics: Verbs) -> None:
    does = "where a topic's table is in each cluster, its columns and policies, and how to read it from SQL, Spark and pandas"
    p = of_topics.add("describe", does, describe)
    p.add_argument("topic", metavar="TOPIC", help=f"{TOPIC_FORM}; a partitioned topic: all its partitions")
    add_engine(p)


def describe(args: argparse.Namespace, output: Output) -> int:
    config, topic = load(args.config), Topic.parse(args.topic)
    looked = LookedAt("geo topics describe", config, args.engine)
    topics = Named(looked.regions, topic).require()
    found, unreadable = looked.read_each(lambda tables: [told for one in topics for told in _in_cluster(tables, one)])
    found.sort(key=lambda one: (topics.index(Topic.parse(one["topic"])), list(config.clusters).index(one["cluster"])))
    columns: list[dict[str, str]] = next((one["columns"] for one in found if one["columns"]), [])
    policies = list(_policies(config, topics[0]))
    said = {str(one["cluster"]): one["replication_clusters"] for one in found if one["topic"] == str(topics[0])}
    links = [link.name for link in config.links_of(topics[0], said)]
    output.data({"topic": str(topic), "tables": [*found, *unreadable], "filter": MESSAGES, "policies": policies, "links": links})
    output.table(
        ("TOPIC", "CLUSTER", "VERSION", "REPLICATION CLUSTERS", "TABLE"),
        [(one["topic"], one["cluster"], one["version"], ",".join(one["replication_clusters"] or ["as configured"]), one["table"])
         for one in found],
    )  # fmt: skip
    output.text(*(f"{one['topic']} in {one['cluster']}: {one['lacks']}" for one in found if one["lacks"] is not None), "")
    output.table(("COLUMN", "TYPE", "WHAT IT IS"), [(one["name"], one["type"], one["is"]) for one in columns])
    output.text("")
    output.table(("POLICY", "IS", "SAID BY"), [(one["policy"], one["is"], one["by"]) for one in policies])
    output.text(f"links that carry it: {', '.join(links) or 'none'}")
    if (first := next((one for one in found if one["read"]), None)) is not None:
        head = f"its messages in {first['cluster']} (rows with a marker are delta-geo's own):"
        output.text("", head, *(f"  {way}: {code}" for way, code in first["read"].items()))
    return say_unreadable(output, unreadable) or int(any(one["lacks"] is not None for one in found))


def _in_cluster(tables: ClusterTables, topic: Topic) -> Iterator[dict[str, Any]]:
    """Describes what a cluster has of a topic; nothing if it has none of it."""
    log = tables.log(topic)
    seen = log.snapshot()
    registered = next((one for one in known_topics(tables) if one.topic == topic and not one.is_deleted), None)
    if seen is None and registered is None:
        return
    lacks = None if registered is None else absent(tables, registered, seen)
    by_path, name = log.by_path, log.name
    read = {"SQL": query(log.sql), "Spark": batch_code(name, by_path=by_path), "a stream": stream_code(name, by_path=by_path)}
    if by_path:
        read["pandas"] = pandas_code(name)
    does = {column.name: column.comment for column in ENVELOPE}
    types = {} if seen is None else seen.types
    yield {
        "topic": str(topic), "cluster": tables.cluster.name, "table": name, "version": seen and seen.version,
        "replication_clusters": registered and registered.replication_clusters, "lacks": lacks and str(lacks),
        "columns": [{"name": column, "type": kind, "is": does.get(column, _OWN)} for column, kind in types.items()],
        "read": read if seen is not None else {},
    }  # fmt: skip


def _policies(config: Config, topic: Topic) -> Iterator[dict[str, str]]:
    """Lists the topic's policies in the configuration, and where they stand. Of some the first policy that matches counts
    alone, of others the first that has a value.
    """
    matching = list(config.matching(topic))
    for name, (of_first, says, default) in _POLICIES.items():
        key = name if name in TopicPolicy.__slots__ else f"{name}_s"
        values = ((policy, getattr(policy, key)) for policy in (matching[:1] if of_first else matching))
        policy, value = next(((policy, value) for policy, value in values if value is not None), (None, None))
        is_default = value is None or value == getattr(TopicPolicy(), key)
        by = "by default" if policy is None or is_default else f"{config.path}:{policy.line}"
        yield {"policy": name, "is": default if value is None else says(value), "by": by}


def _rate(rate: DispatchRate) -> str:
    each = ((rate.messages_per_second, "messages"), (rate.bytes_per_second, "bytes"))
    return ", ".join(f"{count:,} {what} a second" for count, what in each if count is not None) or "any"


_POLICIES: dict[str, tuple[bool, Callable[[Any], str], str]] = {
    "message_ttl": (True, lasting, "none: messages do not expire"),
    "longest_outage": (True, lasting, lasting(TopicPolicy().longest_outage_s)),
    "replication_clusters": (True, ",".join, "all"),
    "dispatch_rate": (False, _rate, "as of each link"),
    "replicate_subscription_state": (False, lambda shared: str(shared).lower(), "true"),
}
"""Policies by key: whether the first match alone counts, how the value is shown, and the value where no policy has one."""
