"""What a removal takes with it, decided purely."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from geo.ids import LedgerId
from geo.log.ledgers import LedgerPart
from geo.ops.removal import LeftBehind, OnlyThere, TopicFacts, lacking, only_there, refusal_of_cluster, refusal_of_topic
from geo.replication.gaps import Extent

LEDGER = LedgerId("eu", 7)


def _extent(entries: set[int]) -> Extent:
    squares = sum(entry * entry for entry in entries)
    return Extent(min(entries), max(entries), len(entries), sum(entries), squares)


def _log(*entries: int) -> dict[LedgerId, Extent]:
    return {LEDGER: _extent(set(entries))} if entries else {}


def test_what_another_log_has_is_not_lost() -> None:
    assert only_there(_log(0, 1, 2), [_log(0, 1, 2, 3)]) == OnlyThere()
    assert only_there(_log(0, 1, 2), [_log()]) == OnlyThere(3, ("eu:7:0-2",))
    assert only_there(_log(0, 1, 2, 3), [_log(1, 2)]) == OnlyThere(2, ("eu:7:0-0", "eu:7:3-3"))


def test_two_logs_together_may_have_all_of_it() -> None:
    assert only_there(_log(0, 1, 2, 3), [_log(0, 1), _log(2, 3)]) == OnlyThere()


def test_of_a_log_with_a_hole_only_that_it_is_the_same_is_known() -> None:
    assert only_there(_log(0, 2), [_log(0, 2)]) == OnlyThere()
    assert only_there(_log(0, 1, 2), [_log(0, 2)]).messages == 3, "never too few"


def test_who_is_away_matters_only_where_something_would_be_lost() -> None:
    away = {"us": "no answer"}
    assert only_there(_log(0, 1), [_log(0, 1)], away).away is None
    told = only_there(_log(0, 1), [], away).told
    assert told == "2 of them in no other cluster that can be read (eu:7:0-1); us cannot be read, and may hold some: no answer"


entries = st.sets(st.integers(0, 12))


@given(mine=entries, others=st.lists(entries, max_size=3))
def test_never_fewer_are_told_than_would_be_lost_and_exactly_those_without_holes(mine: set[int], others: list[set[int]]) -> None:
    found = only_there(_log(*mine), [_log(*other) for other in others]).messages
    assert found >= len(mine - set[int]().union(*others))
    whole = [set(range(min(one), max(one) + 1)) if one else set() for one in (mine, *others)]
    exact = only_there(_log(*whole[0]), [_log(*other) for other in whole[1:]]).messages
    assert exact == len(whole[0] - set[int]().union(*whole[1:]))


def test_others_lack_what_one_of_them_has_and_they_were_still_to_get() -> None:
    of_eu = {LEDGER: LedgerPart(0, 9, 10), LedgerId("us", 1): LedgerPart(0, 99, 100)}
    logs = {"eu": of_eu, "us": {LEDGER: LedgerPart(0, 4, 5)}, "ap": dict[LedgerId, LedgerPart]()}
    assert lacking("eu", logs, {"us": {}, "ap": {}}) == {"us": 5, "ap": 10}
    assert lacking("eu", logs, {"us": {}, "ap": {"eu:7": 8}}) == {"us": 5, "ap": 2}, "it began at the latest"
    assert lacking("eu", logs, {}) == {}
    only_us = {"eu": {LEDGER: LedgerPart(0, 9, 10, ("us",))}, "us": {}, "ap": {}}
    assert lacking("eu", only_us, {"us": {}, "ap": {}}) == {"us": 10}


NOTHING = OnlyThere()


def _facts(only: OnlyThere = NOTHING, lives: str | None = None) -> TopicFacts:
    return TopicFacts("persistent://shop/web/clicks", "eu", 9, only, lives, (), 0, (), (), (), unended=False, removes=False)


def test_a_topic_is_not_deleted_while_somebody_lives_nor_if_messages_would_be_lost_unless_that_was_said() -> None:
    assert refusal_of_topic(_facts(), lose=False) is None
    assert refusal_of_topic(_facts(lives="producer p lives"), lose=True) == "producer p lives"
    lost = _facts(OnlyThere(3, ("eu:7:0-2",)))
    assert refusal_of_topic(lost, lose=True) is None
    begun, half = replace(lost, unended=True), replace(lost, unended=True, removes=True)
    assert "run the links out of eu, which carry it again" in (refusal_of_topic(begun, lose=False) or "")
    assert "run the links" not in (refusal_of_topic(half, lose=False) or ""), "none carries half a topic"
    assert refusal_of_topic(lost, lose=False) == (
        "persistent://shop/web/clicks in eu: 9 messages, 3 of them in no other cluster (eu:7:0-2). To bring them elsewhere first, run the "
        "links out of eu; to lose them, say --lose-what-only-it-has."
    )


def test_a_cluster_is_not_removed_while_a_link_from_it_lives_nor_if_what_only_it_has_would_be_lost_or_is_not_known() -> None:
    lost = LeftBehind("persistent://shop/web/clicks", OnlyThere(3, ("eu:7:0-2",)), {})
    assert refusal_of_cluster("eu", [LeftBehind("t", OnlyThere(), {"us": 5})], None, {}, lose=False) == []
    assert refusal_of_cluster("eu", [lost], "no answer", {"us": "link lives"}, lose=True) == ["link lives"]
    unknown, known = refusal_of_cluster("eu", [lost], "no answer", {}, lose=False)
    assert unknown == (
        "what only eu has is not known, since it cannot be read: no answer. To lose it, say --lose-what-only-it-has."
    )
    assert "3 of them in no other cluster (eu:7:0-2)" in known
