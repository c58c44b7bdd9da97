"""The bundles of one broker, each in one state: claimed and worked for, drained, and released once all of its works have ended.

The meaning of a state and an event is one table. What is claimed and given up is decided in `placement/handover.py`. Whatever a process
believes, its works append only under claims of their own, which the next owner takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from geo.coordination.claiming import claim
from geo.coordination.owners import owned_now
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import RunnerKind, RunnerName, version_sync_runner
from geo.crash import CrashPoint, reach
from geo.errors import AlreadyOwnedError
from geo.fleet.assignments import bundle_runner
from geo.fleet.placement.bundles import is_in
from geo.fleet.placement.handover import BeginBundle, Claim
from geo.journal.cluster import ClusterTables
from geo.names import MARKERS_PRODUCER, Topic
from geo.streams.life import State
from geo.subscription.acks.folding import FOLD
from geo.subscription.pip33.version_sync import PLACE
from geo.text import first_line

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of the broker for a topic: a work's state, and how many messages it replicated so far."""

    topic: Topic
    state: State
    messages: int


class BundleState(Enum):
    """State of a bundle at the broker that has it, or had it."""

    RUNNING = "claimed, and its topics are worked for"
    DRAINING = "claimed, and its works are to end before it is released"
    LOST = "claimed by another broker since, and its works are to end"


class BundleEvent(Enum):
    """Event that changes the state of a bundle."""

    CLAIMED = "this broker has claimed it"
    GIVEN_UP = "it is this broker's no longer"
    TAKEN = "another broker has claimed it"
    WANTED = "it is this broker's again"
    ENDED = "its works have ended, and this broker has no claim of it any more"


NEXT: Mapping[tuple[BundleState | None, BundleEvent], BundleState | None] = {
    (None, BundleEvent.CLAIMED): BundleState.RUNNING,
    (BundleState.RUNNING, BundleEvent.GIVEN_UP): BundleState.DRAINING,
    (BundleState.RUNNING, BundleEvent.TAKEN): BundleState.LOST,
    (BundleState.DRAINING, BundleEvent.TAKEN): BundleState.LOST,
    (BundleState.DRAINING, BundleEvent.WANTED): BundleState.RUNNING,
    (BundleState.DRAINING, BundleEvent.ENDED): None,
    (BundleState.LOST, BundleEvent.ENDED): None,
}
"""The state after an event; None: the bundle is not known here. What is not in the table does not happen."""


@dataclass(slots=True)
class _Held:
    """A bundle. `took_over`: somebody else had it and did not release it. `is_known`: answers whether all groups have looked at the share
    since the bundle is no part of it."""

    ownership: Ownership
    took_over: bool
    state: BundleState | None = None
    is_known: Callable[[], bool] = lambda: True


class BundleStates:
    """The bundles of the broker, and its share: those for whose topics it works.

    Guarantees: a bundle is in the share only while this broker holds its claim. The claim is released only after all works of the bundle's
    topics have ended here. One thread changes them; the share may be read by any.
    """

    def __init__(
        self,
        tables: ClusterTables,
        name: str,
        *,
        activities: Callable[[], Sequence[Activity]],
        look_now: Callable[[], Callable[[], bool]],
    ) -> None:
        """`activities`: what the broker does now. `look_now` has its groups asked at once which topics are to be worked for, and returns what
        says whether they were."""
        self._tables, self._name, self._activities, self._look_now = tables, name, activities, look_now
        self.share: Mapping[str, bool] = {}
        """The bundles for whose topics it works, and whether it took each over. Replaced as a whole, since others read it at any time."""
        self._held: dict[str, _Held] = {}
        self.refused: list[str] = []
        """The bundles that it is to begin with and was refused, in the order in which it was."""

    def __contains__(self, bundle: str) -> bool:
        return bundle in self._held

    @property
    def claimed(self) -> dict[str, Ownership]:
        """The claims of this broker, for any thread."""
        return {bundle: one.ownership for bundle, one in list(self._held.items()) if one.state is not BundleState.LOST}

    @property
    def running(self) -> list[str]:
        """The bundles for whose topics it works."""
        return [bundle for bundle, one in self._held.items() if one.state is BundleState.RUNNING]

    def is_ending(self, bundle: str) -> bool:
        """True if its works are to end here."""
        return bundle in self._held and self._held[bundle].state is not BundleState.RUNNING

    @property
    def is_empty(self) -> bool:
        """True if nothing is claimed and no work is to end."""
        return not self._held

    def drop_taken(self, claims: Mapping[str, Claim]) -> None:
        """Take note of bundles that were taken from this broker: it was silent, or did not release them in time."""
        for bundle, ownership in self.claimed.items():
            newest = claims.get(bundle)
            if newest is not None and newest.generation > ownership.generation:
                log.warning("broker %s: bundle %s was taken over by %s", self._name, bundle, newest.broker)
                ownership.abandon()
                self._after(bundle, BundleEvent.TAKEN)
                self._held[bundle].is_known = self._share_again()

    def claim(self, steps: Sequence[BeginBundle], claims: Mapping[str, Claim]) -> None:
        """Claim bundles in one commit. Where another process has one of them that is refused, and they are claimed one by one, in a round each.
        (A claim may take seconds, and signs of life are given between rounds.)"""
        taken_over = {step.bundle for step in steps if step.over and not claims[step.bundle].released}
        runners = {step.bundle: bundle_runner(self._tables, step.bundle) for step in steps}
        try:
            owned = claim(
                self._tables,
                [[runner] for runner in runners.values()],
                take_over=[runners[bundle] for bundle in taken_over],
                point=CrashPoint.PLACEMENT_CLAIMED,
            )
        except AlreadyOwnedError as error:
            if len(steps) == 1:
                log.warning("broker %s: bundle %s is not begun: %s", self._name, steps[0].bundle, first_line(error))
            at_it = [step.bundle for step in steps]
            self.refused = [bundle for bundle in self.refused if bundle not in at_it] + at_it
            return
        for bundle, ownership in zip(runners, owned, strict=True):
            self._held[bundle] = _Held(ownership, took_over=bundle in taken_over)
            self._after(bundle, BundleEvent.CLAIMED)
        self._share_again()

    def drain(self, bundles: Collection[str]) -> None:
        """Let the works of bundles end: they are no part of the share from now on. `release_drained` releases them."""
        for bundle in bundles:
            self._after(bundle, BundleEvent.GIVEN_UP)
            self._held[bundle].is_known = lambda: False  # their works are to end, before they are released
        if bundles:
            is_known = self._share_again()
            for bundle in bundles:
                self._held[bundle].is_known = is_known

    def release_drained(self, wanted: Callable[[str], bool]) -> None:
        """Release the bundles of which all works have ended; one that is `wanted` again this broker keeps, and restarts."""
        known = [bundle for bundle, one in self._held.items() if one.state is not BundleState.RUNNING and one.is_known()]
        busy = {str(one.topic) for one in self._activities() if one.state is not State.PAUSED} if known else set[str]()
        # FAILED ones too: each is told that it rests first, so that it may begin again when it comes back.
        done = [bundle for bundle in known if not any(is_in(topic, bundle) for topic in busy)]
        for bundle in [bundle for bundle in done if self._held[bundle].state is BundleState.DRAINING and wanted(bundle)]:
            done.remove(bundle)
            self._after(bundle, BundleEvent.WANTED)
            self._held[bundle].took_over = True  # of what did not end cleanly too
            self._share_again()
        claimed = self.claimed
        if done:
            unclean = self.unclean()
            done = [bundle for bundle in done if bundle not in unclean or bundle not in claimed]
        if released := [claimed[bundle] for bundle in done if bundle in claimed]:
            reach(CrashPoint.PLACEMENT_ENDED)
            release(released)
            reach(CrashPoint.PLACEMENT_RELEASED)
        for bundle in done:
            self._after(bundle, BundleEvent.ENDED)

    def unclean(self) -> set[str]:
        """The bundles of which this process still owns something at a topic. Nobody knows how that ended, so whoever continues it fences it
        first. The leader has such a bundle taken over; released, what it lacks would look alive."""
        mine, of_others, me = set[str](), set[str](), self._tables.me.encode()
        for one in owned_now(self._tables):
            name = RunnerName.parse(one.runner)
            if one.runner == version_sync_runner(self._tables).name and one.holder == me:
                mine.add(str(PLACE))
            elif name is not None and name.who != MARKERS_PRODUCER:  # version sync writes into all logs
                if one.holder == me:
                    mine.add(str(name.topic))
                elif _is_a_brokers(name):
                    of_others.add(str(name.topic))
        # Of a bundle that was taken over also what its owner before has and this broker never came to.
        return {
            bundle
            for bundle in self.claimed
            if any(is_in(topic, bundle) for topic in (mine | of_others if self._held[bundle].took_over else mine))
        }

    def _after(self, bundle: str, event: BundleEvent) -> None:
        held = self._held[bundle]
        held.state = NEXT[held.state, event]
        if held.state is None:
            del self._held[bundle]

    def _share_again(self) -> Callable[[], bool]:
        """From now on the share is what is claimed and not drained, and the broker's groups are asked at once. Returns what says whether they
        were."""
        self.share = {bundle: self._held[bundle].took_over for bundle in self.running}
        return self._look_now()


def _is_a_brokers(name: RunnerName) -> bool:
    """Tells whether as a rule brokers own it: a link or a fold. What people publish or consume is theirs."""
    return name.kind is RunnerKind.ORIGIN or (name.kind is RunnerKind.PRODUCER and name.who == FOLD)
