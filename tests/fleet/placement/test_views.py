"""What is told of bundles, and what is refused that people ask of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geo.errors import UsageError
from geo.fleet.placement.bundles import bundle_hash, bundle_name, bundle_of, even
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import NOBODY, SPLIT, TRANSFER, UNLOAD, BundleRequest
from geo.fleet.placement.load_data import BrokerLoad, BundleLoad, Usage
from geo.fleet.placement.policies import Isolation, Policies
from geo.fleet.placement.views import (
    FLOW,
    POSITIONS,
    RANGE,
    SILENT,
    TOPIC_COUNT,
    became,
    brokers_for,
    brokers_of,
    bundle_views,
    forbidden,
    once_each,
    parts_of,
    refuse_no_other_broker,
    refuse_two_domains,
    refuse_unfit_broker,
    refuse_unknown_bundle,
    split_positions,
    told_state,
)

BUNDLES = {"shop/web": even(4)}
NAMES = [bundle_name("shop/web", part) for part in even(4).ranges]


def _assigned(broker: str) -> Assigned:
    return Assigned(broker, 1, 1, 0.0, None, "chosen")


def test_a_bundle_is_told_with_its_owner_and_where_it_moves() -> None:
    assigned = {NAMES[0]: _assigned("a"), NAMES[1]: _assigned("b"), NAMES[2]: _assigned(NOBODY)}
    claims = {NAMES[0]: Claim("a", 1), NAMES[1]: Claim("a", 1), NAMES[2]: Claim("c", 1, released=True)}
    views = bundle_views(
        BUNDLES, assigned, claims, ["persistent://shop/web/t1", "persistent://other/web/t1"], "ab", Policies(), "c"
    )
    assert [(view.owner, view.assigned, view.moves, view.splits) for view in views] == [
        ("a", "a", False, False),
        ("a", "b", True, False),
        (None, None, True, True),
        (None, None, False, False),
    ]
    assert [view.bundle for view in views] == NAMES
    assert sum(view.topics for view in views) == 1
    assert views[3].why == "no topic of it was found yet"
    assert [view.lacks for view in views] == [None] * 4


@pytest.mark.parametrize(
    ("up", "isolation", "lacks"),
    [
        (("a", "b"), None, None),
        (("b",), None, "broker a is not up: start it again"),
        ((), None, "broker a is not up, and no broker is: start one"),
        (("a", "b"), "gone", "isolation lets no broker that is up own it"),
        (("b",), "a", "broker a is not up, and isolation lets no broker that is up own it"),
        (("a", "b"), "a", None),
    ],
)
def test_a_bundle_whose_broker_is_dead_or_that_nobody_may_own_is_told(
    up: tuple[str, ...], isolation: str | None, lacks: str | None
) -> None:
    policies = Policies() if isolation is None else Policies([Isolation("shop/web", isolation, "none")])
    topic = "persistent://shop/web/t1"
    name = bundle_of(topic, BUNDLES)
    views = bundle_views(BUNDLES, {name: _assigned("a")}, {name: Claim("a", 1)}, [topic], up, policies)
    (found,) = [view for view in views if view.bundle == name]
    assert (found.lacks or "").startswith(lacks or "")
    assert (found.lacks is None) == (lacks is None)
    others = [view for view in views if view.bundle != name]
    assert {view.lacks for view in others} == {None}, "nothing is in them"


def test_topics_that_nobody_may_own_are_not_said_to_be_missing() -> None:
    policies = Policies([Isolation("shop/web", "gone", "none")])
    topic = "persistent://shop/web/t1"
    (found,) = [view for view in bundle_views(BUNDLES, {}, {}, [topic], ["a"], policies) if view.topics]
    assert found.why == "no leader has placed its topics yet"
    assert (found.lacks or "").startswith("isolation lets no broker that is up own it")


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


def test_a_bundle_goes_to_another_broker_that_is_up_and_allowed() -> None:
    def refuse(broker: str, owner: str | None, assigned: str, allowed: tuple[str, ...] = ("a", "b")) -> None:
        refuse_unfit_broker(NAMES[0], broker, ("a", "b", "d"), allowed, owner, assigned)

    refuse("b", "a", "a")
    refuse("a", "a", "b")  # it is called back
    refuse("d", "a", "a", allowed=())  # no broker that isolation allows is up: then it does not count
    for broker, owner, assigned, says in (
        ("c", "a", "a", "broker 'c' is not up; those that are: a, b"),
        ("a", "a", "a", f"broker a owns {NAMES[0]} already"),
        ("b", "a", "b", f"{NAMES[0]} is on its way to b already"),
        ("d", "a", "a", f"isolation does not let broker d own {NAMES[0]}; it lets a, b"),
    ):
        with pytest.raises(UsageError, match=says):
            refuse(broker, owner, assigned)


def test_a_bundle_is_not_given_up_to_nobody() -> None:
    refuse_no_other_broker(NAMES[0], ["a", "b"], ["a", "b"], "a")
    with pytest.raises(UsageError, match="no other broker is up that could own"):
        refuse_no_other_broker(NAMES[0], ["a"], ["a"], "a")
    with pytest.raises(UsageError, match="isolation lets a own"):
        refuse_no_other_broker(NAMES[0], ["a", "b"], ["a"], "a")


def test_a_broker_is_in_one_failure_domain() -> None:
    domains = {"north": ["a", "b"], "south": ["c"]}
    refuse_two_domains("north", ["a", "d"], domains)
    with pytest.raises(UsageError, match="broker c is in domain south already"):
        refuse_two_domains("north", ["a", "c"], domains)


@pytest.mark.parametrize(
    ("action", "said", "claim", "ends", "done", "says"),
    [
        (TRANSFER, ("a", 6), Claim("a", 1), False, False, "no leader has followed yet"),
        (TRANSFER, ("b", 7), Claim("a", 1), False, False, "on its way from a to b"),
        (TRANSFER, ("b", 7), Claim("a", 1, released=True), False, False, "on its way from nobody to b"),
        (TRANSFER, ("b", 7), Claim("b", 2), True, True, "b owns it, chosen"),
        (TRANSFER, ("a", 7), Claim("a", 1), True, False, "a owns it: b was not up"),
        (TRANSFER, ("b", 9), Claim("b", 2), True, True, "b owns it"),  # another request came after it
        (UNLOAD, ("c", 7), Claim("c", 2), True, True, "c owns it, chosen"),
        (UNLOAD, ("a", 7), Claim("a", 1), True, False, "a owns it: no other broker could have it"),
        (SPLIT, (NOBODY, 7), Claim("a", 1), False, False, "it is split once a has released it"),
        (SPLIT, ("a", 7), Claim("a", 2), True, False, "it was not split"),
    ],
)
def test_what_became_of_a_request(action: str, said: tuple[str, int], claim: Claim, ends: bool, done: bool, says: str) -> None:
    request = BundleRequest(NAMES[0], action, 7, "b" if action == TRANSFER else "")
    assigned = {NAMES[0]: Assigned(said[0], 1, 1, 0.0, None, "chosen", said[1])}
    told = became(request, "a", BUNDLES, assigned, {NAMES[0]: claim})
    assert (told.ends, told.done) == (ends, done)
    assert says in told.says


def test_a_bundle_on_its_way_may_be_sent_back_to_who_still_has_it() -> None:
    told = became(
        BundleRequest(NAMES[0], UNLOAD, 7),
        "b",
        BUNDLES,
        {NAMES[0]: replace(_assigned("a"), request=7)},
        {NAMES[0]: Claim("a", 1)},
    )
    assert (told.ends, told.done) == (True, True)


def test_what_became_of_a_request_once_the_bundle_is_split() -> None:
    bundles = {"shop/web": even(4).split(even(4).ranges[0], [100])}
    low, high = bundle_name("shop/web", (0, 100)), bundle_name("shop/web", (100, even(4).ranges[0][1]))
    request, assigned = BundleRequest(NAMES[0], SPLIT, 7), {NAMES[0]: _assigned(NOBODY), low: _assigned("a")}
    assert not became(request, "a", bundles, {NAMES[0]: _assigned(NOBODY)}, {}).ends, "its parts are not placed yet"
    assert not became(request, "a", bundles, assigned, {low: Claim("b", 1)}).ends
    told = became(request, "a", bundles, assigned, {low: Claim("a", 1)})
    assert (told.ends, told.done, told.says) == (True, True, f"it was split into {low} (a), {high} (nobody)")
    moved = became(replace(request, action=UNLOAD), "a", bundles, assigned, {low: Claim("a", 1)})
    assert (moved.ends, moved.done) == (True, False)
    assert "meanwhile; ask for one of these" in moved.says


def test_a_bundle_that_two_brokers_report_counts_once() -> None:
    def load(*bundles: str) -> BrokerLoad:
        return BrokerLoad(*(Usage(1.0, 2.0),) * 4, {bundle: BundleLoad(1.0, 0.0, 1.0, 0.0, 1) for bundle in bundles})

    reports = {"a": load(*NAMES[:3]), "b": load(*NAMES[:2]), "c": load(NAMES[3])}
    told = once_each(reports, {"a": 1.0, "b": 2.0, "c": 3.0}, {NAMES[0]: "a", NAMES[1]: None, NAMES[3]: "a"})
    assert {broker: list(one.bundles) for broker, one in told.items()} == {
        "a": [NAMES[0], NAMES[2]],
        "b": [NAMES[1]],
        "c": [NAMES[3]],
    }


def test_a_broker_is_silent_unless_it_has_left() -> None:
    assert told_state("up", 30.0, 30.0, has_left=False) == "up"
    assert told_state("leaving", 31.4, 30.0, has_left=False) == SILENT
    assert told_state("left", 1e6, 30.0, has_left=True) == "left"


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
        (POSITIONS, (), names, "needs --positions: hashes inside 0x00000000 to 0x40000000"),
        (FLOW, (), names, "needs the load of each topic"),
    ):
        with pytest.raises(UsageError, match=says):
            split_positions(NAMES[0], algorithm, positions, found)


def test_whom_a_policy_lets_own_and_who_is_to() -> None:
    isolation = Isolation(["shop/.*"], ["b"], ["c"], 2)
    assert brokers_for(isolation, ["shop/web", "bank/web"], {"a": 0.0, "b": 0.0, "c": 0.0}) == {"shop/web": ["b", "c"]}
    assigned = {
        NAMES[0]: _assigned("b"),
        NAMES[1]: _assigned("a"),
        NAMES[2]: _assigned(NOBODY),
        "shop/app/0x0_0xf": _assigned("z"),
    }
    assert brokers_of("shop/web", assigned) == ["a", "b"]


def test_what_the_parts_of_a_split_have() -> None:
    topics = [f"persistent://shop/web/t{number}" for number in range(40)]
    for number in (0, 3):
        lower, upper = even(4).ranges[number]
        inside = [topic for topic in topics if lower <= bundle_hash(topic) < upper]
        at = sorted(map(bundle_hash, inside))[2]
        first, second = bundle_name("shop/web", (lower, at)), bundle_name("shop/web", (at, upper))
        assert parts_of(NAMES[number], [at], inside) == {first: 2, second: len(inside) - 2}


def test_what_a_policy_takes_away() -> None:
    assigned = {NAMES[0]: _assigned("a"), NAMES[1]: _assigned("b"), NAMES[2]: _assigned(NOBODY), NAMES[3]: _assigned("gone")}
    policies = Policies([Isolation("shop/.*", "b", "")])
    assert forbidden(policies, assigned, {"a": 0.0}) == {NAMES[0]: []}
    assert forbidden(policies, assigned, {"a": 0.0, "b": 0.0}) == {NAMES[0]: ["b"]}
    assert forbidden(Policies(), assigned, {"a": 0.0, "b": 0.0}) == {}
