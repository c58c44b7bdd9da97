"""What is told of bundles, and what is refused that people ask of them."""

from __future__ import annotations

import pytest

from geo.errors import UsageError
from geo.fleet.placement.bundles import bundle_hash, bundle_name, even
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import NOBODY
from geo.fleet.placement.policies import Isolation, Policies
from geo.fleet.placement.views import (
    POSITIONS,
    RANGE,
    TOPIC_COUNT,
    bundle_views,
    forbidden,
    refuse_unfit_broker,
    refuse_unknown_bundle,
    split_positions,
)

BUNDLES = {"shop/web": even(4)}
NAMES = [bundle_name("shop/web", part) for part in even(4).ranges]


def _assigned(broker: str) -> Assigned:
    return Assigned(broker, 1, 1, 0.0, None, "chosen")


def test_a_bundle_is_told_with_its_owner_and_where_it_moves() -> None:
    assigned = {NAMES[0]: _assigned("a"), NAMES[1]: _assigned("b"), NAMES[2]: _assigned(NOBODY)}
    claims = {NAMES[0]: Claim("a", 1), NAMES[1]: Claim("a", 1), NAMES[2]: Claim("c", 1, released=True)}
    views = bundle_views(BUNDLES, assigned, claims, ["persistent://shop/web/t1", "persistent://other/web/t1"])
    assert [(view.owner, view.assigned, view.moves) for view in views] == [
        ("a", "a", False),
        ("a", "b", True),
        (None, None, False),
        (None, None, False),
    ]
    assert [view.bundle for view in views] == NAMES
    assert sum(view.topics for view in views) == 1
    assert views[3].why == "no topic of it was found yet"


def test_of_a_bundle_that_is_no_more_those_in_its_place_are_named() -> None:
    refuse_unknown_bundle(NAMES[0], BUNDLES)
    split = {"shop/web": even(4).split(even(4).ranges[0], [100])}
    with pytest.raises(
        UsageError,
        match=f"there is no bundle {NAMES[0]}; its range lies in shop/web/0x00000000_0x00000064, shop/web/0x00000064_0x4",
    ):
        refuse_unknown_bundle(NAMES[0], split)
    with pytest.raises(UsageError, match="namespace shop/app has no bundles; those that have: shop/web"):
        refuse_unknown_bundle("shop/app/0x00000000_0xffffffff", BUNDLES)
    with pytest.raises(UsageError, match="is not of the form tenant/namespace/0x"):
        refuse_unknown_bundle("shop/web", BUNDLES)


def test_a_bundle_goes_to_another_broker_that_is_up() -> None:
    refuse_unfit_broker("b", {"a", "b"}, "a")
    with pytest.raises(UsageError, match="broker 'c' is not up; those that are: a, b"):
        refuse_unfit_broker("c", {"a", "b"}, "a")
    with pytest.raises(UsageError, match="broker a owns it already"):
        refuse_unfit_broker("a", {"a", "b"}, "a")


def test_where_a_bundle_is_split() -> None:
    topics = [f"persistent://shop/web/t{number}" for number in range(40)]
    inside = sorted(bundle_hash(topic) for topic in topics if bundle_hash(topic) < even(4).ranges[0][1])
    names = [topic for topic in topics if bundle_hash(topic) in inside]
    assert split_positions(NAMES[0], RANGE, (), names) == (0x20000000,)
    (middle,) = split_positions(NAMES[0], TOPIC_COUNT, (), names)
    assert abs(sum(at < middle for at in inside) - sum(at >= middle for at in inside)) <= 1
    assert split_positions(NAMES[0], POSITIONS, (200, 100, 0xF0000000), names) == (100, 200)
    for algorithm, positions, found, says in (
        (POSITIONS, (0xF0000000,), names, "no position lies inside it"),
        (RANGE, (100,), names, "--positions are for --algorithm specified_positions_divide"),
        (TOPIC_COUNT, (), names[:1], "it has 1 topic"),
        (POSITIONS, (), names, "expected: one or more"),
    ):
        with pytest.raises(UsageError, match=says):
            split_positions(NAMES[0], algorithm, positions, found)


def test_what_a_policy_takes_away() -> None:
    assigned = {NAMES[0]: _assigned("a"), NAMES[1]: _assigned("b"), NAMES[2]: _assigned(NOBODY)}
    policies = Policies([Isolation("shop/.*", "b", "")])
    assert forbidden(policies, assigned, {"a": 0.0, "b": 0.0}) == {NAMES[0]: ["b"]}
    assert forbidden(Policies(), assigned, {"a": 0.0, "b": 0.0}) == {}
