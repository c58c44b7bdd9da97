"""The lag of a link, derived from the commits above its cursor."""

from __future__ import annotations

from dataclasses import replace

from geo.delta.commits import Commit
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.replication.lag import Lag, due_of, lag_of
from geo.replication.link_state import LinkRecord
from geo.replication.rule import Rule
from tests.replication.histories import commit, cursor

US = frozenset({"us"})
NOW_US = 1_800_000_000_000_000


def _brought(
    version: int, rows: int, *, published_us: int | None = None, committed_us: int = NOW_US, aim: tuple[str, ...] | None = None
) -> Commit:
    span = Span(LedgerKey("", aim), 1, 0, rows - 1)
    record = None if published_us is None else Batch("p", published_us, (span,), {}).encode()
    found = commit(version, metadata=record, metrics={"numOutputRows": rows, "numOutputBytes": rows * 100})
    return replace(found, committed_us=committed_us)


def _echo(version: int) -> Commit:
    record = LinkRecord("eu->us", ("eu",), "t", cursor(1), 1, "token")
    return commit(version, metadata=record.encode(), metrics={"numOutputRows": 5})


def _lag(at: int, newest: int, *commits: Commit) -> Lag:
    rule = Rule("us", "eu", US, None)
    return lag_of(at, newest, (due_of(one, rule) for one in commits), NOW_US)


def test_nothing_to_do_is_no_lag_however_long_ago_that_was() -> None:
    assert _lag(7, 7) == Lag()
    assert _lag(9, 7) == Lag(), "a source that was put back is behind its link"


def test_it_counts_what_the_commits_bring_and_the_age_of_the_first() -> None:
    found = _lag(
        4, 7, _brought(5, 10, published_us=NOW_US - 90_000_000), _brought(6, 20, published_us=NOW_US - 1), _brought(7, 1)
    )
    assert found == Lag(versions=3, messages=31, bytes=3100, seconds=90.0)
    assert not found.in_sync


def test_what_brings_nothing_is_behind_in_versions_alone() -> None:
    elsewhere = _brought(8, 5, published_us=1, aim=("asia",))
    found = _lag(4, 8, _echo(5), commit(6, "OPTIMIZE"), _brought(7, 0), elsewhere)
    assert found == Lag(versions=4)
    assert found.in_sync


def test_of_rows_that_no_producer_of_ours_wrote_the_commit_tells_the_time() -> None:
    assert _lag(4, 5, _brought(5, 1, committed_us=NOW_US - 2_000_000)).seconds == 2.0
    assert _lag(4, 5, _brought(5, 1, committed_us=NOW_US + 2_000_000)).seconds == 0.0, "by a clock that is ahead"


def test_what_a_commit_does_not_tell_is_unknown_and_never_in_sync() -> None:
    silent = commit(5, metadata=None)
    assert _lag(4, 5, replace(silent, committed_us=NOW_US - 31_000_000)) == Lag(1, None, None, 31.0, False), "no operationMetrics"
    assert not _lag(4, 5, replace(silent, committed_us=NOW_US - 31_000_000)).in_sync
    untimed = _lag(4, 6, _brought(5, 1, committed_us=0), _brought(6, 1))
    assert (untimed.messages, untimed.seconds, untimed.in_sync) == (2, None, False)
    assert _lag(4, 6, silent, _brought(6, 3)).messages is None, "a sum with an unknown part is unknown"
    batch = Batch("p", NOW_US - 5_000_000, (Span(LedgerKey("", None), 1, 0, 6),), {}).encode()
    assert _lag(4, 5, commit(5, metadata=batch)) == Lag(1, 7, None, 5.0), "the producer's own record counts its rows"


def test_rows_that_somebody_changed_are_due_in_an_unknown_number() -> None:
    for operation in ("RESTORE", "UPDATE", "MERGE"):
        found = _lag(4, 5, replace(commit(5, operation), committed_us=NOW_US - 60_000_000))
        assert (found.messages, found.seconds, found.in_sync) == (None, 60.0, False), operation


def test_of_commits_that_are_gone_it_says_that_there_may_be_more() -> None:
    found = _lag(4, 7, _brought(7, 1))
    assert (found.messages, found.complete, found.in_sync) == (1, False, False)
    assert _lag(4, 7, _echo(7)) == Lag(3, None, None, None, complete=False), "a lower bound of 0 is not 0"
    assert Lag().at_least == Lag(None, None, None, None, complete=False)
    assert Lag(2, 7, 70, 5.0).at_least == Lag(2, 7, 70, 5.0, complete=False)
