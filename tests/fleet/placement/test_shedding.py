"""Shedding by OverloadShedder, ThresholdShedder, UniformLoadShedder and AvgShedder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.fleet.placement.load_data import MIB, BalancerSettings, BrokerLoad, BundleLoad, Loads
from geo.fleet.placement.shedding import (
    LEAST_SAMPLES,
    AvgShedder,
    OverloadShedder,
    Shedder,
    ThresholdShedder,
    UniformLoadShedder,
)
from tests.fleet.placement.loads import broker, bundle, even_broker

SETTINGS = BalancerSettings()
_KINDS = (OverloadShedder, ThresholdShedder, UniformLoadShedder, lambda settings: AvgShedder(settings, min))
_LOADS = st.dictionaries(
    st.sampled_from(["one", "two", "three", "four"]),
    st.tuples(st.floats(0, 1.5), st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 500)), max_size=8)),
)


@pytest.mark.parametrize("kind", _KINDS)
@given(loads=_LOADS, recently=st.sets(st.sampled_from([f"one-{number}" for number in range(8)])))
def test_a_broker_gives_up_bundles_of_its_own_once_and_none_that_was_unloaded_recently(
    kind: Callable[[BalancerSettings], Shedder], loads: dict[str, tuple[float, list[tuple[float, float]]]], recently: set[str]
) -> None:
    brokers = {
        name: broker(usage, {f"{name}-{number}": bundle(rate, mib) for number, (rate, mib) in enumerate(bundles)})
        for name, (usage, bundles) in loads.items()
    }
    shedder = kind(replace(SETTINGS, lower_boundary_shedding_enabled=True))
    for _ in range(3):
        for name, bundles in shedder.unload(brokers, recently).items():
            assert 0 < len(bundles) == len(set(bundles)) <= len(brokers[name].bundles)
            assert set(bundles) <= brokers[name].bundles.keys() - recently


class TestOverload:
    """From 0.85 on: the bundles that take usage - 0.85 + 0.05 of the broker's usage, the heaviest first, one at least."""

    def test_a_broker_at_the_threshold_sheds_and_one_below_does_not(self) -> None:
        shedder = OverloadShedder(SETTINGS)
        assert shedder.unload({"a": even_broker(0.8499, 4, 1)}) == {}
        assert shedder.unload({"a": even_broker(0.85, 4, 1)}) == {"a": ["b0"]}

    def test_the_heaviest_go_until_the_amount_is_reached(self) -> None:
        bundles = {"light": bundle(mib=10), "heavy": bundle(mib=60), "middle": bundle(mib=30)}
        shedder = OverloadShedder(SETTINGS)
        assert shedder.unload({"a": broker(0.95, bundles)}) == {"a": ["heavy"]}  # 0.15, of which it takes 0.57
        assert shedder.unload({"a": broker(2.1, bundles)}) == {"a": ["heavy", "middle"]}  # 1.3, of which it takes 1.26
        assert shedder.unload({"a": broker(0.95, bundles)}, {"heavy"}) == {"a": ["middle"]}

    def test_a_broker_with_a_single_bundle_keeps_it(self) -> None:
        assert OverloadShedder(SETTINGS).unload({"a": even_broker(2.0, 1, 100)}) == {}


def _shed(brokers: Mapping[str, BrokerLoad], settings: BalancerSettings = SETTINGS) -> dict[str, list[str]]:
    """By a ThresholdShedder that has heard these loads as often as it wants."""
    shedder = ThresholdShedder(settings)
    for _ in range(LEAST_SAMPLES - 1):
        assert shedder.unload(brokers) == {}
    return shedder.unload(brokers)


class TestThreshold:
    """From the mean plus 0.10 on: the bundles that take usage - mean - 0.10 + 0.05 of the broker's usage."""

    def test_a_broker_a_tenth_above_the_mean_sheds(self) -> None:
        brokers = {"a": even_broker(0.7, 10, 100, "a"), "b": even_broker(0.5, 10, 100, "b")}
        assert _shed(brokers) == {"a": ["a0"]}  # 0.05, of which each takes 0.07
        brokers = {"a": even_broker(0.9, 10, 100, "a"), "b": even_broker(0.5, 10, 100, "b")}
        assert _shed(brokers) == {"a": ["a0", "a1"]}  # 0.15, 0.09 each
        brokers = {"a": even_broker(0.68, 10, 100, "a"), "b": even_broker(0.5, 10, 100, "b")}
        assert _shed(brokers) == {}

    @pytest.mark.parametrize(
        ("kind", "each"),
        [
            ("a megabyte per second in all", bundle(rate=20, mib=0.1)),
            ("messages without bytes", bundle(rate=1)),
            ("idle topics", bundle(topics=100)),
        ],
    )
    def test_a_broker_at_the_end_of_its_processor_sheds_however_little_comes(self, kind: str, each: BundleLoad) -> None:
        brokers = {"a": broker(1.0, {f"a{number}": each for number in range(10)}), "b": broker(0.1, {"b": each})}
        assert _shed(brokers) == {"a": ["a0", "a1", "a2", "a3"]}, kind  # 1.0 - 0.55 - 0.05

    def test_bundles_without_anything_are_not_what_a_broker_is_busy_with(self) -> None:
        brokers = {"a": broker(1.0, {name: bundle(topics=0) for name in ("a0", "a1")}), "b": broker(0.1)}
        assert _shed(brokers) == {}

    def test_a_least_throughput_can_be_set(self) -> None:
        settings = replace(SETTINGS, bundle_unload_min_throughput_threshold=10.0 * MIB)
        for mib, unloaded in ((19.9, {}), (20.1, {"a": ["a0"]})):  # ten bundles x 0.05
            brokers = {"a": even_broker(0.7000001, 10, mib, "a"), "b": even_broker(0.5, 10, mib, "b")}
            assert _shed(brokers, settings) == unloaded

    def test_a_bundle_that_would_make_any_other_broker_as_busy_stays(self) -> None:
        """It cannot be split any more: everybody would shed around it."""
        hot = {"hot": bundle(mib=90), "cold": bundle(mib=10)}
        brokers = {"a": broker(1.0, hot), "b": even_broker(0.3, 3, 10, "b"), "c": even_broker(0.3, 3, 10, "c")}
        assert _shed(brokers) == {"a": ["cold"]}
        assert _shed({**brokers, "d": broker()}) == {"a": ["hot"]}

    def test_usage_is_averaged_from_call_to_call(self) -> None:
        low, high = even_broker(0.5, 10, 100, "a"), even_broker(1.0, 10, 100, "a")
        shedder, other = ThresholdShedder(SETTINGS), even_broker(0.5, 10, 100, "b")
        found = [shedder.unload({"a": load, "b": other}) for load in (low, *[high] * 6)]
        # 0.5 + 0.5 x (1 - 0.9^n) against the mean of it and 0.5: 0.10 above it from n = 5 on
        assert [bool(unloaded) for unloaded in found] == [False, False, False, False, False, True, True]

    def test_a_broker_that_was_gone_begins_anew(self) -> None:
        shedder, other = ThresholdShedder(SETTINGS), even_broker(0.5, 10, 100, "b")
        shedder.unload({"a": even_broker(0.5, 10, 100, "a"), "b": other})
        shedder.unload({"b": other})
        found = [shedder.unload({"a": even_broker(0.78, 10, 100, "a"), "b": other}) for _ in range(LEAST_SAMPLES)]
        assert found == [{}, {}, {"a": ["a0", "a1"]}], "0.09, and 0.078 each"

    def test_without_any_usage_nothing_moves(self) -> None:
        assert _shed({"a": even_broker(0, 10, 100)}, replace(SETTINGS, broker_threshold_shedder=0.0)) == {}
        assert _shed({}) == {}

    def test_for_a_broker_far_below_the_mean_the_most_loaded_one_gives_up_half_the_threshold_if_that_is_switched_on(self) -> None:
        brokers = {f"n{number}": even_broker(0.50, 10, 100, f"n{number}-") for number in range(8)}
        brokers |= {"most": even_broker(0.55, 10, 100, "most-"), "single": even_broker(0.56, 1, 1_000, "single-")}
        brokers["low"] = even_broker(0.1, 10, 100, "low-")
        assert _shed(brokers) == {}
        lower = replace(SETTINGS, lower_boundary_shedding_enabled=True)
        assert _shed(brokers, lower) == {"most": ["most-0"]}  # 0.10 x 0.5, of which each takes 0.055
        brokers["low"] = even_broker(0.45, 10, 100, "low-")
        assert _shed(brokers, lower) == {}


class TestUniform:
    """Greatest against least: more than half of the least in messages, or more than 4 times the least in bytes; a fifth moves."""

    def test_a_fifth_of_the_difference_of_messages_moves_in_bundles_that_are_not_much_more(self) -> None:
        most = {"all": bundle(rate=20_000), "large": bundle(rate=5_000), "small": bundle(rate=2_000), "none": bundle(rate=0)}
        brokers = {"a": broker(0, most), "b": broker(0, {"x": bundle(rate=2_000)})}
        assert UniformLoadShedder(SETTINGS).unload(brokers) == {"a": ["large"]}  # 25,000 x 0.2 = 5,000
        assert UniformLoadShedder(SETTINGS).unload(brokers, {"large"}) == {"a": ["small"]}

    def test_a_difference_of_half_or_of_too_few_messages_is_left(self) -> None:
        def of(most: float, least: float) -> dict[str, list[str]]:
            parts = {f"a{number}": bundle(rate=most / 100) for number in range(100)}
            return UniformLoadShedder(SETTINGS).unload({"a": broker(0, parts), "b": broker(0, {"b": bundle(rate=least)})})

        assert of(15_000, 10_000) == {}
        assert len(of(15_500, 10_000)["a"]) == 13, "1,100 to move, a delta of 1,000 more, 155 each"
        assert of(6_000, 2_000) == {}, "800 is less than min_unload_message"

    def test_bytes_count_if_messages_do_not_differ(self) -> None:
        parts = {f"a{number}": bundle(rate=10, mib=10) for number in range(10)}
        brokers = {"a": broker(0, parts), "b": broker(0, {"x": bundle(rate=100, mib=20)})}
        assert UniformLoadShedder(SETTINGS).unload(brokers) == {"a": ["a0"]}  # 80 MiB x 0.2
        brokers["b"] = broker(0, {"x": bundle(rate=100, mib=25)})
        assert UniformLoadShedder(SETTINGS).unload(brokers) == {}

    def test_no_more_bundles_than_allowed_and_a_threshold_of_0_turns_its_rule_off(self) -> None:
        parts = {f"a{number}": bundle(rate=1_000) for number in range(50)}
        brokers = {"a": broker(0, parts), "b": broker()}
        assert UniformLoadShedder(replace(SETTINGS, max_unload_bundle_num_per_shedding=3)).unload(brokers) == {
            "a": ["a0", "a1", "a2"]
        }
        assert UniformLoadShedder(replace(SETTINGS, msg_rate_difference_shedder_threshold=0)).unload(brokers) == {}


class TestAvg:
    """The most with the least loaded broker, and so on inwards: 0.15 apart 8 times in a row, or 0.40 apart twice."""

    @pytest.mark.parametrize(("usage", "calls"), [(0.64, None), (0.66, 8), (0.89, 8), (0.91, 2)])
    def test_a_pair_must_be_apart_several_times(self, usage: float, calls: int | None) -> None:
        brokers = {"low": broker(0.5, {"l": bundle(rate=0)}), "high": even_broker(usage, 100, 1, "h")}
        shedder = AvgShedder(SETTINGS, min)
        found = [bool(shedder.unload(brokers)) for _ in range(10)]
        assert found.index(True) + 1 == calls if calls else not any(found)

    def test_a_pair_that_was_near_begins_to_count_anew(self) -> None:
        apart = {"low": broker(0.1), "high": even_broker(0.6, 100, 1, "h")}
        near = {"low": broker(0.1), "high": even_broker(0.2, 100, 1, "h")}
        shedder = AvgShedder(SETTINGS, min)
        assert [bool(shedder.unload(brokers)) for brokers in (apart, near, apart, apart)] == [False, False, False, True]

    def test_a_fifth_of_the_difference_moves_to_the_other_of_the_pair(self) -> None:
        high = {"large": bundle(rate=3_000), "middle": bundle(rate=1_500), "small": bundle(rate=500), "idle": bundle(rate=0)}
        brokers = {"high": broker(0.9, high), "low": broker(0.1), "middle": broker(0.5, {"m": bundle(rate=9)})}
        settings = replace(SETTINGS, max_unload=0.5)
        shedder = AvgShedder(settings, min)
        assert [shedder.unload(brokers) for _ in range(2)] == [
            {},
            {"high": ["middle", "small"]},
        ]  # of 2,500 what fits, heaviest first
        assert shedder.select(["high", "low", "middle"], Loads(brokers), "middle") == "low"

    def test_a_pair_apart_by_its_processors_moves_a_fifth_of_that_however_few_bytes_come(self) -> None:
        brokers = {"high": even_broker(0.9, 10, 0.01, "h"), "low": broker(0.1)}
        shedder = AvgShedder(SETTINGS, min)
        assert [shedder.unload(brokers) for _ in range(2)] == [{}, {"high": ["h0"]}]  # 0.16, of which each takes 0.09
