"""A broker among several of a cluster: which bundles are its own, what it says of itself, and what it decides while it leads.

The tables say what is to be, `placement/handover.py` what follows from it, and the claims of bundles who may: what runs for the topics of a
bundle begins after its claim and has ended before it is released. Whatever a process believes, its works append only under claims of
their own, which the next owner takes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from geo.config.placement import Placement
from geo.coordination.claiming import claim
from geo.coordination.liveness import Signs
from geo.coordination.owners import owned_now, owner_of
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import RunnerKind, RunnerName, version_sync_runner
from geo.coordination.storage_clock import storage_now_us
from geo.crash import CrashPoint, reach
from geo.delta.process import Process
from geo.errors import AlreadyOwnedError, FencedError, UsageError
from geo.faults import Tried
from geo.fleet.assignments import bundle_runner, member_runner, read_assignments, read_bundles, read_owners
from geo.fleet.leader import Lead
from geo.fleet.load_meter import LoadMeter
from geo.fleet.load_reports import LEAVING, LEFT, UP, LoadReport, append_report, names_of, read_reports
from geo.fleet.placement.bundles import Bundles, bundle_names, bundle_of, is_in, namespace_of_topic
from geo.fleet.placement.handover import Assigned, BeginBundle, Claim, Release, broker_step, together
from geo.fleet.placement.leading import LeaderFacts
from geo.fleet.placement.load_data import BrokerLoad, Usage, is_due
from geo.fleet.placement.policies import version_of
from geo.fleet.placement_requests import policies_of, read_policies, read_requests
from geo.journal.cached_view import CachedView
from geo.journal.cluster import ClusterTables
from geo.names import MARKERS_PRODUCER, Topic
from geo.now import utc_now
from geo.schemas import ASSIGNMENTS, BUNDLE_REQUESTS, BUNDLES, LOAD_REPORTS, OWNERS, PLACEMENT_POLICIES
from geo.streams import timetable
from geo.streams.life import State
from geo.subscription.acks.folding import FOLD
from geo.subscription.pip33.version_sync import PLACE
from geo.text import counted, first_line
from geo.times import from_us

log = logging.getLogger(__name__)

SIGNS = 3
"""Signs of life in a broker timeout."""

HAND_OVER_S = 60.0
"""A broker that is stopped waits so long for others to take what it has."""

ENDS_S = 30.0
"""Seconds that its last round is waited for: a table may be locked for long."""

FORGET_S = 600.0
"""A topic for which no work was found for so long is placed no longer."""

LEAST_ROUNDS = 3
"""The broker timeout is to be as many rounds."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of the broker for a topic: a work's state, and how many messages it replicated so far."""

    topic: Topic
    state: State
    messages: int


@dataclass(slots=True)
class _Owned:
    """A bundle of this broker's. `took_over`: somebody else had it and did not release it."""

    ownership: Ownership
    took_over: bool


class Member:
    """One broker's part, and the share of topics that it works for (`geo.streams.share.Share`).

    Guarantees: it names a topic its own only while it holds the claim of the topic's bundle; it releases that claim only after all works
    of the bundle's topics have ended here.
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
        self._activities, self._look_now, self._say = activities, look_now, say
        self._name_owned: Ownership | None = None
        self._thread: threading.Thread | None = None
        self._stop, self._handed_over = threading.Event(), threading.Event()
        self._leaves_at: float | None = None
        """Until when it waits for others to take what it has; None: it does not leave."""
        self.fault: BaseException | None = None
        """Why it shares no longer: its name was taken by another broker, a fault of this program, or the end of Spark."""
        self._bundles: Mapping[str, Bundles] = {}
        self._share: Mapping[str, bool] = {}
        """The bundles for whose topics it works, and whether it took each over. Replaced as a whole, since others read it at any time."""
        self._mine: dict[str, _Owned] = {}
        self._going: dict[str, Callable[[], bool]] = {}
        """The bundles that are being given up, and of which are mine no more those that were lost: their works end first. What says whether all
        were told."""
        self._refused: list[str] = []
        """The bundles that it is to begin with and was refused, in the order in which it was."""
        self._assigned = 0
        """Count of bundles that are assigned, to whomever."""
        self._found: dict[str, float] = {}
        """The topics that the broker's groups asked for, and when last."""
        self._reports: dict[str, LoadReport] = {}
        self._lead = Lead(tables, name, placement, say)
        self._said_load: BrokerLoad | None = None
        self._loaded_at, self._load_at = utc_now(), time.monotonic()
        self._sign_at, self._said_state = -float("inf"), UP
        is_local = tables.journal(OWNERS).table.is_near
        self._round_s = timetable.MEMBER_ROUND_S if is_local else timetable.REMOTE_MEMBER_ROUND_S
        self.refuse(placement)
        self._signs, self._meter = Signs(), LoadMeter(tables, is_local=is_local)
        self._watched_reports = CachedView(tables.journal(LOAD_REPORTS), lambda: read_reports(tables))
        self._watched_assigned = CachedView(tables.journal(ASSIGNMENTS), lambda: read_assignments(tables))
        self._watched_bundles = CachedView(tables.journal(BUNDLES), lambda: read_bundles(tables))
        self._watched_requests = CachedView(tables.journal(BUNDLE_REQUESTS), lambda: read_requests(tables))
        self._watched_policies = CachedView(tables.journal(PLACEMENT_POLICIES), lambda: policies_of(read_policies(tables)))
        self._watched_owners = CachedView(tables.journal(OWNERS), lambda: read_owners(tables))

    # -- the share ---------------------------------------------------------------------------------------------------

    def elsewhere(self, topic: Topic) -> str | None:
        name = str(topic)
        self._found[name] = time.monotonic()
        bundle = self._bundle_of(name)
        if bundle is None:
            return "no leader has placed its namespace yet"
        if bundle in self._share:
            return None
        return f"its bundle {bundle} is not this broker's"

    def takes_over(self, topic: Topic) -> bool:
        return self._share.get(self._bundle_of(str(topic)) or "", False)

    def _bundle_of(self, topic: str) -> str | None:
        bundles = self._bundles
        return bundle_of(topic, bundles) if namespace_of_topic(topic) in bundles else None

    # -- its life ----------------------------------------------------------------------------------------------------

    def begin(self, *, take_over: bool) -> None:
        """Own the name. One of another host, as that of a pod which comes back elsewhere, is watched for the broker timeout. It is taken over if it
        gives no sign of life. Raises AlreadyOwnedError if a broker of this name lives.
        """
        wanted = [[member_runner(self._tables, self.name)]]
        try:
            (self._name_owned,) = claim(self._tables, wanted, take_over=take_over)
        except AlreadyOwnedError:
            if not self._is_silent():
                raise
            (self._name_owned,) = claim(self._tables, wanted, take_over=True)

    def _is_silent(self) -> bool:
        """Tells whether the broker that has the name is of another host, and says nothing for the broker timeout."""
        owner = owner_of(self._tables, member_runner(self._tables, self.name).name)
        holder = None if owner is None else Process.decode(owner.holder)
        deadline = time.monotonic() + self._placement.broker_timeout_s
        if holder is None or holder.is_seen_here:
            return False  # of one on this host the system says whether it lives
        self._say(f"broker {self.name}: {holder} has the name; it is watched for {self._placement.broker_timeout_s} s")
        said = self._sequence()
        while time.monotonic() < deadline:
            if self._sequence() != said:
                return False
            self._stop.wait(self._round_s)
        return True

    def _sequence(self) -> int | None:
        report = self._watched_reports.now().get(self.name)
        return None if report is None else report.sequence

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
            self._placement = placement
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
                unknown = self._unreleased()
                unclean = [owned.ownership for bundle, owned in self._mine.items() if bundle in unknown]
                self._write_report(LEFT)
                # The others are taken over from one that left.
                release([ownership for ownership in mine if ownership not in unclean])
        finally:
            for ownership in mine:
                ownership.abandon()

    def _owned(self) -> list[Ownership]:
        mine = [owned.ownership for owned in self._mine.values()]
        return mine + [owned for owned in (self._lead.ownership, self._name_owned) if owned is not None]

    def abandon(self) -> None:
        """Own nothing any more, and write nothing."""
        self._stop.set()
        for ownership in self._owned():
            ownership.abandon()

    @property
    def line(self) -> str:
        """For people: what it has."""
        leads = ", leads" if self._lead.ownership is not None else ""
        return f"broker {self.name}: {len(self._mine)} of {counted(self._assigned, 'bundle')}{leads}"

    def _main(self) -> None:
        try:
            while not self._stop.is_set():
                now = time.monotonic()
                with Tried(FencedError) as tried:
                    self.round(now)
                if tried.fault is not None:
                    log.warning("broker %s: what is placed cannot be seen now: %s", self.name, first_line(tried.fault))
                if self._leaves_at is not None and (
                    now > self._leaves_at or self._has_nobody_else() or not (self._mine or self._going)
                ):
                    self._handed_over.set()
                self._stop.wait(self._round_s)
        except BaseException as error:
            self.fault = error

    def round(self, now: float) -> None:
        """Look at all that is said, and do what follows. Raises FencedError once another broker has this one's name."""
        assert self._name_owned is not None
        self._name_owned.refuse_if_replaced()
        self._reports = self._watched_reports.now()
        self._found = {topic: at for topic, at in list(self._found.items()) if now - at < FORGET_S}
        sequences = {name: report.sequence for name, report in self._reports.items()}
        self._signs.hear(sequences, now, self._placement.broker_timeout_s / 2)
        before, self._bundles = self._bundles, self._watched_bundles.now()
        if before != self._bundles:
            self._look_now()  # topics are in other bundles now
        owners, assigned = self._watched_owners.now(), self._watched_assigned.now()
        claims = owners.claims(self._names())
        self._lose(claims)
        self._follow(assigned, claims)
        self._let_go(assigned)
        self._report(now)
        if self._lead.is_held(leaving=self._leaves_at is not None):
            self._lead.say_anew(self._facts(assigned, claims, now), now)
        elif self._leaves_at is None and self.name in self._reports:
            # It decides by what it reads from now on, in the next round.
            self._lead.take(owners, self._names(), self._living(now), self._signs.watched_s(now))

    # -- what it owns --------------------------------------------------------------------------------------------------

    def _names(self) -> dict[str, str]:
        """The broker of each process."""
        return {**names_of(self._reports), self._tables.me.name: self.name}

    def _lose(self, claims: Mapping[str, Claim]) -> None:
        """Take note of bundles that were taken from this broker: it was silent, or did not release them in time."""
        for bundle, owned in list(self._mine.items()):
            newest = claims.get(bundle)
            if newest is not None and newest.generation > owned.ownership.generation:
                log.warning("broker %s: bundle %s was taken over by %s", self.name, bundle, newest.broker)
                owned.ownership.abandon()
                del self._mine[bundle]
                self._going[bundle] = self._tell()

    def _follow(self, assigned: Mapping[str, Assigned], claims: Mapping[str, Claim]) -> None:
        """Begin with what is this broker's now, and begin to let go of what is not."""
        steps = [step for step in broker_step(self.name, assigned, claims) if step.bundle not in self._going]
        fresh = [step for step in steps if isinstance(step, BeginBundle)]
        gone = [step.bundle for step in steps if isinstance(step, Release)]
        there = set(bundle_names(self._bundles))
        self._assigned = len(assigned.keys() & there)
        gone += [bundle for bundle in self._mine if bundle not in there]  # it was split before this broker heard of it
        # A claim that this process does not know of: it was interrupted while it claimed, and does so again.
        mine = [bundle for bundle, one in claims.items() if one.broker == self.name and not one.released]
        fresh += [BeginBundle(one, claims[one].generation) for one in mine if one not in self._mine and one not in self._going]
        if fresh and self._leaves_at is None:
            self._refused = [bundle for bundle in self._refused if any(step.bundle == bundle for step in fresh)]
            self._claim(together(fresh, self._refused), claims)
        if leaving := [bundle for bundle in dict.fromkeys(gone) if bundle in self._mine and bundle not in self._going]:
            self._going |= dict.fromkeys(leaving, lambda: False)  # their works are to end, before they are released
            self._going |= dict.fromkeys(leaving, self._tell())

    def _claim(self, steps: Sequence[BeginBundle], claims: Mapping[str, Claim]) -> None:
        """Claim bundles in one commit. If that is refused, since another process has one of them, they are claimed one by one, in a
        round each: a claim may take seconds, and signs of life are given between rounds."""
        held = {step.bundle for step in steps if step.over and not claims[step.bundle].released}
        runners = {step.bundle: bundle_runner(self._tables, step.bundle) for step in steps}
        newest = self._watched_owners.now().claims(self._names())
        if any(newest.get(step.bundle) != claims.get(step.bundle) for step in steps):
            return  # somebody has claimed one since: the next round says what follows
        try:
            owned = claim(
                self._tables,
                [[runner] for runner in runners.values()],
                take_over=[runners[bundle] for bundle in held],
                point=CrashPoint.PLACEMENT_CLAIMED,
            )
        except AlreadyOwnedError as error:
            if len(steps) == 1:
                log.warning("broker %s: bundle %s is not begun: %s", self.name, steps[0].bundle, first_line(error))
            at_it = [step.bundle for step in steps]
            self._refused = [bundle for bundle in self._refused if bundle not in at_it] + at_it
            return
        for bundle, ownership in zip(runners, owned, strict=True):
            self._mine[bundle] = _Owned(ownership, took_over=bundle in held)
        self._tell()

    def _tell(self) -> Callable[[], bool]:
        """From now on the share is what is this broker's and not being given up, and its groups are asked at once. Returns what says whether they
        were."""
        self._share = {bundle: owned.took_over for bundle, owned in self._mine.items() if bundle not in self._going}
        return self._look_now()

    def _let_go(self, assigned: Mapping[str, Assigned]) -> None:
        """Release the bundles of which all works have ended; one that is this broker's again it keeps, and restarts."""
        if not self._going:
            return
        told = [bundle for bundle, all_told in self._going.items() if all_told()]
        busy = {str(one.topic) for one in self._activities() if one.state is not State.PAUSED} if told else set[str]()
        # FAILED ones too: each is told that it rests first, so that it may begin again when it comes back.
        done = [bundle for bundle in told if not any(is_in(topic, bundle) for topic in busy)]
        for bundle in [bundle for bundle in done if bundle in self._mine]:
            if bundle in assigned and assigned[bundle].broker == self.name and self._leaves_at is None:
                done.remove(bundle)
                del self._going[bundle]
                self._mine[bundle].took_over = True  # of what did not end cleanly too
                self._tell()
        if done:
            unknown = self._unreleased()
            done = [bundle for bundle in done if bundle not in unknown or bundle not in self._mine]
        if released := [self._mine[bundle].ownership for bundle in done if bundle in self._mine]:
            reach(CrashPoint.PLACEMENT_ENDED)
            release(released)
            reach(CrashPoint.PLACEMENT_RELEASED)
        for bundle in done:
            del self._going[bundle]
            self._mine.pop(bundle, None)

    def _unreleased(self) -> set[str]:
        """The bundles of this broker's, of topics of which something is still owned by this process: nobody knows how it ended, so whoever continues it fences it
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
            for bundle, owned in self._mine.items()
            if any(is_in(topic, bundle) for topic in (mine | of_others if owned.took_over else mine))
        }

    # -- what it says ------------------------------------------------------------------------------------------------

    def _report(self, now: float) -> None:
        """Give a sign of life if it is time, with another load if that has changed much."""
        state = LEAVING if self._leaves_at is not None else UP
        if state == self._said_state and now - self._sign_at < min(
            self._placement.broker_timeout_s / SIGNS, timetable.MOST_SIGN_S
        ):
            return
        load = self._measured(now)
        last, settings = self._said_load, self._placement.settings
        if last is None or last.bundles.keys() != load.bundles.keys() or is_due(last, load, now - self._load_at, settings):
            self._said_load, self._load_at, self._loaded_at = load, now, from_us(storage_now_us(self._tables))
        self._write_report(state)
        self._sign_at, self._said_state = now, state

    def _write_report(self, state: str) -> None:
        load = self._said_load or BrokerLoad(*(Usage(0.0, 0.0),) * 4, {})
        before = self._reports.get(self.name)
        append_report(self._tables, self.name, state, load, self._loaded_at, after=0 if before is None else before.sequence)

    def _measured(self, now: float) -> BrokerLoad:
        """The load of this broker since it was measured last."""
        messages: dict[str, int] = {}
        for one in self._activities():
            if one.state is not State.PAUSED:
                messages[str(one.topic)] = messages.get(str(one.topic), 0) + one.messages
        nic_gbps = self._placement.settings.override_broker_nic_speed_gbps
        return self._meter.measure(messages, self._mine, lambda topic: self._bundle_of(topic) or "", nic_gbps, now)

    # -- what it sees of all --------------------------------------------------------------------------------------------------

    def _living(self, now: float) -> set[str]:
        """The brokers that gave a sign of life in time and have not left; this one always."""
        alive = self._signs.living(now, self._placement.broker_timeout_s)
        return {name for name in alive if self._reports[name].state != LEFT} | {self.name}

    def _has_nobody_else(self) -> bool:
        others = self._living(time.monotonic()) - {self.name}
        return not any(self._reports[name].state == UP for name in others)

    def _facts(self, assigned: Mapping[str, Assigned], claims: Mapping[str, Claim], now: float) -> LeaderFacts:
        """Facts for a leader."""
        living = self._living(now)
        up = (name for name in sorted(living) if name in self._reports and self._reports[name].state == UP)
        policies = self._watched_policies.now()
        if self._placement.settings.prefer_later_versions:
            policies = replace(policies, versions={name: version_of(one.version) for name, one in self._reports.items()})
        return LeaderFacts(
            topics=frozenset(list(self._found)),
            bundles=self._bundles,
            assigned=assigned,
            claims=claims,
            reports={name: self._reports[name].load for name in up},
            living=living,
            requests=self._watched_requests.now(),
            policies=policies,
        )


def _is_a_brokers(name: RunnerName) -> bool:
    """Tells whether as a rule brokers own it: a link or a fold. What people publish or consume is theirs."""
    return name.kind is RunnerKind.ORIGIN or (name.kind is RunnerKind.PRODUCER and name.who == FOLD)
