"""How fast a log grows and who writes it, by its commits and its producers' rows. Pure."""

from __future__ import annotations

import pytest

from geo.delta.actions import Actions, Effect
from geo.delta.commits import Commit
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.names import MARKERS_PRODUCER
from geo.ops.topic_stats import OfLedger, Produced, Rates, produced, rates

NOW_US = 10_000_000_000


def batch(ago_s: int, rows: int, producer: str = "p", ledger: int = 7, first: int = 0, size: int | None = 100) -> Commit:
    told = Batch(producer, NOW_US - ago_s * 1_000_000, (Span(LedgerKey("", None), ledger, first, first + rows - 1),), {}).encode()
    return commit(ago_s, rows, told, size)


def commit(ago_s: int, rows: int | None, told: str | None, size: int | None = 100, effect: Effect = Effect.ADDED) -> Commit:
    return Commit(1, "c", "WRITE", {}, {}, told, NOW_US - ago_s * 1_000_000, None, Actions(effect, rows=rows, size=size or 0))


def test_rates_are_of_what_came_within_the_time() -> None:
    commits = [batch(100, 1000), batch(50, 40), commit(20, 20, None, 50), commit(10, None, None, 0, Effect.NONE)]
    assert rates(commits, NOW_US, 60, reaches_back=True) == Rates(60, 1.0, 40 / 60, 150 / 60)
    assert rates(commits, NOW_US, 5, reaches_back=True) == Rates(5, 0, 0, 0)
    assert rates([], NOW_US, 60, reaches_back=True) == Rates(60, 0, 0, 0), "a log that is new"


def test_where_commits_are_gone_rates_are_since_the_oldest_that_is_there() -> None:
    commits = [batch(40, 1000), batch(20, 40)]
    assert rates(commits, NOW_US, 60, reaches_back=False) == Rates(40, 1.0, 1.0, 2.5)
    assert rates(commits, NOW_US, 30, reaches_back=False) == Rates(30, 40 / 30, 40 / 30, 100 / 30), "of that time all are there"
    assert rates([], NOW_US, 60, reaches_back=False) is None


def test_what_a_commit_does_not_say_is_not_zero_and_markers_are_no_messages() -> None:
    assert rates([commit(5, None, None)], NOW_US, 60, reaches_back=True) == Rates(60, None, 0, 100 / 60)
    assert rates([batch(5, 6, size=None)], NOW_US, 60, reaches_back=True) == Rates(60, 0.1, 0.1, None)
    assert rates([batch(5, 6, MARKERS_PRODUCER)], NOW_US, 60, reaches_back=True) == Rates(60, 0, 0, 0)


@pytest.mark.parametrize("runs", [True, False])
def test_producers_are_told_by_their_rows_and_by_commits_since(runs: bool) -> None:
    rows = [OfLedger("p", 7, 9, False, 5), OfLedger("p", 6, 4, True, 3), OfLedger("q", 8, -1, False, 9)]
    commits = [batch(30, 5, first=10), batch(20, 2, "r", 9)]
    assert produced(rows, commits, frozenset({"p"} if runs else ())) == [
        Produced("p", 20, 1, 1, NOW_US - 30_000_000, runs),
        Produced("q", 0, 1, 0, None, False),
        Produced("r", 2, 1, 0, NOW_US - 20_000_000, False),
    ]
    assert produced(rows[:1], [batch(30, 5)], frozenset())[0].messages == 10, "a row that is newer than a commit"
