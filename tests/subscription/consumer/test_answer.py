"""Delays that the user's function returned, as they are counted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from geo.ids import MessageId
from geo.log.topic_log import ID
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.consumer.answer import LONGEST_S, REDELIVER_AFTER, delays_of


def _returned(*delays_us: tuple[int, int]) -> pa.Table:
    """Entries of one ledger and their delays in microseconds."""
    values = [["eu"] * len(delays_us), [1] * len(delays_us), *map(list, zip(*delays_us, strict=True))] if delays_us else [[]] * 4
    types = [pa.string(), pa.int64(), pa.int64(), pa.duration("us")]
    return pa.table([pa.array(v, t) for v, t in zip(values, types, strict=True)], names=[*ID, REDELIVER_AFTER])


def _entries(*entries: int) -> MessageSet:
    return MessageSet.of(MessageId("eu", 1, entry) for entry in entries)


@pytest.mark.parametrize(
    ("micros", "seconds"),
    [(0, 0), (-1, 0), (-(2**62), 0), (1, 1), (250_000, 1), (1_000_000, 1), (1_000_001, 2), (2**62, LONGEST_S)],
)
def test_a_delay_is_rounded_up_to_seconds_and_one_that_has_passed_is_at_once(micros: int, seconds: int) -> None:
    assert delays_of(_returned((7, micros))) == {seconds: _entries(7)}


def test_each_message_has_one_delay_the_shortest() -> None:
    found = delays_of(_returned((1, 5_000_000), (2, 60_000_000), (3, 5_000_000), (2, 4_500_000), (9, 60_000_000)))
    assert found == {5: _entries(1, 2, 3), 60: _entries(9)}


def test_no_rows_are_no_delays() -> None:
    assert delays_of(_returned()) == {}
