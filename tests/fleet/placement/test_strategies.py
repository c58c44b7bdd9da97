"""Placement by LeastLongTermMessageRate, LeastResourceUsageWithWeight, RoundRobinBrokerSelector and AvgShedder."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from geo.config import placement
from geo.fleet.placement.load_data import BalancerSettings, Loads
from geo.fleet.placement.shedding import SHEDDERS, AvgShedder
from geo.fleet.placement.strategies import (
    STRATEGIES,
    LeastLongTermMessageRate,
    LeastResourceUsageWithWeight,
    RoundRobin,
    Strategy,
)
from tests.fleet.placement.loads import broker, bundle

SETTINGS = BalancerSettings()


def _first(brokers: Sequence[str]) -> str:
    return brokers[0]


def _last(brokers: Sequence[str]) -> str:
    return brokers[-1]


def _rates(**rates: float) -> Loads:
    return Loads({name: broker(0.1, {f"{name}-bundle": bundle(rate=rate)}) for name, rate in rates.items()})


NONE = Loads({})


@pytest.mark.parametrize("kind", [LeastLongTermMessageRate, LeastResourceUsageWithWeight, RoundRobin, AvgShedder])
def test_no_candidates_no_broker(kind: type[LeastLongTermMessageRate]) -> None:
    strategy: Strategy = kind(SETTINGS, _first)
    assert strategy.select([], _rates(a=1)) is None


def test_the_broker_with_the_least_message_rate_wins_and_equals_are_chosen_from() -> None:
    brokers = _rates(a=30, b=10, c=20)
    assert LeastLongTermMessageRate(SETTINGS, _first).select(["a", "b", "c"], brokers) == "b"
    assert LeastLongTermMessageRate(SETTINGS, _first).select(["a", "c"], brokers) == "c"
    equals = _rates(a=5, b=5, c=7)
    assert LeastLongTermMessageRate(SETTINGS, _first).select(["a", "b", "c"], equals) == "a"
    assert LeastLongTermMessageRate(SETTINGS, _last).select(["a", "b", "c"], equals) == "b"


def test_a_broker_above_the_overload_threshold_is_taken_only_if_all_are() -> None:
    brokers = Loads({"idle": broker(0.851), "busy": broker(0.85, {"x": bundle(rate=1_000)})})
    assert LeastLongTermMessageRate(SETTINGS, _first).select(["idle", "busy"], brokers) == "busy"
    brokers["busy"] = broker(0.9, {"x": bundle(rate=1_000)})
    assert LeastLongTermMessageRate(SETTINGS, _last).select(["idle", "busy"], brokers) == "busy", "any of all"


def test_loads_with_rates_at_hand_follow_what_is_placed() -> None:
    loads = _rates(a=5, b=6)
    loads["a"] = loads["a"].with_one_more("more", bundle(rate=3, topics=4))
    assert loads.msg_rates == {"a": 8, "b": 6}
    assert (loads["a"].msg_rate, loads["a"].topics) == (8, 5)


def test_any_broker_a_tenth_below_the_mean_of_the_candidates_wins_or_any_at_all() -> None:
    brokers = Loads({"a": broker(0.2), "b": broker(0.21), "c": broker(0.5)})  # the mean is 0.303
    assert LeastResourceUsageWithWeight(SETTINGS, _last).select(["a", "b", "c"], brokers) == "a"
    near = Loads({"a": broker(0.2), "b": broker(0.25), "c": broker(0.3)})
    assert LeastResourceUsageWithWeight(SETTINGS, _last).select(["a", "b", "c"], near) == "c"


def test_usage_is_averaged_at_each_call_and_anew_for_a_broker_without_traffic() -> None:
    traffic = {"x": bundle(rate=1)}
    strategy = LeastResourceUsageWithWeight(SETTINGS, _first)
    strategy.select(["a", "b"], Loads({"a": broker(0.8, traffic), "b": broker(0.2, traffic)}))
    turned = Loads({"a": broker(0.0, traffic), "b": broker(0.8, traffic)})
    assert strategy.select(["b", "a"], turned) == "b", "a is at 0.72, b at 0.26"
    anew = Loads({"a": broker(0.0), "b": broker(0.8, traffic)})
    assert strategy.select(["b", "a"], anew) == "a", "a is at 0 and not at 0.65"


def test_round_robin_goes_through_the_names_in_order_by_one_counter() -> None:
    strategy = RoundRobin(SETTINGS, _first)
    assert [strategy.select(["c", "a", "b"], NONE) for _ in range(4)] == ["a", "b", "c", "a"]
    assert strategy.select(["x", "y"], NONE) == "x"


def test_avg_shedder_places_a_bundle_where_it_is_expected_while_that_broker_is_a_candidate() -> None:
    strategy = AvgShedder(SETTINGS, _first)
    assert strategy.select(["a", "b"], NONE, "x") == "a"
    assert strategy.select(["b", "a", "0"], NONE, "x") == "a"
    assert strategy.select(["b", "c"], NONE, "x") == "b"
    assert strategy.select(["a", "b", "c"], NONE, "x") == "b"


def test_the_configuration_knows_the_names_of_strategies_and_shedders() -> None:
    both = AvgShedder.__name__
    assert ((*STRATEGIES, both), (*SHEDDERS, both)) == (placement.STRATEGIES, placement.SHEDDERS)
