"""Ledger rules L1-L5 on the pure planner, against a naive model of what was published."""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import SchemaError, UnsafeError
from geo.log.ledgers import (
    RECORD_VERSION,
    Batch,
    Ledger,
    LedgerKey,
    ProducerProgress,
    RowsOfKey,
    SourceEnd,
    Span,
    ledger_id,
    new_keys,
    plan,
)

A, B = LedgerKey("a", None), LedgerKey("a", ("us",))


def _plan(
    progress: ProducerProgress, *groups: tuple[LedgerKey, int], now: int = 100, ends: dict[str, str] | None = None
) -> Batch:
    ids = itertools.count(1 + max((ledger.ledger_id for ledger in progress.ledgers.values()), default=0))
    counted = [RowsOfKey(key, rows, hash((key, rows))) for key, rows in groups]
    drawn = [next(ids) for _ in new_keys(progress, counted)]
    return plan(progress, "p", counted, ends or {key.source: "1" for key, _ in groups}, now, drawn)


keys = st.builds(LedgerKey, st.sampled_from("ab"), st.sampled_from([None, (), ("us",), ("ap", "us")]))
batches = st.lists(st.dictionaries(keys, st.integers(1, 50), min_size=1, max_size=4), max_size=12)


@given(batches, st.lists(st.integers(0, 1000), min_size=12, max_size=12))
def test_entries_are_contiguous_per_ledger_and_time_never_goes_back(
    published: list[dict[LedgerKey, int]], clock: list[int]
) -> None:
    progress = ProducerProgress()
    ends: dict[int, int] = defaultdict(lambda: -1)
    times: dict[int, int] = defaultdict(int)
    for groups, now in zip(published, clock, strict=False):
        batch = _plan(progress, *groups.items(), now=now)
        assert batch.publish_time_us >= now
        for span in batch.spans:
            assert span.first == ends[span.ledger_id] + 1, "L1: no hole, no overlap"
            assert span.last - span.first + 1 == groups[span.key]
            assert batch.publish_time_us >= times[span.ledger_id], "L1: publish_time never decreases"
            ends[span.ledger_id], times[span.ledger_id] = span.last, batch.publish_time_us
        assert not progress.holds(batch)
        progress = progress.opened(batch).after(batch)
        assert progress.holds(batch)
        assert {ledger.ledger_id: ledger.time_us for ledger in progress.ledgers.values()} == times
    used = {key for groups in published for key in groups}
    assert len(progress.ledgers) == len(used), "L4, L5: one ledger per source partition and replicate_to"
    for name in {key.source for key in used}:
        mine = [(key, n) for groups in published for key, n in groups.items() if key.source == name]
        assert progress.sources[name].count == sum(n for _, n in mine)
        assert progress.sources[name].hash == reduce(xor, map(hash, mine))


def test_a_clock_that_was_ahead_holds_back_only_the_ledgers_it_stamped() -> None:
    progress = ProducerProgress({A: Ledger(1, 4, 10_000), B: Ledger(2, 4, 50)})
    assert _plan(progress, (A, 1), now=100).publish_time_us == 10_000
    assert _plan(progress, (B, 1), now=100).publish_time_us == 100


def test_a_batch_is_told_from_those_of_the_ledger_that_replaced_its_own() -> None:
    progress = ProducerProgress({A: Ledger(5, 4, 50)})
    for number, last, held in ((5, 4, True), (5, 5, False), (4, 90, True), (6, 0, False)):
        assert progress.holds(Batch("p", 1, (Span(A, number, 0, last),), {})) is held


@given(batches)
def test_progress_can_be_told_from_the_records_of_the_commits(published: list[dict[LedgerKey, int]]) -> None:
    progress, records = ProducerProgress(), []
    for groups in published:
        batch = _plan(progress, *groups.items())
        progress = progress.after(batch)
        records.append(batch.encode())
    for bridged in (False, True):
        folded = ProducerProgress()
        for record in records:
            decoded = Batch.decode(record)
            assert decoded is not None
            folded = folded.after(decoded, bridged=bridged)
        assert folded == progress


def test_a_record_is_these_bytes() -> None:
    sources = {"a": SourceEnd('["12"]', 11), "b": SourceEnd("3", 4, -(2**63))}
    batch = Batch("p", 5, (Span(B, 7, 0, 9), Span(A, 8, 3, 3)), sources)
    text = (
        '{"geo.publish":2,"producer":"p","publish_time_us":5,"spans":[["a",["us"],7,0,9],["a",null,8,3,3]],'
        '"sources":{"a":["[\\"12\\"]",11],"b":["3",4,-9223372036854775808]}}'
    )
    assert batch.encode() == text
    assert Batch.decode(text) == batch


@pytest.mark.parametrize("text", [None, "", "nightly load", "[1]", '{"other": 1}'])
def test_a_commit_of_somebody_else_is_no_batch(text: str | None) -> None:
    assert Batch.decode(text) is None


def test_a_newer_record_and_one_that_is_not_whole_are_refused() -> None:
    with pytest.raises(SchemaError, match="version 3"):
        Batch.decode('{"geo.publish": 3}')
    with pytest.raises(SchemaError, match="is not whole"):
        Batch.decode(f'{{"geo.publish": {RECORD_VERSION}}}')


@pytest.mark.parametrize(("first", "bridged"), [(4, False), (6, False), (4, True)])
def test_a_batch_that_does_not_follow_on_is_refused(first: int, bridged: bool) -> None:
    progress = ProducerProgress({A: Ledger(1, 4)}, {})
    with pytest.raises(UnsafeError, match="ends at entry 4"):
        progress.after(Batch("p", 0, (Span(A, 1, first, 9),), {}), bridged=bridged)


def test_a_ledger_that_is_new_begins_at_zero() -> None:
    with pytest.raises(UnsafeError, match="ends at entry -1"):
        ProducerProgress({A: Ledger(1, 4)}).after(Batch("p", 0, (Span(A, 2, 5, 9),), {}))


def test_behind_missing_commits_a_ledger_may_go_on_further_up() -> None:
    batch = Batch("p", 7, (Span(A, 1, 20, 29),), {"a": SourceEnd("30", 30)})
    assert ProducerProgress({A: Ledger(1, 4, 5)}).after(batch, bridged=True).ledgers[A] == Ledger(1, 29, 7)


def test_a_ledger_remembers_who_was_away_when_it_was_opened() -> None:
    batch = _plan(ProducerProgress(), (A, 3), now=5)
    opened = ProducerProgress().opened(batch, ["us"])
    assert opened.ledgers[A] == Ledger(1, -1, 5, ("us",))
    assert opened.after(batch).ledgers[A] == Ledger(1, 2, 5, ("us",))


@pytest.mark.parametrize("ids", [[7, 7], [7], [7, 8, 9]])
def test_new_ledgers_get_one_distinct_id_each(ids: list[int]) -> None:
    counted = [RowsOfKey(A, 1), RowsOfKey(B, 1)]
    assert new_keys(ProducerProgress(), counted) == [A, B]
    with pytest.raises(ValueError, match=r"distinct|zip"):
        plan(ProducerProgress(), "p", counted, {"a": "1"}, 0, ids)
    batch = plan(ProducerProgress({A: Ledger(3, 4)}), "p", reversed(counted), {"a": "1"}, 0, [7])
    assert batch.spans == (Span(A, 3, 5, 5), Span(B, 7, 0, 0)), "only what is new gets one"


def test_ledger_ids_grow_with_time_and_stay_exact_in_json() -> None:
    assert ledger_id(1_700_000_000, 2**20 - 1) < ledger_id(1_700_000_001, 0)
    assert ledger_id(8_000_000_000, 2**64) < 2**53
