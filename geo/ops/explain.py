"""The reason why a topic crosses a link or does not: which level decides, and where that stands. Pure: no Spark, clock or I/O.

The levels are asked as whoever runs the link asks them (`geo.replication.link_topics.replicates`). The link itself, what the registry of its source
says of the topic, the first policy of the configuration that matches it. And each message says by `replicate_to` whether it is for the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from geo.config.model import Config, Link, TopicPolicy
from geo.delta.commits import Commit, Kind
from geo.log.kept_policies import forbids
from geo.log.ledgers import Batch
from geo.names import Topic, is_glob
from geo.replication.rule import Rule
from geo.text import counted


class OfRegistry(Protocol):
    """Registry's row of a topic (geo.log.topics.Registered)."""

    @property
    def replication_clusters(self) -> tuple[str, ...] | None: ...
    @property
    def is_deleted(self) -> bool: ...


class DecidedBy(str, Enum):
    """The one who decides, the nearest to a message first."""

    MESSAGE = "message"
    """`replicate_to` of the messages themselves."""
    TOPIC = "topic"
    """The topic's policy in the registry of the link's source, or one of the configuration that names this topic alone."""
    NAMESPACE = "namespace"
    """A policy of the configuration for topics of this one's namespace."""
    CONFIGURATION = "configuration"
    """A policy for topics of several namespaces, or the links."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Answer whether the link replicates the topic, who says so and where. `replicated` None: nobody knows, since what would
    say so cannot be read; then there is no `level`. `do`: what a person does who wants it otherwise. None: that is not said in
    a verb.
    """

    replicated: bool | None
    level: DecidedBy | None
    where: str
    reason: str
    do: str | None = None


@dataclass(frozen=True, slots=True)
class Addressed:
    """Counts of the messages that some commits of a source published there: those for the target, and those for others only.
    `since_us`: when the oldest of these commits was made; None: there are none.
    """

    to_target: int = 0
    to_others: int = 0
    since_us: int | None = None


def addressed(commits: Iterable[Commit], rule: Rule) -> Addressed:
    """Counts by the records of these commits."""
    to_target = to_others = 0
    since_us: int | None = None
    for commit in commits:
        batch = Batch.decode(commit.user_metadata) if commit.kind is Kind.APPEND else None
        if batch is None:
            continue
        since_us = batch.publish_time_us if since_us is None else min(since_us, batch.publish_time_us)
        for span in batch.spans:
            count = span.last - span.first + 1
            if span.key.replicate_to is None or rule.target in span.key.replicate_to:
                to_target += count
            else:
                to_others += count
    return Addressed(to_target, to_others, since_us)


def decide(
    config: Config,
    source: str,
    target: str,
    topic: Topic,
    found: OfRegistry | None,
    *,
    unread: str | None = None,
    deleted_in_target: bool = False,
    unclear: str | None = None,
    told: str | None = None,
    messages: Addressed | None = None,
) -> Decision:
    """Decides whether a topic crosses from one cluster to another, and why.

    `found`: what the source knows of it; None: nothing. `unread`: why the source cannot be read. `unclear`: why its link does
    not carry a topic of which nobody knows where it may go. `told`: what its log in the source keeps of its policies.
    `messages`: what was published lately, as far as that is known.
    """
    link = next((one for one in config.links if (one.source, one.target) == (source, target)), None)
    if link is None:
        return Decision(False, DecidedBy.CONFIGURATION, config.path, _no_link(config, source, target, topic))
    at_link = _where(config, link)
    if not link.carries(topic):
        return Decision(False, DecidedBy.CONFIGURATION, at_link, _not_carried(link, topic))
    registry = f"registry of {source}"
    policy = config.policy(topic)
    if unread is not None:
        return Decision(None, None, registry, f"{source} cannot be read: {unread}")
    if found is None:
        return Decision(False, DecidedBy.TOPIC, registry, f"{source} does not have it, so there is nothing to bring")
    if found.is_deleted or deleted_in_target:
        gone = source if found.is_deleted else target
        make = f"geo topics create --cluster {gone} --topic {topic}"
        return Decision(False, DecidedBy.TOPIC, f"registry of {gone}", f"it was deleted in {gone}", make)
    if unclear is not None:
        return Decision(False, DecidedBy.TOPIC, registry, unclear)
    if found.replication_clusters:
        decision = _by_clusters(found.replication_clusters, source, target, DecidedBy.TOPIC, registry)
        either = f"{_set(source, topic, found.replication_clusters, target)}, or --inherit"
    elif policy.replication_clusters is not None:
        decision = _by_clusters(policy.replication_clusters, source, target, _level(policy), _where(config, policy))
        either = _set(source, topic, policy.replication_clusters, target)
    else:
        reason = "the link carries it, and no policy says to which clusters it goes"
        decision = Decision(True, DecidedBy.CONFIGURATION, at_link, reason)
        either = ""
    if not decision.replicated:
        return Decision(False, decision.level, decision.where, decision.reason, either)
    if (among := forbids(told, source, target)) is not None:
        other = f"its log says that its replication clusters are {', '.join(among)}, and the registry says otherwise"
        return Decision(False, DecidedBy.TOPIC, f"log of {source}", other, f"{_set(source, topic, among, target)}, or --inherit")
    if messages is not None and messages.to_others and not messages.to_target:
        none = f"none of the newest {counted(messages.to_others, 'message')} names {target} in its replicate_to"
        return Decision(False, DecidedBy.MESSAGE, f"log of {source}", none)
    return decision


def _by_clusters(clusters: Iterable[str], source: str, target: str, level: DecidedBy, where: str) -> Decision:
    among = tuple(clusters)
    lacking = [one for one in (source, target) if one not in among]
    if not lacking:
        return Decision(True, level, where, f"its replication clusters are {', '.join(among)}")
    return Decision(False, level, where, f"its replication clusters are {', '.join(among)}, without {' and '.join(lacking)}")


def _set(source: str, topic: Topic, among: Iterable[str], target: str) -> str:
    """The verb that lets the target have it too."""
    return f"geo topics set --cluster {source} --topic {topic} --replication-clusters {','.join(dict.fromkeys((*among, source, target)))}"


def _no_link(config: Config, source: str, target: str, topic: Topic) -> str:
    way = config.hubs(source, target, topic)
    if way:
        return f"no link leads from {source} to {target}; what is published in {source} comes by {', '.join(way)}"
    return f"no link leads from {source} to {target}, and none forwards it"


def _not_carried(link: Link, topic: Topic) -> str:
    if topic.is_system and link.carry == "messages":
        return "the link carries messages alone, and this topic is of acknowledgements"
    if not topic.is_system and link.carry == "acks":
        return "the link carries acknowledgements alone"
    return f"none of the link's topics is it: {', '.join(link.topics)}"


def _level(policy: TopicPolicy) -> DecidedBy:
    if not is_glob(policy.match):
        return DecidedBy.TOPIC
    return DecidedBy.CONFIGURATION if is_glob(policy.match.rpartition("/")[0]) else DecidedBy.NAMESPACE


def _where(config: Config, one: Link | TopicPolicy) -> str:
    """File and line, as an editor takes them."""
    return config.path if one.line is None else f"{config.path}:{one.line}"
