"""Decisions of a leader, by all that it reads: which broker is to own each bundle, and where bundles are split. Pure: no Spark, clock, random or
I/O.

The manager decides by load, people ask for moves, policies and deaths ask for others; here one statement a bundle is made of it. A bundle is split
only while nobody owns it. The leader says that nobody is to, its owner releases it, and then the parts are assigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from geo.config.placement import Placement
from geo.fleet.placement.averages import Averages
from geo.fleet.placement.bundles import (
    Bundles,
    bundle_name,
    bundle_names,
    bundle_of,
    even,
    namespace_of,
    namespace_of_topic,
    parse_bundle,
)
from geo.fleet.placement.handover import Assigned, Choice, Claim, leader_step, to_assign
from geo.fleet.placement.load_data import BrokerLoad
from geo.fleet.placement.manager import manager_of
from geo.fleet.placement.policies import BACK_BELOW, Allowed, Policies
from geo.fleet.placement.splitting import range_equally, specified_positions
from geo.fleet.placement.strategies import Choose
from geo.fleet.placement.warnings import Warnings
from geo.streams import timetable

NOBODY = ""
"""The one who is to own a bundle that is about to be split."""

KEEP_EVERY = 90
"""At least after so many decisions, 15 minutes (Pulsar's loadBalancerResourceQuotaUpdateIntervalMinutes), averages are kept for the next leader."""

MOST_DOUBLINGS = 6
"""Doublings of the pause after tries to split a bundle, at most."""

UNLOAD, TRANSFER, SPLIT = "unload", "transfer", "split"


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """Request of a person for a bundle: `action` is UNLOAD, TRANSFER (to `broker`) or SPLIT (at `positions`; none: in the middle). A higher `number`
    was asked later.
    """

    bundle: str
    action: str
    number: int
    broker: str = ""
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaderFacts:
    """Facts for a leader. `bundles` are those of the namespaces that have any yet; `topics` are the full names of what there is to do something for.
    `reports` has the newest load of each broker that lives and takes bundles, `living` also has those that are about to leave.
    """

    topics: Set[str]
    bundles: Mapping[str, Bundles]
    assigned: Mapping[str, Assigned]
    claims: Mapping[str, Claim]
    reports: Mapping[str, BrokerLoad]
    living: Set[str]
    requests: Sequence[BundleRequest] = ()
    policies: Policies = field(default_factory=Policies)


@dataclass(slots=True)
class Orders:
    """Reassignments: assignments by bundle, the bundles of namespaces with the reason, and for people what moves. `averages`: to be kept for the next
    leader now. `warned`: what people are warned of.
    """

    assigned: dict[str, Assigned] = field(default_factory=dict)
    bundles: dict[str, tuple[Bundles, str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    averages: Averages | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _Splitting:
    """A split that waits until nobody owns the bundle. `stays`: who then gets the parts; empty: whoever is selected."""

    positions: tuple[int, ...]
    stays: str
    reason: str
    since: float


@dataclass(slots=True)
class _Step:
    """One step: what is looked at and when, and what becomes of it so far. `bundles` are also those that this step makes, `assigned` those that
    are there then."""

    facts: LeaderFacts
    wall_s: float
    now: float
    bundles: dict[str, Bundles]
    assigned: Mapping[str, Assigned] = field(default_factory=dict)
    chosen: dict[str, Choice] = field(default_factory=dict)
    orders: Orders = field(default_factory=Orders)


class Leading:
    """One leader's decisions, over its whole term or while its settings stay. Who comes after it goes on with its `averages`: also what moved within
    the grace period is left alone. It begins without splits that wait; such a bundle is assigned again as it is. Of other settings the same
    leader is `before`."""

    def __init__(
        self, placement: Placement, choose: Choose, before: Leading | None = None, *, averages: Averages | None = None
    ) -> None:
        self._placement = placement
        self._manager = manager_of(placement.strategy, placement.shedder, placement.settings, choose)
        self._resumed = averages if before is None else before.averages
        """Averages to go on with, until the first step."""
        self._now = 0.0
        """Time of the last step."""
        self._decisions = self._kept_at = 0
        """Counts of decisions: all, and those when the averages were kept last."""
        self._warnings: Warnings = Warnings() if before is None else before._warnings
        self._splits: dict[str, _Splitting] = {}
        self._shed: dict[str, str] = {} if before is None else dict(before._shed)
        """The broker of each bundle that was shed to it and is there still."""
        self._failed: dict[str, tuple[float, int]] = {}
        """Bundles that were not released in time to be split, when that was last, and how often."""
        self._decided_at = -inf
        self._stuck: set[str] = set()
        """The bundles for which the last decision found no broker."""

    def step(self, facts: LeaderFacts, term: int, wall_s: float, now: float) -> Orders:
        """Decides what is to be written now. `term`: the generation of the leader's claim. `wall_s` are seconds since 1970 by the storage's clock,
        by which leaders before this one said theirs too. `now` are those of a clock that does not go back.
        """
        if self._resumed is not None:
            self._manager.resume(self._resumed, now)
            self._resumed = None
        self._now = now
        step = _Step(facts, wall_s, now, dict(facts.bundles))
        bundles, orders, chosen = step.bundles, step.orders, step.chosen
        for namespace in sorted({namespace_of_topic(topic) for topic in facts.topics} - bundles.keys()):
            bundles[namespace] = even(self._placement.bundles)
            orders.bundles[namespace] = bundles[namespace], "its first topic was found"
        self._split_those_released(step)
        there = set(bundle_names(bundles))
        assigned = step.assigned = {bundle: one for bundle, one in facts.assigned.items() if bundle in there}
        used = sorted(bundle_of(topic, bundles) for topic in facts.topics)
        # Those of which no topic is found any more too.
        free = [one for one in dict.fromkeys([*used, *sorted(assigned)]) if one not in self._splits and one not in chosen]
        waiting = self._waiting(free, facts, assigned)
        followed = self._follow_requests(step, there)
        self._decide(step, [bundle for bundle in waiting if bundle not in chosen])
        timeout_s = self._placement.broker_timeout_s
        orders.assigned = leader_step(term, chosen, assigned, facts.claims, facts.living, wall_s, timeout_s, followed)
        for bundle, one in orders.assigned.items():
            old = assigned.get(bundle)
            if old is None or old.broker != one.broker:
                orders.said.append(f"bundle {bundle}: {_moves(old, one.broker)}, {one.reason}")
        return orders

    @property
    def averages(self) -> Averages:
        """Averages for the next leader to go on with."""
        return self._manager.averages(self._now) if self._resumed is None else self._resumed

    def _waiting(self, bundles: Sequence[str], facts: LeaderFacts, assigned: Mapping[str, Assigned]) -> list[str]:
        """Those for which a broker is to be found: assigned to nobody that lives and takes bundles, or to one that isolation forbids."""
        nobodys = set(to_assign(bundles, assigned, facts.reports.keys()))
        self._shed = {bundle: to for bundle, to in self._shed.items() if bundle in assigned and assigned[bundle].broker == to}
        if not facts.policies.isolations:
            return [bundle for bundle in bundles if bundle in nobodys]
        usages = {broker: load.max_usage(self._placement.settings) for broker, load in facts.reports.items()}
        allowed = Allowed(facts.policies, usages)
        # To a broker that has not reported yet what it got nothing is given back: nobody knows what it can bear.
        here = {bundle: one.broker for bundle, one in assigned.items() if one.broker in facts.reports}
        gets = {broker: inf for bundle, broker in here.items() if bundle not in facts.reports[broker].bundles}
        idle = min((usages[broker] for broker, load in facts.reports.items() if not load.throughput), default=0.0)

        def is_to_leave(bundle: str) -> bool:
            namespace, broker = namespace_of(bundle), assigned[bundle].broker
            keep, isolation = allowed.may_keep(namespace), allowed.isolation_of(namespace)
            if not keep or broker in keep:
                return False
            if isolation is None or not isolation.is_secondary(broker):
                return True
            # It is given back if the primary broker of the least usage stays so far below the threshold that it is not shed again; if it was not
            # lent by shedding, one is given back in any case, and then it is seen what that takes.
            load = facts.reports[broker]
            if bundle not in load.bundles:
                return False
            target = min(allowed.always(namespace), key=lambda one: usages[one] + gets.get(one, 0.0))
            at_source, at_target = (max(0.0, usages[broker] - idle), load), (usages[target], facts.reports[target])
            then = gets.get(target, 0.0) + _takes(load.bundles[bundle].throughput, at_source, at_target)
            bears = 100 * (usages[target] + then) < BACK_BELOW * isolation.usage_threshold
            if not bears and (target in gets or self._shed.get(bundle) == broker):
                return False
            gets[target] = then
            return True

        return [bundle for bundle in bundles if bundle in nobodys or is_to_leave(bundle)]

    def _decide(self, step: _Step, waiting: Sequence[str]) -> None:
        """Decide by load, if it is time or something waits that did not wait in vain. The averages are kept if something was unloaded. So they are if
        there are twice as many decisions, or KEEP_EVERY more, than there were when they were kept last.
        """
        facts, now, chosen = step.facts, step.now, step.chosen
        if not facts.reports or not (set(waiting) - self._stuck or now - self._decided_at >= timetable.DECIDE_S):
            return
        self._decided_at = now
        reports, on_the_way = _counted(step, set(waiting))
        decision = self._manager.decide(reports, facts.policies, now, waiting, on_the_way)
        self._stuck = set(waiting) - decision.assignments.keys()
        for bundle, broker in decision.assignments.items():
            chosen[bundle] = Choice(broker, f"chosen by {self._placement.strategy}: {_why(bundle, step.assigned, facts)}")
        for move in decision.unloads:
            chosen[move.bundle] = Choice(move.target, move.reason or f"{self._placement.shedder} took it from {move.broker}")
            if not move.reason:
                self._shed[move.bundle] = move.target
        for split in decision.splits:
            if now - self._failed.get(split.bundle, (-inf, 0))[0] > self._pause_s(split.bundle):
                stays = "" if split.unload else split.broker
                reason = "it had more topics, messages or bytes than a bundle may have"
                self._begin_split(split.bundle, (), stays, reason, step)
        settings = self._placement.settings
        step.orders.warned += self._warnings.fresh(
            facts.reports, settings, unsplit=decision.unsplit, without_broker=sorted(self._stuck)
        )
        self._decisions += 1
        if decision.unloads or self._decisions - self._kept_at >= min(self._kept_at, KEEP_EVERY):
            self._kept_at = self._decisions
            step.orders.averages = self.averages

    def _follow_requests(self, step: _Step, there: Set[str]) -> dict[str, int]:
        """Do what people ask, each request once. Returns which were followed, by bundle."""
        facts, chosen = step.facts, step.chosen
        followed: dict[str, int] = {}
        for one in sorted(facts.requests, key=lambda request: request.number):
            old = step.assigned.get(one.bundle)
            if one.bundle not in there or (old is not None and one.number <= old.request) or one.bundle in chosen:
                continue
            if old is None or one.bundle in self._splits:
                continue  # it is followed once it has an owner
            followed[one.bundle] = one.number
            if one.action == TRANSFER and one.broker in facts.reports:
                chosen[one.bundle] = Choice(one.broker, "a person asked for it")
                self._manager.moved(one.bundle, step.now)
            elif one.action == UNLOAD:
                reports, on_the_way = _counted(step, {one.bundle})
                target = self._manager.elsewhere(one.bundle, old.broker, reports, facts.policies, on_the_way)
                if target is not None:
                    self._manager.moved(one.bundle, step.now)
                    chosen[one.bundle] = Choice(target, f"a person asked {old.broker} to give it up")
            elif one.action == SPLIT:
                self._begin_split(one.bundle, one.positions, "", "a person asked for it", step)
        return followed

    # -- splits ------------------------------------------------------------------------------------------------------

    def _begin_split(self, bundle: str, positions: tuple[int, ...], stays: str, reason: str, step: _Step) -> None:
        """Nobody is to own it now; it is split once that is so."""
        _, (lower, upper) = parse_bundle(bundle)
        if at := specified_positions(lower, upper, positions or range_equally(lower, upper)):
            self._splits[bundle] = _Splitting(tuple(at), stays, reason, step.wall_s)
            step.chosen[bundle] = Choice(NOBODY, f"about to be split: {reason}")

    def _split_those_released(self, step: _Step) -> None:
        """Split what nobody owns any more. What its owner does not release in time is assigned again, and so taken over. It is not split by itself
        again within the grace period, and after each further try within twice the time."""
        facts, now, bundles, orders = step.facts, step.now, step.bundles, step.orders
        self._failed = {bundle: one for bundle, one in self._failed.items() if now - one[0] <= 2 * self._pause_s(bundle)}
        for bundle, split in list(self._splits.items()):
            namespace, part = parse_bundle(bundle)
            claim, said = facts.claims.get(bundle), facts.assigned.get(bundle)
            if namespace not in bundles or part not in bundles[namespace].ranges:
                del self._splits[bundle]
            elif (said is not None and said.broker == NOBODY) and (claim is None or claim.released):
                del self._splits[bundle]
                bundles[namespace] = bundles[namespace].split(part, split.positions)
                orders.bundles[namespace] = bundles[namespace], f"{bundle} was split: {split.reason}"
                orders.said.append(
                    f"bundle {bundle}: split at {', '.join(f'{at:#010x}' for at in split.positions)}, {split.reason}"
                )
                if split.stays in facts.reports:
                    for found in pairwise((part[0], *split.positions, part[1])):
                        step.chosen[bundle_name(namespace, found)] = Choice(split.stays, f"a part of {bundle}, which stays")
            elif step.wall_s - split.since > self._placement.broker_timeout_s:
                del self._splits[bundle]
                self._failed[bundle] = now, self._failed.get(bundle, (now, 0))[1] + 1

    def _pause_s(self, bundle: str) -> float:
        """Until a bundle that was not released in time is tried to be split again: each try lets its topics rest."""
        times = self._failed.get(bundle, (0.0, 1))[1]
        return self._placement.settings.shedding_grace_period_s * float(2 ** min(times - 1, MOST_DOUBLINGS))


def _counted(step: _Step, without: Set[str]) -> tuple[dict[str, BrokerLoad], dict[str, str]]:
    """Loads by which the manager decides. Each report has the bundles that are assigned to its broker and of which nothing else becomes now. So
    what the manager decides is done. And the broker of each one that is assigned and not reported yet.
    """
    to = {bundle: one.broker for bundle, one in step.assigned.items()}
    to |= {bundle: choice.broker for bundle, choice in step.chosen.items()}
    gone = step.chosen.keys() | without
    reports = {
        broker: load.with_bundles(
            {bundle: of for bundle, of in load.bundles.items() if to.get(bundle) == broker and bundle not in gone}
        )
        for broker, load in step.facts.reports.items()
    }
    on_the_way = {
        bundle: broker
        for bundle, broker in to.items()
        if broker in reports and bundle not in reports[broker].bundles and bundle not in without
    }
    return reports, on_the_way


def _takes(throughput: float, *brokers: tuple[float, BrokerLoad]) -> float:
    """Fraction that a bundle of this throughput will take. That is as much as bytes take at that of these brokers where they take the least, of
    which the usage is given. One without bytes tells nothing.
    """
    return min((usage * throughput / load.throughput for usage, load in brokers if load.throughput), default=0.0)


def _why(bundle: str, assigned: Mapping[str, Assigned], facts: LeaderFacts) -> str:
    old = assigned.get(bundle)
    if old is None or old.broker == NOBODY:
        return "nobody owned it"
    if old.broker not in facts.living:
        return f"{old.broker} gave no sign of life"
    return f"{old.broker} leaves" if old.broker not in facts.reports else f"isolation forbids {old.broker}"


def _moves(old: Assigned | None, broker: str) -> str:
    before = NOBODY if old is None else old.broker
    if broker == NOBODY:
        return f"{before} is to release it"
    return f"to {broker}" if before == NOBODY else f"from {before} to {broker}"
