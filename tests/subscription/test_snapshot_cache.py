"""The cache of snapshots: Pulsar's vectors, and the same rules written down plainly."""

from __future__ import annotations

import json
import random
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import UsageError
from geo.ids import Position
from geo.subscription.snapshot_cache import Snapshot, SnapshotCache, version_distance


def snapshot(position: Any) -> Snapshot:
    return Snapshot(f"s{position}", position, {"b": position})


def filled(*positions: Any, most: int = 30) -> SnapshotCache:
    cache = SnapshotCache(most)
    for position in positions:
        cache.add(snapshot(position))
    return cache


def held(cache: SnapshotCache) -> list[Any]:
    return [one.local_position for one in cache.snapshots]


class Plain:
    """The rules as the facts tell them, without a thought for speed."""

    def __init__(self, most: int) -> None:
        self.most, self.positions, self.gaps = most, list[Any](), list[Any]()

    def add(self, position: Any) -> None:
        if self.positions and position <= self.positions[-1]:
            self.positions, self.gaps = [], []
        self.gaps.append(version_distance(self.positions[-1], position) if self.positions else 0)
        self.positions.append(position)
        if len(self.positions) > self.most:
            at = min(range(1, len(self.positions) - 1), key=lambda one: (self.gaps[one] + self.gaps[one + 1], one))
            self.gaps[at + 1] += self.gaps[at]
            del self.positions[at], self.gaps[at]

    def advance(self, position: Any) -> Any:
        passed = [one for one in self.positions if one <= position]
        self.positions, self.gaps = self.positions[len(passed) :], self.gaps[len(passed) :]
        return passed[-1] if passed else None


def test_what_is_passed_goes_and_the_highest_of_it_is_returned_once() -> None:
    """Pulsar's ReplicatedSubscriptionSnapshotCacheTest.basicCachingTest."""
    cache = filled((1, 1), (2, 2), (5, 5), (7, 7))
    assert cache.advance((0, 0)) is None
    assert cache.advance((1, 0)) is None
    assert cache.advance((1, 1)) == snapshot((1, 1))
    assert cache.advance((1, 1)) is None
    assert cache.advance((7, 6)) == snapshot((5, 5))
    assert held(cache) == [(7, 7)]
    assert cache.advance((9, 0)) == snapshot((7, 7))
    assert cache.advance((9, 0)) is None
    assert len(cache) == 0


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


def test_a_distance_is_asked_once_and_adds_up() -> None:
    asked: list[tuple[int, int]] = []

    def distance(lower: int, upper: int) -> int:
        asked.append((lower, upper))
        return upper - lower

    cache = SnapshotCache(3, distance)
    for position in (0, 10, 20, 30, 40, 50):
        cache.add(snapshot(position))
    assert asked == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]


@pytest.mark.parametrize("most", [2, 0, -1])
def test_fewer_than_three_is_none(most: int) -> None:
    with pytest.raises(ValueError, match="at least 3"):
        SnapshotCache(most)


def test_versions_are_what_is_far_or_near() -> None:
    assert version_distance(Position(3, 9), Position(7, 0)) == 4
    assert version_distance(3, 7) == 4


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
            cache.add(snapshot((at, 0)))
            plain.add((at, 0))
        else:
            found = cache.advance((number, 0))
            assert (None if found is None else found.local_position) == plain.advance((number, 0))
        assert held(cache) == plain.positions
        state = json.loads(json.dumps(cache.to_state()))
        cache = SnapshotCache.from_state(state, {one.snapshot_id: one for one in cache.snapshots}, most)


def test_a_state_that_names_a_snapshot_nobody_has_is_refused() -> None:
    with pytest.raises(UsageError, match="s7"):
        SnapshotCache.from_state([["s7", None]], {})


def test_a_state_kept_with_a_larger_limit_is_cut_to_this_one() -> None:
    cache = filled(0, 10, 20, 30, 40)
    smaller = SnapshotCache.from_state(cache.to_state(), {one.snapshot_id: one for one in cache.snapshots}, 3)
    assert held(smaller) == held(filled(0, 10, 20, 30, 40, most=3))


@pytest.mark.parametrize("most", [30, 10_000])
def test_many_additions_cost_little_and_leave_no_more_than_the_limit(most: int) -> None:
    """A million take some 4 s by hand, also with ten thousand held; a tenth of it here."""
    random_numbers, cache, at = random.Random(7), SnapshotCache(most), 0
    one, began = snapshot(0), process_time()
    for _ in range(100_000):
        at += random_numbers.randint(1, 50)
        cache.add(Snapshot(one.snapshot_id, at, one.clusters))
    assert len(cache) == most
    assert len(cache._spans) <= 4 * most
    assert cache.advance(at) is not None
    assert process_time() - began < 3.0, "99 s a million with ten thousand held, when each that went moved a list"
