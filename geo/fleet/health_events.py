"""Health of a cluster and its links, as events of it. Each minute a broker looks at those links that are behind, or do not run, and at what was not
OK at the last look. Who begins to run links looks before it changes anything. What is at rest costs nothing.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from geo.asking import Late
from geo.config.model import Config
from geo.coordination.storage_clock import storage_now_us
from geo.errors import NoSparkError
from geo.faults import Tried
from geo.journal.cluster import ClusterTables, without_spark
from geo.journal.event_rate import EventKind
from geo.journal.events import Events
from geo.names import Topic
from geo.ops.health import Finding, Health
from geo.ops.noted import events_told, goes_on
from geo.ops.status import of_regions
from geo.ops.status_facts import facts_around, facts_of_topics, regions_around
from geo.reasons import Reason
from geo.replication.link_table import read_links
from geo.streams.life import State
from geo.text import first_line
from geo.times import from_us

log = logging.getLogger(__name__)

MOST_AT_ONCE = 20
"""Topics of a look: each takes some ten milliseconds of a minute. Where more are behind they take turns."""

REGIONS_S = 3600.0
"""So often the regions are looked at while all is well."""

Of = tuple[str, Topic]
"""A topic of the link from a source."""

What = tuple[str, Reason | None]
"""A subject, and of a region the cause too: it may be unwell for several at once."""


class NotOk(NamedTuple):
    """A thing that was not OK when it was looked at. `of`: None of what is no link's."""

    health: Health
    code: Reason | None
    of: Of | None


class HealthEvents:
    """Notes each change of health, or of its cause, of a cluster, of those that it reads, and of the links into it. What cannot be looked at is left
    for the next look. Each event tells since when, and what to do."""

    def __init__(self, cluster: str, events: Events, say: Callable[[str], None]) -> None:
        self._cluster, self._events, self._say = cluster, events, say
        self._known: dict[What, NotOk] = {}
        self._looked: dict[Of, int] = {}
        """The number of the look at which each was, of those that are behind."""
        self._number = 0
        self._regions_at = time.monotonic()
        self._late: Late = {}
        self._thread: threading.Thread | None = None

    def begin(self, config: Config) -> None:
        """Look at the regions, and at some of the links, before this process changes anything of them. What is known to be not OK, by events of
        those before, and what was FAILED, DELAYED or PAUSED first. Returns at once."""
        self._start(config)

    def look(self, config: Config, behind: Collection[Of], *, regions: bool = False) -> None:
        """Look at what may not be OK, in a thread of its own; `regions`: some may be away. Returns at once; while the last look is not over there is
        no other."""
        if self._thread is not None and self._thread.is_alive():
            return
        due = {*behind, *(one.of for one in self._known.values() if one.of is not None)}
        regions |= any(one.of is None for one in self._known.values()) or time.monotonic() - self._regions_at > REGIONS_S
        self._looked = {one: self._looked.get(one, 0) for one in due}
        chosen = sorted(due, key=lambda one: (self._looked[one], str(one[1])))[:MOST_AT_ONCE]
        if not chosen and not regions:
            return
        self._number += 1
        self._looked |= dict.fromkeys(chosen, self._number)
        self._start(config, frozenset(chosen), regions=regions)

    def wait(self, limit_s: float) -> None:
        """Until the look is over that is under way, or so long."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _start(self, config: Config, chosen: frozenset[Of] | None = None, *, regions: bool = True) -> None:
        self._thread = threading.Thread(target=self._run, args=(config, chosen, regions), name="geo-health", daemon=True)
        self._thread.start()

    def _run(self, config: Config, chosen: frozenset[Of] | None, regions: bool) -> None:
        clusters = {name: without_spark(one) for name, one in config.clusters.items()}
        tables = clusters[self._cluster]
        try:
            with Tried() as tried:
                seen = regions_around(self._cluster, clusters, config, self._late)
                if chosen is None:
                    chosen = seen.within(self._cluster, lambda: self._first(seen.clusters[self._cluster]))
                facts = (
                    facts_around(self._cluster, seen, config, chosen)
                    if regions
                    else facts_of_topics(self._cluster, clusters, config, chosen)
                )
                at_us = storage_now_us(tables, writes=False)
                found: list[tuple[Finding, Of | None]] = []
                for one in facts.topics:
                    of = one.source, one.topic
                    found += [(finding, of) for finding in (one.finding, *one.risks)]
                if regions:
                    self._regions_at = time.monotonic()
                    found += [(finding, None) for finding in of_regions(facts) if finding.topic is None]
                # Of two of one cause the worse counts.
                worst = {_what(one): (one, of) for one, of in sorted(found, key=lambda each: -each[0].health.rank)}
                unread = {one.cluster for one in facts.clusters if one.unreadable is not None}
                looked: set[Of | None] = {None} if regions else set()
                if self._cluster not in unread:  # a topic that is not told is no longer brought
                    looked |= chosen - {of for one, of in found if one.health is Health.AWAY and of is not None}
                for what in self._over(looked, worst, unread):
                    self._end(what, [one.health for one, _ in worst.values() if one.shown == what[0]], at_us)
                for finding, of_one in worst.values():
                    self._note(finding, of_one, at_us)
            if tried.fault is not None:
                log.info("how %s and its links are doing cannot be seen now: %s", self._cluster, first_line(tried.fault))
        except NoSparkError as error:  # it is in a catalog: who asks by a verb may start Spark
            log.debug("how %s and its links are doing is not looked at: %s", self._cluster, error)

    def _first(self, tables: ClusterTables) -> frozenset[Of]:
        """Things to look at first, with what was not OK."""
        self._known |= _recorded(tables)
        return _chosen(tables, self._known.values())

    def _over(self, looked: Collection[Of | None], found: Collection[What], unread: Collection[str]) -> list[What]:
        """Things that were known, and are not found any more where they were looked for. Of a region that cannot be read nobody knows."""
        gone = {what: one for what, one in self._known.items() if one.of in looked and what not in found}
        return [what for what, one in gone.items() if what[0] not in unread or one.health is Health.AWAY]

    def _end(self, what: What, others: Iterable[Health], at_us: int) -> None:
        """Note that this is over; `others`: what goes on of its subject."""
        subject, of, still = what[0], self._known[what].of, ", ".join(one.value for one in others)
        topic = None if of is None else str(of[1])
        reason = still and f"that is over, and it is {still}"
        self._note(Finding(subject, None, topic, Health.OK, None, what[1], reason, None), of, at_us)

    def _note(self, finding: Finding, of: Of | None, at_us: int) -> None:
        was, now = self._known.pop(_what(finding), None), finding.health
        if now is not Health.OK:
            self._known[_what(finding)] = NotOk(now, finding.code, of)
        if (now, finding.code) == ((Health.OK, None) if was is None else was[:2]):
            return
        self._events.note(
            EventKind.HEALTH,
            finding.shown,
            now.value,
            topic=finding.topic,
            from_state=was and was.health.value,
            code=finding.code,
            reason=_told(finding),
            at=from_us(at_us),
        )
        before = "" if was is None else f", was {was.health.value}"
        self._say(f"{finding.shown}: {now.value}{before}{finding.reason and f': {finding.reason}'}")


def _what(finding: Finding) -> What:
    return finding.shown, finding.code if finding.topic is None else None


def _told(finding: Finding) -> str | None:
    """A finding as an event says it: why, since when, and what to do."""
    since = None if finding.since_us is None else f"since {from_us(finding.since_us):%Y-%m-%dT%H:%M:%SZ}"
    why = ", ".join(filter(None, (finding.reason, since)))
    return ". ".join(filter(None, (why, finding.do and f"Do: {finding.do}"))) or None


def _recorded(tables: ClusterTables) -> dict[What, NotOk]:
    """Things that were not OK, as far as events tell."""
    found = {}
    for what, one in goes_on(events_told(tables, EventKind.HEALTH)).items():
        if one.to_state in Health.__members__:
            of = None if one.topic is None else (re.split("->|, ", one.subject)[0], Topic.parse(one.topic))
            found[what] = NotOk(Health(one.to_state), one.reason_code, of)
    return found


def _chosen(tables: ClusterTables, known: Iterable[NotOk]) -> frozenset[Of]:
    """The topics to look at first."""
    rows = {(source, Topic.parse(topic)): state.state for (source, topic), state in read_links(tables).items()}
    of_known = [of for one in known if (of := one.of) is not None and of in rows]
    rest = sorted(rows, key=lambda one: (rows[one] in (State.RUNNING, State.STOPPED), one[0], str(one[1])))
    return frozenset(list(dict.fromkeys((*of_known, *rest)))[:MOST_AT_ONCE])
