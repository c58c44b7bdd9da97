"""The topics of a link as works of one group: which there are, their rows in `system/links`, what is reported of them.

Which topic is in which state is decided per topic; one bad topic never stops another, and no source another's links.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from geo.config.model import Config, Link
from geo.coordination.ownership import release
from geo.crash import CrashPoint, reach
from geo.delta.store import read_each
from geo.errors import AlreadyOwnedError, LockedError
from geo.faults import FAULTS
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import EventKind
from geo.log.promised_ends import SharedPromises, read_promises
from geo.log.topics import Registered, deleted_topics, gone_error
from geo.names import Topic, topic_glob_matches
from geo.reasons import Reason
from geo.replication.carried import has_log, replicates, topics_of_source, unclear
from geo.replication.link_requests import Next, Requests, what_next
from geo.replication.link_state import LinkState
from geo.replication.link_table import append_links, read_links
from geo.replication.replicator_work import ReplicatorWork, own
from geo.replication.request_table import read_requests
from geo.replication.topic_replicator import TopicReplicator
from geo.replication.turns import Turns
from geo.streams.life import Life, State, Why
from geo.streams.life_events import LifeEvents
from geo.streams.share import ALL, Share
from geo.streams.trigger import AVAILABLE_NOW
from geo.streams.work import Failed, Found, Group, WorkReport

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkReport:
    """Report of one link for one topic in this run. Of a source whose topics cannot be listed `topic` is the glob."""

    link: str
    topic: str
    state: State
    reason: str | None
    replicated: int
    source_version: int | None
    expired: int = 0
    """Messages left out because they had expired when they were read."""
    impossible: int = 0
    """Rows left out because no producer can have written them."""
    begun_anew: int = 0
    """Restarts because it replicated nothing for far too long."""

    @property
    def fields(self) -> dict[str, object]:
        """For programs, beside state and reason."""
        return {"link": self.link, "topic": self.topic, "replicated": self.replicated, "source_version": self.source_version,
                "expired": self.expired, "impossible": self.impossible, "begun_anew": self.begun_anew}  # fmt: skip


class LinkTopics:
    """The topics of one link, as works."""

    def __init__(
        self,
        target: ClusterTables,
        source: ClusterTables,
        config: Config,
        link: Link,
        glob: str,
        trigger: str,
        turns: Turns,
        *,
        take_over: bool,
        share: Share = ALL,
    ) -> None:
        """`turns`: what the topics share. `share`: which of them this process replicates."""
        self._target, self._source, self._config, self.link = target, source, config, link
        self.glob, self._trigger, self.turns, self._take_over = glob, trigger, turns, take_over
        self._share, self._promises = share, SharedPromises(partial(read_promises, source))
        self._restarts: dict[Hashable, int] = {}
        """The number of the last request to restart it that was followed, by topic."""
        self._told_unclear: set[Topic] = set()
        self._told_empty = False
        self._has_asked = False
        """The first look is over: `take_over` is for what was found by it, not for what comes later."""

    def __str__(self) -> str:
        return f"link {self.link.name}"

    def discover(self, known: Mapping[Hashable, tuple[ReplicatorWork, State]]) -> Found[ReplicatorWork]:
        """The topics of the source that the link carries: those of its registry, and those whose logs are there though it lacks
        them. It lets go of those that were deleted, there or here.

        Raises RetryableError if the registry, which this link has read, is not there, OSError if its place is no folder.
        """
        self._source.refuse_no_folder()
        gone = deleted_topics(self._target)
        rows = cache(
            lambda: {topic: row for (source, topic), row in read_links(self._target).items() if source == self.link.source}
        )
        # Those that run are known; its rows tell of the others, once: a look at them is a request.
        replicated = map(Topic.parse, (*map(str, known), *(() if self._has_asked else rows())))
        registered = topics_of_source(self._source, replicated)
        if not registered and rows():
            raise gone_error(self._source, [self.link.target], f"{self}: ")
        if not registered and not self._told_empty and self._trigger != AVAILABLE_NOW:
            self._told_empty = True  # a wrong root looks like a new region
            ends = {"source": self.link.source, "target": self.link.target}
            log.warning("%s: no topic is registered at %s yet", self, self._source.place, extra={"event": "empty", **ends})
        works: list[tuple[Hashable, ReplicatorWork]] = []
        may_rest: list[tuple[Hashable, TopicReplicator, LinkState | None]] = []
        left_out: dict[Hashable, Why] = {}
        found: dict[Next, list[Hashable]] = {outcome: [] for outcome in Next}
        requests, restarts = read_requests(self._target), dict[Hashable, int]()
        for one in registered:
            key, restart = str(one.topic), requests.last_restart(self.link.source, one.topic)
            not_carried = self._not_carried(one, gone) or self._unclear(one, rows)
            elsewhere = None if not_carried else self._elsewhere(one.topic)
            unwanted = not_carried or self._paused(one.topic, requests) or elsewhere
            if key in known:
                work, state = known[key]
                row = rows().get(key) if state is State.FAILED else None
                becomes = what_next(
                    state, is_wanted=unwanted is None, restarts=restart > self._restarts[key], is_replaced=work.lease.is_replaced,
                    recorded=None if row is None else row.state,
                )  # fmt: skip
            # Registered a moment ago, its log is about to be created. One that this link has read must be there.
            elif not_carried is None and elsewhere is None and (key in rows() or has_log(self._source, one.topic)):
                replicator = TopicReplicator(
                    self._target, self._source, self._config, self.link, one.topic, self.turns, self._promises
                )
                take_over = (self._take_over and not self._has_asked) or self._share.takes_over(one.topic)
                works.append((key, ReplicatorWork(replicator, self._trigger, take_over=take_over)))
                if unwanted is None and self._trigger == AVAILABLE_NOW and not take_over:
                    may_rest.append((key, replicator, rows().get(key)))
                becomes = Next.NOTHING if unwanted is None else Next.LEFT_OUT
            else:
                continue
            restarts[key] = restart
            if becomes is Next.WANTED and self._share is not ALL:
                known[key][0].lease.restart(take_over=self._share.takes_over(one.topic))
            found[becomes].append(key)
            if becomes is Next.LEFT_OUT:
                assert unwanted is not None
                left_out[key] = unwanted
        looks = read_each(self._target.port or self._source.port, may_rest, lambda one: one[1].rests(one[2]))
        resting = {key for (key, *_), rests in zip(may_rest, looks, strict=True) if rests}
        fresh, done = [one for one in works if one[0] not in resting], [one for one in works if one[0] in resting]
        self._promises.expect(
            work.replicator.topic for work in (*(work for work, _ in known.values()), *(work for _, work in fresh))
        )
        self._restarts |= restarts  # now that they are followed
        self._has_asked = True
        return Found(fresh, left_out, found[Next.AGAIN], found[Next.WANTED], found[Next.RESOLVED], done)

    def _not_carried(self, one: Registered, gone: Collection[Topic]) -> Why | None:
        """Tells why the link does not carry a topic of its source's registry; None: it does. `gone`: what was deleted in the target."""
        if one.is_deleted or one.topic in gone:
            return Why(f"it was deleted in {self.link.source if one.is_deleted else self.link.target}", Reason.DELETED)
        if not topic_glob_matches(self.glob, one.topic) or not replicates(self._config, self.link, one):
            return Why("its replication clusters leave this link out", Reason.POLICY)
        return None

    def _unclear(self, one: Registered, rows: Callable[[], Mapping[str, LinkState]]) -> Why | None:
        """Asks `unclear`, and logs the answer once."""
        why = unclear(one, rows().get(str(one.topic)), self._source) if one.is_unclear else None
        if why is not None and one.topic not in self._told_unclear:
            log.warning("%s: %s is not carried: %s", self, one.topic, why)
            self._told_unclear.add(one.topic)
        return None if why is None else Why(why, Reason.REGISTRY_EMPTY)

    def _elsewhere(self, topic: Topic) -> Why | None:
        """Tells why another broker replicates a topic; None: none does."""
        why = self._share.elsewhere(topic)
        return None if why is None else Why(why, Reason.PLACED_ELSEWHERE)

    def _paused(self, topic: Topic, requests: Requests) -> Why | None:
        """Tells why a topic that is carried is not to be replicated now; None: it is."""
        if requests.is_paused(self.link.source, topic):
            ends = f"--source {self.link.source} --target {self.link.target} --topic '{topic}'"
            return Why(f"it was asked to pause. To let it go on: geo links resume {ends}", Reason.ASKED_TO_PAUSE)
        return None

    def claim(self, works: Sequence[ReplicatorWork]) -> Failed[ReplicatorWork]:
        """Own works, in one commit; if another runner has some of them, one by one."""
        try:
            own(self._target, works)
        except AlreadyOwnedError as error:
            if len(works) == 1:
                return [(works[0], error)]
            return [failed for work in works for failed in self.claim([work])]
        return []

    def record_states(self, works: Sequence[tuple[ReplicatorWork, State]], code: Reason | None = None) -> Failed[ReplicatorWork]:
        """Record the rows of topics that moved, in one commit."""
        moved: list[tuple[ReplicatorWork, LinkState]] = []
        failed: list[tuple[ReplicatorWork, BaseException]] = []
        for work, state in works:
            started = work.replicator.started  # another thread may restart it
            if not work.lease.is_held or started is None:
                continue
            try:
                if now := started.progressed(state, code):
                    moved.append((work, now))
            except FAULTS as error:
                failed.append((work, error))
        try:
            append_links(self._target, [now for _, now in moved])
        except LockedError:
            if not failed:
                raise
            return failed  # the others go on, and are recorded the next time
        except FAULTS as error:
            if not failed:
                raise
            return failed + [(work, error) for work, _ in moved]
        for work, now in moved:
            work.replicator.row.note(now)
        if moved:
            reach(CrashPoint.LINK_STATE_RECORDED)
        return failed

    def release(self, works: Sequence[ReplicatorWork]) -> Failed[ReplicatorWork]:
        release([owned for work in works if (owned := work.lease.held) is not None])
        for work in works:
            work.lease.give_back()
        return []

    def report(self, work: ReplicatorWork | None) -> WorkReport:
        one = report_of_link(self, work, Life())
        return WorkReport(
            one.link if work is None else str(work), one.replicated, one.fields, None if work is None else work.replicator.behind
        )


def report_of_link(group: Group[ReplicatorWork], work: ReplicatorWork | None, life: Life) -> LinkReport:
    """Reports a link's topic, or a link whose source cannot be asked for its topics."""
    assert isinstance(group, LinkTopics)
    if work is None:
        return LinkReport(group.link.name, group.glob, life.state, life.reason, 0, None)
    replicator = work.replicator
    cursor = replicator.cursor  # another thread may restart it
    position = cursor.version if cursor is not None else None
    return LinkReport(
        group.link.name, str(work.topic), life.state, life.reason, replicator.row.replicated, position, replicator.row.expired,
        replicator.row.impossible, work.begun_anew,
    )  # fmt: skip


def note_link(lives: LifeEvents, group: Group[ReplicatorWork], work: ReplicatorWork | None, life: Life) -> None:
    """The event of what becomes of a link's topic, or of a link whose source cannot be asked."""
    topic, was = (None, None) if work is None else (work.topic, work.was)
    lives.note(EventKind.LINK, str(work or group), topic, life, was)
