"""What the commits of a source mean: what is read on, what is compared, what stops a link with the exact range."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from geo.delta.actions import Actions, Effect, Partition
from geo.delta.commits import Commit
from geo.log.ledgers import REBUILD_RECORD, Batch, LedgerKey, Span
from geo.replication.link_state import backfill_record
from geo.replication.source_history import CompareLogs, Fault, brings, judge, published_after
from tests.replication.histories import TABLE, appends, by_link, commit, cursor, erasure, expiry, foreign, record, restore

T = TypeVar("T")

US = frozenset({"us"})


def _judge(since: list[Commit], *, at: int = 10, newest: int | None = None, before: list[Commit] | None = None) -> object:
    return judge(cursor(at), TABLE, newest if newest is not None else at + len(since), before or appends(at - 4, at), since, US)


def the(kind: type[T], found: object) -> T:
    """What was found, which is of this kind."""
    assert isinstance(found, kind)
    return found


def test_appends_expiry_and_maintenance_are_read_on() -> None:
    others = ["OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMNS"]
    since = [commit(11), expiry(12), *(commit(13 + at, operation) for at, operation in enumerate(others))]
    assert _judge(since) is None
    assert _judge([]) is None


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (commit(12, "UPDATE", metrics={"numUpdatedRows": 1}), "messages were changed: UPDATE by ann"),
        (commit(12, "MERGE", metrics={"numTargetRowsInserted": 2}), "messages were changed: MERGE"),
        (commit(12, "DELETE", metrics={"numRemovedFiles": 1}), "messages were changed: DELETE"),
        (commit(12, "WRITE", parameters={"mode": "Overwrite"}), "messages were changed: WRITE"),
        (commit(12, "TRUNCATE"), "messages were changed: TRUNCATE"),
        (commit(12, "CLONE"), "messages were changed: CLONE"),
        (commit(12, "UNKNOWN"), "messages were changed: UNKNOWN"),
    ],
    ids=lambda value: value.operation if isinstance(value, Commit) else "",
)
def test_a_change_by_anybody_else_is_a_fault_with_its_version(changed: Commit, what: str) -> None:
    found = the(Fault, _judge([commit(11), changed, commit(13)]))
    assert found.what.startswith(what)
    assert (found.first, found.last) == (12, 12)


def test_an_update_that_found_nothing_is_none() -> None:
    assert _judge([commit(11, "UPDATE", metrics={"numUpdatedRows": 0, "numAddedFiles": 0})]) is None


def test_a_restore_is_a_fault_whatever_it_did_and_whatever_follows() -> None:
    found = the(Fault, _judge([commit(11), restore(12, 8), restore(13, 11)]))
    assert (found.first, found.last) == (9, 12)
    assert "which undid versions 9-11" in found.what


def test_a_table_that_was_made_again_and_one_that_is_shorter_are_faults() -> None:
    other = the(Fault, judge(cursor(10), "table-2", 12, appends(6, 10), appends(11, 12), US))
    assert (other.first, other.last) == (0, 10)
    shorter = the(Fault, judge(cursor(10), TABLE, 7, [], [], US))
    assert (shorter.first, shorter.last) == (8, 10)
    assert "an older copy was put back" in shorter.what


def test_an_older_copy_that_has_grown_past_the_cursor_is_told_by_the_commits_id_whatever_rows_it_holds() -> None:
    grown = [*appends(6, 9), commit(10, commit_id="another")]
    found = the(Fault, judge(cursor(10), TABLE, 12, grown, appends(11, 12), US))
    assert "the source has another commit at version 10 than it had" in found.what


def test_commits_that_are_gone_make_it_compare_and_look_for_losses() -> None:
    for found in (
        judge(cursor(10), TABLE, 14, appends(6, 10), appends(13, 14), US),
        judge(cursor(10), TABLE, 14, [], appends(11, 14), US),
        judge(cursor(10), TABLE, 14, appends(6, 10), appends(11, 12), US),
    ):
        assert isinstance(found, CompareLogs)
        assert found.unseen


def test_an_erasure_and_a_commit_that_landed_twice_make_it_compare() -> None:
    erased = _judge([commit(11), erasure(12)])
    assert erased == CompareLogs("messages were erased in the source (by ann at 2026-11-22 10:00:00Z)")
    for since in ([commit(11), commit(12, commit_id="id-11")], [commit(11, commit_id="id-10")], [commit(11, commit_id="id-8")]):
        twice = the(CompareLogs, _judge(since))
        assert not twice.unseen
        assert "landed twice" in twice.why


def test_rows_that_no_writer_of_ours_recorded_are_compared() -> None:
    spans = (Span(LedgerKey("", None), 7, 3, 4),)
    published = Batch("p", 1, spans, {}).encode()
    ours = commit(11, metadata=published, metrics={"numOutputRows": 2})
    assert _judge([ours]) is None
    more = commit(11, metadata=published, metrics={"numOutputRows": 3})
    for found in (_judge([foreign(11)]), _judge([commit(11, metadata='{"their":1}')]), _judge([more])):
        assert isinstance(found, CompareLogs)
        assert found.why.startswith("version 11 of the source has rows that no writer of delta-geo recorded (WRITE by ann at ")


def test_where_others_put_rows_what_they_say_is_compared_wherever_else_there_is_a_doubt() -> None:
    days: list[Partition] = [(("publish_date", "2026-01-01"),), (("publish_date", "2026-01-02"),)]
    into = [
        replace(foreign(at), actions=Actions(Effect.ADDED, rows=1, partitions=frozenset({day})))
        for at, day in zip((12, 13), days, strict=True)
    ]
    found = the(CompareLogs, _judge([erasure(11), *into]))
    assert "erased" in found.why
    assert found.touched == frozenset(days)
    assert _touched([erasure(11)]) == frozenset()
    assert _touched([into[0], replace(foreign(12), actions=None)]) is None, "it may be any"


def _touched(since: list[Commit]) -> frozenset[Partition] | None:
    return the(CompareLogs, _judge(since)).touched


def test_a_record_of_entries_that_were_published_before_is_a_copy_of_it() -> None:
    def batch(version: int, first: int, last: int, ledger: int = 7) -> Commit:
        spans = (Span(LedgerKey("", None), ledger, first, last),)
        return commit(version, metadata=Batch("p", 1, spans, {}).encode(), metrics={"numOutputRows": last - first + 1})

    before = [*appends(7, 9), batch(10, 0, 4)]
    assert _judge([batch(11, 5, 6), batch(12, 0, 4, ledger=8), batch(13, 7, 7)], before=before) is None
    for copied in ([batch(11, 0, 4)], [batch(11, 5, 9), batch(12, 9, 10)]):
        assert "landed twice" in the(CompareLogs, _judge(copied, before=before)).why


def test_files_that_are_listed_again_are_compared_since_they_may_hold_rows_that_no_reader_of_commits_sees() -> None:
    relisted = replace(commit(11, "ROW TRACKING BACKFILL"), actions=Actions(Effect.RELISTED))
    assert isinstance(_judge([relisted]), CompareLogs)


def test_a_fault_goes_before_what_would_only_be_compared() -> None:
    assert isinstance(_judge([erasure(11), restore(12, 3)]), Fault)


def test_what_other_links_wrote_brings_nothing_that_crosses() -> None:
    us = frozenset({"us"})
    assert not brings(by_link(5, record(1, origins=("eu", "ap"))), us, "us")
    assert brings(by_link(5, record(1, origins=("eu", "us"))), us, "us")
    batch = Batch("p", 1_000, (), {})
    assert brings(commit(5, metadata=batch.encode()), us, "us")
    assert not brings(commit(5, metadata=batch.encode()), frozenset({"eu"}), "us")
    assert brings(foreign(5), us, "us"), "nobody knows who wrote it"
    assert not brings(expiry(5), us, "us")


def test_only_commits_that_say_when_they_were_published_are_known_to_be_young() -> None:
    young, old = (commit(5, metadata=Batch("p", time_us, (), {}).encode()) for time_us in (2_000, 999))
    assert published_after([young, expiry(6)], 1_000)
    assert not published_after([young, old], 1_000)
    assert not published_after([by_link(5, record(1))], 1_000)


def test_a_fault_names_range_state_and_verb() -> None:
    message = Fault("a RESTORE", 9, 12, ["us:1:20-29"]).message("us", "eu", "persistent://a/b/c", cursor(8))
    assert message == (
        "a RESTORE (versions 9-12 of us). No longer in the source: us:1:20-29. eu holds everything up to version 8; nothing was skipped. "
        "If the source is right as it is now, run: geo reconcile --source us --target eu --topic persistent://a/b/c"
    )


def test_commits_that_could_not_be_looked_at_count_whatever_else_is_there() -> None:
    assert the(CompareLogs, _judge([erasure(11), commit(13)], newest=13)).unseen


def test_a_refill_is_compared_since_the_target_may_hold_some_of_it() -> None:
    step = by_link(12, record(7, link="a->us", origins=("us", "a"), reconciling=True))
    found = _judge([commit(11), step])
    assert found == CompareLogs("version 12 of the source is a step of the reconcile of a->us, of which the target may hold some")
    assert _judge([by_link(11, record(7, link="a->us", origins=("a",), reconciling=True))]) is None, "nothing of its origins"
    assert _judge([by_link(11, record(7, link="a->us", origins=("us",)))]) is None, "a link that goes on brings new ones"
    assert "is a rebuild" in the(CompareLogs, _judge([commit(11, metadata=REBUILD_RECORD)])).why
    filled = commit(11, metadata=backfill_record("asia->us", ["us", "asia"], cursor(3)))
    assert _judge([filled]) == CompareLogs("version 11 of the source is a step of a backfill, of which the target may hold some")
    theirs = commit(11, metadata=backfill_record("asia->us", ["asia"], cursor(3)))
    assert _judge([theirs]) is None, "nothing of its origins"
    assert [brings(one, US, "us") for one in (filled, theirs)] == [True, False]
