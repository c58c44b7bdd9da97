"""Isolation by NamespaceIsolationPolicies and MinAvailablePolicy, anti-affinity by LoadManagerShared, BrokerVersionFilter."""

from __future__ import annotations

from collections.abc import Mapping, Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import UsageError
from geo.fleet.placement.holders import Holders
from geo.fleet.placement.policies import Allowed, Isolation, Policies, version_of

ALL = dict.fromkeys(["p1", "p2", "s1", "s2", "x1"], 0.0)


def anti_affinity(candidates: list[str], placed: Mapping[str, str], domains: Mapping[str, Set[str]] | None) -> list[str]:
    """Those of the candidates on which a namespace of a group, the others of which are placed, is farthest from these."""
    holders = Holders(dict.fromkeys([*placed, ""], "group"), domains or {})
    for namespace, broker in placed.items():
        holders.add(namespace, broker)
    return holders.farthest("", candidates)


def test_a_namespace_with_a_policy_has_its_primary_brokers_and_secondary_ones_join_if_too_few_are_there() -> None:
    isolation = Isolation(["shop/.*"], ["p[0-9]"], ["s.*"], min_limit=2)
    assert isolation.brokers(ALL) == ["p1", "p2"]
    assert isolation.brokers({"p1": 0.0, "s1": 0.0, "x1": 0.0}) == ["p1", "s1"]
    assert isolation.brokers({"s1": 0.0, "x1": 0.0}) == ["s1"]
    assert Isolation(["shop/.*"], ["p.*"], ["s.*"]).brokers({"p1": 0.0, "s1": 0.0}) == ["p1"]


def test_expressions_are_of_whole_names() -> None:
    isolation = Isolation("shop/web", "p", "s1")
    assert isolation.brokers({"p": 0.0, "p1": 0.0, "s1": 0.0}) == ["p"]
    assert [isolation.matches(name) for name in ("shop/web", "shop/web2", "my-shop/web")] == [True, False, False]
    assert Allowed(Policies([isolation]), {"p": 0.0, "p1": 0.0}).brokers("shop/web2") == ["p1"]
    with pytest.raises(UsageError, match="no regular expression"):
        Isolation(["("], [], [])


def test_a_primary_broker_at_its_usage_threshold_counts_as_missing_and_may_own_all_the_same() -> None:
    isolation = Isolation(["shop/.*"], ["p.*"], ["s.*"], usage_threshold=80)
    assert isolation.brokers({"p1": 0.79, "s1": 0.0}) == ["p1"]
    assert isolation.brokers({"p1": 0.80, "s1": 0.0}) == ["p1", "s1"]


def test_a_namespace_without_a_policy_has_the_brokers_that_are_primary_of_none() -> None:
    policies = Policies([Isolation(["shop/.*"], ["p1"], ["s.*"]), Isolation([".*/web"], ["p2"], [])])
    allowed = Allowed(policies, ALL)
    assert allowed.brokers("other/ns") == ["s1", "s2", "x1"]
    assert allowed.brokers("shop/web") == ["p1"], "the first policy counts"
    assert allowed.brokers("bank/web") == ["p2"]


def test_the_brokers_with_the_fewest_namespaces_of_the_group_are_left() -> None:
    assert anti_affinity(["a", "b", "c"], {}, None) == ["a", "b", "c"]
    assert anti_affinity(["a", "b", "c"], {"n1": "a"}, None) == ["b", "c"]
    assert anti_affinity(["a", "b"], {"n1": "a", "n2": "b", "n3": "a"}, None) == ["b"]
    assert anti_affinity([], {"n1": "a"}, None) == []


def test_first_the_domains_and_in_them_the_brokers() -> None:
    """The example of filterAntiAffinityGroupOwnedBrokers."""
    domains = {"d1": {"b1", "b2"}, "d2": {"b3", "b4"}, "d3": {"b5", "b6"}}
    counts = {"b1": 2, "b2": 1, "b3": 2, "b4": 1, "b5": 2, "b6": 2}
    placed = {f"{broker}-{number}": broker for broker, count in counts.items() for number in range(count)}
    assert anti_affinity(list(counts), placed, domains) == ["b2", "b4"]
    assert anti_affinity(["a", "b", "c"], {"n": "a"}, {"d": {"a", "b"}}) == ["c"], "c is in no domain"


@given(count=st.integers(1, 30), brokers=st.integers(1, 6), width=st.integers(1, 3))
def test_namespaces_placed_one_after_the_other_are_spread_evenly_over_domains(count: int, brokers: int, width: int) -> None:
    domains = {f"d{domain}": {f"d{domain}b{number}" for number in range(width)} for domain in range(brokers)}
    candidates, placed = sorted(set().union(*domains.values())), dict[str, str]()
    for number in range(count):
        placed[f"n{number}"] = anti_affinity(candidates, placed, domains)[0]
    held = [sum(broker in of for broker in placed.values()) for of in domains.values()]
    assert max(held) - min(held) <= 1


def test_brokers_of_the_latest_version_are_left() -> None:
    policies = Policies(versions={"a": (1, 9), "b": (1, 10), "c": (1, 10)})
    assert policies.latest(["a", "b", "c"]) == ["b", "c"]
    assert policies.latest(["a"]) == ["a"]
    assert policies.latest(["x", "a"]) == ["a"], "of x nobody knows one: it is older than any"
    assert policies.latest(["x"]) == ["x"]
    assert policies.latest([]) == []
    assert Policies().latest(["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "numbers"), [("1.10.2", (1, 10, 2)), ("2.0.0rc1", (2, 0, 0)), ("0.2.0.dev3+g12", (0, 2, 0)), ("", ()), ("head", ())]
)
def test_a_version_is_compared_by_its_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version_of(text) == numbers


def test_secondary_brokers_give_back_only_once_the_primary_ones_are_well_below_the_threshold() -> None:
    policies = Policies([Isolation(["t/n"], ["p"], ["s"], usage_threshold=80)])

    def of(usage: float) -> Allowed:
        return Allowed(policies, {"p": usage, "s": 0.0, "other": 0.0})

    assert (of(0.7).brokers("t/n"), of(0.85).brokers("t/n"), of(0.85).always("t/n")) == (["p"], ["p", "s"], ["p"])
    assert of(0.85).may_keep("t/n") == {"p", "s"}
    assert of(0.7).may_keep("t/n") == {"p", "s"}, "at 64 % it gives back"
    assert of(0.6).may_keep("t/n") == {"p"}
    assert Allowed(policies, {"s": 0.0, "other": 0.0}).may_keep("t/n") == {"s"}
