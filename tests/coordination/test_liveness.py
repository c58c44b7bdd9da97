"""Whether somebody lives whom this process cannot see. Pure."""

from __future__ import annotations

import pytest

from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.coordination.liveness import Signs, silent_s

NOW, MINUTE = 1_700_000_000_000_000, 60 * 1_000_000


@pytest.mark.parametrize(
    ("signs", "silent"),
    [
        ([NOW - 5 * MINUTE], 300.0),
        ([NOW - 60 * MINUTE, NOW - 4 * MINUTE], 240.0),  # a claim an hour ago, a sign since
        ([NOW - 4 * MINUTE, NOW - 60 * MINUTE], 240.0),
        ([NOW + CLOCK_TOLERANCE_US], 0.0),  # a second's part, or a program that signed by its host's clock
        ([NOW - 9 * MINUTE, NOW + CLOCK_TOLERANCE_US + 1], 540.0),  # by a clock that far ahead anything may be said
        ([], NOW / 1e6),
    ],
)
def test_one_is_silent_since_the_last_of_its_signs_by_the_storages_clock(signs: list[int], silent: float) -> None:
    assert silent_s(NOW, signs) == silent


def test_one_lives_while_its_rows_say_something_new_by_the_clock_of_who_reads_them() -> None:
    signs = Signs()
    signs.observe({"a": 1, "b": 1}, 0.0)
    signs.observe({"a": 2, "b": 1}, 20.0)
    assert signs.living(30.0, 30.0) == {"a", "b"}
    assert signs.living(31.0, 30.0) == {"a"}
    signs.observe({"b": 2}, 40.0)
    assert signs.living(40.0, 30.0) == {"b"}


def test_time_in_which_nobody_looked_counts_against_nobody() -> None:
    signs = Signs()
    for at in (0.0, 4.0):
        signs.observe({"a": 1}, at, 5.0)
    assert signs.watched_s(4.0) == 4.0
    signs.observe({"a": 1}, 100.0, 5.0)  # the storage was away
    assert signs.living(100.0, 30.0) == {"a"}
    assert signs.watched_s(100.0) == 9.0
    for at in range(101, 132):
        signs.observe({"a": 1}, float(at), 5.0)
    assert signs.living(131.0, 30.0) == set()


def test_one_that_is_dead_is_seen_to_be_so_also_by_looks_that_take_long() -> None:
    signs = Signs()
    for at in range(0, 61, 20):
        signs.observe({"a": 1}, float(at), 15.0)
    assert signs.living(60.0, 30.0) == set()
