"""Message ids: one spelling, one order, exact in every reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import InvalidNameError, UsageError
from geo.ids import END_INDEX, ENTRY_ID_LIMIT, LEDGER_ID_LIMIT, MessageId, Position

IDS = st.builds(
    MessageId, st.sampled_from(["eu", "us", "us-east-1"]), st.integers(1, LEDGER_ID_LIMIT - 1), st.integers(0, ENTRY_ID_LIMIT - 1)
)


@given(IDS)
def test_an_id_is_what_its_text_says(message_id: MessageId) -> None:
    assert MessageId.parse(str(message_id)) == message_id


@given(IDS, IDS)
def test_ids_sort_by_origin_then_ledger_then_entry(one: MessageId, other: MessageId) -> None:
    as_tuples = [(i.origin, i.ledger_id, i.entry_id) for i in (one, other)]
    assert (one < other) == (as_tuples[0] < as_tuples[1])


def test_entries_sort_as_numbers_not_as_text() -> None:
    assert MessageId("eu", 7, 9) < MessageId("eu", 7, 10) < MessageId("eu", 10, 0) < MessageId("us", 1, 0)


def test_the_greatest_ledger_id_survives_a_reader_that_knows_doubles_only() -> None:
    greatest = MessageId("eu", LEDGER_ID_LIMIT - 1, ENTRY_ID_LIMIT - 1)
    assert int(json.loads(json.dumps(greatest.ledger_id), parse_int=float)) == greatest.ledger_id
    assert str(greatest) == "eu:9007199254740991:9223372036854775807"


@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "wrong"),
    [
        (0, 0, "ledger_id 0"),
        (-1, 0, "ledger_id -1"),
        (LEDGER_ID_LIMIT, 0, "ledger_id 9007199254740992"),
        (True, 0, "ledger_id True"),
        (1.0, 0, "ledger_id 1.0"),
        (None, 0, "ledger_id None"),
        (1, -1, "entry_id -1"),
        (1, ENTRY_ID_LIMIT, "entry_id 9223372036854775808"),
        (1, "0", "entry_id '0'"),
    ],
)
def test_a_number_out_of_bounds_is_refused_by_name(ledger_id: int, entry_id: int, wrong: str) -> None:
    with pytest.raises(UsageError, match=rf"^{wrong} is not a whole number from [01] to"):
        MessageId("eu", ledger_id, entry_id)


def test_an_origin_that_is_no_cluster_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="cluster 'EU'"):
        MessageId("EU", 1, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eu",
        "eu:7",
        "eu:7:42:1",
        ":7:42",
        "EU:7:42",
        "eu:0:42",
        "eu:07:42",
        "eu:7:+42",
        "eu:7:-1",
        "eu:7: 42",
        "eu:7:4_2",
        "eu:7:42\n",
        "eu:7:\u0664\u0662",
        "eu:9007199254740992:0",
        "eu:1:9223372036854775808",
    ],
)
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        MessageId.parse(text)


def test_positions_sort_in_the_order_of_a_log_and_the_end_of_a_version_is_behind_all_its_rows() -> None:
    in_order = [
        Position.before(3),
        Position(3, 0),
        Position(3, END_INDEX - 1),
        Position.end(3),
        Position.before(4),
        Position(4, 0),
    ]
    assert sorted(in_order, reverse=True)[::-1] == in_order
    assert [place.next_version for place in in_order] == [3, 3, 3, 4, 4, 4]
    assert [str(place) for place in (Position(3, 0), Position.end(3))] == ["3:0", "3 (all)"]
