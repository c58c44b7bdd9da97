"""Reads what producers recorded of their ledgers' ends (`system/ledgers`), for whoever holds it against a log. Read only."""

from __future__ import annotations

from collections.abc import Collection

from geo.log.promises import Promise, promise_of
from geo.names import Topic
from geo.tables.cluster import ClusterTables
from schemas import LEDGERS


def read_promises(tables: ClusterTables, topics: Collection[Topic]) -> dict[Topic, list[Promise]]:
    """The promises of a cluster's producers, by topic. To be read before the logs: see `promises`."""
    found: dict[Topic, list[Promise]] = {topic: [] for topic in topics}
    names = {str(topic): topic for topic in topics}
    for row in tables.journal(LEDGERS).newest(topic=names):
        if (promise := promise_of(tables.cluster.name, row)) is not None:
            found[names[row["topic"]]].append(promise)
    return found
