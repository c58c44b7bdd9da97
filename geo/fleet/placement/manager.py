"""Decisions of the leader at one time: which broker gets a bundle, which bundles move, which are split. Pure: no Spark, clock or I/O.

As Pulsar's ModularLoadManagerImpl: `updateAll`, `checkNamespaceBundleSplit`, `doLoadShedding`, `selectBrokerForAssignment`. Decisions are values; who
does them is another's business. One that was not done is taken again: an assignment at once, an unload after the grace period.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Literal

from geo.fleet.placement.averages import Averages
from geo.fleet.placement.bundles import namespace_of
from geo.fleet.placement.holders import Holders
from geo.fleet.placement.load_data import UNKNOWN, BalancerSettings, BrokerLoad, Loads, Samples
from geo.fleet.placement.policies import Allowed, Policies
from geo.fleet.placement.shedding import SHEDDERS, AvgShedder, Shedder, ThresholdShedder
from geo.fleet.placement.splitting import bundles_to_split
from geo.fleet.placement.strategies import STRATEGIES, Choose, Strategy

_NOTHING: Mapping[str, str] = MappingProxyType({})

_UNHEARD = Samples()
"""Samples of a bundle that was reported after the last decision."""


@dataclass(frozen=True, slots=True)
class Unload:
    """A bundle moves: its owner releases it, and then `target` begins with it. `reason`: why, if not for the load."""

    bundle: str
    broker: str
    target: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """The owner splits a bundle; with `unload` it then releases the parts, to be assigned again."""

    bundle: str
    broker: str
    unload: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions, in their order. `assignments`: to whom bundles go that nobody owns. `unsplit`: as `bundles_to_split` has them."""

    splits: list[Split] = field(default_factory=list)
    unloads: list[Unload] = field(default_factory=list)
    assignments: dict[str, str] = field(default_factory=dict)
    unsplit: dict[str, int] = field(default_factory=dict)


class Manager:
    """One cluster's decisions. It remembers the averages of bundles and of usages, and what was unloaded within `shedding_grace_period_s`;
    another one goes on with that (`averages`, `resume`).

    A. A bundle is placed only on a broker that reports and that the isolation policies allow for it.
    B. A bundle is unloaded only from the broker that reports it, to another one, and not again within the grace period.
    """

    def __init__(self, settings: BalancerSettings, strategy: Strategy, shedder: Shedder) -> None:
        self._settings, self._strategy, self._shedder = settings, strategy, shedder
        self._samples: dict[str, Samples] = {}
        self._unloaded: dict[str, float] = {}
        self._shed_at = -inf

    def decide(
        self,
        reports: Mapping[str, BrokerLoad],
        policies: Policies,
        now: float,
        unassigned: Iterable[str] = (),
        on_the_way: Mapping[str, str] = _NOTHING,
    ) -> Decided:
        """One decision. `reports` has the newest report of each broker that lives. `now` are seconds of a clock that does not go back, `unassigned`
        are the bundles that nobody owns. `on_the_way` has the broker of each bundle that is assigned and not reported yet (Pulsar's preallocated
        ones). It counts there, and nothing else becomes of it. No bundle is in two of the three. Each call is one more sample of every bundle's
        load."""
        waiting = list(unassigned)
        unreported = {*on_the_way, *waiting}
        self._hear(reports, now, unreported)
        decision, view = Decided(), _View(self._settings, policies, reports, self._samples, on_the_way)
        if self._settings.auto_bundle_split_enabled:
            self._split(decision, view, waiting)
        if self._settings.shedding_enabled:
            self._spread_groups(decision, view, unreported, now)
        if self._settings.shedding_enabled and now - self._shed_at >= self._settings.shedding_interval_s:
            self._shed_at = now
            self._shed(decision, view, now)
        for bundle in waiting:
            broker = self._select(bundle, view)
            if broker is not None:
                view.place(bundle, broker)
                decision.assignments[bundle] = broker
        return decision

    def elsewhere(
        self,
        bundle: str,
        broker: str,
        reports: Mapping[str, BrokerLoad],
        policies: Policies,
        on_the_way: Mapping[str, str],
    ) -> str | None:
        """Another broker for a bundle that its owner is to give up whatever the load is; None: there is none."""
        return self._select(bundle, _View(self._settings, policies, reports, self._samples, on_the_way), without={broker})

    def moved(self, bundle: str, now: float) -> None:
        """A bundle moves though nothing here decided it: it is not unloaded within the grace period."""
        self._unloaded[bundle] = now

    def averages(self, now: float) -> Averages:
        """Averages for another manager to go on with."""
        usages = self._shedder.usages if isinstance(self._shedder, ThresholdShedder) else {}
        return Averages(self._samples, dict(usages), {bundle: now - at for bundle, at in self._unloaded.items()})

    def resume(self, averages: Averages, now: float) -> None:
        """Go on with what another one had."""
        self._samples = dict(averages.samples)
        self._unloaded |= {bundle: now - since for bundle, since in averages.unloaded_s.items()}
        if isinstance(self._shedder, ThresholdShedder):
            self._shedder.usages = dict(averages.usages)

    def _hear(self, reports: Mapping[str, BrokerLoad], now: float, others: Iterable[str]) -> None:
        """Take the reports as samples, and forget what is over (updateAllBrokerData, updateBundleData). Of the others, which nobody reports,
        the averages stay."""
        samples = {bundle: self._samples[bundle] for bundle in others if bundle in self._samples}
        for load in reports.values():
            for bundle, of in load.bundles.items():
                samples[bundle] = self._samples.get(bundle, Samples()).add(of, self._settings)
        self._samples = samples
        since = now - self._settings.shedding_grace_period_s
        self._unloaded = {bundle: at for bundle, at in self._unloaded.items() if at >= since}

    def _split(self, decision: Decided, view: _View, unassigned: Iterable[str]) -> None:
        """checkNamespaceBundleSplit."""
        owners = {bundle: broker for broker, load in view.reports.items() for bundle in load.bundles}
        counts = Counter(namespace_of(bundle) for bundle in owners.keys() | set(unassigned))
        chosen, unsplit = bundles_to_split(view.averaged("long"), counts, self._settings)
        decision.unsplit.update(unsplit)
        for bundle in chosen:
            # With others of its group beside it, it is moved as a whole: its parts could come between them.
            company = view.holders.has_company(namespace_of(bundle), owners[bundle])
            unload = self._settings.auto_unload_split_bundles_enabled and not company and view.may_leave(bundle, owners[bundle])
            decision.splits.append(Split(bundle, owners[bundle], unload))

    def _spread_groups(self, decision: Decided, view: _View, unreported: Set[str], now: float) -> None:
        """Move what a broker holds of a namespace, if that is all there is of it, to a broker farther from its anti-affinity group. Of each group one
        namespace moves at a time, of which nothing was unloaded within the grace period. In one decision about as many bundles move as there are
        brokers. (Pulsar waits until something else moves it. Two that were placed while one broker was up, or before they were in a group, stay
        together.)
        """
        left_alone = self._unloaded.keys() | {split.bundle for split in decision.splits}
        groups = view.holders.group_of
        moving = {groups.get(namespace_of(bundle)) for bundle in unreported}
        for namespace, (broker, bundles) in sorted(view.at_one_broker().items()):
            if len(decision.unloads) >= len(view.reports):
                return
            if groups[namespace] in moving or not left_alone.isdisjoint(bundles):
                continue
            target = self._strategy.select(view.better(namespace, broker), view.brokers, bundles[0])
            if target is not None:
                moving.add(groups[namespace])
                for bundle in bundles:
                    reason = f"farther from its anti-affinity group than at {broker}"
                    self._unload(decision, view, Unload(bundle, broker, target, reason), now)

    def _shed(self, decision: Decided, view: _View, now: float) -> None:
        """doLoadShedding. What is shed goes only to brokers whose usage is at most the mean, also with what this decision moves to them. (In
        Pulsar the fewest bundles of a namespace go before usage: a busier broker may get it, which then sheds it.)"""
        if len(view.reports) < 2:
            return
        split = {split.bundle for split in decision.splits}
        loads, usages = view.averaged("short"), dict(view.usages)
        mean = sum(usages.values()) / len(usages)
        for broker, bundles in self._shedder.unload(loads, self._unloaded.keys()).items():
            shares = loads[broker].shares()
            for bundle in bundles:
                if bundle in split or not view.may_leave(bundle, broker):
                    continue
                if broker not in view.allowed(namespace_of(bundle)):  # it was lent, and is given back as can be borne
                    continue
                busy = {other for other, usage in usages.items() if usage > mean}
                target = self._select(bundle, view, without={broker, *busy})
                if target is not None and not view.holders.is_nearer(namespace_of(bundle), broker, target):
                    takes = view.usages[broker] * shares[bundle]
                    usages[target] += takes
                    if isinstance(self._shedder, ThresholdShedder):
                        self._shedder.moved(broker, target, takes)
                    self._unload(decision, view, Unload(bundle, broker, target), now)

    def _unload(self, decision: Decided, view: _View, move: Unload, now: float) -> None:
        view.remove(move.bundle, move.broker)
        view.place(move.bundle, move.target)
        self._unloaded[move.bundle] = now
        decision.unloads.append(move)

    def _select(self, bundle: str, view: _View, without: Set[str] = frozenset()) -> str | None:
        """selectBrokerForAssignment, without its first step: of what is preallocated nobody asks again. A bundle that moves goes to another broker
        than its source, which is in `without`. In Pulsar the source may be selected too, and nothing moves then: for ever, if it has the fewest
        bundles of the namespace."""
        broker = self._strategy.select(view.candidates(bundle, without), view.brokers, bundle)
        if broker is not None and view.usages[broker] > self._settings.broker_overloaded_threshold:
            broker = self._strategy.select(view.allowed(namespace_of(bundle), without), view.brokers, bundle)
        return broker


class _View:
    """View of one decision: the reports in averages, with what is placed and not reported yet, also by this decision."""

    def __init__(
        self,
        settings: BalancerSettings,
        policies: Policies,
        reports: Mapping[str, BrokerLoad],
        samples: Mapping[str, Samples],
        on_the_way: Mapping[str, str],
    ) -> None:
        self.reports = reports
        self.usages = {broker: load.max_usage(settings) for broker, load in reports.items()}
        self._settings, self._policies, self._samples = settings, policies, samples
        self.brokers = Loads(self.averaged("long"))
        """The loads over the long window, as strategies see them. The load of what leaves a broker still counts there, since it goes on until it is
        released. As a bundle of its namespace it does not (`holders`)."""
        self.holders = Holders(policies.anti_affinity, policies.domains if settings.failure_domains_enabled else {})
        self._allowed = Allowed(policies, self.usages)
        self._full: set[str] = set()
        """The brokers with too many topics."""
        self._candidates: dict[str, list[str]] = {}
        """Brokers for each namespace, until what they depend on changes: finding them costs as much as selecting one."""
        for broker, load in reports.items():
            for bundle in load.bundles:
                self.holders.add(namespace_of(bundle), broker)
            self._note_topics(broker)
        for bundle, broker in on_the_way.items():
            if broker in reports:
                self.place(bundle, broker)

    def averaged(self, window: Literal["short", "long"]) -> dict[str, BrokerLoad]:
        """The reports, with the averages over one of the two windows."""
        known = self._samples
        return {
            broker: load.with_bundles({bundle: getattr(known.get(bundle, _UNHEARD), window) for bundle in load.bundles})
            for broker, load in self.reports.items()
        }

    def place(self, bundle: str, broker: str) -> None:
        """The broker gets a bundle."""
        namespace = namespace_of(bundle)
        load = self._samples[bundle].long if bundle in self._samples else UNKNOWN
        self.brokers[broker] = self.brokers[broker].with_one_more(bundle, load)
        changed = self.holders.add(namespace, broker)
        left = self._candidates.get(namespace, [])
        is_one_more = self._settings.distribute_bundles_evenly_enabled and not self._policies.versions
        self._forget_candidates(namespace, *changed)
        if is_one_more and len(left) > 1 and broker in left and not (changed and self.holders.domain_of):
            left.remove(broker)  # it has one more than the others now, of which none has changed
            self._candidates[namespace] = left
        self._note_topics(broker)

    def remove(self, bundle: str, broker: str) -> None:
        """A bundle is to leave the broker."""
        namespace = namespace_of(bundle)
        self._forget_candidates(namespace, *self.holders.remove(namespace, broker))

    def at_one_broker(self) -> dict[str, tuple[str, list[str]]]:
        """The namespaces of anti-affinity groups of which one broker holds all: the broker, and the bundles that it reports."""
        found: dict[str, tuple[str, list[str]]] = {}
        for broker, load in self.reports.items() if self.holders.group_of else ():
            for bundle in load.bundles:
                namespace = namespace_of(bundle)
                if namespace in self.holders.group_of and len(self.holders.of(namespace)) == 1:
                    found.setdefault(namespace, (broker, []))[1].append(bundle)
        return found

    def allowed(self, namespace: str, without: Set[str] = frozenset()) -> list[str]:
        """The brokers that the isolation policies leave, without some."""
        of_all = self._allowed.brokers(namespace)
        return [broker for broker in of_all if broker not in without] if without else of_all

    def candidates(self, bundle: str, without: Set[str] = frozenset()) -> list[str]:
        """The brokers among which the strategy selects, without some."""
        namespace = namespace_of(bundle)
        if without:
            return self._narrowed(namespace, self.allowed(namespace, without))
        if namespace not in self._candidates:
            self._candidates[namespace] = self._narrowed(namespace, self.allowed(namespace))
        return self._candidates[namespace]

    def _narrowed(self, namespace: str, allowed: list[str]) -> list[str]:
        """Narrows the brokers allowed: without those of too many topics unless all have; then the best for the anti-affinity group. Then those with
        the fewest bundles of the namespace; then those of the latest version. All allowed if that leaves none.
        """
        few = ([broker for broker in allowed if broker not in self._full] or allowed) if self._full else allowed
        few = self.holders.farthest(namespace, few)
        if self._settings.distribute_bundles_evenly_enabled:
            few = self.holders.fewest(namespace, few)
        return self._policies.latest(few) or allowed

    def may_leave(self, bundle: str, broker: str) -> bool:
        """Tells whether isolation and anti-affinity permit that the bundle leaves its broker."""
        allowed = self.allowed(namespace_of(bundle))
        return any(other != broker for other in allowed) and self.holders.may_leave(namespace_of(bundle), allowed)

    def better(self, namespace: str, source: str) -> list[str]:
        """The brokers among which the strategy selects one where a namespace is farther from its group than at the source. Those that may own it
        only while others are busy are not among them: they give it back."""
        of_all = self._allowed.always(namespace)
        if not self.holders.may_be_farther(namespace, source, of_all):
            return []
        found = [broker for broker in of_all if broker != source and self.holders.is_farther(namespace, source, broker)]
        free = [broker for broker in found if self.usages[broker] <= self._settings.broker_overloaded_threshold]
        return self._narrowed(namespace, free) if free else []

    def _forget_candidates(self, *namespaces: str) -> None:
        for namespace in namespaces:
            self._candidates.pop(namespace, None)

    def _note_topics(self, broker: str) -> None:
        if broker not in self._full and self.brokers[broker].topics > self._settings.broker_max_topics:
            self._full.add(broker)
            self._candidates.clear()


def manager_of(strategy: str, shedder: str, settings: BalancerSettings, choose: Choose) -> Manager:
    """A manager with a strategy and a shedder by their names. An AvgShedder that is both is one object, as in Pulsar."""
    both = AvgShedder(settings, choose)
    places = both if strategy == AvgShedder.__name__ else STRATEGIES[strategy](settings, choose)
    return Manager(settings, places, both if shedder == AvgShedder.__name__ else SHEDDERS[shedder](settings))
