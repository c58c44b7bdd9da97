"""When a clock is refused, and when it is only looked at again. Pure."""

from __future__ import annotations

import pytest

from geo.coordination.clock import CLOCK_TOLERANCE_US, HeldClock, Stamp, jumped, refuse, why_wrong
from geo.errors import WrongClockError

NOW, TOLERATED, TOO_MUCH = 1_700_000_000_000_000, CLOCK_TOLERANCE_US, CLOCK_TOLERANCE_US + 1


@pytest.mark.parametrize(
    ("newest", "last", "wrong"),
    [
        (None, None, None),
        (NOW - 10 * TOO_MUCH, None, None),  # nobody committed for an hour
        (NOW + TOLERATED, None, None),
        (NOW + TOO_MUCH, None, Stamp(NOW, NOW + TOO_MUCH)),
        (None, Stamp(NOW, NOW + 100 * TOO_MUCH), None),  # a write may take long
        (None, Stamp(NOW, NOW - TOLERATED), None),
        (NOW, Stamp(NOW, NOW - TOO_MUCH), Stamp(NOW, NOW - TOO_MUCH)),
    ],
)
def test_a_clock_is_refused_that_the_storages_disagrees_with(newest: int | None, last: Stamp | None, wrong: Stamp | None) -> None:
    assert why_wrong(NOW, newest, last) == wrong


@pytest.mark.parametrize("by", [-TOO_MUCH, TOO_MUCH])
def test_a_clock_that_was_set_is_noticed(by: int) -> None:
    assert jumped((NOW, 5), (NOW + 60 + by, 65))
    assert not jumped((NOW, 5), (NOW + 60, 65)), "a minute later"
    assert not jumped((NOW, 5), (NOW + 60 + (by - 1 if by > 0 else by + 1), 65)), "corrected by less"


def test_what_is_refused_is_said_with_both_times_and_what_to_do() -> None:
    refuse("publishing", why_wrong(NOW, NOW))
    with pytest.raises(WrongClockError) as ahead:
        refuse("publishing", Stamp(NOW, NOW - TOO_MUCH), " Or wait.")
    assert str(ahead.value) == (
        "publishing with a clock that is ahead of the storage's. This host says 2023-11-14 22:13:20Z where the storage says "
        "2023-11-14 22:08:19Z. By such a clock messages expire too early or too late, and nobody can undo it. Set this host's clock (NTP) and start again. Or wait."
    )
    with pytest.raises(WrongClockError, match=r"publishing with a clock that is behind .* again\.$"):
        refuse("publishing", why_wrong(NOW, NOW + TOO_MUCH))


@pytest.mark.parametrize(
    ("before", "after", "storage", "wrong", "apart"),
    [
        (NOW, NOW, NOW, None, 0),
        (NOW, NOW + 9 * TOO_MUCH, NOW + 4 * TOO_MUCH, None, 0),  # a write that took long
        (NOW, NOW, NOW - TOLERATED, None, TOLERATED),
        (NOW, NOW, NOW + TOLERATED, None, TOLERATED),
        (NOW, NOW + 5, NOW - TOO_MUCH, Stamp(NOW, NOW - TOO_MUCH), TOO_MUCH),
        (NOW - 5, NOW, NOW + TOO_MUCH, Stamp(NOW, NOW + TOO_MUCH), TOO_MUCH),
        (NOW, NOW, None, None, 0),  # the storage does not say
    ],
)
def test_a_clock_is_held_against_the_storages_from_both_sides(
    before: int, after: int, storage: int | None, wrong: Stamp | None, apart: int
) -> None:
    held = HeldClock(before, after, 100, storage)
    assert (held.wrong(), held.apart_us) == (wrong, apart)
    assert held.now_us(160) == (after if storage is None else storage) + 60, "whatever the host's clock says by now"


def test_a_clock_is_held_again_after_a_while_and_when_somebody_set_it() -> None:
    held = HeldClock(NOW, NOW, 100, NOW)
    assert not held.is_old(NOW + 59, 159, 60)
    assert held.is_old(NOW + 60, 160, 60)
    assert held.is_old(NOW + 59 + TOO_MUCH, 159, 60)
    assert held.is_old(NOW + 59 - TOO_MUCH, 159, 60)


@pytest.mark.parametrize(("took", "is_old"), [(TOLERATED, False), (TOO_MUCH, True)])
def test_a_clock_is_held_again_where_the_write_may_have_come_long_before_its_end(took: int, is_old: bool) -> None:
    assert HeldClock(NOW - took, NOW, 100, NOW - took).is_old(NOW + 1, 101, 60) == is_old
