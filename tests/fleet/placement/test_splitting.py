"""Split points by the NamespaceBundleSplitAlgorithms, and which bundles by BundleSplitterTask."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geo.fleet.placement.bundles import LAST, bundle_hash
from geo.fleet.placement.load_data import BalancerSettings, BundleLoad
from geo.fleet.placement.splitting import (
    bundles_to_split,
    range_equally,
    specified_positions,
    topic_count_equally,
)
from tests.fleet.placement.loads import broker, bundle

SETTINGS = BalancerSettings()


def test_a_range_is_split_in_its_middle() -> None:
    assert range_equally(10, LAST) == [2147483652]
    assert range_equally(0, LAST) == [0x7FFFFFFF]


def test_topics_are_split_between_the_two_in_the_middle() -> None:
    assert topic_count_equally(map(bundle_hash, "abc")) == [1010591668]
    assert topic_count_equally([7]) == topic_count_equally([]) == []


@given(hashes=st.sets(st.integers(0, LAST), min_size=2, max_size=50))
def test_both_halves_have_as_many_topics(hashes: set[int]) -> None:
    at = topic_count_equally(hashes)[0]
    below = sum(found <= at for found in hashes)  # two that follow each other are cut at the lower one
    assert abs(len(hashes) - 2 * below) <= 1 + (at in hashes)


def test_of_given_positions_those_inside_count() -> None:
    assert specified_positions(1, 1000, [-1, 0, 1, 100, 200, 500, 800, 1000, 1100]) == [100, 200, 500, 800]
    assert specified_positions(1, 1000, [800, 2, 2]) == [2, 800]


def _split(**bundles: BundleLoad) -> list[str]:
    loads = {f"t/n/{name}": load for name, load in bundles.items()}
    return bundles_to_split({"a": broker(0, loads), "b": broker()}, {"t/n": 5}, SETTINGS)[0]


def test_a_bundle_above_a_limit_is_split() -> None:
    assert _split(topics=bundle(topics=1_001), rate=bundle(rate=30_001, topics=2), bytes=bundle(mib=100.1, topics=2)) == [
        "t/n/topics",
        "t/n/rate",
        "t/n/bytes",
    ]
    assert _split(topics=bundle(topics=1_000), rate=bundle(rate=30_000, topics=2), bytes=bundle(mib=100, topics=2)) == []


def test_a_bundle_of_one_topic_is_not_split_nor_any_where_there_is_one_broker() -> None:
    assert _split(rate=bundle(rate=90_000, topics=1)) == []
    assert bundles_to_split({"a": broker(0, {"t/n/x": bundle(topics=9_999)})}, {"t/n": 5}, SETTINGS) == ([], {})


def test_a_namespace_has_no_more_bundles_than_it_may_have_also_after_all_splits_of_one_decision() -> None:
    loads = {f"t/n/{number}": bundle(topics=2_000) for number in range(5)}
    brokers = {"a": broker(0, loads), "b": broker(0, {"t/other/x": bundle(topics=2_000)})}
    assert bundles_to_split(brokers, {"t/n": 126, "t/other": 128}, SETTINGS) == (
        ["t/n/0", "t/n/1"],
        {"t/n/2": 128, "t/n/3": 128, "t/n/4": 128, "t/other/x": 128},
    )
