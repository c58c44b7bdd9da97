"""Cutting many things into few lists. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geo.slices import slices


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 20), st.none() | st.integers(1, 4))
def test_slices_are_as_large_as_they_may_be_and_leave_nothing_out(sizes: list[int], most: int, most_of: int | None) -> None:
    found = list(slices(sizes, int, most) if most_of is None else slices(sizes, int, most, most_of))
    assert [one for part in found for one in part] == sizes
    for part, after in zip(found, [*found, [most + 1]][1:], strict=True):
        assert sum(part) <= most or len(part) == 1
        assert most_of is None or len(part) <= most_of
        assert sum(part) + after[0] > most or len(part) == most_of
