"""Anti-affinity by LoadManagerShared, counted while bundles come and go."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from geo.fleet.placement.holders import Holders

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
    assert together.may_be_farther("n", "a", "ab")
    for apart in (_holders({"n": "a", "m": "b"}), _holders({"n": "a", "x": "a"})):
        assert not apart.is_farther("n", "a", "c")
        assert not apart.may_be_farther("n", "a", "abc")
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
    assert holders.remove("m", "a") == [], "it holds another one of the namespace"
    assert holders.may_be_farther("n", "a", "ab")
    assert set(holders.remove("m", "a")) == {"n", "m", "o"}
    assert not holders.may_be_farther("n", "a", "ab")
    assert (holders.of("m"), holders.fewest("n", ["a", "b"])) == ({}, ["b"])


brokers = st.sampled_from("abcd")


@given(
    moves=st.lists(st.tuples(st.sampled_from("nmox"), brokers, brokers), max_size=30),
    domains=st.sampled_from([{}, DOMAINS, {"d1": {"a"}, "d2": {"b"}}]),
)
def test_counts_kept_up_to_date_are_those_counted_anew(moves: list[tuple[str, str, str]], domains: dict[str, set[str]]) -> None:
    """By a world of bundles each of which moves from the first broker to the second."""
    kept, at = Holders(GROUP, domains), Counter[tuple[str, str]]()
    for namespace, source, target in moves:
        kept.add(namespace, source)
        kept.add(namespace, target)
        kept.remove(namespace, source)
        at[namespace, target] += 1
    anew = Holders(GROUP, domains)
    for (namespace, broker), count in at.items():
        for _ in range(count):
            anew.add(namespace, broker)

    def crowd(broker: str) -> tuple[int, int]:
        """By the rule: of the group of n, how many namespaces are in the broker's domain, and how many at it."""
        here = next((those for those in domains.values() if broker in those), set("abcd").difference(*domains.values()))
        held = Counter(other for namespace, other in at if namespace != "x")
        return (sum(held[other] for other in here) if domains else 0), held[broker]

    least = min(map(crowd, "abcd"))
    assert kept.farthest("n", list("abcd")) == [broker for broker in "abcd" if crowd(broker) == least]
    for namespace in "nmox":
        assert dict(kept.of(namespace)) == dict(anew.of(namespace))
        for source in anew.of(namespace):
            better = [broker for broker in "abcd" if anew.is_farther(namespace, source, broker)]
            assert better == [broker for broker in "abcd" if kept.is_farther(namespace, source, broker)]
            if len(anew.of(namespace)) == 1 and better:
                assert kept.may_be_farther(namespace, source, "abcd")
