"""Rows as dataclasses and back."""

from __future__ import annotations

from typing import Any

import pytest

from geo.delta.history import CommitName
from geo.errors import InvalidNameError
from geo.journal.rows import as_row, from_row
from geo.log.topics import Registered
from geo.replication.link_state import LinkState
from geo.schemas import LINKS, TOPICS, VERSION_SUBSCRIPTIONS, TableSchema
from geo.streams.life import State
from geo.subscription.versions.version_subscriptions import VersionSubscription
from geo.times import EPOCH
from tests.world import TOPIC

CURSOR = CommitName("t", 4, None)
LINK = LinkState("us", "t", State.FAILED, "why", 3, ("us", "ap"), CURSOR, None, {"us:1": 7}, 0, 5)
SUBSCRIPTION = VersionSubscription(TOPIC, "s", "t", None, "/c", "q", EPOCH, replicated=False)


@pytest.mark.parametrize(
    ("value", "schema", "elsewhere"),
    [
        (LINK, LINKS, {"updated_at"}),
        (Registered(TOPIC, EPOCH, True, {"deleted": "now"}, 2), TOPICS, set()),
        (SUBSCRIPTION, VERSION_SUBSCRIPTIONS, {"by", "updated_at"}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_value_is_read_as_it_was_written_whatever_other_columns_there_are(
    value: object, schema: TableSchema, elsewhere: set[str]
) -> None:
    row = as_row(value)
    assert set(schema.names) - row.keys() == elsewhere
    assert row.keys() <= set(schema.names)
    assert from_row(type(value), {**row, "of a newer program": 1}) == value


@pytest.mark.parametrize(
    ("kind", "row", "field", "found"),
    [
        (LinkState, {**as_row(LINK), "origins": ["us"]}, "origins", ("us",)),
        (LinkState, {**as_row(LINK), "source_version": None}, "cursor", None),
        (LinkState, {**as_row(LINK), "impossible": None}, "impossible", None),
        (VersionSubscription, {**as_row(SUBSCRIPTION), "replicated": None}, "replicated", True),
    ],
)
def test_null_is_the_default_of_a_field(kind: type, row: dict[str, Any], field: str, found: object) -> None:
    assert getattr(from_row(kind, row), field) == found


def test_what_no_program_of_now_writes_is_refused() -> None:
    with pytest.raises(ValueError, match="'DRAINED' is not a valid State"):
        from_row(LinkState, {**as_row(LINK), "state": "DRAINED"})
    with pytest.raises(InvalidNameError):
        from_row(VersionSubscription, {**as_row(SUBSCRIPTION), "topic": "no topic"})
