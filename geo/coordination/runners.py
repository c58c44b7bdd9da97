"""Names of what one process at a time may do: a runner, its folder of fences and its part of a table property."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from enum import Enum

from geo.errors import InvalidNameError
from geo.journal.cluster import ClusterTables
from geo.names import Topic


@dataclass(frozen=True, slots=True)
class Runner:
    """The unit of ownership. `name` is unique in the cluster, `path` is its folder of fences, `property_key` its part of a table
    property."""

    name: str
    path: str
    property_key: str


class RunnerKind(str, Enum):
    """Activity of a runner. The runner's name begins with this value."""

    ORIGIN = "origin"
    BACKFILL = "backfill of"
    PRODUCER = "producer"
    CONSUMER = "subscription"


_PLACES = {
    RunnerKind.ORIGIN: ("origin/{who}/{topic}", "origin"),
    RunnerKind.BACKFILL: ("backfill/{who}/{topic}", "backfill"),
    RunnerKind.PRODUCER: ("publish/{topic}/{who}", "producer"),
    RunnerKind.CONSUMER: ("consume/{topic}/{who}", "subscription"),
}
"""`Runner.path` and the beginning of `Runner.property_key`, by kind."""

_NAME = re.compile(rf"({'|'.join(kind.value for kind in RunnerKind)}) (\S+) of (\S+) (?:in|into) ([^\s,]+)(?:, (.+))?")


@dataclass(frozen=True, slots=True)
class RunnerName:
    """The name of a runner that does something for one topic in a cluster, made and read here only. `who`: the origin, producer
    or subscription; `share`: that of a consumer, if it is not alone."""

    kind: RunnerKind
    who: str
    topic: Topic
    cluster: str
    share: str = ""

    def __str__(self) -> str:
        into = "into" if self.kind in (RunnerKind.ORIGIN, RunnerKind.BACKFILL) else "in"
        return f"{self.kind.value} {self.who} of {self.topic} {into} {self.cluster}{self.share and f', {self.share}'}"

    @classmethod
    def parse(cls, text: str) -> RunnerName | None:
        """The inverse of `str`; None for any other text, as the name of a broker."""
        if (found := _NAME.fullmatch(text)) is None:
            return None
        kind, who, topic, cluster, share = found.groups()
        try:
            name = cls(RunnerKind(kind), who, Topic.parse(topic), cluster, share or "")
        except InvalidNameError:
            return None
        return name if str(name) == text else None

    @property
    def runner(self) -> Runner:
        place, key = _PLACES[self.kind]
        who = self.who + (self.share and "-" + self.share.replace(" ", "-"))
        return Runner(str(self), place.format(who=who, topic=self.topic.path), f"{key}.{who}")


def origin_runners(origins: Set[str], topic: Topic, target: str) -> list[Runner]:
    """Bringing the messages of each of the origins into the topic's log in `target`, whoever does it: a link, a reconcile, a
    rebuild."""
    return [RunnerName(RunnerKind.ORIGIN, origin, topic, target).runner for origin in sorted(origins)]


def filling_runners(origins: Set[str], topic: Topic, target: str) -> list[Runner]:
    """Bringing what is missing of each of the origins in what a link has passed. A backfill beside it, or whoever compares both logs, which is over
    some time."""
    return [RunnerName(RunnerKind.BACKFILL, origin, topic, target).runner for origin in sorted(origins)]


def producer_runner(tables: ClusterTables, topic: Topic, producer: str) -> Runner:
    """Runner of a producer: its work on one topic."""
    return RunnerName(RunnerKind.PRODUCER, producer, topic, tables.cluster.name).runner


def consumer_runner(tables: ClusterTables, topic: Topic, subscription: str, share: str = "") -> Runner:
    """Runner of a consumer: delivering a subscription in one cluster, or a named share of it."""
    return RunnerName(RunnerKind.CONSUMER, subscription, topic, tables.cluster.name, share).runner


def subscription_prefix(tables: ClusterTables, topic: Topic, subscription: str) -> str:
    """Beginning of the names of all runners that deliver the subscription, or a share of it, in this cluster."""
    return str(RunnerName(RunnerKind.CONSUMER, subscription, topic, tables.cluster.name))


def name_of_share(number: int, count: int) -> str:
    """The share of the keys of consumer `number` of `count`, counted from 0."""
    return f"keys {number} of {count}"


def broker_runner(tables: ClusterTables) -> Runner:
    """Runner of a cluster's broker: being the only one. What the broker runs is owned piece by piece."""
    return Runner(f"broker of {tables.cluster.name}", "broker", "broker")


def version_sync_runner(tables: ClusterTables) -> Runner:
    """Telling where version subscriptions may go on: the tail, which writes `system/markers`, and the controllers, which read it."""
    return Runner(f"version sync of {tables.cluster.name}", "version-sync", "version-sync")
