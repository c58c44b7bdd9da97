"""Facts that clusters tell of themselves by their system tables, asked again and again by whoever takes snapshots. Others are asked in threads,
since one that is away may never answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from geo.asking import ask
from geo.delta.commits import Commit
from geo.delta.mirror import may_be_old
from geo.errors import RetryableError
from geo.faults import FAULTS
from geo.journal.cached_view import CachedView
from geo.journal.cluster import ClusterTables
from geo.log.topics import Registered, known_topics
from geo.names import Topic
from geo.replication.link_state import LinkState
from geo.replication.link_table import read_links
from geo.schemas import LINKS, TOPICS, VERSION_SUBSCRIPTIONS
from geo.streams import timetable
from geo.subscription.versions.version_subscriptions import VersionSubscription, replicated_subscriptions
from geo.text import first_line

PEER_ANSWER_S = 30.0
"""One that has not answered by then is away."""


@dataclass(frozen=True, slots=True)
class Said:
    """Facts of a cluster: its version subscriptions that need snapshots, how the links into it are, and where topics replicate."""

    subscriptions: Sequence[VersionSubscription] = ()
    links: Mapping[tuple[str, str], LinkState] = field(default_factory=dict)
    policies: Mapping[Topic, Registered] = field(default_factory=dict)


class Registries:
    """Facts of a cluster, by its system tables."""

    def __init__(self, tables: ClusterTables) -> None:
        self._tables = tables
        self._subscriptions = CachedView(tables.journal(VERSION_SUBSCRIPTIONS), lambda: replicated_subscriptions(tables))
        self._links = CachedView(tables.journal(LINKS), lambda: read_links(tables))
        self._topics = CachedView(tables.journal(TOPICS), lambda: {one.topic: one for one in known_topics(tables)})

    def now(self) -> Said:
        self._tables.refuse_no_folder()
        return Said(self._subscriptions.now(), self._links.now(), self._topics.now())

    @property
    def looked_at(self) -> float:
        """The time when all that was told last was so (monotonic)."""
        return min(one.looked_at for one in (self._subscriptions, self._links, self._topics))

    def now_or_lately(self) -> Said:
        with may_be_old(timetable.REMOTE_MARKERS_PEERS_LOOK_S):
            return self.now()


class Peer:
    """Another cluster, which is asked again and again, by one thread at most however long it takes to answer."""

    def __init__(self, tables: ClusterTables) -> None:
        self._name, self._tables, self._registries = tables.cluster.name, tables, Registries(tables)
        self.said = Said()
        """The last that was heard."""
        self.said_at = -math.inf
        """Since when something else may be so (monotonic)."""
        self.unreadable: str | None = None
        self._commits: Future[list[Commit]] | None = None
        self._ask()

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        self.asked = ask(self._name, self._registries.now_or_lately)

    @property
    def has_answered(self) -> bool:
        return self.said_at > -math.inf

    def look(self) -> None:
        """Take the answer, if there is one, and ask again when that is due."""
        waited = time.monotonic() - self._asked_at
        if not self.asked.done():
            if waited >= PEER_ANSWER_S:
                self.unreadable = f"it has not answered for {waited:.0f} s"
            return
        try:
            self.said, self.said_at, self.unreadable = self.asked.result(), self._registries.looked_at, None
        except FAULTS as error:
            self.unreadable = first_line(error)
        if waited >= timetable.MARKERS_PEERS_LOOK_S:
            self._ask()

    def commits(self, topic: Topic, first: int, last: int, only: Sequence[str]) -> list[Commit]:
        """Commits of its log as `Table.commits`. Raises RetryableError if it does not answer, or has not answered the last time and still does not,
        beside what that raises.
        """
        if self.unreadable is not None:
            raise RetryableError(f"{self._name} cannot be read: {self.unreadable}")
        if self._commits is None or self._commits.done():
            self._commits = ask(self._name, lambda: list(self._tables.log(topic).commits(first, last, only=only)))
            wait([self._commits], PEER_ANSWER_S)
            if self._commits.done():
                return self._commits.result()
        raise RetryableError(f"{self._name} does not answer")
