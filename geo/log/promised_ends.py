"""Reads what producers recorded of their ledgers' ends (`system/ledgers`), for whoever holds it against a log. Read only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from geo.journal.cluster import ClusterTables
from geo.log.promises import Promise, promise_of
from geo.names import Topic
from geo.schemas import LEDGERS

Promised = Mapping[Topic, Sequence[Promise]]

FRESH_S = 10.0
"""Ends are recorded every ten seconds at most: what was read less long ago is as good as what is there."""


class SharedPromises:
    """The promises of a cluster's producers, for who asks for many topics one by one. What two ask for within FRESH_S is read once for all. What it
    says was so at some moment within FRESH_S before it was asked."""

    def __init__(self, read: Callable[[Collection[Topic]], Promised], clock: Callable[[], float] = time.monotonic) -> None:
        """`read`: as `read_promises`, of one cluster."""
        self._read, self._clock = read, clock
        self._expected: frozenset[Topic] = frozenset()
        self._asked_at = -math.inf
        self._known: tuple[float, Promised] = (-math.inf, {})

    def expect(self, topics: Iterable[Topic]) -> None:
        """These are the topics that may be asked for."""
        self._expected = frozenset(topics)

    def of(self, topic: Topic) -> Sequence[Promise]:
        """The promises of a topic. To be asked before the log is read: see `promises`."""
        now, (read_at, known) = self._clock(), self._known
        if topic in known and now - read_at < FRESH_S:
            return known[topic]
        # Who asks alone does not read what others may want. Two threads may both read: nobody waits for another one's hang.
        topics = {topic} | (self._expected if now - self._asked_at < FRESH_S else set())
        self._asked_at = now
        found = self._read(topics)
        self._known = now, found
        return found[topic]


def read_promises(tables: ClusterTables, topics: Collection[Topic]) -> dict[Topic, list[Promise]]:
    """The promises of a cluster's producers, by topic. To be read before the logs: see `promises`."""
    found: dict[Topic, list[Promise]] = {topic: [] for topic in topics}
    names = {str(topic): topic for topic in topics}
    for row in tables.journal(LEDGERS).newest(topic=names):
        if (promise := promise_of(tables.cluster.name, row)) is not None:
            found[names[row["topic"]]].append(promise)
    return found
