"""From how much was done to how much is done per second; averages by TimeAverageMessageData, reports by
ModularLoadManagerImpl.needBrokerDataUpdate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import UsageError
from geo.fleet.placement.load_data import (
    UNKNOWN,
    BalancerSettings,
    BrokerLoad,
    BundleLoad,
    PerSecond,
    Samples,
    Usage,
    decode,
    encode,
    is_due,
)
from tests.fleet.placement.loads import IDLE, broker, bundle

SETTINGS = BalancerSettings()


def test_an_unknown_bundle_counts_with_50_messages_and_50_000_bytes_each_way_until_its_first_sample() -> None:
    assert (Samples().long.msg_rate, Samples().long.throughput) == (100, 100_000)
    once = Samples().add(bundle(rate=8, topics=3), SETTINGS)
    assert once.short == once.long == bundle(rate=8, topics=3)
    assert Samples().short == UNKNOWN


def test_an_average_weighs_each_sample_alike_until_its_window_is_full() -> None:
    samples = Samples()
    for rate in [*([0.0] * 10), 100.0]:
        samples = samples.add(bundle(rate=rate), SETTINGS)
    assert samples.short.msg_rate == pytest.approx(100 / 10)
    assert samples.long.msg_rate == pytest.approx(100 / 11)


@given(rates=st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=30))
def test_an_average_is_between_the_least_and_the_greatest_sample(rates: list[float]) -> None:
    samples = Samples()
    for rate in rates:
        samples = samples.add(bundle(rate=rate), SETTINGS)
    for average in (samples.short, samples.long):
        assert min(rates) * 0.999 <= average.msg_rate <= max(rates) * 1.001


def test_the_greatest_weighted_usage_counts_and_direct_memory_does_not_by_default() -> None:
    load = BrokerLoad(Usage(20, 100), Usage(90, 100), Usage(3, 10), Usage(1, 0), {})
    assert load.max_usage(SETTINGS) == pytest.approx(0.3)
    assert load.max_usage(replace(SETTINGS, direct_memory_resource_weight=0.5)) == pytest.approx(0.45)
    assert load.max_usage(replace(SETTINGS, cpu_resource_weight=2)) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("last", "now", "reports"),
    [
        (broker(), broker(), False),
        (broker(0.5), broker(0.6), False),  # the usage by its difference, and strictly more
        (broker(0.5), broker(0.61), True),
        (broker(0.61), broker(0.5), True),
        (broker(0.01), broker(0.02), False),
        (broker(0, {"x": bundle(rate=100)}), broker(0, {"x": bundle(rate=110)}), False),  # rates by their relation
        (broker(0, {"x": bundle(rate=100)}), broker(0, {"x": bundle(rate=111)}), True),
        (broker(0, {"x": bundle(mib=100)}), broker(0, {"x": bundle(mib=89)}), True),
        (broker(0, {"x": bundle()}), broker(0, {"x": bundle(rate=1)}), True),  # from nothing to something
        (broker(), broker(0, {"x": bundle()}), True),  # so is the first bundle
        (broker(0, {f"{n}": bundle() for n in range(10)}), broker(0, {f"{n}": bundle() for n in range(11)}), False),
        (broker(0, {f"{n}": bundle() for n in range(9)}), broker(0, {f"{n}": bundle() for n in range(10)}), True),
        (BrokerLoad(IDLE, IDLE, IDLE, IDLE, {}), BrokerLoad(IDLE, Usage(99, 100), IDLE, IDLE, {}), False),
    ],
)
def test_a_broker_reports_after_a_change_of_more_than_a_tenth(last: BrokerLoad, now: BrokerLoad, reports: bool) -> None:
    assert is_due(last, now, 60.0, SETTINGS) is reports


def test_a_broker_reports_by_change_after_5_seconds_and_in_any_case_after_15_minutes() -> None:
    last, changed = broker(0.1), broker(0.9)
    assert [is_due(last, changed, age, SETTINGS) for age in (4.9, 5.0)] == [False, True]
    assert [is_due(last, last, age, SETTINGS) for age in (5.0, 900.0, 900.1)] == [False, False, True]


@pytest.mark.parametrize(
    ("name", "value", "least"), [("num_short_samples", 0, 1), ("num_long_samples", 0, 1), ("shedding_interval_s", -1, 0), ("min_unload_message", float("nan"), 0)]
)  # fmt: skip
def test_a_number_that_is_too_small_is_refused(name: str, value: float, least: int) -> None:
    with pytest.raises(UsageError, match=f"{name} is {value}; expected: {least} or more"):
        BalancerSettings(**{name: value})  # type: ignore[arg-type]
    assert BalancerSettings(max_unload_bundle_num_per_shedding=-1).max_unload_bundle_num_per_shedding == -1


def test_a_percentage_is_refused_where_a_fraction_is_expected() -> None:
    with pytest.raises(UsageError, match="broker_overloaded_threshold is 85; expected: a fraction"):
        BalancerSettings(broker_overloaded_threshold=85)
    with pytest.raises(UsageError, match="cpu_resource_weight is -1"):
        BalancerSettings(cpu_resource_weight=-1)


OF = {"t1": "x", "t2": "x", "t3": "y", "t4": "z"}


def _sampled(rates: PerSecond, messages: dict[str, int], now: float) -> dict[str, BundleLoad]:
    return rates.sample(messages, ["x", "y"], OF.__getitem__, lambda topic: 100.0, now)


def test_rates_are_since_the_last_sample_and_of_the_bundles_that_are_asked_for() -> None:
    rates = PerSecond()
    assert _sampled(rates, {"t1": 50, "t2": 0, "t3": 0}, 10.0) == {"x": BundleLoad(0, 0, 0, 0, 2), "y": BundleLoad(0, 0, 0, 0, 1)}
    assert _sampled(rates, {"t1": 70, "t2": 10, "t3": 0, "t4": 1_000}, 20.0) == {
        "x": BundleLoad(3.0, 0, 300.0, 0, 2),
        "y": BundleLoad(0, 0, 0, 0, 1),
    }
    assert _sampled(rates, {}, 30.0) == {"x": BundleLoad(0, 0, 0, 0, 0), "y": BundleLoad(0, 0, 0, 0, 0)}


def test_a_work_that_begins_to_count_anew_takes_nothing_away() -> None:
    rates = PerSecond()
    _sampled(rates, {"t1": 50}, 10.0)
    assert _sampled(rates, {"t1": 5}, 20.0)["x"] == BundleLoad(0, 0, 0, 0, 1)
    assert _sampled(rates, {"t1": 15}, 30.0)["x"] == BundleLoad(1.0, 0, 100.0, 0, 1)


def test_one_that_comes_back_with_much_behind_it_is_no_peak() -> None:
    rates = PerSecond()
    _sampled(rates, {"t1": 1_000}, 10.0)
    _sampled(rates, {}, 20.0)
    assert _sampled(rates, {"t1": 1_000}, 30.0)["x"] == BundleLoad(0, 0, 0, 0, 1)
    assert _sampled(rates, {"t1": 1_010}, 40.0)["x"] == BundleLoad(1.0, 0, 100.0, 0, 1)


def test_a_report_is_read_as_it_was_written() -> None:
    load = BrokerLoad(Usage(20, 200), Usage(1e9, 4e9), Usage(500, 0), Usage(0, 0), {"x": BundleLoad(3, 0, 300, 0, 2)})
    assert decode(encode(load)) == load


def test_what_a_newer_program_says_of_a_bundle_besides_is_passed_over() -> None:
    load = BrokerLoad(*(Usage(0, 0),) * 4, {"x": BundleLoad(3, 0, 300, 0, 2)})
    newer = encode(load)
    newer["bundles"]["x"]["sessions"] = 7
    assert decode(newer | {"gpu": [1, 2]}) == load
