"""From how much was done to how much is done per second, by bundle."""

from __future__ import annotations

from geo.fleet.placement.load_data import BrokerLoad, BundleLoad, Usage, decode, encode
from geo.fleet.placement.rates import Rates

OF = {"t1": "x", "t2": "x", "t3": "y", "t4": "z"}


def _sampled(rates: Rates, messages: dict[str, int], now: float) -> dict[str, BundleLoad]:
    return rates.sample(messages, ["x", "y"], OF.__getitem__, lambda topic: 100.0, now)


def test_rates_are_since_the_last_sample_and_of_the_bundles_that_are_asked_for() -> None:
    rates = Rates()
    assert _sampled(rates, {"t1": 50, "t2": 0, "t3": 0}, 10.0) == {"x": BundleLoad(0, 0, 0, 0, 2), "y": BundleLoad(0, 0, 0, 0, 1)}
    assert _sampled(rates, {"t1": 70, "t2": 10, "t3": 0, "t4": 1_000}, 20.0) == {
        "x": BundleLoad(3.0, 0, 300.0, 0, 2),
        "y": BundleLoad(0, 0, 0, 0, 1),
    }
    assert _sampled(rates, {}, 30.0) == {"x": BundleLoad(0, 0, 0, 0, 0), "y": BundleLoad(0, 0, 0, 0, 0)}


def test_a_work_that_begins_to_count_anew_takes_nothing_away() -> None:
    rates = Rates()
    _sampled(rates, {"t1": 50}, 10.0)
    assert _sampled(rates, {"t1": 5}, 20.0)["x"] == BundleLoad(0, 0, 0, 0, 1)
    assert _sampled(rates, {"t1": 15}, 30.0)["x"] == BundleLoad(1.0, 0, 100.0, 0, 1)


def test_one_that_comes_back_with_much_behind_it_is_no_peak() -> None:
    rates = Rates()
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
