"""When a clock is refused, and when it is only looked at again. Pure."""

from __future__ import annotations

import pytest

from geo.tables.clock import CLOCK_TOLERANCE_US, Stamp, Wrong, jumped, why_wrong

NOW, TOLERATED, TOO_MUCH = 1_700_000_000_000_000, CLOCK_TOLERANCE_US, CLOCK_TOLERANCE_US + 1


@pytest.mark.parametrize(
    ("newest", "last", "wrong"),
    [
        (None, None, None),
        (NOW - 10 * TOO_MUCH, None, None),  # nobody committed for an hour
        (NOW + TOLERATED, None, None),
        (NOW + TOO_MUCH, None, Wrong(NOW, NOW + TOO_MUCH)),
        (None, Stamp(NOW, NOW + 100 * TOO_MUCH), None),  # a write may take long
        (None, Stamp(NOW, NOW - TOLERATED), None),
        (NOW, Stamp(NOW, NOW - TOO_MUCH), Wrong(NOW, NOW - TOO_MUCH)),
    ],
)
def test_a_clock_is_refused_that_the_storages_disagrees_with(newest: int | None, last: Stamp | None, wrong: Wrong | None) -> None:
    assert why_wrong(NOW, newest, last) == wrong
    if wrong is not None:
        assert wrong.ahead == (last is not None)


@pytest.mark.parametrize("by", [-TOO_MUCH, TOO_MUCH])
def test_a_clock_that_was_set_is_noticed(by: int) -> None:
    assert jumped((NOW, 5), (NOW + 60 + by, 65))
    assert not jumped((NOW, 5), (NOW + 60, 65)), "a minute later"
    assert not jumped((NOW, 5), (NOW + 60 + (by - 1 if by > 0 else by + 1), 65)), "corrected by less"
