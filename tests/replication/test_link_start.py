"""Where a link stands and what its start does, as tables: recorded row x commits of the target x the source -> decision."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import cast

import pytest

from geo.config.choices import Start
from geo.config.model import Link
from geo.delta.actions import Partition
from geo.delta.commits import Commit
from geo.delta.history import CommitName
from geo.errors import SchemaError
from geo.journal.cluster import ClusterTables
from geo.names import Topic
from geo.reasons import Reason
from geo.replication import link_start
from geo.replication.link_row import LinkRow
from geo.replication.link_start import (
    GoOn,
    LinkStanding,
    Reconcile,
    StartFacts,
    TargetSeen,
    begins_at,
    look_at_target,
    new_at_end,
    standing,
    start,
)
from geo.replication.link_state import LinkRecord, LinkState
from geo.replication.source_history import CompareLogs, Fault
from geo.streams.life import State, Why
from geo.times import EPOCH
from tests.replication.histories import TABLE, appends, by_link, commit, cursor, erasure, expiry, foreign, record, restore

AWAY = Why("storage was away", Reason.NO_ANSWER)


def row(at: int = 100, target: int | None = 5, origins: tuple[str, ...] = ("us",), state: State = State.STOPPED) -> LinkState:
    return LinkState(
        source="us",
        topic="persistent://shop/web/clicks",
        state=state,
        reason="why",
        generation=2,
        origins=origins,
        cursor=cursor(at, "source"),
        target=None if target is None else cursor(target),
        floors=None,
        expired=0,
        sequence=1,
    )


def look(commits: list[Commit], *, since: int = 5, table: str = TABLE, newest: int | None = None) -> TargetSeen:
    return look_at_target("us->eu", cursor(since), table, commits[-1].version if newest is None else newest, commits)


def stands(commits: list[Commit], *, origins: tuple[str, ...] = ("us",), recorded: LinkState | None = None) -> LinkStanding:
    recorded = recorded or row()
    return standing(recorded, look(commits), "us->eu", origins)


def _link_row(recorded: LinkState, generation: int) -> LinkRow:
    tables = cast(ClusterTables, None)  # nothing is written
    of = LinkRow(tables, "us", Topic.parse(recorded.topic), ("us",))
    of.begin(recorded, generation)
    return of


# -- its row -------------------------------------------------------------------------------------------------------------


def test_a_row_counts_also_after_the_table_of_owners_was_lost() -> None:
    recorded = replace(row(), generation=50)
    next_one = _link_row(recorded, 1).following(State.RUNNING, None, cursor(101, "source"), cursor(6))
    assert (next_one.generation, next_one.sequence) == (50, 2)
    assert _link_row(recorded, 51).following(State.RUNNING, None, None, None).generation == 51


def test_what_needs_a_person_still_does_after_a_transient_fault() -> None:
    of = _link_row(row(state=State.FAILED), 3)
    assert (of.failed(State.DELAYED, AWAY).state, of.failed(State.DELAYED, AWAY).reason) == (State.FAILED, "why")
    assert _link_row(row(), 3).failed(State.DELAYED, AWAY).state is State.DELAYED


def test_a_state_is_since_when_it_was_while_it_and_its_code_stay() -> None:
    recorded = replace(row(state=State.DELAYED), state_since=EPOCH, reason_code=Reason.NO_ANSWER)
    stays = _link_row(recorded, 3).failed(State.DELAYED, Why("nobody answered", Reason.NO_ANSWER))
    assert (stays.state_since, stays.reason_code) == (EPOCH, Reason.NO_ANSWER)
    for other in (
        _link_row(recorded, 3).failed(State.DELAYED, Why("full", Reason.TARGET_DISK_FULL)),
        _link_row(recorded, 3).following(State.RUNNING, None, None, None),
    ):
        assert other.state_since is not None
        assert other.state_since > EPOCH
    failed = replace(recorded, state=State.FAILED, reason_code=Reason.SOURCE_RECREATED)
    still = _link_row(failed, 3).failed(State.DELAYED, AWAY)
    assert (still.state_since, still.reason_code) == (EPOCH, Reason.SOURCE_RECREATED)


def test_since_when_a_state_is_that_an_older_program_recorded_nobody_knows() -> None:
    of = _link_row(row(state=State.FAILED), 3)
    known = of.failed(State.FAILED, Why("why", Reason.SOURCE_GONE))
    assert (known.state_since, known.reason_code) == (None, Reason.SOURCE_GONE)
    assert of.following(State.RUNNING, None, None, None).state_since is not None


# -- where it stands -----------------------------------------------------------------------------------------------------


def test_the_newest_cursor_is_in_the_newest_commit_of_the_link() -> None:
    commits = [*appends(5, 6), by_link(7, record(101)), commit(8), by_link(9, record(103)), commit(10)]
    assert stands(commits) == LinkStanding(cursor(103, "source"))
    assert look(commits).newest == cursor(10), "and this is the commit that the next row can name"


def test_without_a_newer_commit_of_the_link_the_rows_cursor_holds() -> None:
    assert stands(appends(5, 9)) == LinkStanding(cursor(100, "source"))
    assert stands([commit(5)]) == LinkStanding(cursor(100, "source"))


def test_a_target_that_is_another_log_is_told_apart_from_one_in_which_something_was_done() -> None:
    def is_other(seen: TargetSeen) -> bool:
        return standing(row(), seen, "us->eu", ("us",)).is_other

    assert is_other(look(appends(5, 9), table="table-2"))
    assert is_other(look(appends(1, 3), newest=3))
    assert is_other(look([commit(5, commit_id="x"), *appends(6, 9)]))
    assert not is_other(look([commit(5), *appends(7, 9)]))
    assert not is_other(look([*appends(5, 8), restore(9, 6)]))


def test_what_the_target_may_lack_is_compared() -> None:
    def why(seen: TargetSeen) -> str | None:
        return standing(row(), seen, "us->eu", ("us",)).why

    assert why(look(appends(5, 9), table="table-2")) == (
        "the target was dropped and created again: its table id is table-2, it was table-1"
    )
    assert why(look(appends(1, 3), newest=3)) == "the target ends at version 3, it was at 5: an older copy was put back"
    assert "the target has another commit at version 5 than it had" in (
        why(look([commit(5, commit_id="x"), *appends(6, 9)])) or ""
    )
    assert why(look([commit(5), *appends(7, 9)])) == "commits 6-6 of the target are gone"
    assert why(look(appends(6, 9))) == "commits 5-5 of the target are gone"
    assert why(look(appends(5, 8), newest=9)) == "commits 9-9 of the target are gone"
    assert "RESTORE" in (why(look([*appends(5, 8), restore(9, 6)])) or "")
    assert "version 9 of the target has rows that no writer of delta-geo recorded (WRITE by ann" in (
        why(look([*appends(5, 8), foreign(9)])) or ""
    )
    deletion = commit(9, "DELETE", metrics={"numRemovedFiles": 1})
    assert "DELETE" in (why(look([*appends(5, 8), deletion])) or "")
    assert why(look([*appends(5, 7), expiry(8), erasure(9)])) is None, "our own expiry and erasure take no message away"
    assert "20001 commits" in (why(look([], newest=5 + link_start.LOOK_LIMIT + 1)) or "")


def test_a_cursor_counts_for_an_origin_only_if_the_newest_commit_that_brought_it_was_this_links() -> None:
    both = ("a", "us")
    of_both, of_a = record(101, origins=both), record(7, link="a->eu", origins=("a",))
    recorded = row(origins=both)
    assert stands([commit(5), by_link(6, of_both)], origins=both, recorded=recorded).why is None
    moved = [commit(5), by_link(6, of_both), by_link(7, of_a)]
    assert stands(moved, origins=both, recorded=recorded).why == "messages of a came by a->eu since"
    assert stands(moved, origins=("us",), recorded=recorded).why is None
    back = [*moved, by_link(8, record(102, origins=both))]
    assert stands(back, origins=both, recorded=recorded).why is None


def test_an_origin_that_is_new_to_the_link_is_compared_first() -> None:
    assert stands(appends(5, 6), origins=("a", "us")).why == "messages of a are new to this link"
    # The row knows both, but the link went on with one of them alone: the newer cursor says nothing of the other.
    commits = [commit(5), by_link(6, record(101, origins=("us",)))]
    assert stands(commits, origins=("a", "us"), recorded=row(origins=("a", "us"))).why == "messages of a are new to this link"


def test_a_reconcile_that_did_not_come_to_its_end_begins_again() -> None:
    commits = [commit(5), by_link(6, record(101)), by_link(7, record(120, reconciling=True))]
    found = stands(commits)
    assert found.why == "a reconcile did not come to its end"
    assert found.cursor == cursor(101, "source"), "the source is still judged from where the target holds everything"


def test_where_a_link_begins_is_fixed_once() -> None:
    late, topic = Link("us", "eu", start="latest"), Topic.parse("persistent://shop/web/clicks")
    failed_before_it_was_fixed = replace(row(), cursor=None, target=None)
    for recorded in (None, failed_before_it_was_fixed):
        assert begins_at(recorded, late, topic) == "latest"
        assert begins_at(recorded, late, topic.acks) == "earliest", "what is done must be known of old messages too"
        assert begins_at(recorded, Link("us", "eu"), topic) == "earliest"
    for recorded in (replace(row(), cursor=None, target=None, floors={}), row()):
        assert begins_at(recorded, late, topic) is None


def test_a_link_without_a_row_or_a_cursor_begins_with_a_comparison() -> None:
    assert standing(None, None, "us->eu", ("us",)).why == "it has never run"
    unfinished = replace(row(), cursor=None, target=None)
    assert standing(unfinished, None, "us->eu", ("us",)).why == "its first comparison did not come to its end"


# -- what a start does ---------------------------------------------------------------------------------------------------

HERE = LinkStanding(cursor(100, "source"))
DAY: Partition = (("publish_date", "2026-01-01"),)
OTHER: Partition = (("publish_date", "2026-01-02"),)
LACKS = LinkStanding(cursor(100, "source"), "the target was changed", touched=frozenset({DAY}))
FAULT = Fault("a RESTORE", 9, 12)
ERASED = CompareLogs("messages were erased")
APPENDED = CompareLogs("somebody appended", touched=frozenset({OTHER}))
GONE = CompareLogs("commits are gone", unseen=True)


@pytest.mark.parametrize(
    ("stands", "source", "decision"),
    [
        (HERE, None, GoOn(cursor(100, "source"))),
        (HERE, FAULT, FAULT),
        (HERE, ERASED, Reconcile("messages were erased")),
        (HERE, GONE, Reconcile("commits are gone", check_lost=True)),
        (HERE, APPENDED, Reconcile("somebody appended", source_touched=frozenset({OTHER}))),
        (LACKS, None, Reconcile("the target was changed", target_touched=frozenset({DAY}))),
        (LACKS, GONE, Reconcile("the target was changed", check_lost=True, target_touched=frozenset({DAY}))),
        (LACKS, APPENDED, Reconcile("the target was changed", False, frozenset({OTHER}), frozenset({DAY}))),
        (LACKS, FAULT, FAULT),
    ],
)
def test_a_start(stands: LinkStanding, source: Fault | CompareLogs | None, decision: object) -> None:
    assert start(StartFacts(row(), stands, source)) == decision


def test_what_is_compared_beyond_ids_is_what_others_touched_in_either_log() -> None:
    assert Reconcile("", False, frozenset({OTHER}), frozenset({DAY})).touched == frozenset({DAY, OTHER})
    assert Reconcile("", False, None, frozenset({DAY})).touched == frozenset({DAY})
    assert Reconcile("", False, frozenset({DAY}), None).touched is None


def test_a_person_may_say_that_the_source_is_right() -> None:
    assert start(StartFacts(row(), HERE, FAULT, accept_source=True)) == Reconcile(None)
    assert start(StartFacts(row(), LACKS, APPENDED, accept_source=True)) == Reconcile(None)
    first = Reconcile("it has never run", source_touched=None)
    assert start(StartFacts(None, LinkStanding(None, "it has never run"), None)) == first, (
        "nobody has looked at the source before"
    )


def test_what_fails_twice_at_the_same_place_is_compared() -> None:
    assert start(StartFacts(row(), HERE, None, failed_before=1)) == GoOn(cursor(100, "source"))
    assert start(StartFacts(row(), HERE, None, failed_before=2)) == Reconcile(
        "it failed twice at the same place", check_lost=True
    )


def test_a_failed_link_does_not_go_on_because_the_commits_that_stopped_it_are_gone() -> None:
    found = start(StartFacts(row(state=State.FAILED), HERE, GONE))
    assert isinstance(found, Fault)
    assert found.what == "it failed before (why), and commits are gone"


# -- records -------------------------------------------------------------------------------------------------------------


def test_a_record_is_these_bytes() -> None:
    plain = LinkRecord("us->eu", ("a", "us"), "persistent://t/n/x", CommitName("id", 7, "c"), 3, "ab")
    text = (
        '{"geo.link":1,"link":"us->eu","origins":["a","us"],"topic":"persistent://t/n/x","cursor":["id",7,"c"],'
        '"generation":3,"token":"ab"}'
    )
    assert plain.encode() == text
    assert LinkRecord.decode(text) == plain
    step = text.replace('"cursor"', '"reconciling"')
    decoded = LinkRecord.decode(step)
    assert decoded is not None
    assert decoded.reconciling
    assert decoded.encode() == step


def test_other_commits_have_no_record_and_a_newer_one_is_refused() -> None:
    assert [LinkRecord.decode(text) for text in (None, "", "nightly job", '{"geo.publish":1}', '["geo.link"]')] == [None] * 5
    with pytest.raises(SchemaError, match="has version 2"):
        LinkRecord.decode(json.dumps({"geo.link": 2}))
    with pytest.raises(SchemaError, match="is not whole"):
        LinkRecord.decode(json.dumps({"geo.link": 1}))


@pytest.mark.parametrize(
    ("begins", "topic", "new"),
    [
        ("latest", "persistent://shop/web/clicks", ("asia",)),
        ("earliest", "persistent://shop/web/clicks", ()),
        ("latest", "persistent://shop/web/__acks", ()),
    ],
)
def test_an_origin_that_is_new_to_a_link_begins_as_its_start_says(begins: Start, topic: str, new: tuple[str, ...]) -> None:
    stand = stands([commit(5)], origins=("us", "asia"))
    assert stand.new == ("asia",)
    assert new_at_end(stand, Link("us", "eu", start=begins), Topic.parse(topic)) == new
