"""The cache of snapshots: Pulsar's vectors, and the same rules written down plainly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import UsageError
from geo.ids import Position
from geo.subscription.pip33.snapshot_cache import Snapshot, SnapshotCache


def snapshot(version: int, index: int = 0) -> Snapshot:
    position = Position(version, index)
    return Snapshot(f"s{position}", position, {"b": position})


def filled(*versions: int, most: int = 30) -> SnapshotCache:
    cache = SnapshotCache(most)
    for version in versions:
        cache.add(snapshot(version))
    return cache


def held(cache: SnapshotCache) -> list[int]:
    return [one.local_position.version for one in cache.snapshots]


class Plain:
    """The rules as the facts tell them, without a thought for speed."""

    def __init__(self, most: int) -> None:
        self.most, self.positions, self.gaps = most, list[int](), list[int]()

    def add(self, position: int) -> None:
        if self.positions and position <= self.positions[-1]:
            self.positions, self.gaps = [], []
        self.gaps.append(position - self.positions[-1] if self.positions else 0)
        self.positions.append(position)
        if len(self.positions) > self.most:
            at = min(range(1, len(self.positions) - 1), key=lambda one: (self.gaps[one] + self.gaps[one + 1], one))
            self.gaps[at + 1] += self.gaps[at]
            del self.positions[at], self.gaps[at]

    def advance(self, position: int) -> int | None:
        passed = [one for one in self.positions if one <= position]
        self.positions, self.gaps = self.positions[len(passed) :], self.gaps[len(passed) :]
        return passed[-1] if passed else None


def test_what_is_passed_goes_and_the_highest_of_it_is_returned_once() -> None:
    """Pulsar's ReplicatedSubscriptionSnapshotCacheTest.basicCachingTest."""
    cache = SnapshotCache(30)
    for number in (1, 2, 5, 7):
        cache.add(snapshot(number, number))
    assert cache.advance(Position(0, 0)) is None
    assert cache.advance(Position(1, 0)) is None
    assert cache.advance(Position(1, 1)) == snapshot(1, 1)
    assert cache.advance(Position(1, 1)) is None
    assert cache.advance(Position(7, 6)) == snapshot(5, 5)
    assert held(cache) == [7]
    assert cache.advance(Position(9, 0)) == snapshot(7, 7)
    assert cache.advance(Position(9, 0)) is None
    assert held(cache) == []


@pytest.mark.parametrize("again", [7, 6, 1])
def test_a_position_that_is_not_beyond_the_last_clears_all_before_it(again: int) -> None:
    assert held(filled(1, 5, 7, again)) == [again]


@pytest.mark.parametrize(
    ("positions", "left"),
    [
        ((1, 2, 5, 7), [1, 5, 7]),  # 2 has its neighbours at 1 and 3
        ((1, 4, 5, 9), [1, 5, 9]),  # 4 at 4 in all, 5 at 5
        ((0, 10, 20, 30), [0, 20, 30]),  # of equals the lowest
        ((0, 10, 20, 30, 40), [0, 20, 40]),  # 0 to 20 is one distance now: 20 has 30, 30 has 20
        ((0, 1, 2, 3, 100), [0, 3, 100]),
    ],
)
def test_of_too_many_the_one_between_the_nearest_neighbours_goes(positions: tuple[int, ...], left: list[int]) -> None:
    assert held(filled(*positions, most=3)) == left


def test_the_first_and_the_last_stay_however_near_they_are() -> None:
    cache = SnapshotCache(3)
    for position in range(1000):
        cache.add(snapshot(position))
        assert held(cache)[0] == 0
        assert held(cache)[-1] == position


def test_versions_are_what_is_far_or_near_and_the_distances_to_one_that_went_add_up() -> None:
    cache = SnapshotCache(3)
    for position in ((0, 9), (10, 8), (20, 7), (30, 0)):
        cache.add(snapshot(*position))
    assert [gap for _, gap in cache.to_state()] == [None, 20, 10]


@given(
    st.integers(3, 7),
    st.lists(st.one_of(st.tuples(st.just("add"), st.integers(0, 60)), st.tuples(st.just("advance"), st.integers(0, 60)))),
    st.booleans(),
)
def test_it_does_what_the_plain_rules_do(most: int, steps: list[tuple[str, int]], ascending: bool) -> None:
    cache, plain, at = SnapshotCache(most), Plain(most), 0
    for verb, number in steps:
        if verb == "add":
            at = at + number % 5 + 1 if ascending else number
            cache.add(snapshot(at))
            plain.add(at)
        else:
            found = cache.advance(Position(number, 0))
            assert (None if found is None else found.local_position.version) == plain.advance(number)
        assert held(cache) == plain.positions
        state = json.loads(json.dumps(cache.to_state()))
        cache = SnapshotCache.from_state(state, {one.snapshot_id: one for one in cache.snapshots}, most)


def test_a_state_that_names_a_snapshot_nobody_has_is_refused() -> None:
    with pytest.raises(UsageError, match="s7"):
        SnapshotCache.from_state([["s7", None]], {}, 30)


def test_a_state_kept_with_a_larger_limit_is_cut_to_this_one() -> None:
    cache = filled(0, 10, 20, 30, 40)
    smaller = SnapshotCache.from_state(cache.to_state(), {one.snapshot_id: one for one in cache.snapshots}, 3)
    assert held(smaller) == held(filled(0, 10, 20, 30, 40, most=3))
