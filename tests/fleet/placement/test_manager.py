"""Decisions by ModularLoadManagerImpl: its order of steps, and what it remembers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from geo.fleet.placement.bundles import bundle_name, even, namespace_of
from geo.fleet.placement.load_data import BalancerSettings, BrokerLoad
from geo.fleet.placement.manager import Manager, Split, Unload
from geo.fleet.placement.policies import Allowed, Isolation, Policies
from geo.fleet.placement.shedding import OverloadShedder, ThresholdShedder
from geo.fleet.placement.strategies import LeastLongTermMessageRate
from tests.examples import examples
from tests.fleet.placement.loads import broker, bundle

SETTINGS = BalancerSettings()
BY_DOMAIN = replace(SETTINGS, failure_domains_enabled=True)
NONE = Policies()


def _manager(settings: BalancerSettings = SETTINGS) -> Manager:
    return Manager(settings, LeastLongTermMessageRate(settings, Random(1).choice), OverloadShedder(settings))


def _bundles(namespace: str, count: int) -> list[str]:
    return [bundle_name(namespace, found) for found in even(count).ranges]


def test_bundles_of_a_namespace_are_dealt_evenly() -> None:
    reports = {name: broker() for name in "abc"}
    decision = _manager().decide(reports, NONE, 0.0, _bundles("t/n", 7))
    assert sorted(Counter(decision.assignments.values()).values()) == [2, 2, 3]


def test_evenness_goes_before_load_and_can_be_switched_off() -> None:
    held = _bundles("t/n", 2)
    reports = {"idle": broker(0, {held[0]: bundle()}), "busy": broker(0.5, {"t/m/x": bundle(rate=1_000)})}
    assert _manager().decide(reports, NONE, 0.0, held[1:]).assignments == {held[1]: "busy"}
    load_only = replace(SETTINGS, distribute_bundles_evenly_enabled=False)
    assert _manager(load_only).decide(reports, NONE, 0.0, held[1:]).assignments == {held[1]: "idle"}


def test_a_bundle_that_is_on_its_way_counts_at_its_broker() -> None:
    manager, reports = _manager(), {"a": broker(), "b": broker()}
    found = manager.decide(reports, NONE, 0.0, ["t/m/y"], {"t/n/x": "a"})
    assert found.assignments == {"t/m/y": "b"}, "100 messages/s are expected of x"
    assert manager.decide(reports, NONE, 1.0, ["t/m/y"], {"t/n/x": "gone"}).assignments.keys() == {"t/m/y"}
    assert manager.decide({}, NONE, 2.0, ["t/m/y"], {"t/n/x": "a"}).assignments == {}
    held = _bundles("t/n", 3)
    found = manager.decide(reports, NONE, 3.0, held[2:], {held[0]: "a", "t/m/x": "b", "t/m/y": "b"})
    assert found.assignments == {held[2]: "b"}, "a has one of its namespace"


def test_the_averages_of_a_bundle_last_while_nobody_reports_it() -> None:
    """A dead broker's bundles are dealt by what they took."""
    manager, heavy = _manager(), {"t/n/x": bundle(rate=1_000)}
    manager.decide({"a": broker(0.2, heavy), "b": broker()}, NONE, 0.0)
    reports = {"b": broker(0.2, {"t/o/x": bundle(rate=500)}), "c": broker()}
    for now in (1.0, 2.0):
        assert manager.decide(reports, NONE, now, ["t/n/x", "t/m/x"]).assignments == {"t/n/x": "c", "t/m/x": "b"}
    assert manager.decide(reports, NONE, 3.0, ["t/m/x"], {"t/n/x": "c"}).assignments == {"t/m/x": "b"}
    manager.decide(reports, NONE, 4.0)
    assert manager.decide(reports, NONE, 5.0, ["t/n/x", "t/m/x"]).assignments == {"t/n/x": "c", "t/m/x": "c"}, "forgotten"


def test_isolation_is_obeyed_also_when_all_its_brokers_are_overloaded() -> None:
    policies = Policies([Isolation(["t/n"], ["p.*"], [])])
    reports = {"p1": broker(0.99), "p2": broker(0.98), "s": broker()}
    decision = _manager().decide(reports, policies, 0.0, [*_bundles("t/n", 4), "t/m/x"])
    assert Counter(decision.assignments.values()) == {"p1": 2, "p2": 2, "s": 1}
    assert decision.assignments["t/m/x"] == "s"
    assert _manager().decide({"s": broker()}, policies, 0.0, ["t/n/x"]).assignments == {}


def test_if_the_chosen_broker_is_overloaded_all_that_the_policies_allow_are_tried_again() -> None:
    held = _bundles("t/n", 2)
    reports = {"overloaded": broker(0.9), "holder": broker(0.3, {held[0]: bundle(rate=500)})}
    assert _manager().decide(reports, NONE, 0.0, held[1:]).assignments == {held[1]: "holder"}


def test_brokers_with_too_many_topics_get_none_unless_all_have() -> None:
    full, fuller = broker(0, {"t/m/x": bundle(topics=50_001)}), broker(0.1, {"t/m/y": bundle(rate=9, topics=60_000)})
    few = broker(0.5, {"t/m/z": bundle(rate=5_000, topics=50_000)})
    assert _manager().decide({"full": full, "few": few}, NONE, 0.0, ["t/n/x"]).assignments == {"t/n/x": "few"}
    assert _manager().decide({"full": full, "fuller": fuller}, NONE, 0.0, ["t/n/x"]).assignments == {"t/n/x": "full"}


def test_namespaces_of_a_group_are_apart_by_broker_and_by_domain_if_domains_are_enabled() -> None:
    policies = Policies(anti_affinity={"t/n1": "g", "t/n2": "g"}, domains={"d1": {"a", "b"}, "d2": {"c"}})
    reports = {"a": broker(0.1, {"t/n1/x": bundle()}), "b": broker(), "c": broker(0.1, {"t/m/x": bundle(rate=99)})}
    assert _manager().decide(reports, policies, 0.0, ["t/n2/x"]).assignments == {"t/n2/x": "b"}
    assert _manager(BY_DOMAIN).decide(reports, policies, 0.0, ["t/n2/x"]).assignments == {"t/n2/x": "c"}


@pytest.mark.parametrize(
    ("versions", "chosen"), [({"a": (1,), "b": (2,)}, "b"), ({"a": (1,)}, "a"), ({"a": (2, 0), "b": (2, 0)}, "a"), ({}, "a")]
)
def test_where_later_versions_are_preferred_the_latest_gets_a_bundle(versions: dict[str, tuple[int, ...]], chosen: str) -> None:
    reports = {"a": broker(), "b": broker(0.5, {"t/m/x": bundle(rate=99)})}
    assert _manager().decide(reports, Policies(versions=versions), 0.0, ["t/n/x"]).assignments == {"t/n/x": chosen}


def _overloaded() -> dict[str, BrokerLoad]:
    loads = {name: bundle(rate=10, mib=mib) for name, mib in zip(_bundles("t/n", 3), (70, 20, 10), strict=True)}
    return {"a": broker(0.9, loads), "b": broker(0.1), "c": broker(0.2, {"t/m/x": bundle(rate=5)})}


def test_an_overloaded_broker_unloads_to_another_one_and_the_bundle_is_left_alone_for_the_grace_period() -> None:
    """Though the broker goes on reporting all of them."""
    manager, reports = _manager(), _overloaded()
    heavy, middle, light = _bundles("t/n", 3)
    assert manager.decide(reports, NONE, 0.0).unloads == [Unload(heavy, "a", "b")]
    assert [move.bundle for move in manager.decide(reports, NONE, 60.0).unloads] == [middle]
    assert [move.bundle for move in manager.decide(reports, NONE, 120.0).unloads] == [light]
    assert manager.decide(reports, NONE, 180.0).unloads == []
    assert manager.decide(reports, NONE, 1_800.0).unloads == []
    assert manager.decide(reports, NONE, 1_860.0).unloads == [Unload(heavy, "a", "b")]


def test_what_is_shed_goes_to_a_broker_that_is_less_used_than_the_mean_also_with_what_it_gets() -> None:
    """Though a busier one has fewer bundles of the namespace."""
    held = _bundles("t/n", 6)
    reports = {
        "a": broker(1.4, {name: bundle(rate=10, mib=10) for name in held[:4]}),
        "busy": broker(0.8),
        "b": broker(0.1, {held[4]: bundle()}),
        "c": broker(0.2, {held[5]: bundle()}),
    }
    moves = _manager().decide(reports, NONE, 0.0).unloads
    assert [move.target for move in moves] == ["b", "c"], "0.35 each; the mean is 0.625"


def test_what_a_decision_moves_counts_at_its_target_and_not_at_its_source() -> None:
    held = _bundles("t/n", 3)
    reports = {"a": broker(1.5, {name: bundle(rate=10, mib=30) for name in held}), "b": broker(0.1), "c": broker(0.2)}
    moves = _manager().decide(reports, NONE, 0.0).unloads
    assert {move.target for move in moves} == {"b", "c"}, "one of them was given one of the namespace"
    group = Policies(anti_affinity={"t/m": "g", "t/n": "g"})
    reports = {"a": broker(0.95, {"t/m/x": bundle(mib=10), "t/n/x": bundle(mib=80)}), "b": broker(0.1)}
    moves = _manager().decide(reports, group, 0.0).unloads
    assert [(move.bundle, move.target) for move in moves] == [("t/m/x", "b")], "n is apart from it where it is"


def test_shedding_is_once_a_minute_and_can_be_switched_off() -> None:
    manager, reports = _manager(), _overloaded()
    assert [len(manager.decide(reports, NONE, now).unloads) for now in (0.0, 59.0, 60.0)] == [1, 0, 1]
    assert _manager(replace(SETTINGS, shedding_enabled=False)).decide(reports, NONE, 0.0).unloads == []


def test_nothing_moves_where_there_is_one_broker_or_no_other_may_own() -> None:
    reports = _overloaded()
    assert _manager().decide({"a": reports["a"]}, NONE, 0.0).unloads == []
    only = Policies([Isolation(["t/n"], ["a"], [])])
    assert _manager().decide(reports, only, 0.0).unloads == []


def test_a_bundle_moves_to_another_broker_though_its_own_has_the_fewest_of_the_namespace() -> None:
    heavy, *others = _bundles("t/n", 5)
    reports = {
        "a": broker(0.9, {heavy: bundle(mib=50), "t/m/x": bundle(mib=40)}),
        "b": broker(0.2, {name: bundle(mib=5) for name in others}),
    }
    assert _manager().decide(reports, NONE, 0.0).unloads == [Unload(heavy, "a", "b")]


def test_a_bundle_of_a_group_is_not_unloaded_if_the_spread_is_even() -> None:
    policies = Policies(anti_affinity={"t/n": "g", "t/m": "g"})
    reports = _overloaded()
    reports["b"] = broker(0.1, {"t/m/y": bundle(rate=5)})
    assert _manager().decide(reports, policies, 0.0).unloads == []
    reports["b"] = broker(0.1, {"t/m/y": bundle(rate=5), "t/o/y": bundle(rate=5)})
    more = Policies(anti_affinity={"t/n": "g", "t/m": "g", "t/o": "g"})
    assert _manager().decide(reports, more, 0.0).unloads == [], "uneven as it is, b and c would hold more than a does"
    reports["b"] = broker(0.1)
    assert [found.target for found in _manager().decide(reports, policies, 0.0).unloads] == ["b"]


def test_namespaces_of_a_group_that_are_together_are_parted_one_at_a_time() -> None:
    """As they are when a second broker comes, or when they join a group."""
    policies = Policies(anti_affinity={"t/l": "g", "t/m": "g", "t/n": "g"})
    (first, second), others = _bundles("t/l", 2), {"t/m/x": bundle(), "t/n/x": bundle()}
    manager, reports = (
        _manager(),
        {"a": broker(0.1, {first: bundle(), second: bundle(), **others}), "b": broker(), "c": broker(0.5)},
    )
    moves = manager.decide(reports, policies, 0.0).unloads
    assert [one.bundle for one in moves] == [first, second], "all that a has of one namespace"
    (target,) = {one.target for one in moves}
    on_the_way, rest = {first: target, second: target}, {**reports, "a": broker(0.1, others)}
    assert manager.decide(rest, policies, 10.0, (), on_the_way).unloads == [], "while that is on its way"
    (other,) = {"b", "c"} - {target}
    reports = {"a": broker(0.1, others), target: broker(0.1, {first: bundle(), second: bundle()}), other: broker()}
    (move,) = manager.decide(reports, policies, 20.0).unloads
    assert (move.bundle, move.target) == ("t/m/x", other)
    reports = {"a": broker(0.1, {"t/n/x": bundle()}), target: reports[target], other: broker(0.1, {"t/m/x": bundle()})}
    assert manager.decide(reports, policies, 30.0).unloads == []
    assert _manager().decide(reports, policies, 30.0).unloads == [], "as even as it can be"


def test_namespaces_of_a_group_are_parted_by_domain_if_domains_are_enabled() -> None:
    policies = Policies(anti_affinity={"t/m": "g", "t/n": "g"}, domains={"d1": {"a", "b"}, "d2": {"c"}})
    reports = {"a": broker(0.1, {"t/m/x": bundle()}), "b": broker(0.1, {"t/n/x": bundle()}), "c": broker(0.5)}
    assert _manager().decide(reports, policies, 0.0).unloads == []
    (move,) = _manager(BY_DOMAIN).decide(reports, policies, 0.0).unloads
    assert (move.bundle, move.target) == ("t/m/x", "c")
    together = {"a": broker(0.1, {"t/m/x": bundle(), "t/n/x": bundle()}), "b": broker(0.1)}
    (move,) = _manager(BY_DOMAIN).decide(together, policies, 0.0).unloads
    assert (move.bundle, move.target) == ("t/m/x", "b"), "one domain, two brokers"


def test_a_namespace_is_parted_from_its_group_to_whom_that_helps_though_another_is_free() -> None:
    policies = Policies(anti_affinity={"t/m": "g", "t/n": "g", "t/o": "g"})
    reports = {
        "a": broker(0.1, {"t/m/x": bundle(), "t/n/x": bundle()}),
        "busy": broker(0.9),
        "b": broker(0.3, {"t/o/x": bundle()}),
    }
    assert [one for one in _manager().decide(reports, policies, 0.0).unloads if one.broker == "a"] == [], "b holds one already"
    reports["free"] = broker(0.8)
    assert [one.target for one in _manager().decide(reports, policies, 0.0).unloads if one.broker == "a"] == ["free"]
    off = _manager(replace(SETTINGS, shedding_enabled=False))
    assert off.decide(reports, policies, 0.0).unloads == []


def test_what_is_shed_comes_into_no_domain_that_holds_more_of_its_group() -> None:
    policies = Policies(anti_affinity={"t/m": "g", "t/n": "g"}, domains={"d1": {"a", "b"}, "d2": {"c"}})
    loads = {"t/n/x": bundle(rate=10, mib=70), "t/o/x": bundle(rate=10, mib=20)}
    reports = {"a": broker(0.2, {"t/m/x": bundle(rate=10)}), "b": broker(0.1), "c": broker(0.95, loads)}
    heavy = [one.bundle for one in _manager().decide(reports, policies, 0.0).unloads]
    assert heavy == ["t/n/x"]
    assert "t/n/x" not in [one.bundle for one in _manager(BY_DOMAIN).decide(reports, policies, 0.0).unloads]


def test_no_decision_parts_much_more_than_one_bundle_for_each_broker() -> None:
    together = {f"t/n{number}": f"g{number % 9}" for number in range(18)}
    reports = {"a": broker(0.1, {f"{namespace}/x": bundle() for namespace in together}), "b": broker()}
    assert len(_manager().decide(reports, Policies(anti_affinity=together), 0.0).unloads) == len(reports)


def test_a_namespace_of_which_others_have_parts_is_not_gathered_at_one_broker() -> None:
    """A broker that comes would get all that there is of one: more than its share, and nothing would take it back."""
    policies = Policies(anti_affinity={"t/m": "g", "t/n": "g"})
    held = [_bundles("t/m", 4), _bundles("t/n", 4)]
    reports = {name: broker(0.3, {bundles[number]: bundle(rate=10) for bundles in held}) for number, name in enumerate("abcd")}
    assert _manager().decide({**reports, "e": broker()}, policies, 0.0).unloads == []
    partly = {"a": broker(0.1, {"t/m/x": bundle(), "t/n/x": bundle()}), "b": broker(), "c": broker()}
    moves = _manager().decide(partly, policies, 0.0, (), {"t/m/y": "b"}).unloads
    assert moves == [], "m has a bundle on its way to b, and its group waits for that"
    decision = _manager().decide(partly, policies, 0.0, ["t/m/y"])
    assert (decision.unloads, len(decision.assignments)) == ([], 1), "so it does where that has nobody yet"


def test_a_namespace_is_not_parted_to_brokers_that_may_own_it_only_while_others_are_busy() -> None:
    policies = Policies([Isolation(["t/.*"], ["p"], ["s"], usage_threshold=80)], {"t/m": "g", "t/n": "g"})
    reports = {"p": broker(0.84, {"t/m/x": bundle(), "t/n/x": bundle()}), "s": broker()}
    assert _manager().decide(reports, policies, 0.0).unloads == []
    two = Policies([Isolation(["t/.*"], ["p"], ["s"], min_limit=2, usage_threshold=80)], {"t/m": "g", "t/n": "g"})
    assert [move.target for move in _manager().decide(reports, two, 0.0).unloads] == ["s"]


def test_what_goes_elsewhere_by_others_is_not_unloaded_at_once() -> None:
    manager, reports = _manager(), _overloaded()
    heavy = _bundles("t/n", 3)[0]
    manager.moved(heavy, 0.0)
    assert heavy not in [one.bundle for one in manager.decide(reports, NONE, 1.0).unloads]


def test_a_hot_bundle_is_split_by_its_owner_and_its_parts_are_unloaded_if_that_may_be() -> None:
    hot, cold = _bundles("t/n", 2)
    reports = {"a": broker(2.0, {hot: bundle(rate=40_000, mib=50, topics=5), cold: bundle(mib=1)}), "b": broker(0.1)}
    decision = _manager().decide(reports, NONE, 0.0)
    assert decision.splits == [Split(hot, "a", unload=True)]
    assert decision.unloads == [Unload(cold, "a", "b")], "what is split does not move as a whole"
    only = Policies([Isolation(["t/n"], ["a"], [])])
    assert _manager().decide(reports, only, 0.0).splits == [Split(hot, "a", unload=False)]
    assert _manager(replace(SETTINGS, auto_bundle_split_enabled=False)).decide(reports, NONE, 0.0).splits == []
    group = Policies(anti_affinity={"t/n": "g", "t/m": "g"})
    assert _manager().decide(reports, group, 0.0).splits == [Split(hot, "a", unload=True)]
    reports["a"] = broker(2.0, {**reports["a"].bundles, "t/m/x": bundle()})
    assert _manager().decide(reports, group, 0.0).splits == [Split(hot, "a", unload=False)], "it is to go away from m as a whole"


def test_a_load_decides_by_its_long_average_on_placing_and_by_its_short_one_on_shedding() -> None:
    manager = Manager(SETTINGS, LeastLongTermMessageRate(SETTINGS, min), ThresholdShedder(SETTINGS))
    was, now = {"t/n/x": bundle(rate=1_000)}, {"t/n/x": bundle(rate=10)}
    for second in range(10):
        manager.decide({"a": broker(0.2, was), "b": broker(0.2, {"t/m/x": bundle(rate=700)})}, NONE, float(second))
    reports = {"a": broker(0.2, now), "b": broker(0.2, {"t/m/x": bundle(rate=700)})}
    assert manager.decide(reports, NONE, 11.0, ["t/o/x"]).assignments == {"t/o/x": "b"}, "a has 910 over the long window"


@of_hypothesis(max_examples=examples(1))
@given(seed=st.integers(0, 10**6), count=st.integers(2, 5))
def test_whatever_is_reported_each_decision_obeys_its_rules(seed: int, count: int) -> None:
    """A and B of Manager, by random loads and owners that do what is decided or not."""
    random = Random(seed)
    settings = BalancerSettings(broker_threshold_shedder=0.05, bundle_unload_min_throughput_threshold=0)
    manager = Manager(settings, LeastLongTermMessageRate(settings, random.choice), ThresholdShedder(settings))
    policies = Policies([Isolation(["t/isolated"], ["b0"], ["b1"])], anti_affinity={"t/n0": "g", "t/n1": "g"})
    names = [f"b{number}" for number in range(count)]
    bundles = [name for space in ("n0", "n1", "isolated") for name in _bundles(f"t/{space}", 4)]
    owners, unloaded_at = dict[str, str](), dict[str, float]()
    for now in range(0, 3_000, 150):
        living = [name for name in names if random.random() < 0.9] or names[:1]
        owners = {name: owner for name, owner in owners.items() if owner in living}
        reports = {
            name: broker(random.random(), {b: bundle(random.random() * 100, 10) for b, o in owners.items() if o == name})
            for name in living
        }
        decision = manager.decide(reports, policies, float(now), [name for name in bundles if name not in owners])
        allowed = Allowed(policies, dict.fromkeys(living, 0.0))
        for found, to in decision.assignments.items():
            assert found not in owners
            assert to in allowed.brokers(namespace_of(found))
        for move in decision.unloads:
            assert move.broker == owners[move.bundle] != move.target
            assert move.target in allowed.brokers(namespace_of(move.bundle))
            assert now - unloaded_at.get(move.bundle, -9e9) > settings.shedding_grace_period_s
            assert move.bundle not in decision.assignments.keys() | {one.bundle for one in decision.splits}
            unloaded_at[move.bundle] = now
        done = decision.assignments | {move.bundle: move.target for move in decision.unloads}
        owners |= {name: owner for name, owner in done.items() if random.random() < 0.9}
