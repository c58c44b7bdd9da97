"""Recorded ends against what logs hold, as tables of cases; and that what many ask for one by one is read once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from typing import Any

import pytest

from geo.delta.history import CommitName
from geo.ids import LedgerId
from geo.log.promised_ends import FRESH_S, Promised, SharedPromises
from geo.log.promises import LOST, Promise, as_accepted, due, lost_entries, passed, promise_of
from geo.names import MARKERS_PRODUCER, Topic

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


# -- what many ask for one by one ------------------------------------------------------------------------------------------

ONE, TWO, THREE = (Topic.parse(f"persistent://shop/web/{name}") for name in ("one", "two", "three"))


class Reads:
    """What was read, and the time."""

    def __init__(self, *expected: Topic) -> None:
        self.topics: list[set[Topic]] = []
        self.now = 100.0
        self.shared = SharedPromises(self._read, lambda: self.now)
        self.shared.expect(expected)

    def _read(self, topics: Collection[Topic]) -> Promised:
        self.topics.append(set(topics))
        return {topic: [] for topic in topics}


def test_the_second_that_asks_reads_for_all_and_who_asks_alone_for_itself() -> None:
    reads = Reads(ONE, TWO, THREE)
    for topic in (ONE, TWO, THREE, ONE):
        assert reads.shared.of(topic) == []
    assert reads.topics == [{ONE}, {ONE, TWO, THREE}]
    reads.now += FRESH_S
    reads.shared.of(TWO)
    assert reads.topics[2:] == [{TWO}], "what was read long ago does not count"


def test_a_topic_that_nobody_expected_is_read_too() -> None:
    reads = Reads(ONE)
    for topic in (ONE, TWO):
        assert reads.shared.of(topic) == []
    assert reads.topics == [{ONE}, {ONE, TWO}]
