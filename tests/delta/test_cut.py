"""How far the commits of a log go: the pure decision."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.delta.cut import HOLDS_S, Cut, LogReader, cut_below

HOUR = 3600.0


@pytest.mark.parametrize(
    ("latest", "checkpoints", "readers", "day", "below"),
    [
        (20_000, range(0, 20_001, 100), [], -1, 19_500),
        (19_999, range(0, 20_000, 100), [], -1, 19_400),
        (20_000, [], [], -1, 0),
        (20_000, [19_600], [], -1, 0),
        (300, [100, 200, 300], [], -1, 0),
        (20_000, range(0, 20_001, 100), [LogReader("a", 19_950)], -1, 19_500),
        (20_000, range(0, 20_001, 100), [LogReader("a", 19_950), LogReader("b", 7_155)], -1, 7_100),
        (20_000, range(0, 20_001, 100), [LogReader("b", 7_100)], -1, 7_100),
        (20_000, range(0, 20_001, 100), [LogReader("nightly", 7_155, 24 * HOUR)], 7_155, 7_100),
        (20_000, range(0, 20_001, 100), [LogReader("long gone", 7_155, 31 * HOUR)], 7_156, 19_500),
        (20_000, range(0, 20_001, 100), [LogReader("long gone, says so each minute", 7_155)], 7_156, 19_500),
        (30_000, range(0, 30_001, 100), [LogReader("too far back", 9_999)], -1, 29_500),
        (30_000, range(0, 30_001, 100), [LogReader("far back", 10_000)], -1, 10_000),
        (30_000, range(0, 30_001, 100), [LogReader("unreadable", None)], 7_155, 10_000),
        (30_000, range(0, 30_001, 100), [LogReader("far back, of a week", 7_155, 31 * HOUR, 168 * HOUR)], 20_000, 7_100),
        (20_000, range(0, 20_001, 100), [LogReader("week", 7_155, 31 * HOUR, 168 * HOUR)], -1, 7_100),
        (20_000, range(0, 20_001, 100), [LogReader("unreadable", None)], -1, 0),
        (20_000, range(0, 20_001, 100), [LogReader("unreadable", None)], 12_345, 12_300),
    ],
)
def test_a_log_is_cut_at_a_checkpoint_below_everybody_who_goes_on_from_it(
    latest: int, checkpoints: Any, readers: list[LogReader], day: int, below: int
) -> None:
    cut = cut_below(latest, checkpoints, readers, keep=500, a_day_old=day)
    assert cut.below == below
    assert (cut.held_by is None) == (below == cut_below(latest, checkpoints, [], keep=500).below)


def test_the_one_who_holds_most_is_named() -> None:
    found = cut_below(900, [100, 500], [LogReader("a", 120), LogReader("b", 90), LogReader("c", 450)], keep=100)
    assert found == Cut(0, LogReader("b", 90))


@given(
    st.integers(0, 5000), st.sets(st.integers(0, 5000)), st.lists(st.tuples(st.none() | st.integers(0, 5000), st.floats(0, 2e5)))
)
def test_nothing_goes_that_somebody_needs(latest: int, found: set[int], places: list[tuple[int | None, float]]) -> None:
    checkpoints = {version for version in found if version <= latest}
    readers = [LogReader("r", version, age_s, None if age_s < 1e5 else HOLDS_S) for version, age_s in places]
    below = cut_below(latest, checkpoints, readers, keep=500, a_day_old=latest // 2).below
    assert below == 0 or below in checkpoints
    assert below == 0 or below <= latest - 500
    for reader in readers:
        version = latest // 2 if reader.version is None else reader.version
        if version >= latest // 2 if reader.holds_s is None else reader.age_s <= reader.holds_s:
            assert below <= max(0, version)
