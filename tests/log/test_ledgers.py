"""Ledger rules L1-L5 on the pure planner, against a naive model of what was published."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import SchemaError, UnsafeError
from geo.log.ledgers import Batch, Counted, Ledger, LedgerKey, Progress, SourceEnd, Span, continued, ledger_id, plan

A, B = LedgerKey("a", None), LedgerKey("a", ("us",))


def _plan(progress: Progress, *groups: tuple[LedgerKey, int], now: int = 100, ends: dict[str, str] | None = None) -> Batch:
    ids = itertools.count(1 + max((ledger.ledger_id for ledger in progress.ledgers.values()), default=0))
    counted = [Counted(key, rows) for key, rows in groups]
    return plan(progress, "p", counted, ends or {key.source: "1" for key, _ in groups}, now, lambda: next(ids))


keys = st.builds(LedgerKey, st.sampled_from("ab"), st.sampled_from([None, (), ("us",), ("ap", "us")]))
batches = st.lists(st.dictionaries(keys, st.integers(1, 50), min_size=1, max_size=4), max_size=12)


@given(batches, st.lists(st.integers(0, 1000), min_size=12, max_size=12))
def test_entries_are_contiguous_per_ledger_and_time_never_goes_back(
    published: list[dict[LedgerKey, int]], clock: list[int]
) -> None:
    progress, last_time = Progress(), 0
    ends: dict[int, int] = defaultdict(lambda: -1)
    for groups, now in zip(published, clock, strict=False):
        batch = _plan(progress, *groups.items(), now=now)
        assert batch.publish_time_us >= max(last_time, now)
        last_time = batch.publish_time_us
        for span in batch.spans:
            assert span.first == ends[span.ledger_id] + 1, "L1: no hole, no overlap"
            assert span.last - span.first + 1 == groups[span.key]
            ends[span.ledger_id] = span.last
        progress = progress.after(batch)
    used = {key for groups in published for key in groups}
    assert len(progress.ledgers) == len(used), "L4, L5: one ledger per source partition and replicate_to"
    for name in {key.source for key in used}:
        rows = sum(n for groups in published for key, n in groups.items() if key.source == name)
        assert progress.sources[name].count == rows


@given(batches)
def test_progress_can_be_told_from_the_records_of_the_commits(published: list[dict[LedgerKey, int]]) -> None:
    progress, records = Progress(), []
    for groups in published:
        batch = _plan(progress, *groups.items())
        progress = progress.after(batch)
        records.append(batch.encode())
    folded = Progress()
    for record in records:
        decoded = Batch.decode(record)
        assert decoded is not None
        folded = folded.after(decoded)
    assert folded == progress


def test_a_record_is_these_bytes() -> None:
    batch = Batch("p", 5, (Span(B, 7, 0, 9), Span(A, 8, 3, 3)), {"a": SourceEnd('["12"]', 11)})
    text = (
        '{"geo.publish":1,"producer":"p","publish_time_us":5,"spans":[["a",["us"],7,0,9],["a",null,8,3,3]],'
        '"sources":{"a":["[\\"12\\"]",11]}}'
    )
    assert batch.encode() == text
    assert Batch.decode(text) == batch


@pytest.mark.parametrize("text", [None, "", "nightly load", "[1]", '{"other": 1}'])
def test_a_commit_of_somebody_else_is_no_batch(text: str | None) -> None:
    assert Batch.decode(text) is None


def test_a_newer_record_is_refused() -> None:
    with pytest.raises(SchemaError, match="version 2"):
        Batch.decode('{"geo.publish": 2}')


@pytest.mark.parametrize("first", [4, 6])
def test_a_batch_that_does_not_follow_on_is_refused(first: int) -> None:
    progress = Progress({A: Ledger(1, 4)}, {})
    with pytest.raises(UnsafeError, match="ends at entry 4"):
        progress.after(Batch("p", 0, (Span(A, 1, first, 9),), {}))


def _continued(found: int, peers: dict[str, int] | None = None, *, intact: bool = True) -> tuple[bool, list[str]]:
    progress = Progress({A: Ledger(1, 9)}, {"a": SourceEnd("10", 10)}, 77)
    kept, reasons = continued(progress, {1: found}, {name: {1: end} for name, end in (peers or {}).items()}, log_intact=intact)
    assert (kept.sources, kept.publish_time_us) == (progress.sources, 77), "what was published is never published again"
    return A in kept.ledgers, reasons


def test_a_ledger_goes_on_when_log_and_peers_agree() -> None:
    assert _continued(9, {"us": 9, "ap": 3}) == (True, [])


@pytest.mark.parametrize(
    ("found", "peers", "intact", "why"),
    [
        (5, {}, True, "log ends at entry 5"),
        (-1, {}, True, "log ends at entry -1"),
        (9, {"us": 12}, True, "us holds more"),
        (9, {}, False, "re-created, restored"),
        (12, {}, False, "re-created, restored"),
    ],
)
def test_a_ledger_is_given_up_when_an_id_could_be_reused(found: int, peers: dict[str, int], intact: bool, why: str) -> None:
    kept, reasons = _continued(found, peers, intact=intact)
    assert not kept
    assert why in reasons[0]


def test_entries_that_no_commit_explains_stop_the_producer() -> None:
    with pytest.raises(UnsafeError, match="holds entries up to 12"):
        _continued(12)


def test_a_given_up_ledger_gets_a_new_id_and_starts_at_zero() -> None:
    progress, _ = continued(Progress({A: Ledger(1, 9)}, {}), {1: 5}, {}, log_intact=True)
    batch = plan(progress, "p", [Counted(A, 3)], {"a": "13"}, 0, lambda: 2)
    assert batch.spans == (Span(A, 2, 0, 2),)


def test_ledger_ids_grow_with_time_and_stay_exact_in_json() -> None:
    assert ledger_id(1_700_000_000, 2**20 - 1) < ledger_id(1_700_000_001, 0)
    assert ledger_id(8_000_000_000, 2**64) < 2**53
