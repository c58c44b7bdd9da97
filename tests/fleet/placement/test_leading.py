"""What a leader says anew: who gets a bundle and why, what people ask for once, and splits of bundles that nobody owns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from geo.config.placement import BalancerSettings, Placement
from geo.fleet.placement.averages import Averages, decode, encode
from geo.fleet.placement.bundles import Bundles, bundle_name, bundle_of, even
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import (
    NOBODY,
    SPLIT,
    TRANSFER,
    UNLOAD,
    BundleRequest,
    LeaderFacts,
    Leading,
    Orders,
)
from geo.fleet.placement.load_data import BrokerLoad, BundleLoad, Usage, UsageAverage
from geo.fleet.placement.policies import Isolation, Policies
from geo.streams import timetable

NAMESPACE, TERM, TIMEOUT_S = "shop/web", 7, 30
TWO = {NAMESPACE: even(2)}
LOW, HIGH = (bundle_name(NAMESPACE, part) for part in TWO[NAMESPACE].ranges)
PLACEMENT = Placement(bundles=2, broker_timeout_s=TIMEOUT_S)
TOPICS = frozenset(f"persistent://{NAMESPACE}/t{number}" for number in range(20))


class World:
    """Brokers that do at once what the leader says, one step a second."""

    def __init__(self, *brokers: str, placement: Placement = PLACEMENT) -> None:
        self.leading = Leading(placement, min)
        self.now = 1_000.0
        self.brokers = set(brokers)
        self.leaving: set[str] = set()
        self.bundles: dict[str, Bundles] = {}
        self.assigned: dict[str, Assigned] = {}
        self.claims: dict[str, Claim] = {}
        self.loads: dict[str, BundleLoad] = {}
        self.stuck: set[str] = set()
        """Bundles that are not released."""
        self.unreported: set[str] = set()
        self.usages: Mapping[str, float] = {}
        """Of brokers, percent; 10 of others."""

    def step(
        self, requests: Iterable[BundleRequest] = (), policies: Policies | None = None, topics: frozenset[str] = TOPICS
    ) -> Orders:
        self.now += 1
        facts = LeaderFacts(
            topics,
            self.bundles,
            self.assigned,
            self.claims,
            self._reports(),
            self.brokers,
            list(requests),
            policies or Policies(),
        )
        orders = self.leading.step(facts, TERM, self.now, self.now)
        self.bundles |= {namespace: bundles for namespace, (bundles, _) in orders.bundles.items()}
        self.assigned |= orders.assigned
        for bundle, one in self.assigned.items():
            claim = self.claims.get(bundle)
            if claim is not None and not claim.released and claim.broker != one.broker and bundle not in self.stuck:
                self.claims[bundle] = claim = replace(claim, released=True)
            taken = claim is not None and claim.generation == one.take_over
            if one.broker != NOBODY and (claim is None or claim.released or taken):
                self.claims[bundle] = Claim(one.broker, (claim.generation if claim else 0) + 1)
        return orders

    def owners(self) -> dict[str, str]:
        return {bundle: claim.broker for bundle, claim in self.claims.items() if not claim.released}

    def _reports(self) -> Mapping[str, BrokerLoad]:
        found = {}
        for broker in sorted(self.brokers - self.leaving):
            bundles = {
                bundle: self.loads.get(bundle, BundleLoad(1, 0, 1, 0, 2))
                for bundle, of in self.owners().items()
                if of == broker and bundle not in self.unreported
            }
            found[broker] = BrokerLoad(Usage(self.usages.get(broker, 10), 100), Usage(0, 0), Usage(0, 0), Usage(0, 0), bundles)
        return found


def test_bundles_of_the_first_topics_are_spread_and_then_left_alone() -> None:
    world = World("a", "b")
    first = world.step()
    assert first.bundles[NAMESPACE] == (even(2), "its first topic was found")
    assert sorted(one.broker for one in first.assigned.values()) == ["a", "b"]
    assert {one.reason for one in first.assigned.values()} == {"chosen by LeastLongTermMessageRate: nobody owned it"}
    assert {(one.term, one.request) for one in first.assigned.values()} == {(TERM, 0)}
    assert [world.step() for _ in range(100)] == [Orders()] * 100


def test_only_bundles_with_topics_are_placed() -> None:
    world = World("a")
    one = min(TOPICS)
    world.step(topics=frozenset({one}))
    assert list(world.owners()) == [bundle_of(one, world.bundles)]


def _hot(world: World, rate: float) -> None:
    world.loads = dict.fromkeys((LOW, HIGH), BundleLoad(rate, 0, 1, 0, 2))


def test_after_a_change_of_leader_one_report_of_a_burst_splits_nothing() -> None:
    """Kept: as text, at the first decision, the second, the fourth and so on."""
    world, kept = World("a", "b"), list[str]()
    _hot(world, 10)
    for _ in range(200):
        if (averages := world.step().averages) is not None:
            kept.append(encode(averages))
    assert len(kept) == 5
    _hot(world, 100_000)
    world.leading = Leading(PLACEMENT, min, averages=decode(kept[-1]))
    orders = [world.step() for _ in range(15)]
    assert not any(one.assigned for one in orders)
    world.leading = Leading(PLACEMENT, min)
    assert any(one.assigned for one in (world.step() for _ in range(2))), "without them it is all that is known"


def test_other_settings_go_on_with_the_averages() -> None:
    world = World("a", "b")
    _hot(world, 10)
    for _ in range(200):
        world.step()
    _hot(world, 100_000)
    for _ in range(2):  # also if they change again before anything was decided by them
        world.leading = Leading(replace(PLACEMENT, settings=BalancerSettings(shedding_interval_s=61)), min, world.leading)
    assert not any(world.step().assigned for _ in range(10))


def test_a_broker_s_averaged_usage_and_what_was_unloaded_outlive_a_change_of_leader() -> None:
    world = World("a", "b")
    world.step()
    loads = [bundle for bundle, broker in world.owners().items() if broker == "a"]
    assert loads
    averages = Averages(usages={"a": UsageAverage(0.5, 9)}, unloaded_s={LOW: 10.0})
    world.leading = Leading(PLACEMENT, min, averages=averages)
    world.step()
    found = world.leading.averages
    assert (round(found.usages["a"].usage, 3), found.usages["a"].count) == (0.46, 10)
    assert found.unloaded_s == {LOW: 10.0}


def test_what_nobody_may_own_is_warned_of_once() -> None:
    world, nobody = World("a", "b"), Policies([Isolation(NAMESPACE, "x", "y")])
    warned = [world.step(policies=nobody).warned for _ in range(30)]
    isolation = "isolation allows none of those that are up (geo isolation list)"
    assert warned[0] == [f"no broker is available for bundle {bundle}: {isolation}" for bundle in (LOW, HIGH)]
    assert not any(warned[1:])


def test_a_namespace_keeps_the_bundles_that_it_was_begun_with() -> None:
    world = World("a", "b")
    world.step()
    world.leading = Leading(replace(PLACEMENT, bundles=16), min)
    assert world.step() == Orders()


def test_what_a_dead_broker_had_goes_to_others_who_need_not_wait_for_its_release() -> None:
    world = World("a", "b")
    world.step()
    (dead,) = (bundle for bundle, broker in world.owners().items() if broker == "b")
    generation = world.claims[dead].generation
    world.stuck, world.brokers = {dead}, {"a"}
    orders = world.step()
    assert (orders.assigned[dead].broker, orders.assigned[dead].take_over) == ("a", generation)
    assert orders.said == [f"bundle {dead}: from b to a, chosen by LeastLongTermMessageRate: b gave no sign of life"]
    assert set(world.owners().values()) == {"a"}


def test_what_a_broker_that_leaves_has_goes_to_others_once_it_is_released() -> None:
    world = World("a", "b")
    world.step()
    world.leaving = {"b"}
    orders = world.step()
    assert [(one.broker, one.take_over) for one in orders.assigned.values()] == [("a", None)]
    assert set(world.owners().values()) == {"a"}


def test_where_all_leave_nothing_is_said() -> None:
    world = World("a")
    world.step()
    world.leaving = {"a"}
    assert world.step() == Orders()


@pytest.mark.parametrize("action", [TRANSFER, UNLOAD])
def test_what_a_person_asks_is_done_once(action: str) -> None:
    world = World("a", "b")
    world.step()
    broker = world.owners()[LOW]
    other = "b" if broker == "a" else "a"
    request = BundleRequest(LOW, action, 1, other if action == TRANSFER else "")
    orders = world.step([request])
    assert (orders.assigned[LOW].broker, orders.assigned[LOW].request) == (other, 1)
    assert "a person asked" in orders.assigned[LOW].reason
    assert world.owners()[LOW] == other
    back = BundleRequest(LOW, TRANSFER, 2, broker)
    world.step([back])
    assert world.owners()[LOW] == broker
    world.leading = Leading(PLACEMENT, min)  # another leader does not do it again
    assert world.step([request]) == Orders()


def test_bundles_that_people_have_given_up_at_once_count_where_they_go() -> None:
    world = World("a")
    world.step()
    world.brokers = {"a", "b", "c"}
    world.step([BundleRequest(LOW, UNLOAD, 1), BundleRequest(HIGH, UNLOAD, 2)])
    assert set(world.owners().values()) == {"b", "c"}


@pytest.mark.parametrize("action", [TRANSFER, UNLOAD])
def test_what_people_have_moved_is_not_shed_within_the_grace_period(action: str) -> None:
    settings = BalancerSettings(shedding_interval_s=1, bundle_unload_min_throughput_threshold=0)
    world = World("a", placement=replace(PLACEMENT, settings=settings))
    world.step()
    world.brokers = {"a", "b"}
    world.step([BundleRequest(LOW, action, 1, "b"), BundleRequest(HIGH, action, 2, "b")])
    assert set(world.owners().values()) == {"b"}
    world.usages = {"b": 90}
    assert [world.step() for _ in range(50)] == [Orders()] * 50
    world.leading = Leading(replace(PLACEMENT, settings=settings), min, world.leading)
    assert [world.step() for _ in range(50)] == [Orders()] * 50, "nor by other settings"
    world.now += settings.shedding_grace_period_s
    assert any(world.step().said for _ in range(100)), "the shedder would have taken one"


def test_a_request_that_cannot_be_followed_is_over_too() -> None:
    world = World("a")
    world.step()
    for number, request in enumerate([BundleRequest(LOW, TRANSFER, 1, "z"), BundleRequest(LOW, UNLOAD, 2)], 1):
        before = world.assigned[LOW]
        orders = world.step([request])
        assert orders.assigned[LOW] == replace(before, number=orders.assigned[LOW].number, request=number)
        assert orders.said == []
        assert world.step([request]) == Orders()


def test_a_bundle_is_split_only_once_nobody_owns_it_and_its_parts_are_placed() -> None:
    world = World("a", "b")
    world.step()
    world.stuck = {LOW}
    request = BundleRequest(LOW, SPLIT, 1)
    orders = world.step([request])
    assert (orders.assigned[LOW].broker, orders.bundles) == (NOBODY, {})
    assert world.step([request]) == Orders()  # its owner has not released it
    world.stuck = set()
    world.step([request])
    lower, upper = TWO[NAMESPACE].ranges[0]
    middle = lower + (upper - lower) // 2
    seen = [world.step([request]) for _ in range(3)]
    assert world.bundles[NAMESPACE] == TWO[NAMESPACE].split((lower, upper), [middle])
    assert any(f"bundle {LOW}: split at {middle:#010x}, a person asked for it" in orders.said for orders in seen)
    parts = {bundle_name(NAMESPACE, part) for part in ((lower, middle), (middle, upper))}
    assert parts <= world.owners().keys()
    assert LOW not in world.owners()
    assert world.step([request]) == Orders()


def test_a_bundle_that_is_not_released_in_time_is_not_split_but_taken_over() -> None:
    world = World("a", "b")
    world.step()
    world.stuck = {LOW}
    world.step([BundleRequest(LOW, SPLIT, 1)])
    generation = world.claims[LOW].generation
    found = [world.step() for _ in range(2 * TIMEOUT_S + 2)]
    assert world.bundles[NAMESPACE] == even(2)
    assert [o.assigned[LOW].take_over for o in found if LOW in o.assigned and o.assigned[LOW].take_over is not None] in (
        [generation],
        [],  # it was assigned to its owner again, who then need not release it
    )
    assert world.owners()[LOW] == world.assigned[LOW].broker


def test_a_bundle_with_too_many_topics_is_split_and_its_parts_go_to_whoever_has_the_least() -> None:
    world = World("a", "b", placement=replace(PLACEMENT, settings=BalancerSettings(namespace_bundle_max_topics=5)))
    world.step()
    world.loads = {LOW: BundleLoad(100, 0, 100, 0, 10), HIGH: BundleLoad(1, 0, 1, 0, 5)}
    for _ in range(int(3 * timetable.DECIDE_S)):
        world.step()
    assert len(world.bundles[NAMESPACE].ranges) > 2
    parts = [bundle for bundle in world.owners() if bundle not in (LOW, HIGH)]
    assert {world.owners()[bundle] for bundle in parts} == {"a", "b"}


def test_load_moves_from_the_broker_that_has_too_much_and_comes_to_rest() -> None:
    settings = BalancerSettings(shedding_interval_s=20, lower_boundary_shedding_enabled=True)
    world = World("a", placement=Placement(bundles=8, settings=settings, shedder="UniformLoadShedder"))
    world.step()
    world.loads = {bundle: BundleLoad(2_000, 0, 2e6, 0, 2) for bundle in world.owners()}
    world.brokers = {"a", "b"}
    said = [line for _ in range(600) for line in world.step().said]
    held = list(world.owners().values())
    assert abs(held.count("a") - held.count("b")) <= 4
    assert 0 < held.count("b") == len(said)
    assert "UniformLoadShedder took it from a" in said[0]


def test_a_broker_that_isolation_forbids_gives_the_bundle_up() -> None:
    world = World("a", "b")
    world.step()
    policies = Policies([Isolation(NAMESPACE, "b", "a")])
    orders = world.step(policies=policies)
    assert {one.broker for one in orders.assigned.values()} == {"b"} == set(world.owners().values())
    assert {one.reason for one in orders.assigned.values()} == {"chosen by LeastLongTermMessageRate: isolation forbids a"}
    world.brokers = {"a"}
    world.step(policies=policies)
    assert set(world.owners().values()) == {"a"}  # secondary
    world.brokers = {"a", "b"}
    world.step(policies=policies)
    assert set(world.owners().values()) == {"b"}
    assert all(world.step(policies=policies) == Orders() for _ in range(50))


def test_secondary_brokers_give_back_what_the_primary_one_can_bear() -> None:
    policies = Policies([Isolation(NAMESPACE, "b", "a", usage_threshold=80)])

    def is_given_back(of_a: float, of_b: float, rate: float = 1, *, was_shed: bool = True) -> bool:
        world = World("a", "b")
        world.step()
        (lent,) = (bundle for bundle, broker in world.owners().items() if broker == "a")
        world.usages, world.loads = {"a": of_a, "b": of_b}, {lent: BundleLoad(rate, 0, rate, 0, 2)}
        if was_shed:
            world.leading._shed = {lent: "a"}
            world.leading = Leading(PLACEMENT, min, world.leading)  # of other settings, which know it too
        for _ in range(3):
            world.step(policies=policies)
        return world.owners()[lent] == "b"

    assert not is_given_back(of_a=1, of_b=70), "four fifths of 80 are 64"
    assert not is_given_back(of_a=40, of_b=60)
    assert is_given_back(of_a=30, of_b=30)
    assert is_given_back(of_a=60, of_b=60, rate=0.01), "what it takes of a is not of its bytes"
    assert is_given_back(of_a=40, of_b=60, was_shed=False), "one, of which it is not known that b could not bear it"


def test_of_what_the_primary_one_may_not_bear_one_after_the_other_is_given_back() -> None:
    """As what secondary brokers took over while there was none."""
    policies = Policies([Isolation(NAMESPACE, "b", "a", usage_threshold=80)])
    world = World("a")
    world.step()
    world.brokers, world.usages = {"a", "b"}, {"a": 100, "b": 10}
    world.unreported = {LOW, HIGH}
    for given_back in (1, 1, 2):
        world.unreported = {bundle for bundle, broker in world.owners().items() if broker == "b"} if given_back == 1 else set()
        world.step(policies=policies)
        assert list(world.owners().values()).count("b") == given_back


def test_what_was_lent_just_now_is_not_given_back_before_it_is_known_what_it_takes() -> None:
    policies = Policies([Isolation(NAMESPACE, "b", "a", usage_threshold=80)])
    world = World("a", "b")
    world.step()
    (lent,) = (bundle for bundle, broker in world.owners().items() if broker == "a")
    world.usages = {"b": 30}
    world.unreported = {lent}
    assert world.step(policies=policies).assigned == {}
    world.unreported = set()
    assert world.step(policies=policies).assigned[lent].broker == "b"


def test_a_leader_that_began_anew_finishes_no_split_but_loses_nothing() -> None:
    world = World("a", "b")
    world.step()
    world.stuck = {LOW}
    world.step([BundleRequest(LOW, SPLIT, 1)])
    world.leading, world.stuck = Leading(PLACEMENT, min), set()
    world.step()
    world.step()
    assert world.owners().keys() == {LOW, HIGH}


def test_a_leader_that_began_anew_counts_what_is_on_its_way_and_not_what_was_split() -> None:
    world, other = World("a", "b"), "persistent://shop/other/t"
    assigned = {bundle: Assigned("a", TERM - 1, number, 0.0) for number, bundle in enumerate((LOW, HIGH), 1)}
    split = {NAMESPACE: TWO[NAMESPACE].split(TWO[NAMESPACE].ranges[0], [1 << 30]).split(TWO[NAMESPACE].ranges[1], [3 << 30])}
    for bundles, broker in ((TWO, "b"), (split, "a")):
        facts = LeaderFacts(frozenset({other}), bundles, assigned, {}, world._reports(), world.brokers)
        orders = Leading(PLACEMENT, min).step(facts, TERM, world.now, world.now)
        assert [one.broker for one in orders.assigned.values()] == [broker]


def test_a_bundle_that_cannot_be_split_is_not_tried_again_at_once() -> None:
    world = World("a", "b", placement=replace(PLACEMENT, settings=BalancerSettings(namespace_bundle_max_topics=5)))
    world.step()
    world.loads, world.stuck = {LOW: BundleLoad(100, 0, 100, 0, 10), HIGH: BundleLoad(1, 0, 1, 0, 5)}, {LOW}
    said = [line for _ in range(300) for line in world.step().said]
    assert sum("is to release it" in line for line in said) == 1
    assert world.owners()[LOW] == world.assigned[LOW].broker
    tries = list[float]()
    for _ in range(600):
        world.now += 59
        tries += [world.now for line in world.step().said if "is to release it" in line]
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert len(pauses) >= 3
    assert all(1.8 < later / earlier < 2.2 for earlier, later in pairwise(pauses))


def test_what_a_dead_broker_had_moves_though_its_topics_are_not_found_now() -> None:
    world = World("a", "b")
    world.step()
    world.stuck, world.brokers = set(world.owners()), {"a"}
    world.step(topics=frozenset())
    assert set(world.owners().values()) == {"a"}


def test_a_bundle_that_nobody_may_own_has_no_decision_taken_each_second() -> None:
    """Each one is a sample of every bundle's load."""
    world, decided = World("a", "b"), set[float]()
    world.step()
    world.brokers = {"b"}
    for _ in range(25):
        world.step(policies=Policies([Isolation([NAMESPACE], ["c"], [])]))
        decided.add(world.leading._decided_at)
    assert len(decided) <= 4
    world.brokers = {"b", "c"}
    for _ in range(int(timetable.DECIDE_S) + 1):
        world.step(policies=Policies([Isolation([NAMESPACE], ["c"], [])]))
    assert set(world.owners().values()) == {"c"}
