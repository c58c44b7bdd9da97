"""Which messages of a failed batch are blamed, in how many calls, and what is delivered meanwhile. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.ids import MessageId
from geo.subscription.consumer.halving import Halving


def batch(size: int) -> list[MessageId]:
    return [MessageId("eu", 1, entry) for entry in range(size)]


def drive(size: int, bad: set[int], *, of: int | None = None) -> tuple[Halving, list[int], int]:
    """The halving to its end, which entries passed, and how many calls it took. `of`: the batch comes in parts of so many."""
    halving = Halving(batch(size)) if of is None else Halving(untried=list(_parts(size, of)))
    done, calls = list[int](), 0
    while (part := halving.part) is not None:
        calls += 1
        if bad & {one.entry_id for one in part}:
            halving.raised()
        else:
            done += [one.entry_id for one in part]
            halving.passed()
    return halving, done, calls


def _parts(size: int, of: int) -> Iterator[list[MessageId]]:
    return (batch(size)[at : at + of] for at in range(0, size, of))


@pytest.mark.parametrize("size", [2, 3, 16, 1_000])
@pytest.mark.parametrize("at", [0, 1, -1])
def test_one_bad_message_is_found_and_all_others_pass_in_order(size: int, at: int) -> None:
    bad = at % size
    halving, done, calls = drive(size, {bad})
    assert halving.blamed == [MessageId("eu", 1, bad)]
    assert done == [entry for entry in range(size) if entry != bad]
    assert calls <= 2 * ceil(log2(size)) + 1


@pytest.mark.parametrize("size", [2, 5, 1_000])
def test_if_nothing_passes_nobody_is_blamed_and_it_does_not_take_long_to_find_out(size: int) -> None:
    halving, done, calls = drive(size, set(range(size)))
    assert (halving.blamed, done) == ([], [])
    assert calls <= 2 * ceil(log2(size)) + 1


@pytest.mark.parametrize("calls", range(1, 9))
def test_who_failed_while_everything_did_is_not_to_blame(calls: int) -> None:
    """The database comes back in the middle."""
    halving, done = Halving(batch(16)), set[MessageId]()
    for call in itertools.count(1):
        if (part := halving.part) is None:
            break
        if call <= calls:
            halving.raised()
        else:
            halving.passed()
            done |= set(part)
    assert halving.blamed == []
    assert done or calls == 8


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("size", "control", "blamed"), [(1, True, 1), (1, False, 0), (2, True, 0), (2, False, 0)])
def test_if_nothing_passes_only_one_that_came_alone_is_blamed_with_a_control(
    size: int, control: bool, blamed: int, is_large: bool
) -> None:
    """The control says nothing of a larger batch: an outage may have begun since."""
    parts = {"untried": list(_parts(size, 1))} if is_large else {"failed": batch(size)}
    halving = Halving(**parts, control=control)
    while halving.part is not None:
        halving.raised()
    assert len(halving.blamed) == blamed


@pytest.mark.parametrize("bad", [range(12), range(500), range(1, 1_000)])
def test_a_half_that_can_pass_is_found_however_many_are_bad_before_it(bad: range) -> None:
    _, done, _ = drive(1_000, set(bad))
    assert done, "the run goes on"


@pytest.mark.parametrize("of", [1, 2, 10])
def test_of_a_batch_in_parts_nobody_is_blamed_while_nothing_passes(of: int) -> None:
    """One that is large comes alone, and the database is away."""
    halving, done, calls = drive(100, set(range(100)), of=of)
    assert (halving.blamed, done) == ([], [])
    assert calls <= 2 * ceil(log2(100)) + 1


@pytest.mark.parametrize("of", [1, 3, 10])
def test_bad_ones_that_fill_the_first_part_hold_up_nothing_behind_them(of: int) -> None:
    halving, done, _ = drive(100, set(range(of)), of=of)
    assert set(done) == set(range(of, 100))
    assert {one.entry_id for one in halving.blamed} <= set(range(of))
    assert halving.blamed


@given(st.integers(1, 60), st.integers(1, 20), st.sets(st.integers(0, 59)))
def test_once_something_passes_each_part_of_a_batch_is_delivered(size: int, of: int, bad: set[int]) -> None:
    bad = {entry for entry in bad if entry < size}
    halving, done, _ = drive(size, bad, of=of)
    assert len(done) == len(set(done))
    assert not set(done) & bad
    assert {one.entry_id for one in halving.blamed} <= bad
    if done:
        whole = [{one.entry_id for one in part} for part in _parts(size, of)]
        assert all(part <= set(done) for part in whole if not part & bad)
    else:
        assert not halving.blamed


def test_a_part_of_which_nothing_is_wanted_any_more_says_nothing_of_the_function() -> None:
    halving = Halving(untried=[batch(1), batch(2)])
    halving.dropped()
    assert halving.part == batch(2)
    halving.raised()
    assert (halving.blamed, halving.passed_any) == ([], False)


@given(st.integers(2, 60), st.sets(st.integers(0, 59)))
def test_whoever_is_blamed_is_bad_and_nobody_who_passed_did_so_twice(size: int, bad: set[int]) -> None:
    bad = {entry % size for entry in bad} or {0}
    halving, done, _ = drive(size, bad)
    assert {one.entry_id for one in halving.blamed} <= bad
    assert not set(done) & bad
    assert len(done) == len(set(done))
    if halving.blamed:
        assert done, "somebody passed"
