"""Anti-affinity by LoadManagerShared, counted while bundles come and go."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from geo.fleet.placement.holders import Holders
from geo.fleet.placement.policies import anti_affinity

GROUP = {"n": "g", "m": "g", "o": "g", "x": "other"}
DOMAINS = {"d1": {"a", "b"}, "d2": {"c"}}


def _holders(held: dict[str, str], domains: dict[str, set[str]] | None = None) -> Holders:
    holders = Holders(GROUP, domains or {})
    for namespace, brokers in held.items():
        for broker in brokers:
            holders.add(namespace, broker)
    return holders


def test_a_bundle_of_a_group_stays_where_it_is_if_all_candidates_hold_as_many() -> None:
    assert _holders({"n": "a", "m": "ab"}).may_leave("n", ["a", "b"])
    assert _holders({"n": "a"}).may_leave("n", ["a", "b"])
    assert not _holders({"n": "a", "m": "b"}).may_leave("n", ["a", "b"])
    assert _holders({"n": "a", "m": "bc", "o": "c"}).may_leave("n", ["a", "b", "c"])
    assert _holders({"free": "ab"}).may_leave("free", ["a", "b"]), "of no group"


def test_a_namespace_is_farther_from_its_group_where_fewer_of_it_are() -> None:
    together = _holders({"n": "a", "m": "a"})
    assert together.is_farther("n", "a", "b")
    assert together.is_crowded("n", "a", "ab")
    for apart in (_holders({"n": "a", "m": "b"}), _holders({"n": "a", "x": "a"})):
        assert not apart.is_farther("n", "a", "c")
        assert not apart.is_crowded("n", "a", "abc")
    assert _holders({"n": "a", "m": "b"}).is_nearer("n", "a", "b")
    assert not _holders({"n": "aab", "m": "c"}).is_nearer("n", "a", "b"), "b has a part of it already"


def test_the_domain_counts_before_the_broker() -> None:
    apart = _holders({"n": "a", "m": "b"}, DOMAINS)
    assert apart.is_farther("n", "a", "c")
    assert not apart.is_farther("n", "a", "b")
    assert _holders({"n": "a", "m": "a"}, DOMAINS).is_farther("n", "a", "b"), "one domain, two brokers"
    assert _holders({"n": "c", "m": "a"}, DOMAINS).is_nearer("n", "c", "b"), "b holds none, its domain does"
    assert not _holders({"n": "c", "m": "a", "x": "c"}, DOMAINS).is_nearer("x", "c", "b"), "of another group"


def test_what_left_a_broker_does_not_count_there() -> None:
    holders = _holders({"n": "a", "m": "aa"})
    assert holders.take("m", "a") == [], "it holds another one of the namespace"
    assert holders.is_crowded("n", "a", "ab")
    assert set(holders.take("m", "a")) == {"n", "m", "o"}
    assert not holders.is_crowded("n", "a", "ab")
    assert (holders.of("m"), holders.fewest("n", ["a", "b"])) == ({}, ["b"])


brokers = st.sampled_from("abcd")


@given(
    moves=st.lists(st.tuples(st.sampled_from("nmox"), brokers, brokers), max_size=30),
    domains=st.sampled_from([{}, DOMAINS, {"d1": {"a"}, "d2": {"b"}}]),
)
def test_what_is_carried_on_is_what_is_counted_anew(moves: list[tuple[str, str, str]], domains: dict[str, set[str]]) -> None:
    """By a world of bundles each of which moves from the first broker to the second."""
    carried, at = Holders(GROUP, domains), Counter[tuple[str, str]]()
    for namespace, source, target in moves:
        carried.add(namespace, source)
        carried.add(namespace, target)
        carried.take(namespace, source)
        at[namespace, target] += 1
    anew = Holders(GROUP, domains)
    for (namespace, broker), count in at.items():
        for _ in range(count):
            anew.add(namespace, broker)
    others = {f"{namespace} {broker}": broker for namespace, broker in at if namespace != "x"}
    assert carried.farthest("n", list("abcd")) == anew.farthest("n", list("abcd")) == anti_affinity("abcd", others, domains)
    for namespace in "nmox":
        assert dict(carried.of(namespace)) == dict(anew.of(namespace))
        for source in anew.of(namespace):
            better = [broker for broker in "abcd" if broker != source and anew.is_farther(namespace, source, broker)]
            assert better == [broker for broker in "abcd" if broker != source and carried.is_farther(namespace, source, broker)]
            assert carried.is_crowded(namespace, source, "abcd") or not better or len(anew.of(namespace)) > 1
