"""What a leader keeps for the next one, as text."""

from __future__ import annotations

import pytest

from geo.fleet.placement import averages
from geo.fleet.placement.averages import Averages, decode, encode
from geo.fleet.placement.load_data import BundleLoad, Samples, UsageAverage

KEPT = Averages(
    {"t/n/x": Samples(BundleLoad(1.5, 2, 3, 4, 5), BundleLoad(6, 7, 8, 9.125, 5), 12)},
    {"a": UsageAverage(0.9125, 4)},
    {"t/n/x": 61.5},
)


def test_what_is_kept_is_what_is_found() -> None:
    assert decode(encode(KEPT)) == KEPT
    assert encode(KEPT) == (
        '{"bundles":{"t/n/x":[12,5,1.5,2,3,4,6,7,8,9.125]},"usages":{"a":[0.9125,4]},"unloaded_s":{"t/n/x":61.5}}'
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"bundles":{"x":[1,2,3]},"usages":{},"unloaded_s":{}}'])
def test_another_text_is_an_error_that_is_expected(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode(text)


def test_of_very_many_bundles_those_of_the_most_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averages, "MOST_KEPT", 3)
    samples = {f"t/n/{number}": Samples(long=BundleLoad(0, 0, number, 0), count=1) for number in range(10)}
    assert sorted(decode(encode(Averages(samples))).samples) == ["t/n/7", "t/n/8", "t/n/9"]
