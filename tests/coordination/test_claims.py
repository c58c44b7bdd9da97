"""Who may take a runner: all of it is a pure decision."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.coordination.claims import OWNED, RELEASED, Denied, Granted, Liveness, Owner, decide, fence_generation, fence_name
from geo.times import EPOCH

LIVES, DEAD, LEFT, SILENT = Liveness.LIVES, Liveness.DEAD, Liveness.LEFT, Liveness.SILENT


def _owner(runner: str, generation: int, holder: str = "h", *, released: bool = False, in_flight: bool = False) -> Owner:
    return Owner(runner, generation, f"t{generation}", holder, RELEASED if released else OWNED, in_flight, EPOCH)


def _take(generation: int, dead: str = "", in_flight: str = "") -> Granted:
    return Granted(generation, frozenset(dead), frozenset(in_flight))


@pytest.mark.parametrize(
    ("owners", "liveness", "take_over", "decision"),
    [
        ([], {}, "", _take(1)),
        ([_owner("a", 4, released=True)], {}, "", _take(5)),
        ([_owner("a", 4, released=True, in_flight=True)], {}, "", _take(5, in_flight="a")),
        ([_owner("a", 4)], {"h": LIVES}, "", Denied(_owner("a", 4))),
        ([_owner("a", 4)], {"h": LIVES}, "b", Denied(_owner("a", 4))),
        ([_owner("a", 4)], {"h": LIVES}, "a", _take(5, in_flight="a")),
        ([_owner("a", 4)], {"h": DEAD}, "", _take(5, "h")),
        ([_owner("a", 4, in_flight=True)], {"h": DEAD}, "", _take(5, "h", "a")),
        ([_owner("a", 4)], {"h": LEFT}, "", _take(5, in_flight="a")),
        ([_owner("a", 4)], {"h": SILENT}, "", _take(5, in_flight="a")),
        ([_owner("a", 4, "x"), _owner("b", 3, "y")], {"x": DEAD, "y": LIVES}, "", Denied(_owner("b", 3, "y"))),
        ([_owner("a", 4, "x"), _owner("b", 3, "y")], {"x": DEAD, "y": DEAD}, "", _take(5, "xy")),
        ([_owner("c", 9, in_flight=True)], {}, "", _take(10)),
    ],
)
def test_a_runner_is_taken_unless_its_owner_lives(
    owners: list[Owner], liveness: dict[str, Liveness], take_over: str, decision: Granted | Denied
) -> None:
    assert decide(owners, ["a", "b"], liveness, {}, take_over=take_over) == decision


def test_an_owner_that_only_its_fence_tells_of_may_have_something_in_flight() -> None:
    """The table of owners was lost, or an older copy of it was put back."""
    assert decide([], ["a", "b"], {}, {"a": [3], "b": []}) == _take(4, in_flight="a")
    assert decide([_owner("a", 2, released=True)], ["a", "b"], {}, {"a": [1, 3]}) == _take(4, in_flight="a")
    assert decide([_owner("a", 3, released=True)], ["a", "b"], {}, {"a": [1, 3]}) == _take(4)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 50), st.booleans(), st.booleans(), st.sampled_from(list(Liveness)))
    ),
    st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 60))),
    st.sets(st.sampled_from("ab")),
)
def test_no_generation_is_given_out_twice_and_nobody_who_lives_is_replaced_unasked(
    rows: list[tuple[str, int, bool, bool, Liveness]], fences: dict[str, list[int]], take_over: set[str]
) -> None:
    newest = {runner: (generation, released, in_flight, lives) for runner, generation, released, in_flight, lives in rows}
    owners = [_owner(runner, g, f"h-{runner}", released=r, in_flight=i) for runner, (g, r, i, _) in newest.items()]
    liveness = {f"h-{runner}": lives for runner, (*_, lives) in newest.items()}
    wanted = ["a", "b"]
    decision = decide(owners, wanted, liveness, fences, take_over=take_over)
    held = {runner: lives for runner, (_, released, _, lives) in newest.items() if runner in wanted and not released}
    if isinstance(decision, Denied):
        assert held[decision.owner.runner].is_alive
        assert decision.owner.runner not in take_over
        return
    assert {runner for runner, lives in held.items() if lives.is_alive} <= take_over
    assert decision.generation > max([0, *chain(*fences.values()), *(owner.generation for owner in owners)])
    assert decision.dead == {f"h-{runner}" for runner, lives in held.items() if lives is DEAD}
    inherited = {owner.runner for owner in owners if owner.runner in wanted and owner.in_flight}
    unknown = {runner for runner, found in fences.items() if max([0, *found]) > newest.get(runner, (0,))[0]}
    assert decision.in_flight == inherited | unknown | {runner for runner, lives in held.items() if lives is not DEAD}


def test_a_fence_is_named_by_its_claim_and_foreign_files_are_older_than_any() -> None:
    assert fence_name(7, "abc") == "000000000007-abc"
    assert fence_generation(fence_name(7, "abc")) == 7
    assert fence_generation(fence_name(10**11, "x-y")) == 10**11
    assert fence_generation("_SUCCESS") == 0
