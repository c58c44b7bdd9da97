"""What people are warned of, once each time that it begins."""

from __future__ import annotations

from collections.abc import Mapping

from geo.fleet.placement.load_data import BalancerSettings, BrokerLoad
from geo.fleet.placement.warnings import Warnings
from tests.fleet.placement.loads import broker, bundle

SETTINGS = BalancerSettings()
TWO = {"a": broker(0.1), "b": broker(0.1)}


def _fresh(
    warnings: Warnings,
    reports: Mapping[str, BrokerLoad],
    unsplit: Mapping[str, int] | None = None,
    without: list[str] | None = None,
) -> list[str]:
    return warnings.fresh(reports, SETTINGS, unsplit=unsplit or {}, without_broker=without or [])


def test_a_single_bundle_that_overloads_its_broker_is_said_once_until_the_broker_is_calm() -> None:
    warnings, one = Warnings(), {"t/n/x": bundle(rate=9)}

    def at(usage: float) -> list[str]:
        return _fresh(warnings, {"a": broker(usage, one), "b": broker()})

    assert at(0.84) == []
    assert at(0.97) == [
        (
            "broker a uses 97% of its processor for a single bundle, t/n/x, so nothing can be shed: split the bundle (geo bundles split), or give "
            "the broker a larger host"
        )
    ]
    assert [at(usage) for usage in (0.99, 0.84, 0.77, 0.9)] == [[]] * 4, "not each time that it comes near the threshold"
    assert at(0.76) == []
    assert len(at(0.86)) == 1


def test_a_broker_that_is_busy_without_a_bundle_is_said_and_one_with_several_sheds() -> None:
    several = broker(0.99, {"t/n/x": bundle(), "t/n/y": bundle()})
    assert _fresh(Warnings(), {"a": several, "b": broker(0.9)}) == [
        "broker b uses 90% of its processor though it has no bundle: something else runs in it or on its host"
    ]


def test_a_broker_that_is_the_only_one_is_said_each_time_that_it_becomes_that() -> None:
    warnings = Warnings()
    found = [_fresh(warnings, reports) for reports in ({"a": broker()}, {"a": broker()}, TWO, {"b": broker()})]
    assert found == [
        ["broker a is the only one that is up: nothing is shed"],
        [],
        [],
        ["broker b is the only one that is up: nothing is shed"],
    ]
    without = BalancerSettings(shedding_enabled=False)
    assert Warnings().fresh({"a": broker()}, without, unsplit={}, without_broker=[]) == []


def test_a_hot_bundle_of_a_namespace_with_all_its_bundles_and_one_that_nobody_may_own_are_said_once() -> None:
    warnings = Warnings()
    assert _fresh(warnings, TWO, {"t/n/x": 128}, ["t/m/y"]) == [
        (
            "bundle t/n/x has more topics, messages or bytes than a bundle may have and is not split: t/n has 128 bundles already "
            "(namespace_maximum_bundles)"
        ),
        "no broker is available for bundle t/m/y: isolation allows none of those that are up (geo isolation list)",
    ]
    assert _fresh(warnings, TWO, {"t/n/x": 129}, ["t/m/y", "t/m/z"]) == [
        "no broker is available for bundle t/m/z: isolation allows none of those that are up (geo isolation list)"
    ]
