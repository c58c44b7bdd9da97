"""What the leader decides at one time: which broker gets a bundle, which bundles move, which are split. Pure: no Spark, clock or I/O.

As Pulsar's ModularLoadManagerImpl: `updateAll`, `checkNamespaceBundleSplit`, `doLoadShedding`, `selectBrokerForAssignment`. Decisions are
values; who does them is another's business. One that is not done is taken again, but what it moved counts at its target for the grace period.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from geo.fleet.placement.avg_shedder import AvgShedder
from geo.fleet.placement.bundles import namespace_of
from geo.fleet.placement.load_data import UNKNOWN, BrokerLoad, BundleLoad, Loads, Samples, Settings
from geo.fleet.placement.policies import FilterError, Policies, crowding, least_of_group, may_leave
from geo.fleet.placement.shedding import SHEDDERS, Shedder
from geo.fleet.placement.splitting import bundles_to_split
from geo.fleet.placement.strategies import STRATEGIES, Choose, Strategy

_UNHEARD = Samples()
"""Of a bundle that was reported after the last decision."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A bundle that nobody owns goes to this broker."""

    bundle: str
    broker: str


@dataclass(frozen=True, slots=True)
class Unload:
    """A bundle moves: its owner releases it, and then `target` begins with it. `reason`: why, if not for the load."""

    bundle: str
    broker: str
    target: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """The owner splits a bundle; with `unload` it then releases the parts, to be assigned anew."""

    bundle: str
    broker: str
    unload: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, in the order in which it was decided."""

    splits: list[Split] = field(default_factory=list)
    unloads: list[Unload] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)


class Manager:
    """One cluster's decisions. It remembers the averages of bundles, where it has placed those whose new owner has not reported them yet,
    and what was unloaded within `shedding_grace_period_s`. A new leader begins without: what it then takes for an average is the
    newest report.

    A. A bundle is placed only on a broker that reports and that the isolation policies allow for it.
    B. A bundle is unloaded only from the broker that reports it, to another one, and not again within the grace period.
    C. A bundle that was placed is not placed elsewhere until its broker reports it, is gone or not allowed any more, or the grace period
       is over.
    """

    def __init__(self, settings: Settings, strategy: Strategy, shedder: Shedder) -> None:
        self._settings, self._strategy, self._shedder = settings, strategy, shedder
        self._samples: dict[str, Samples] = {}
        self._placed: dict[str, tuple[str, float]] = {}
        """Pulsar's preallocated bundles: the broker of each, and when it was placed there."""
        self._unloaded: dict[str, float] = {}
        self._shed_at = -inf

    def decide(
        self, reports: Mapping[str, BrokerLoad], policies: Policies, now: float, unassigned: Iterable[str] = ()
    ) -> Decision:
        """One decision. `reports` has the newest report of each broker that lives, `now` are seconds of a clock that does not go back,
        `unassigned` are the bundles that nobody owns. Each call is one more sample of every bundle's load."""
        waiting = list(unassigned)
        self._hear(reports, now)
        decision, view = Decision(), _View(self._settings, policies, reports, self._samples, self._placed)
        if self._settings.auto_bundle_split_enabled:
            self._split(decision, view, waiting)
        if self._settings.shedding_enabled:
            self._part(decision, view, policies, now)
        if self._settings.shedding_enabled and now - self._shed_at >= self._settings.shedding_interval_s:
            self._shed_at = now
            self._shed(decision, view, reports, now)
        for bundle in waiting:
            broker = self._placed[bundle][0] if bundle in self._placed else None
            if broker not in view.allowed(namespace_of(bundle)):
                broker = self._select(bundle, view)
                if broker is None:
                    continue
                self._place(bundle, broker, view, now)
            decision.assignments.append(Assignment(bundle, broker))
        return decision

    def elsewhere(
        self, bundle: str, broker: str, reports: Mapping[str, BrokerLoad], policies: Policies, now: float
    ) -> str | None:
        """Another broker for a bundle that its owner is to give up whatever the load is; None: there is none."""
        view = _View(self._settings, policies, reports, self._samples, self._placed)
        target = self._select(bundle, view, source=broker)
        if target is not None:
            self.moved(bundle, target, now)
        return target

    def moved(self, bundle: str, target: str, now: float) -> None:
        """A bundle goes to this broker though nothing here decided it: it counts there, and is not unloaded within the grace period."""
        self._placed[bundle] = target, now
        self._unloaded[bundle] = now

    def _hear(self, reports: Mapping[str, BrokerLoad], now: float) -> None:
        """Take the reports as samples, and forget what is over (updateAllBrokerData, updateBundleData, reapDeadBrokerPreallocations)."""
        samples = {}
        for load in reports.values():
            for bundle, of in load.bundles.items():
                samples[bundle] = self._samples.get(bundle, Samples()).add(of, self._settings)
        samples.update(
            (bundle, self._samples[bundle]) for bundle in self._placed if bundle in self._samples and bundle not in samples
        )
        self._samples = samples
        since = now - self._settings.shedding_grace_period_s
        self._unloaded = {bundle: at for bundle, at in self._unloaded.items() if at >= since}
        self._placed = {
            bundle: (broker, at)
            for bundle, (broker, at) in self._placed.items()
            if at >= since and broker in reports and bundle not in reports[broker].bundles
        }

    def _split(self, decision: Decision, view: _View, unassigned: Iterable[str]) -> None:
        """checkNamespaceBundleSplit."""
        owners = {bundle: broker for broker, load in view.reports.items() for bundle in load.bundles}
        counts = Counter(namespace_of(bundle) for bundle in owners.keys() | set(unassigned))
        for bundle in bundles_to_split(view.long_term(), counts, self._settings):
            unload = self._settings.auto_unload_split_bundles_enabled and view.may_leave(bundle, owners[bundle])
            decision.splits.append(Split(bundle, owners[bundle], unload))

    def _part(self, decision: Decision, view: _View, policies: Policies, now: float) -> None:
        """Move what a broker holds of a namespace to one where that is farther from the others of its anti-affinity group: of each group one
        namespace at a time, and none of which something was unloaded within the grace period. (Pulsar waits until something else moves it:
        two that were placed while one broker was up, or before they were in a group, stay together.)"""
        held: dict[tuple[str, str], list[str]] = defaultdict(list)
        for broker, load in view.reports.items() if policies.anti_affinity else ():
            for bundle in load.bundles:
                if namespace_of(bundle) in policies.anti_affinity:
                    held[namespace_of(bundle), broker].append(bundle)
        split = {split.bundle for split in decision.splits}
        moving = {policies.anti_affinity.get(namespace_of(bundle)) for bundle in self._placed}
        for (namespace, broker), bundles in sorted(held.items()):
            group = policies.anti_affinity[namespace]
            if group in moving or any(bundle in self._unloaded or bundle in split for bundle in bundles):
                continue
            target = (
                self._strategy.select(better, view.brokers, bundles[0]) if (better := view.better(namespace, broker)) else None
            )
            if target is not None:
                moving.add(group)
                for bundle in bundles:
                    self._place(bundle, target, view, now)
                    self._unloaded[bundle] = now
                    reason = f"farther from its anti-affinity group than at {broker}"
                    decision.unloads.append(Unload(bundle, broker, target, reason))

    def _shed(self, decision: Decision, view: _View, reports: Mapping[str, BrokerLoad], now: float) -> None:
        """doLoadShedding."""
        if len(reports) < 2:
            return
        split = {split.bundle for split in decision.splits}
        for broker, bundles in self._shedder.unload(view.short_term(), self._unloaded.keys()).items():
            for bundle in bundles:
                if bundle in split or bundle in self._placed or not view.may_leave(bundle, broker):
                    continue
                target = self._select(bundle, view, source=broker)
                if target is not None and view.keeps_apart(bundle, broker, target):
                    self._place(bundle, target, view, now)
                    self._unloaded[bundle] = now
                    decision.unloads.append(Unload(bundle, broker, target))

    def _select(self, bundle: str, view: _View, source: str | None = None) -> str | None:
        """selectBrokerForAssignment. A bundle that moves goes to another broker than its source; in Pulsar the source may be selected too,
        and nothing moves then: for ever, if it has the fewest bundles of the namespace."""
        broker = self._strategy.select(view.candidates(bundle, source), view.brokers, bundle)
        if broker is not None and view.usages[broker] > self._settings.broker_overloaded_threshold:
            broker = self._strategy.select(view.allowed(namespace_of(bundle), source), view.brokers, bundle)
        return broker

    def _place(self, bundle: str, broker: str, view: _View, now: float) -> None:
        self._placed[bundle] = broker, now
        view.place(bundle, broker, self._samples.get(bundle, Samples()).long)


class _View:
    """What one decision looks at: the reports in averages, with what is placed and not reported yet, also by this decision."""

    def __init__(
        self,
        settings: Settings,
        policies: Policies,
        reports: Mapping[str, BrokerLoad],
        samples: Mapping[str, Samples],
        placed: Mapping[str, tuple[str, float]],
    ) -> None:
        self.reports = reports
        self.usages = {broker: load.max_usage(settings) for broker, load in reports.items()}
        self._settings, self._policies, self._samples = settings, policies, samples
        self.brokers = Loads(self.long_term())
        """The loads over the long window, as strategies see them."""
        self._holders: dict[str, Counter[str]] = defaultdict(Counter)
        """How many bundles of each namespace each broker holds."""
        self._allowed: dict[str, list[str]] = {}
        self._full: set[str] = set()
        """The brokers with too many topics."""
        self._candidates: dict[str, list[str]] = {}
        """Of each namespace, until what they depend on changes: finding them costs as much as selecting one."""
        for broker, load in reports.items():
            for bundle in load.bundles:
                self._holders[namespace_of(bundle)][broker] += 1
            self._note_topics(broker)
        for bundle, (broker, _) in placed.items():
            self.place(bundle, broker, samples[bundle].long if bundle in samples else UNKNOWN)

    def long_term(self) -> dict[str, BrokerLoad]:
        """The reports, with the averages over the long window."""
        return {
            broker: load.with_bundles({bundle: self._samples.get(bundle, _UNHEARD).long for bundle in load.bundles})
            for broker, load in self.reports.items()
        }

    def short_term(self) -> dict[str, BrokerLoad]:
        """The reports, with the averages over the short window."""
        return {
            broker: load.with_bundles({bundle: self._samples.get(bundle, _UNHEARD).short for bundle in load.bundles})
            for broker, load in self.reports.items()
        }

    def place(self, bundle: str, broker: str, load: BundleLoad) -> None:
        namespace = namespace_of(bundle)
        self.brokers[broker] = self.brokers[broker].with_one_more(bundle, load)
        self._holders[namespace][broker] += 1
        left = self._candidates.get(namespace, [])
        if (
            self._policies.filters
            or not self._settings.distribute_bundles_evenly_enabled
            or namespace in self._policies.anti_affinity
        ):
            self._candidates.clear()
        elif len(left) > 1 and broker in left:  # it has one more than the others now, of which none has changed
            left.remove(broker)
        else:
            self._candidates.pop(namespace, None)
        self._note_topics(broker)

    def allowed(self, namespace: str, source: str | None = None) -> list[str]:
        """The brokers that the isolation policies leave, without the source of a bundle that moves."""
        if namespace not in self._allowed:
            self._allowed[namespace] = self._policies.brokers(self.reports, namespace, self.usages)
        of_all = self._allowed[namespace]
        return of_all if source is None else [broker for broker in of_all if broker != source]

    def candidates(self, bundle: str, source: str | None = None) -> list[str]:
        """The brokers among which the strategy selects."""
        namespace = namespace_of(bundle)
        if source is not None:
            return self._narrowed(namespace, self.allowed(namespace, source))
        if namespace not in self._candidates:
            self._candidates[namespace] = self._narrowed(namespace, self.allowed(namespace))
        return self._candidates[namespace]

    def _narrowed(self, namespace: str, allowed: list[str]) -> list[str]:
        """Of the brokers allowed: without those of too many topics unless all have; then the best for the anti-affinity group; then those
        with the fewest bundles of the namespace; then what the filters leave. All allowed if that leaves none."""
        few = [broker for broker in allowed if broker not in self._full] or allowed
        if group := self._policies.group(namespace):
            few = least_of_group(
                few, self._of_group(group), self._policies.domains if self._settings.failure_domains_enabled else None
            )
        if self._settings.distribute_bundles_evenly_enabled:
            held = self._holders[namespace]
            least = min((held[broker] for broker in few), default=0)
            few = [broker for broker in few if held[broker] == least]
        try:
            for leave in self._policies.filters:
                few = leave(few)
        except FilterError:
            return allowed
        return few or allowed

    def may_leave(self, bundle: str, broker: str) -> bool:
        """Whether isolation and anti-affinity permit that the bundle leaves its broker."""
        namespace = namespace_of(bundle)
        allowed = self.allowed(namespace)
        group = self._policies.group(namespace)
        return any(other != broker for other in allowed) and (not group or may_leave(broker, allowed, self._of_group(group)))

    def keeps_apart(self, bundle: str, source: str, target: str) -> bool:
        """Whether a bundle's namespace is at least as far from the others of its anti-affinity group at the target as at the source."""
        before, after = self._crowding(namespace_of(bundle), source, target)
        return after <= before

    def parts(self, namespace: str, source: str, target: str) -> bool:
        """Whether the namespace is farther from the others of its anti-affinity group at the target than at the source."""
        before, after = self._crowding(namespace, source, target)
        return after < before

    def better(self, namespace: str, source: str) -> list[str]:
        """The brokers among which the strategy selects one where a namespace is farther from its group than at the source."""
        found = [broker for broker in self.allowed(namespace, source) if self.parts(namespace, source, broker)]
        free = [broker for broker in found if self.usages[broker] <= self._settings.broker_overloaded_threshold]
        return self._narrowed(namespace, free) if free else []

    def _crowding(self, namespace: str, source: str, target: str) -> tuple[tuple[int, int], tuple[int, int]]:
        group = self._policies.group(namespace)
        if not group:
            return (0, 0), (0, 0)
        domains = self._policies.domains if self._settings.failure_domains_enabled else {}
        return crowding(source, target, not self._holders[namespace][target], self._of_group(group), domains)

    def _note_topics(self, broker: str) -> None:
        if broker not in self._full and self.brokers[broker].topics > self._settings.broker_max_topics:
            self._full.add(broker)
            self._candidates.clear()

    def _of_group(self, group: Iterable[str]) -> Counter[str]:
        """How many of these namespaces each broker holds bundles of."""
        return Counter(broker for namespace in group for broker, bundles in self._holders[namespace].items() if bundles)


def manager_of(strategy: str, shedder: str, settings: Settings, choose: Choose) -> Manager:
    """A manager with a strategy and a shedder by their names. An AvgShedder that is both is one object, as in Pulsar."""
    sheds = AvgShedder(settings, choose) if shedder == AvgShedder.__name__ else SHEDDERS[shedder](settings)
    if strategy == AvgShedder.__name__:
        places = sheds if isinstance(sheds, AvgShedder) else AvgShedder(settings, choose)
        return Manager(settings, places, sheds)
    return Manager(settings, STRATEGIES[strategy](settings, choose), sheds)
