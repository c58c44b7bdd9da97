"""How a broker's links are doing, as events of its cluster: each minute it looks at those that are behind, or do not run, and at those that were
not OK at the last look. What is at rest costs nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from geo.config.model import Config
from geo.errors import NoSparkError
from geo.faults import Tried
from geo.journal.cluster import without_spark
from geo.journal.event_rate import EventKind
from geo.journal.events import Events
from geo.names import ALL_TOPICS, Topic
from geo.ops.health import Finding, Health
from geo.ops.link_health import link_findings
from geo.reasons import Reason
from geo.text import first_line

log = logging.getLogger(__name__)

MOST_AT_ONCE = 20
"""Topics of a look: each takes some ten milliseconds of a minute. Where more are behind they take turns."""

Of = tuple[str, Topic]
"""A topic of the link from a source."""


class HealthEvents:
    """Notes each change of health, or of its code, of the links into one cluster. What cannot be looked at is left for the next look."""

    def __init__(self, cluster: str, events: Events, say: Callable[[str], None]) -> None:
        self._cluster, self._events, self._say = cluster, events, say
        self._known: dict[Of, tuple[Health, Reason | None]] = {}
        """How each was that was not OK when it was looked at, and why."""
        self._looked: dict[Of, int] = {}
        """The number of the look at which each was, of those that are behind."""
        self._number = 0
        self._thread: threading.Thread | None = None

    def look(self, config: Config, behind: Collection[Of]) -> None:
        """Look at what may not be OK, in a thread of its own. Returns at once; while the last look is not over there is no other."""
        if self._thread is not None and self._thread.is_alive():
            return
        due = {*behind, *self._known}
        self._looked = {one: self._looked.get(one, 0) for one in due}
        chosen = sorted(due, key=lambda one: (self._looked[one], str(one[1])))[:MOST_AT_ONCE]
        if not chosen:
            return
        self._number += 1
        self._looked |= dict.fromkeys(chosen, self._number)
        self._thread = threading.Thread(target=self._run, args=(config, frozenset(chosen)), name="geo-health", daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> None:
        """Until the look is over that is under way, or so long."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _run(self, config: Config, chosen: frozenset[Of]) -> None:
        clusters = {name: without_spark(one) for name, one in config.clusters.items()}
        try:
            with Tried() as tried:
                found = link_findings(clusters[self._cluster], clusters, config, ALL_TOPICS, chosen)
                for status, finding, _ in found:
                    self._note((status.link.source, status.topic), finding)
            if tried.fault is not None:
                log.info("how the links into %s are doing cannot be seen now: %s", self._cluster, first_line(tried.fault))
        except NoSparkError as error:  # it is in a catalog: who asks by a verb may start Spark
            log.debug("how the links into %s are doing is not looked at: %s", self._cluster, error)

    def _note(self, key: Of, finding: Finding) -> None:
        before, now = self._known.pop(key, None), finding.health
        if now is not Health.OK:
            self._known[key] = now, finding.code
        if (now, finding.code) == (before or (Health.OK, None)):
            return
        was = None if before is None else before[0]
        self._events.note(
            EventKind.HEALTH,
            finding.shown,
            now.value,
            topic=key[1],
            from_state=was and was.value,
            code=finding.code,
            reason=finding.reason,
        )
        self._say(
            f"{finding.shown}: {now.value}{'' if was is None else f', was {was.value}'}{finding.reason and f': {finding.reason}'}"
        )
