"""Ownership of bundles under any schedule: brokers that read, wait and act when it is long too late, are killed, paused and come back, and
two leaders that contradict each other.

The world is what the tables are: the newest claim of each bundle, changed only by who knows it; a log that takes a write if it has that
claim's fence; assignments that anybody who thinks to lead may add. After every step: one at most can write a bundle's log. When all
is quiet: every bundle is owned again within the bound, by whom it is assigned to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from geo.fleet.placement.handover import (
    Assigned,
    BeginBundle,
    Choice,
    Claim,
    Release,
    broker_step,
    leader_step,
    to_assign,
    together,
)
from geo.journal.rows import as_row
from geo.schemas import ASSIGNMENTS
from tests.examples import examples

BROKERS, BUNDLES = ("a", "b", "c"), ("x", "y")
BROKER_TIMEOUT_S, RELEASE_TIMEOUT_S, TICK_S = 30.0, 20.0, 5.0
BOUND_S = BROKER_TIMEOUT_S + RELEASE_TIMEOUT_S + 4 * TICK_S


@dataclass
class Log:
    fence: int = 0
    writes: list[tuple[int, str]] = field(default_factory=list)
    """The generation and the broker of each."""


@dataclass
class Broker:
    name: str
    runs: bool = True
    held: dict[str, int] = field(default_factory=dict)
    """The generation with which it writes a bundle, after its fence is in the log."""
    plan: list[BeginBundle | Release] = field(default_factory=list)
    """What it has decided and not done yet."""
    fences: list[tuple[str, int]] = field(default_factory=list)
    """Claims that it has made, whose fence is not in the log yet."""


@dataclass
class Leader:
    term: int
    runs: bool = True
    plan: dict[str, Assigned] = field(default_factory=dict)
    """What it has decided and not written yet."""


def _newest(*said: Assigned) -> Assigned:
    """What counts of what was said of one bundle, as the journal has it."""
    return max(said, key=lambda one: ASSIGNMENTS.order_of(as_row(one)))


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.claims: dict[str, Claim] = {}
        self.assigned: dict[str, Assigned] = {}
        self.logs = {bundle: Log() for bundle in BUNDLES}
        self.brokers = {name: Broker(name) for name in BROKERS}
        self.seen = dict.fromkeys(BROKERS, 0.0)
        self.leaders = [Leader(1)]
        self.taken_over: set[tuple[str, int]] = set()
        """Claims that a leader gave up."""

    # what the tables do

    def _claim(self, broker: Broker, step: BeginBundle) -> None:
        before = self.claims.get(step.bundle)
        if (before.generation if before else 0) != step.over:
            return
        if before is not None and not before.released:
            assert (step.bundle, step.over) in self.taken_over, "A: nobody gave this claim up"
        self.claims[step.bundle] = Claim(broker.name, step.over + 1)
        broker.fences.append((step.bundle, step.over + 1))

    def _release(self, broker: Broker, step: Release) -> None:
        broker.held.pop(step.bundle, None)
        broker.fences = [fence for fence in broker.fences if fence[0] != step.bundle]
        if self.claims[step.bundle] == Claim(broker.name, step.generation):
            self.claims[step.bundle] = Claim(broker.name, step.generation, released=True)

    def _write(self, broker: Broker, bundle: str) -> None:
        generation, log = broker.held[bundle], self.logs[bundle]
        if log.fence == generation:
            log.writes.append((generation, broker.name))
        else:
            del broker.held[bundle]  # it is fenced, and stops

    def _living(self) -> set[str]:
        return {name for name, at in self.seen.items() if self.now - at <= BROKER_TIMEOUT_S}

    # what brokers do

    def _look(self, broker: Broker) -> None:
        self.seen[broker.name] = self.now
        broker.plan = broker_step(broker.name, self.assigned, self.claims)

    def _act(self, broker: Broker) -> None:
        if broker.fences:
            bundle, generation = broker.fences.pop(0)
            if self.logs[bundle].fence < generation:
                self.logs[bundle].fence = broker.held[bundle] = generation
        elif broker.plan:
            step = broker.plan.pop(0)
            if isinstance(step, BeginBundle):
                self._claim(broker, step)
            else:
                self._release(broker, step)

    def _decide(self, leader: Leader, chosen: dict[str, str]) -> None:
        living = self._living()
        decided = {bundle: Choice(broker, "") for bundle, broker in chosen.items()}
        leader.plan = leader_step(leader.term, decided, self.assigned, self.claims, living, self.now, RELEASE_TIMEOUT_S, {})
        for bundle, found in leader.plan.items():
            if found.take_over is not None:
                claim = self.claims[bundle]
                assert claim.broker not in living or self.now - found.since > RELEASE_TIMEOUT_S, "C"
                self.taken_over.add((bundle, found.take_over))

    def _say(self, leader: Leader) -> None:
        for bundle, found in leader.plan.items():
            before = [self.assigned[bundle]] if bundle in self.assigned else []
            self.assigned[bundle] = _newest(*before, found)
        leader.plan = {}

    # the schedule

    def _running(self, data: Any) -> Broker | None:
        running = [broker for broker in self.brokers.values() if broker.runs]
        return data.draw(st.sampled_from(running)) if running else None

    @rule(data=st.data(), steps=st.sampled_from([0, 1, 1, 4]))
    def work(self, data: Any, steps: int) -> None:
        """A broker looks, and does some of what it decided; the rest later, by what is then old."""
        if (broker := self._running(data)) is not None:
            self._look(broker)
            for _ in range(steps):
                self._act(broker)

    @rule(data=st.data())
    def act(self, data: Any) -> None:
        if (broker := self._running(data)) is not None:
            self._act(broker)

    @rule(data=st.data())
    def write(self, data: Any) -> None:
        holders = [(broker, bundle) for broker in self.brokers.values() if broker.runs for bundle in broker.held]
        if holders:
            self._write(*data.draw(st.sampled_from(holders)))

    @rule(data=st.data(), says=st.booleans())
    def lead(self, data: Any, says: bool) -> None:
        """Any leader decides: of bundles that nobody living has, and sometimes of others, which then move."""
        leader = data.draw(st.sampled_from(self.leaders))
        brokers = st.sampled_from(sorted(self._living()) or BROKERS)
        chosen = {bundle: data.draw(brokers) for bundle in to_assign(BUNDLES, self.assigned, self._living())}
        if data.draw(st.booleans()):
            chosen[data.draw(st.sampled_from(BUNDLES))] = data.draw(brokers)
        self._decide(leader, chosen)
        if says:
            self._say(leader)

    @rule(data=st.data())
    def say(self, data: Any) -> None:
        self._say(data.draw(st.sampled_from(self.leaders)))

    @rule()
    def elect(self) -> None:
        """Another leader, while the one before it thinks that it still leads."""
        self.leaders = [*self.leaders[-1:], Leader(self.leaders[-1].term + 1)]

    @rule(seconds=st.sampled_from([TICK_S, TICK_S, BROKER_TIMEOUT_S + 1]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for broker in self.brokers.values():
            if broker.runs and seconds == TICK_S:
                self.seen[broker.name] = self.now

    @rule(name=st.sampled_from(BROKERS))
    def pause_or_resume(self, name: str) -> None:
        """SIGSTOP, and SIGCONT: it goes on with what it held and had decided."""
        self.brokers[name].runs = not self.brokers[name].runs

    @rule(name=st.sampled_from(BROKERS))
    def kill_and_start(self, name: str) -> None:
        """SIGKILL, and another process of the name: it holds nothing, whatever its claims say."""
        self.brokers[name] = Broker(name)
        for bundle, claim in self.claims.items():
            if claim.broker == name and not claim.released:  # as a start finds its own claims: it gives them back
                self.claims[bundle] = Claim(name, claim.generation, released=True)

    @rule()
    def settle(self) -> None:
        """Everything goes well, with the newest leader and whoever runs, one broker at least: within the bound all is owned and written."""
        self.brokers[BROKERS[0]].runs = True
        leader, running = self.leaders[-1], [broker for broker in self.brokers.values() if broker.runs]
        end = self.now + BOUND_S
        while self.now < end:
            self.now += TICK_S
            for broker in running:
                self._look(broker)
                while broker.plan or broker.fences:
                    self._act(broker)
            chosen = dict.fromkeys(to_assign(BUNDLES, self.assigned, self._living()), running[-1].name)
            self._decide(leader, chosen)
            self._say(leader)
        for bundle in BUNDLES:
            owner = self.brokers[self.assigned[bundle].broker]
            assert owner.runs
            assert owner.held.get(bundle) == self.logs[bundle].fence, f"{bundle} has no owner after {BOUND_S} s"
            before = len(self.logs[bundle].writes)
            self._write(owner, bundle)
            assert len(self.logs[bundle].writes) == before + 1

    @invariant()
    def one_at_most_can_write(self) -> None:
        for bundle, log in self.logs.items():
            able = [broker.name for broker in self.brokers.values() if broker.held.get(bundle) == log.fence]
            assert len(able) <= 1
            generations = [generation for generation, _ in log.writes]
            assert generations == sorted(generations)
            assert len(set(log.writes)) == len(set(generations)), "a generation is one broker's"


def test_one_broker_at_most_can_write_a_bundle_and_each_is_owned_again_within_the_bound() -> None:
    run_state_machine_as_test(
        World, settings=settings(max_examples=examples(1), stateful_step_count=40, suppress_health_check=list(HealthCheck))
    )


def test_a_planned_move_waits_for_the_release() -> None:
    assigned, claims = {"x": Assigned("b", 1, 2, 0.0)}, {"x": Claim("a", 7)}
    assert broker_step("b", assigned, claims) == []
    assert broker_step("a", assigned, claims) == [Release("x", 7)]
    assert broker_step("b", assigned, {"x": Claim("a", 7, released=True)}) == [BeginBundle("x", 7)]
    assert broker_step("a", assigned, {"x": Claim("a", 7, released=True)}) == []


@pytest.mark.parametrize(("living", "now", "take_over"), [({"a", "b"}, 20.0, None), ({"a", "b"}, 20.1, 7), ({"b"}, 0.0, 7)])
def test_a_claim_is_taken_over_if_its_owner_is_silent_or_does_not_release_in_time(
    living: set[str], now: float, take_over: int | None
) -> None:
    old = Assigned("b", 1, 1, 0.0)
    anew = leader_step(2, {}, {"x": old}, {"x": Claim("a", 7)}, living, now, 20.0, {})
    assert anew == ({} if take_over is None else {"x": Assigned("b", 2, 2, 0.0, take_over)})
    if anew:
        assert broker_step("b", anew, {"x": Claim("a", 7)}) == [BeginBundle("x", 7)]
        assert broker_step("b", anew, {"x": Claim("c", 8)}) == [], "another claim than the one that was given up"


def test_the_greater_term_counts_and_in_one_the_greater_number() -> None:
    first, second, old = Assigned("a", 2, 5, 0.0), Assigned("b", 2, 6, 0.0), Assigned("c", 1, 9, 0.0)
    assert _newest(first, second) == _newest(second, first) == second
    assert _newest(second, old) == _newest(old, second) == second


def test_bundles_that_were_refused_are_begun_one_by_one_behind_those_that_were_not() -> None:
    steps = [BeginBundle(bundle, 0) for bundle in ("a", "b", "c")]
    assert together(steps, []) == steps
    assert together(steps, ["c", "a"]) == [BeginBundle("b", 0)]
    assert together(steps, ["c", "a", "b"]) == [BeginBundle("c", 0)]
    assert together(steps[:2], ["c", "b", "a"]) == [BeginBundle("b", 0)], "of those that are still to be begun"
