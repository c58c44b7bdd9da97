"""A broker among several of a cluster: which bundles are its own, what it says of itself, and what it decides while it leads.

The tables say what is to be, `placement/handover.py` what follows from it, and the claims of bundles who may (`bundle_states.py`). That the
broker lives and how busy it is its reports say (`presence.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from geo.config.placement import Placement
from geo.coordination.ownership import Ownership, release
from geo.errors import FencedError, UsageError
from geo.faults import Tried
from geo.fleet.assignments import read_assignments, read_bundles, read_owners
from geo.fleet.bundle_states import Activity, BundleStates
from geo.fleet.leader import Lead
from geo.fleet.placement.bundles import Bundles, bundle_names, bundle_of, namespace_of_topic
from geo.fleet.placement.handover import Assigned, BeginBundle, Claim, Release, broker_step, together
from geo.fleet.placement.leading import LeaderFacts
from geo.fleet.placement.policies import version_of
from geo.fleet.placement_requests import policies_of, read_policies, read_requests
from geo.fleet.presence import Presence
from geo.journal.cached_view import CachedView
from geo.journal.cluster import ClusterTables
from geo.names import Topic
from geo.schemas import ASSIGNMENTS, BUNDLE_REQUESTS, BUNDLES, OWNERS, PLACEMENT_POLICIES
from geo.streams import timetable
from geo.text import counted, first_line

log = logging.getLogger(__name__)

HAND_OVER_S = 60.0
"""A broker that is stopped waits so long for others to take what it has."""

ENDS_S = 30.0
"""Seconds that its last round is waited for: a table may be locked for long."""

FORGET_S = 600.0
"""A topic for which no work was found for so long is placed no longer."""

LEAST_ROUNDS = 3
"""The broker timeout is to be as many rounds."""


class Member:
    """One broker's part, and the share of topics that it works for (`geo.streams.share.Share`).

    Guarantees: those of `BundleStates`.
    """

    def __init__(
        self,
        tables: ClusterTables,
        name: str,
        placement: Placement,
        *,
        activities: Callable[[], Sequence[Activity]],
        look_now: Callable[[], Callable[[], bool]],
        say: Callable[[str], None],
    ) -> None:
        """`activities`: what the broker does now. `look_now` has its groups asked at once which topics are to be worked for, and returns what
        says whether they were. `say` gets lines for people."""
        self._tables, self.name, self._placement = tables, name, placement
        self._activities, self._look_now = activities, look_now
        self._thread: threading.Thread | None = None
        self._stop, self._handed_over = threading.Event(), threading.Event()
        self._leaves_at: float | None = None
        """Until when it waits for others to take what it has; None: it does not leave."""
        self.fault: BaseException | None = None
        """The fault by which it shares no longer: its name was taken by another broker, a fault of this program, or the end of Spark."""
        self._bundles: Mapping[str, Bundles] = {}
        self._assigned = 0
        """Count of bundles that are assigned, to whomever."""
        self._found: dict[str, float] = {}
        """The topics that the broker's groups asked for, and when last."""
        is_local = tables.journal(OWNERS).table.is_near
        self._round_s = timetable.MEMBER_ROUND_S if is_local else timetable.REMOTE_MEMBER_ROUND_S
        self.refuse(placement)
        self._states = BundleStates(tables, name, activities=activities, look_now=look_now)
        self._presence = Presence(tables, name, placement, is_local=is_local, say=say)
        self._lead = Lead(tables, name, placement, say)
        self._cached_assigned = CachedView(tables.journal(ASSIGNMENTS), lambda: read_assignments(tables))
        self._cached_bundles = CachedView(tables.journal(BUNDLES), lambda: read_bundles(tables))
        self._cached_requests = CachedView(tables.journal(BUNDLE_REQUESTS), lambda: read_requests(tables))
        self._cached_policies = CachedView(tables.journal(PLACEMENT_POLICIES), lambda: policies_of(read_policies(tables)))
        self._cached_owners = CachedView(tables.journal(OWNERS), lambda: read_owners(tables))

    # -- the share ---------------------------------------------------------------------------------------------------

    def elsewhere(self, topic: Topic) -> str | None:
        name = str(topic)
        self._found[name] = time.monotonic()
        bundle = self._bundle_of(name)
        if bundle is None:
            return "no leader has placed its namespace yet"
        if bundle in self._states.share:
            return None
        return f"its bundle {bundle} is not this broker's"

    def takes_over(self, topic: Topic) -> bool:
        return self._states.share.get(self._bundle_of(str(topic)) or "", False)

    def _bundle_of(self, topic: str) -> str | None:
        bundles = self._bundles
        return bundle_of(topic, bundles) if namespace_of_topic(topic) in bundles else None

    # -- its life ----------------------------------------------------------------------------------------------------

    def begin(self, *, take_over: bool) -> None:
        """Own the name, as `Presence.take_name`."""
        self._presence.take_name(take_over=take_over, stop=self._stop, look_s=self._round_s)

    def start(self) -> None:
        """Take part from now on, by a thread, in rounds."""
        self._thread = threading.Thread(target=self._main, name=f"geo-member-{self.name}", daemon=True)
        self._thread.start()

    def refuse(self, placement: Placement) -> None:
        """Raises UsageError of a timeout that is too short for where the tables are."""
        if placement.broker_timeout_s < LEAST_ROUNDS * self._round_s:
            raise UsageError(
                f"placement: broker_timeout {placement.broker_timeout_s} s; where tables are not on a local disk at least "
                f"{LEAST_ROUNDS * self._round_s:.0f} s, since each look at them takes seconds"
            )

    def change(self, placement: Placement) -> None:
        """From now on it decides by these settings."""
        if placement != self._placement:
            self._placement = self._presence.placement = placement
            self._lead.change(placement)

    def hand_over(self) -> None:
        """Let others take what it has, HAND_OVER_S at most; returns at once. `has_handed_over` says when that is done."""
        self._leaves_at = time.monotonic() + HAND_OVER_S

    @property
    def has_handed_over(self) -> bool:
        """Tells whether nothing more is waited for: the others have it, there are none, or it takes too long."""
        late = self._leaves_at is not None and time.monotonic() > self._leaves_at + ENDS_S
        return self._handed_over.is_set() or self.fault is not None or late

    def close(self) -> None:
        """Release what it still has, and say that it left. For a broker of which all works have ended."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(ENDS_S)
            if self._thread.is_alive():
                log.warning("broker %s: its last look at what is placed does not end; what it has is taken over", self.name)
                self.abandon()
                return
        mine = self._owned()
        try:
            if self.fault is None:
                unclean, claimed = self._states.unclean(), self._states.claimed
                left = [claimed[bundle] for bundle in unclean]
                self._presence.report_end()
                # The others are taken over from one that left.
                release([ownership for ownership in mine if ownership not in left])
        finally:
            for ownership in mine:
                ownership.abandon()

    def _owned(self) -> list[Ownership]:
        mine = list(self._states.claimed.values())
        return mine + [owned for owned in (self._lead.ownership, self._presence.owned) if owned is not None]

    def abandon(self) -> None:
        """Own nothing any more, and write nothing."""
        self._stop.set()
        for ownership in self._owned():
            ownership.abandon()

    @property
    def line(self) -> str:
        """For people: what it has."""
        leads = ", leads" if self._lead.ownership is not None else ""
        return f"broker {self.name}: {len(self._states.claimed)} of {counted(self._assigned, 'bundle')}{leads}"

    def _main(self) -> None:
        try:
            while not self._stop.is_set():
                now = time.monotonic()
                with Tried(FencedError) as tried:
                    self.round(now)
                if tried.fault is not None:
                    log.warning("broker %s: what is placed cannot be seen now: %s", self.name, first_line(tried.fault))
                if self._leaves_at is not None and (
                    now > self._leaves_at or self._presence.is_alone(time.monotonic()) or self._states.is_empty
                ):
                    self._handed_over.set()
                self._stop.wait(self._round_s)
        except BaseException as error:
            self.fault = error

    def round(self, now: float) -> None:
        """Look at all that is said, and do what follows. Raises FencedError once another broker has this one's name."""
        self._presence.look(now)
        self._found = {topic: at for topic, at in list(self._found.items()) if now - at < FORGET_S}
        before, self._bundles = self._bundles, self._cached_bundles.now()
        if before != self._bundles:
            self._look_now()  # topics are in other bundles now
        owners, assigned = self._cached_owners.now(), self._cached_assigned.now()
        claims = owners.claims(self._presence.names())
        self._states.drop_taken(claims)
        self._follow(assigned, claims)
        self._states.release_drained(lambda bundle: self._leaves_at is None and self._is_mine(assigned.get(bundle)))
        self._presence.report(
            now,
            leaving=self._leaves_at is not None,
            activities=self._activities,
            bundles=self._states.claimed,
            bundle_of=lambda topic: self._bundle_of(topic) or "",
        )
        if self._lead.is_held(leaving=self._leaves_at is not None):
            self._lead.say_anew(self._facts(assigned, claims, now), now)
        elif self._leaves_at is None and self.name in self._presence.reports:
            # It decides by what it reads from now on, in the next round.
            self._lead.take(owners, self._presence.names(), self._presence.living(now), self._presence.watched_s(now))

    def _is_mine(self, assigned: Assigned | None) -> bool:
        return assigned is not None and assigned.broker == self.name

    def _follow(self, assigned: Mapping[str, Assigned], claims: Mapping[str, Claim]) -> None:
        """Begin with what is this broker's now, and begin to let go of what is not."""
        states = self._states
        steps = [step for step in broker_step(self.name, assigned, claims) if not states.is_ending(step.bundle)]
        fresh = [step for step in steps if isinstance(step, BeginBundle)]
        gone = [step.bundle for step in steps if isinstance(step, Release)]
        there = set(bundle_names(self._bundles))
        self._assigned = len(assigned.keys() & there)
        gone += [bundle for bundle in states.running if bundle not in there]  # it was split before this broker read of it
        # A claim that this process does not know of: it was interrupted while it claimed, and does so again.
        mine = [bundle for bundle, one in claims.items() if one.broker == self.name and not one.released]
        fresh += [BeginBundle(one, claims[one].generation) for one in mine if one not in states]
        if fresh and self._leaves_at is None:
            states.refused = [bundle for bundle in states.refused if any(step.bundle == bundle for step in fresh)]
            self._claim(together(fresh, states.refused), claims)
        states.drain([bundle for bundle in states.running if bundle in gone])

    def _claim(self, steps: Sequence[BeginBundle], claims: Mapping[str, Claim]) -> None:
        """Claim bundles, unless somebody has claimed one since: the next round says what follows."""
        newest = self._cached_owners.now().claims(self._presence.names())
        if all(newest.get(step.bundle) == claims.get(step.bundle) for step in steps):
            self._states.claim(steps, claims)

    def _facts(self, assigned: Mapping[str, Assigned], claims: Mapping[str, Claim], now: float) -> LeaderFacts:
        """Facts for a leader."""
        reports, policies = self._presence.reports, self._cached_policies.now()
        if self._placement.settings.prefer_later_versions:
            policies = replace(policies, versions={name: version_of(one.version) for name, one in reports.items()})
        return LeaderFacts(
            topics=frozenset(list(self._found)),
            bundles=self._bundles,
            assigned=assigned,
            claims=claims,
            reports={name: reports[name].load for name in self._presence.up(now)},
            living=self._presence.living(now),
            requests=self._cached_requests.now(),
            policies=policies,
        )
