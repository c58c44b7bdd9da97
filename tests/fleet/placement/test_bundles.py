"""Bundles by NamespaceBundleFactory and PoliciesUtil.getBundles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import UsageError
from geo.fleet.placement.bundles import LAST, Bundles, bundle_hash, bundle_name, even, is_in, namespace_of, parse_bundle

_INSIDE = st.sets(st.integers(1, LAST - 1), max_size=20)


def _bundles(inside: set[int]) -> Bundles:
    return Bundles([0, *sorted(inside), LAST])


def test_the_hash_is_the_crc32_of_the_whole_name() -> None:
    assert [bundle_hash(name) for name in "abc"] == [3904355907, 1908338681, 112844655]


def test_four_bundles_are_those_of_pulsar_and_the_last_takes_what_does_not_divide() -> None:
    assert even(4).boundaries == (0x00000000, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF)
    assert even(3).boundaries == (0, 0x55555555, 0xAAAAAAAA, 0xFFFFFFFF)
    assert even(1).boundaries == (0, 0xFFFFFFFF)


def test_a_bundle_has_its_lower_end_and_the_last_one_both() -> None:
    four = even(4)
    assert [four.bundle_at(at)[0] for at in (0, 0x3FFFFFFF, 0x40000000, 0xBFFFFFFF, LAST)] == [0, 0, 2**30, 2**31, 3 * 2**30]


@given(inside=_INSIDE, topic=st.text(max_size=20))
def test_a_topic_is_in_exactly_one_bundle(inside: set[int], topic: str) -> None:
    bundles, at = _bundles(inside), bundle_hash(topic)
    holding = [(lower, upper) for lower, upper in bundles.ranges if lower <= at < upper or at == upper == LAST]
    assert holding == [bundles.bundle_of(topic)]


@given(inside=_INSIDE, data=st.data())
def test_a_split_leaves_all_other_bundles_and_the_parts_are_the_bundle(inside: set[int], data: st.DataObject) -> None:
    bundles = _bundles(inside)
    chosen = data.draw(st.sampled_from([found for found in bundles.ranges if found[1] - found[0] > 1]))
    at = data.draw(st.sets(st.integers(chosen[0] + 1, chosen[1] - 1), min_size=1, max_size=3))
    parts = set(bundles.split(chosen, sorted(at)).ranges) - set(bundles.ranges)
    assert set(bundles.ranges) - set(bundles.split(chosen, sorted(at)).ranges) == {chosen}
    assert sorted(parts)[0][0] == chosen[0]
    assert sorted(parts)[-1][1] == chosen[1]
    assert len(parts) == len(at) + 1


def test_what_is_no_bundle_or_no_position_inside_one_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no bundle"):
        even(4).split((0, 5), [3])
    for at in ([], [0], [0x40000000]):
        with pytest.raises(UsageError, match="cannot be split"):
            even(4).split((0, 0x40000000), at)
    for boundaries in ([], [0], [1, LAST], [0, 5, 5, LAST], [0, 7, 3, LAST], [0, 5]):
        with pytest.raises(UsageError, match="boundaries of bundles"):
            Bundles(boundaries)
    with pytest.raises(UsageError, match="0 bundles"):
        even(0)


def test_a_bundle_is_named_as_in_pulsar() -> None:
    name = bundle_name("shop/web", (0x40000000, 0x80000000))
    assert name == "shop/web/0x40000000_0x80000000"
    assert parse_bundle(name) == ("shop/web", (0x40000000, 0x80000000))
    assert namespace_of(name) == "shop/web"
    with pytest.raises(UsageError, match="not of the form"):
        parse_bundle("shop/web/0x4_0x8")


@given(st.sets(st.integers(1, LAST - 1), max_size=9), st.text("abc", min_size=1))
def test_a_topic_is_in_the_bundle_that_holds_its_hash_also_in_one_that_was_split(inside: set[int], name: str) -> None:
    topic, bundles = f"persistent://t/n/{name}", Bundles(sorted({0, *inside, LAST}))
    holding = [part for part in bundles.ranges if is_in(topic, bundle_name("t/n", part))]
    assert holding == [bundles.bundle_of(topic)]
    assert is_in(topic, bundle_name("t/n", (0, LAST)))
    assert not is_in(topic, bundle_name("t/other", (0, LAST)))
