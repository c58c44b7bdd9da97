"""Recorded ends against what logs hold, as tables of cases."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pytest

from geo.delta.history import CommitName
from geo.ids import LedgerId
from geo.log.promises import LOST, Promise, as_accepted, due, lost_entries, passed, promise_of
from geo.names import MARKERS_PRODUCER

LEDGER, OTHER = LedgerId("us", 1), LedgerId("us", 2)
ROW: Mapping[str, Any] = {
    "ledger_id": 1,
    "producer": "p",
    "source": "",
    "replicate_to": None,
    "end": 9,
    "closed": None,
    "publish_time": datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc),
    "table_id": "t",
    "table_version": 7,
    "table_commit": "c",
}


def promise(
    end: int = 9, version: int = 7, to: tuple[str, ...] | None = None, table: str = "t", time_us: int = 5_000_000
) -> Promise:
    return Promise(LEDGER, end, CommitName(table, version, "c"), time_us, to)


@pytest.mark.parametrize(
    ("changed", "promised"),
    [
        ({}, True),
        ({"end": -1}, False),  # opened, still empty
        ({"closed": "the log was put back"}, False),  # that links find in the log itself
        ({"closed": "the log ends at entry 7", "source": f"{LOST}1"}, True),
        ({"producer": MARKERS_PRODUCER}, False),
    ],
)
def test_which_rows_promise_an_end(changed: Mapping[str, Any], *, promised: bool) -> None:
    assert promise_of("us", {**ROW, **changed}) == (promise() if promised else None)


@pytest.mark.parametrize(
    ("one", "after", "horizon_us", "is_due"),
    [
        (promise(), None, None, True),
        (promise(version=7), 6, None, True),
        (promise(version=7), 7, None, False),  # the link has passed it
        (promise(table="another"), None, None, False),  # the topic was made again
        (promise(to=("asia",)), None, None, False),
        (promise(to=("asia", "eu")), None, None, True),
        (promise(), None, 5_000_000, True),
        (promise(), None, 5_000_001, False),  # expired
    ],
)
def test_which_promises_a_log_has_to_keep(one: Promise, after: int | None, horizon_us: int | None, *, is_due: bool) -> None:
    assert due([one], "t", after, "eu", horizon_us) == [one] * is_due


@pytest.mark.parametrize(
    ("promises", "held", "floors", "lost"),
    [
        ([promise(9)], {LEDGER: 9}, None, {}),
        ([promise(9)], {LEDGER: 12}, None, {}),  # recorded ends lag behind
        ([promise(9)], {LEDGER: 7}, None, {LEDGER: (8, 9)}),
        ([promise(9)], {OTHER: 9}, None, {LEDGER: (0, 9)}),
        ([promise(9)], {LEDGER: 4}, {"us:1": 8}, {LEDGER: (8, 9)}),
        ([promise(9)], {}, {"us:1": 10}, {}),  # older than where the link begins
        ([promise(9), promise(12)], {LEDGER: 7}, None, {LEDGER: (8, 12)}),
        ([promise(12), promise(9)], {LEDGER: 7}, None, {LEDGER: (8, 12)}),
    ],
)
def test_what_is_lost(
    promises: list[Promise], held: dict[LedgerId, int], floors: dict[str, int] | None, lost: dict[LedgerId, tuple[int, int]]
) -> None:
    assert lost_entries(promises, held, floors) == lost


@pytest.mark.parametrize(
    ("links", "has_passed"),
    [
        ([], False),
        ([(None, None)], False),
        ([(CommitName("t", 6, None), None)], False),
        ([(CommitName("t", 7, None), None)], True),
        ([(CommitName("other", 9, None), None)], False),
        ([(CommitName("t", 7, None), None), (CommitName("t", 6, None), None)], False),
        ([(CommitName("t", 2, None), as_accepted({LEDGER: (8, 9)}))], True),  # the log ends below the commit now
        ([(CommitName("t", 2, None), as_accepted({LEDGER: (8, 8)}))], False),
        ([(CommitName("t", 2, None), as_accepted({OTHER: (8, 9)}))], False),
    ],
)
def test_a_lost_end_is_no_finding_once_all_links_have_passed_it(
    links: list[tuple[CommitName | None, dict[str, int] | None]], *, has_passed: bool
) -> None:
    assert passed(promise(), links) is has_passed


def test_what_was_accepted_as_lost_is_not_lost_again_and_what_comes_after_it_is() -> None:
    floors = as_accepted({LEDGER: (8, 9)})
    assert lost_entries([promise(9)], {LEDGER: 7}, floors) == {}
    assert lost_entries([promise(11)], {LEDGER: 7}, floors) == {LEDGER: (10, 11)}
