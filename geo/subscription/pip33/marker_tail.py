"""The one tail of a cluster that gives the controllers of its topics what happens. It copies the marker rows that concern them out of the
logs, reports when somebody has finished a version, and lets time pass.

All of a round is one commit of `system/markers`, and what of each log was looked at stands in it. So a tail that is killed goes on
exactly there. What a topic's controller is given is decided in `topic_feed.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import wait
from functools import partial

from geo.config.model import Config
from geo.coordination.owners import named_owners
from geo.coordination.ownership import Ownership
from geo.coordination.runners import RunnerKind
from geo.crash import CrashPoint, reach
from geo.faults import FAULTS
from geo.journal.cached_view import CachedView
from geo.journal.cluster import ClusterTables
from geo.names import Topic
from geo.schemas import OWNERS
from geo.streams import timetable
from geo.subscription.pip33.controller_rows import (
    Notes,
)
from geo.subscription.pip33.log_feed import LogFeed
from geo.subscription.pip33.marker_journal import Heard, MarkerJournal
from geo.subscription.pip33.peers import PEER_ANSWER_S, Peer
from geo.subscription.pip33.surroundings import Surroundings, TopicWays
from geo.subscription.pip33.topic_feed import TopicFeed
from geo.subscription.versions.version_subscriptions import VersionSubscription
from geo.text import first_line

log = logging.getLogger(__name__)


class MarkerTail:
    """Copies markers round by round; owned by whoever runs it. A new one tells each topic's controller again what it must know.

    `notes`: the controller of a topic of which an update was lost is told so. Then another snapshot is taken though nothing comes, and the entry
    goes.
    """

    def __init__(
        self, tables: ClusterTables, peers: Mapping[str, Peer], config: Config, ownership: Ownership, notes: Notes
    ) -> None:
        self._tables, self._config, self._notes = tables, config, notes
        self._journal = MarkerJournal(tables, ownership)
        wait([peer.asked for peer in peers.values()], PEER_ANSWER_S)
        self._surroundings = Surroundings(tables, peers, config)
        self._fillings = CachedView(tables.journal(OWNERS), lambda: _fillings(tables))
        self._fillings_now: Mapping[Topic, Mapping[str, bool]] | None = None
        """Answers of this round."""
        self._wanted_now: Mapping[Topic, Mapping[str, VersionSubscription]] = {}
        self._feeds: dict[Topic, TopicFeed] = {}
        self._not_followed: dict[Topic, str] = {}

    def round(self) -> bool:
        """Look at topics whose logs have news, and at all where that is due. Whether there was anything to tell."""
        heard, again = list[Heard](), dict[str, int]()
        now, self._fillings_now = time.monotonic(), None
        if is_due := now - self._surroundings.looked_at >= min(timetable.MARKERS_LOOK_S, self._config.snapshots.frequency_s / 4):
            self._wanted_now = self._surroundings.look(now)
        wanted = self._wanted_now
        for topic, subscriptions in wanted.items():
            if not is_due and not self._has_news(topic):
                continue
            try:
                one = self._feeds.get(topic) or self._begin(topic)
                lost_update = self._notes.lost_updates.get(str(topic))
                rows = one.news(subscriptions, partial(self._backfills, topic), again=lost_update is not None)
                if lost_update is not None:
                    again[str(topic)] = lost_update
                heard += [Heard(str(topic), row, one.log.at) for row in rows]
                one.last_seq = rows[-1].seq if rows else one.last_seq
            except FAULTS as error:
                self._feeds.pop(topic, None)  # the next round begins with it again
                if (why := first_line(error)) != self._not_followed.get(topic):
                    self._not_followed[topic] = why
                    log.warning("%s in %s: its markers are not followed now: %s", topic, self._tables.cluster.name, why)
                continue
            self._not_followed.pop(topic, None)
        for topic in self._feeds.keys() - wanted.keys() if is_due else ():
            one = self._feeds.pop(topic)
            heard += [Heard(str(topic), row, one.log.at) for row in one.rest()]
        if heard:
            reach(CrashPoint.MARKERS_READ)
            self._journal.append(heard)
            for name, seq in again.items():
                if self._notes.lost_updates.get(name) == seq:  # else another one was lost meanwhile
                    del self._notes.lost_updates[name]
            reach(CrashPoint.MARKERS_COPIED)
            self._journal.trim_if_due()
        return bool(heard)

    def _has_news(self, topic: Topic) -> bool:
        return (one := self._feeds.get(topic)) is not None and one.log.has_news()

    def _begin(self, topic: Topic) -> TopicFeed:
        """Follow a topic from where the last tail came to. Whether that is there still is found out as ever. Raises RetryableError if there is
        no log here."""
        ways = TopicWays(self._surroundings, topic)
        looked_at = self._journal.looked_at.get(str(topic))
        log_feed = LogFeed(topic, self._tables.log(topic), ways, self._surroundings, looked_at)
        feed = TopicFeed(self._tables, log_feed, ways, self._surroundings, self._notes, self._journal.next_seq)
        self._feeds[topic] = feed
        return feed

    def _backfills(self, topic: Topic, again: bool) -> Mapping[str, bool]:
        """Backfills into a topic's log here, read once a round, or `again`."""
        if self._fillings_now is None or again:
            self._fillings_now = self._fillings.now()
        return self._fillings_now.get(topic, {})


def _fillings(tables: ClusterTables) -> Mapping[Topic, Mapping[str, bool]]:
    """The backfills, comparisons and rebuilds into each topic's log here that there ever were, and whether they are under way. One that was killed
    is, until somebody ends it.
    """
    found: dict[Topic, dict[str, bool]] = {}
    for name, one in named_owners(tables, RunnerKind.BACKFILL):
        found.setdefault(name.topic, {})[str(name)] = one.is_owned
    return found
