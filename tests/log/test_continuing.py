"""What a producer may go on from, as a pure decision: commits that are missing or not what they were, peers that are away, clocks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.delta.commits import EXPIRED, Commit
from geo.delta.history import CommitName
from geo.errors import UnsafeError
from geo.log.continuing import CommitsAbove, Own, continued, fold, tail_of
from geo.log.ledgers import REBUILD_RECORD, Batch, Ledger, LedgerKey, ProducerProgress, RowsOfKey, SourceEnd, Span, new_keys, plan

A, B = LedgerKey("a", None), LedgerKey("b", None)
KNOWN = CommitName("table", 10, "id10")


def _commit(version: int, operation: str = "WRITE", metadata: str | None = None, commit_id: str | None = None) -> Commit:
    parameters = {"mode": "Append"} if operation == "WRITE" else {}
    metrics = {"numUpdatedRows": 3} if operation == "UPDATE" else {}
    return Commit(
        version, commit_id or f"id{version}", operation, parameters, metrics, metadata, 1_767_323_045_000_000, "somebody"
    )


def _batch(first: int, last: int, producer: str = "p", key: LedgerKey = A) -> Batch:
    return Batch(producer, 50, (Span(key, 1, first, last),), {key.source: SourceEnd(f'["{last}"]', last + 1)})


def _tail(*commits: Commit, newest: int | None = None, at_known: Commit | None = None, table_id: str = "table") -> CommitsAbove:
    latest = newest if newest is not None else max((c.version for c in commits), default=10)
    return tail_of(KNOWN, table_id, latest, at_known or _commit(10), 11, commits, "p")


# -- what the commits say --------------------------------------------------------------------------------------------------


def test_own_batches_are_found_among_all_commits() -> None:
    mine, other = _batch(0, 4), _batch(0, 9, producer="q")
    tail = _tail(_commit(11, metadata=other.encode()), _commit(12, metadata=mine.encode()), _commit(13, "OPTIMIZE"))
    assert tail == CommitsAbove((Own(12, "id12", mine),))


@pytest.mark.parametrize(
    ("commits", "newest", "missing"),
    [
        ([11, 12, 13], 13, None),
        ([13], 13, (11, 12)),
        ([11, 13], 13, (12, 12)),
        ([11, 12], 14, (13, 14)),
        ([12, 15], 16, (11, 16)),
        ([], 12, (11, 12)),
        ([], 10, None),
    ],
)
def test_versions_that_are_not_there_are_named(commits: list[int], newest: int, missing: tuple[int, int] | None) -> None:
    assert _tail(*map(_commit, commits), newest=newest).missing == missing


@pytest.mark.parametrize(
    ("commit", "why"),
    [
        (_commit(12, "RESTORE"), "version 12 of the log is a RESTORE by somebody at 2026-01-02 03:04:05Z"),
        (_commit(12, "UPDATE"), "version 12 of the log is a UPDATE by somebody"),
        (_commit(12, metadata=REBUILD_RECORD), "version 12 of the log brought messages back from a peer"),
        (_commit(12, "SOMETHING NEW"), "is a SOMETHING NEW"),
    ],
)
def test_commits_after_which_no_ledger_goes_on_are_named(commit: Commit, why: str) -> None:
    tail = _tail(_commit(11, metadata=_batch(0, 4).encode()), commit)
    assert tail.broken is not None
    assert why in tail.broken
    assert [own.version for own in tail.own] == [11], "its source is published that far all the same"


def test_rows_that_nobody_of_ours_recorded_may_be_of_any_ledger() -> None:
    assert not _tail(_commit(11, metadata=_batch(0, 4).encode()), _commit(12, "OPTIMIZE")).foreign
    found = _tail(_commit(11, metadata=_batch(0, 4).encode()), _commit(12))
    assert (found.foreign, found.broken) == (True, None)


@pytest.mark.parametrize("operation", ["OPTIMIZE", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMNS"])
def test_upkeep_is_no_reason_to_stop(operation: str) -> None:
    assert _tail(_commit(11, operation)).broken is None
    expiry = Commit(11, "id11", "DELETE", {}, {"numRemovedFiles": 4}, f'{{"{EXPIRED}":1}}', 0, None)
    assert _tail(expiry).broken is None


def test_a_log_is_known_by_its_table_and_by_the_commit_of_the_record() -> None:
    assert "dropped and created again" in str(_tail(table_id="other").broken)
    assert "ends at version 7, it was at 10" in str(_tail(newest=7).broken)
    grown = _tail(_commit(11), at_known=_commit(10, commit_id="another"))
    assert "has another commit at version 10 than it had (WRITE by somebody at 2026-01-02 03:04:05Z)" in str(grown.broken)
    assert grown.own == ()
    assert _tail(_commit(11), newest=11).broken is None


# -- which ledgers go on ---------------------------------------------------------------------------------------------------


AS_IT_WAS, NINE = CommitsAbove(), Ledger(1, 9, 77)


def _continued(
    found: int,
    peers: Mapping[str, int | None] | None = None,
    tail: CommitsAbove = AS_IT_WAS,
    *,
    ledger: Ledger = NINE,
    complete: bool = True,
    oldest_us: int | None = None,
    now_us: int | None = None,
) -> tuple[Ledger | None, str]:
    progress = ProducerProgress({A: ledger}, {"a": SourceEnd("10", 10)})
    held = {name: None if end is None else {1: end} for name, end in (peers or {}).items()}
    kept, reasons = continued(progress, {1: found}, held, tail, complete=complete, oldest_us=oldest_us, now_us=now_us)
    assert kept.sources == progress.sources, "what was published is never published again"
    assert kept.ledgers.keys() | reasons.keys() == {A}
    return kept.ledgers.get(A), reasons.get(A, "")


def test_a_ledger_goes_on_when_log_and_peers_agree() -> None:
    assert _continued(9, {"us": 9, "ap": 3}) == (NINE, "")


@pytest.mark.parametrize(
    ("found", "peers", "broken", "why"),
    [
        (5, {}, None, "log ends at entry 5"),
        (-1, {}, None, "log ends at entry -1"),
        (9, {"us": 12, "ap": 2}, None, "us holds more"),
        (9, {}, "a RESTORE", "a RESTORE"),
        (12, {}, "a RESTORE", "a RESTORE"),
        (9, {"us": None}, None, "us cannot be read now"),
    ],
)
def test_a_ledger_is_given_up_when_an_id_could_be_reused(
    found: int, peers: dict[str, int | None], broken: str | None, why: str
) -> None:
    kept, reason = _continued(found, peers, CommitsAbove(broken=broken))
    assert kept is None
    assert reason.startswith("ledger 1 is closed at entry 9: ")
    assert why in reason


def test_entries_that_no_commit_explains_stop_the_producer() -> None:
    with pytest.raises(UnsafeError, match=r"holds entries up to 12, .* explain 9. Another writer used this ledger"):
        _continued(12)


def test_a_ledger_opened_while_a_peer_was_away_goes_on_until_that_peer_is_back() -> None:
    opened = Ledger(1, 9, 77, ("us",))
    assert _continued(9, {"us": None}, ledger=opened) == (opened, ""), "else each start would open another one (L4)"
    assert _continued(9, {"us": 9}, ledger=opened) == (NINE, ""), "now it has been compared"
    assert _continued(9, {"us": 12}, ledger=opened)[0] is None
    assert _continued(9, {"us": None, "ap": None}, ledger=opened)[0] is None, "with ap it had been compared"


def test_starts_beside_a_peer_that_is_away_open_one_ledger_in_all() -> None:
    progress, ids = ProducerProgress(), itertools.count(1)
    opened: set[int] = set()
    for _ in range(5):
        batch = plan(progress, "p", [RowsOfKey(A, 3)], {"a": "1"}, 0, [next(ids) for _ in new_keys(progress, [RowsOfKey(A, 3)])])
        progress = progress.opened(batch, ["us"] if opened else []).after(batch)
        ledger = progress.ledgers[A]
        opened.add(ledger.ledger_id)
        progress, _ = continued(progress, {ledger.ledger_id: ledger.end}, {"us": None}, CommitsAbove())
    assert opened == {1, 2}, "one that had been compared, one for the time of the outage"


MISSING = CommitsAbove(missing=(11, 14))


def test_missing_commits_are_no_matter_where_the_ends_say_that_none_was_the_producers() -> None:
    assert _continued(9, tail=MISSING, complete=False) == (NINE, "")
    empty = Ledger(1, -1, 77)
    assert _continued(-1, tail=MISSING, complete=False, ledger=empty, oldest_us=50) == (empty, "")


@pytest.mark.parametrize(
    ("found", "ledger", "oldest_us", "broken"),
    [
        (12, NINE, None, None),  # published beyond the record: how far of its source, the commits said
        (5, NINE, None, None),  # its end expired, and with it what may have come after
        (-1, Ledger(1, -1, 77), 100, None),  # opened; what was published may have expired
        (-1, Ledger(1, -1, 77), None, None),
        (9, NINE, None, "a RESTORE"),  # took away who knows what
    ],
)
def test_a_source_whose_end_cannot_be_told_stops_the_producer(
    found: int, ledger: Ledger, oldest_us: int | None, broken: str | None
) -> None:
    tail = CommitsAbove(missing=(11, 14), broken=broken)
    with pytest.raises(UnsafeError, match=r"commits 11 to 14 were cleaned up .* under a new producer name"):
        _continued(found, tail=tail, complete=False, ledger=ledger, oldest_us=oldest_us)
    kept, reason = _continued(found, tail=tail, complete=True, ledger=ledger)
    assert kept is None or found == ledger.end, "after a clean stop nothing can be among them"
    assert kept or "closed at entry" in reason


def test_a_later_batch_tells_the_end_of_a_source_though_earlier_ones_are_missing() -> None:
    tail = CommitsAbove((Own(15, "id15", _batch(20, 29)),), (11, 14))
    assert tail.certain == {"a"}
    progress, changed = fold(ProducerProgress({A: Ledger(1, 9, 77)}, {"a": SourceEnd("9", 10)}), tail)
    assert (progress.sources["a"], changed) == (SourceEnd('["29"]', 30), {A})
    assert continued(progress, {1: 29}, {}, tail, complete=False)[0].ledgers == {A: Ledger(1, 29, 77)}
    assert CommitsAbove((Own(12, "id12", _batch(20, 29)),), (11, 14)).certain == frozenset(), (
        "it came before some that are missing"
    )
    kept, reasons = continued(progress, {1: 31}, {}, tail, complete=False)
    assert (kept.ledgers, list(reasons)) == ({}, [A])


@given(
    rows=st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 5)), max_size=8),
    recorded=st.integers(0, 8),
    cleaned=st.integers(0, 10),
    complete=st.booleans(),
    expired=st.booleans(),
)
def test_whatever_is_cleaned_up_a_source_is_never_told_to_end_too_low(
    rows: list[tuple[LedgerKey, int]], recorded: int, cleaned: int, complete: bool, expired: bool
) -> None:
    """A producer's commits are versions 1, 2, …, its record is of one of them, and the log was cleaned from below."""
    progress, made = ProducerProgress(), []
    for key, count in rows:
        counted = [RowsOfKey(key, count)]
        new = [len(progress.ledgers) + 1] if new_keys(progress, counted) else []
        offset = progress.sources.get(key.source, SourceEnd("0", 0)).count + count
        batch = plan(progress, "p", counted, {key.source: f'["{offset}"]'}, 100, new)
        progress = progress.opened(batch).after(batch)
        made.append((batch, progress))
    recorded = len(made) if complete else min(recorded, len(made))
    before = made[recorded - 1][1] if recorded else ProducerProgress()
    # Ledgers are recorded, empty, before anything is appended to them.
    opened = {key: Ledger(ledger.ledger_id, -1, 100) for key, ledger in progress.ledgers.items()}
    record = ProducerProgress({**opened, **before.ledgers}, before.sources)
    commits = [
        _commit(number, metadata=batch.encode()) for number, (batch, _) in enumerate(made, 1) if number > max(recorded, cleaned)
    ]
    tail = tail_of(CommitName("table", recorded, None), "table", len(made), None, recorded + 1, commits, "p")
    ends = {} if expired else {ledger.ledger_id: ledger.end for ledger in progress.ledgers.values()}
    oldest_us = None if expired else 100
    try:
        kept, _ = continued(fold(record, tail)[0], ends, {}, tail, complete=complete, oldest_us=oldest_us)
    except UnsafeError:
        assert tail.missing is not None, "with all commits there it is never in doubt"
        assert not complete
        return
    assert kept.sources == progress.sources
    for key, ledger in kept.ledgers.items():
        assert ledger.end == progress.ledgers[key].end, "and no id is used twice"


def test_ledgers_stamped_in_the_future_are_closed_once_the_clock_is_right() -> None:
    now_us = 1_000_000_000_000
    ahead = Ledger(1, 9, now_us + CLOCK_TOLERANCE_US + 5_000_000)
    kept, reason = _continued(9, ledger=ahead, now_us=now_us)
    assert kept is None
    assert "305 s in the future" in reason
    near = Ledger(1, 9, now_us + CLOCK_TOLERANCE_US)
    assert _continued(9, ledger=near, now_us=now_us) == (near, "")


def test_a_given_up_ledger_gets_a_new_id_and_starts_at_zero() -> None:
    progress, _ = continued(ProducerProgress({A: Ledger(1, 9)}, {}), {1: 5}, {}, CommitsAbove())
    batch = plan(progress, "p", [RowsOfKey(A, 3)], {"a": "13"}, 0, [2])
    assert batch.spans == (Span(A, 2, 0, 2),)
