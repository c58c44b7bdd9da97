"""What a target lacks, derived from a line per ledger; and the steps in which it is brought."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geo.ids import LedgerId
from geo.replication.gaps import Extent, Gap, gaps, steps
from tests.model.log import extent

A, B = LedgerId("us", 1), LedgerId("us", 2)


def whole(first: int, last: int) -> Extent:
    return extent(set(range(first, last + 1)))


def test_ledgers_that_agree_or_whose_part_is_whole_are_not_compared_by_id() -> None:
    assert gaps({A: whole(0, 9)}, {A: whole(0, 9)}) == []
    assert gaps({A: whole(0, 9)}, {}) == [Gap(A, 0, 9)]
    assert gaps({A: whole(0, 9)}, {A: whole(0, 4)}) == [Gap(A, 5, 9)]
    assert gaps({A: whole(0, 9)}, {A: whole(3, 4)}) == [Gap(A, 0, 2), Gap(A, 5, 9)]
    assert gaps({A: whole(0, 9)}, {A: whole(0, 12)}) == [], "what only the target has is nobody's here"
    assert gaps({A: whole(5, 9)}, {A: whole(0, 2)}) == [Gap(A, 5, 9)]
    holes = extent({0, 1, 3, 9})
    assert gaps({A: holes, B: whole(0, 1)}, {A: holes, B: whole(0, 1)}) == [], "equal, with a hole on both sides"


def test_a_hole_in_the_target_is_found_though_its_least_greatest_and_count_look_right() -> None:
    assert gaps({A: whole(0, 3)}, {A: extent({0, 3})}) == [Gap(A, 0, 3, compare=True)]
    doubled = Extent(0, 3, 4, 0 + 0 + 3 + 3, 0 + 0 + 9 + 9)
    assert gaps({A: whole(0, 3)}, {A: doubled}) == [Gap(A, 0, 3, compare=True)]


def test_too_large_numbers_are_compared_by_id() -> None:
    unknown = Extent(0, 9, 10, None, None)
    assert gaps({A: unknown}, {A: unknown}) == [Gap(A, 0, 9, compare=True, repeated=True)]


def test_an_entry_that_a_source_holds_twice_is_to_come_once() -> None:
    twice, whole = extent([0, 1, 1, 2]), extent([0, 1])
    assert gaps({A: twice}, {}) == [Gap(A, 0, 2, repeated=True)]
    assert gaps({A: twice}, {A: whole}) == [Gap(A, 2, 2, repeated=True)]
    assert gaps({A: twice}, {A: extent([0, 2])}) == [Gap(A, 0, 2, compare=True, repeated=True)]
    assert gaps({A: whole}, {}) == [Gap(A, 0, 1)]


entries = st.sets(st.integers(0, 20), min_size=1)


@given(entries, st.one_of(st.just(set[int]()), entries))
def test_whatever_is_missing_is_in_a_gap_and_what_is_not_compared_is_not_there(source: set[int], target: set[int]) -> None:
    found = gaps({A: extent(source)}, {A: extent(target)} if target else {})
    covered = {entry for gap in found for entry in range(gap.first, gap.last + 1)}
    assert source - target <= covered
    for gap in found:
        if not gap.compare:
            assert not target & set(range(gap.first, gap.last + 1)), "appended without a look: it must not be there"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), max_size=5), st.integers(1, 12))
def test_steps_are_bounded_and_together_they_are_the_gaps_in_order(sizes: list[tuple[int, int]], limit: int) -> None:
    found = [Gap(LedgerId("us", at), first, first + size - 1) for at, (first, size) in enumerate(sizes)]
    cut = list(steps(found, limit))
    assert all(0 < sum(gap.size for gap in step) <= limit for step in cut)
    assert [e for step in cut for gap in step for e in _entries(gap)] == [e for gap in found for e in _entries(gap)]


def _entries(gap: Gap) -> list[tuple[LedgerId, int]]:
    return [(gap.ledger, entry) for entry in range(gap.first, gap.last + 1)]
