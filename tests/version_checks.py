"""What must hold of version subscriptions (PIP-33), from the tables alone: of clusters of which nothing runs any more, and that links have
brought in step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from geo.delta.commits import Kind
from geo.delta.frames import read_added
from geo.delta.scan import few_added
from geo.delta.table import Table
from geo.journal.cluster import ClusterTables
from geo.log.topic_log import ID, ids_of
from geo.names import Topic
from geo.subscription.pip33.markers import SnapshotTaken, SubscriptionUpdate, decode
from geo.subscription.versions.version_starts import read_starts
from geo.subscription.versions.version_subscriptions import progress, version_subscriptions

MessageId = tuple[str, int, int]


@dataclass
class Placed:
    """In which version of a log each message came; 0: in one whose commit is gone."""

    versions: dict[MessageId, int] = field(default_factory=dict)
    own: list[tuple[str, bytes]] = field(default_factory=list)
    """Its own markers: kind and payload."""

    def before(self, version: int) -> set[MessageId]:
        return {message for message, at in self.versions.items() if at < version}


def placed(log: Table, cluster: str) -> Placed:
    newest, at = log.latest_version(), dict[MessageId, int]()
    for commit in log.commits(0, newest):
        if commit.kind is Kind.APPEND:
            rows = few_added(log, commit.version, commit.version)
            rows = read_added(log, commit.version, commit.version).toArrow() if rows is None else rows
            at.update(dict.fromkeys(ids_of(rows), commit.version))
    found = Placed()
    for *message, marker, payload in log.read(newest).select(*ID, "marker", "payload").collect():
        if marker is None:
            found.versions[message[0], message[1], message[2]] = at.get((message[0], message[1], message[2]), 0)
        elif message[0] == cluster:
            found.own.append((marker, bytes(payload)))
    return found


def violations(clusters: Mapping[str, ClusterTables], topic: Topic) -> Iterator[str]:
    """What does not hold; and nothing if all does:

    - Each cluster's own markers are there once.
    - Of each snapshot that an update tells of: what is before its place in the log of another cluster, and is in both, is before its place
      here.
    - Of each start that is handed out: what is before it there, and is in both, is finished where it was told.
    """
    logs = {name: placed(tables.log(topic), name) for name, tables in clusters.items()}
    finished = {
        (name, one.subscription): progress(tables, one)
        for name, tables in clusters.items()
        for one in version_subscriptions(tables, str(topic))
    }
    for name, log in logs.items():
        yield from (
            f"{name}: {count} times {kind} {payload!r}" for (kind, payload), count in Counter(log.own).items() if count > 1
        )
        markers = [decode(*one) for one in log.own]
        here = {one.snapshot.snapshot_id: one.snapshot for one in markers if isinstance(one, SnapshotTaken)}
        for one in markers:
            if isinstance(one, SubscriptionUpdate):
                snapshot = here[one.snapshot_id]
                assert snapshot.clusters == one.clusters
                for other, position in one.clusters.items():
                    early = _late(logs[other].before(position.next_version), log, snapshot.local_position[0])
                    if early:
                        yield f"{name}: snapshot {one.snapshot_id} says {position} of {other}; before it is {min(early)}, and here it comes later"
        for (subscription, other), start in read_starts(clusters[name], topic).starts.items():
            told_by, first = str(start.told_by), start.start or 0
            done = finished.get((told_by, subscription))
            if done is None:
                yield f"{name}: {subscription} may begin in {other} at {first}, and {told_by} does not know it"
            elif missed := _late(logs[other].before(first), logs[told_by], done):
                yield f"{name}: {subscription} may begin in {other} at {first}, which skips {min(missed)}"


def _late(messages: set[MessageId], log: Placed, version: int) -> set[MessageId]:
    """Those that came into a log after a version of it."""
    return {one for one in messages if log.versions.get(one, -1) > version}
