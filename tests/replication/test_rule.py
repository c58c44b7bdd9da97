"""The routing rule: which filter refuses a row, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from geo.errors import InvalidNameError, UsageError
from geo.ids import LEDGER_ID_LIMIT
from geo.replication.rule import AHEAD_US, CROSSING_MARKERS, MICROSECONDS, Rule, Verdict
from geo.times import LAST_US
from tests.routed import RoutedRow, verdict

NOW_US = 1_700_000_000 * MICROSECONDS
DAY_US = 86_400 * MICROSECONDS
RULE = Rule("us", "eu", frozenset({"us"}), 86_400)
MESSAGE = RoutedRow("us", None, None, NOW_US, 7, 0)


def _marked(changes: dict[str, Any], expected: Verdict) -> list[tuple[dict[str, Any], Verdict]]:
    """A marker for other clusters is treated like a message."""
    return [({"marker": kind, **changes}, expected) for kind in sorted(CROSSING_MARKERS)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Verdict.REPLICATE),
        *_marked({}, Verdict.REPLICATE),
        *_marked({"origin": "asia"}, Verdict.FOREIGN_ORIGIN),
        *_marked({"replicate_to": ["asia"]}, Verdict.NOT_ADDRESSED),
        # a local marker, or one of a kind that is not known
        *(({"marker": kind}, Verdict.MARKER) for kind in ("SNAPSHOT", "", "snapshot_request", "SNAPSHOT_REQUEST ", "TXN_COMMIT")),
        *(({"origin": origin}, Verdict.FOREIGN_ORIGIN) for origin in ("eu", "asia", "", "US", None)),
        *(({"replicate_to": names}, Verdict.REPLICATE) for names in (["eu"], ["asia", "eu"], [None, "eu"])),
        *(({"replicate_to": names}, Verdict.NOT_ADDRESSED) for names in ([], ["asia"], [None], ["EU", "e"])),
        # what no producer can have written
        *(({"ledger_id": ledger}, Verdict.IMPOSSIBLE) for ledger in (None, 0, -7, LEDGER_ID_LIMIT)),
        *(({"entry_id": entry}, Verdict.IMPOSSIBLE) for entry in (None, -1)),
        *(({"publish_time_us": us}, Verdict.IMPOSSIBLE) for us in (-1, NOW_US + AHEAD_US + 1, LAST_US + 1)),
        ({"ledger_id": LEDGER_ID_LIMIT - 1, "publish_time_us": NOW_US + AHEAD_US}, Verdict.REPLICATE),
        # a message expires one microsecond after its TTL; nothing shows that one without a time has
        *(({"publish_time_us": NOW_US - age}, Verdict.REPLICATE) for age in (-MICROSECONDS, DAY_US - 1, DAY_US)),
        ({"publish_time_us": NOW_US - DAY_US - 1}, Verdict.EXPIRED),
        ({"publish_time_us": None}, Verdict.REPLICATE),
    ],
    ids=str,
)
def test_a_row_crosses_or_is_refused(changes: dict[str, Any], expected: Verdict) -> None:
    row = replace(MESSAGE, **changes)
    assert verdict(RULE, row, NOW_US) is expected
    without_ttl = Verdict.REPLICATE if expected is Verdict.EXPIRED else expected
    assert verdict(replace(RULE, message_ttl_s=None), row, NOW_US) is without_ttl


def test_the_kinds_that_cross_are_those_of_pip_33_without_the_local_snapshot() -> None:
    assert sorted(CROSSING_MARKERS) == ["SNAPSHOT_REQUEST", "SNAPSHOT_RESPONSE", "SUBSCRIPTION_UPDATE"]


def test_a_hub_forwards_the_origins_of_its_rule() -> None:
    rule = replace(RULE, origins=frozenset({"us", "asia"}))
    assert verdict(rule, replace(MESSAGE, origin="asia"), NOW_US) is Verdict.REPLICATE
    assert verdict(rule, replace(MESSAGE, origin="eu"), NOW_US) is Verdict.FOREIGN_ORIGIN


def test_the_first_filter_that_refuses_gives_the_verdict() -> None:
    row = RoutedRow("asia", [], "SNAPSHOT", 0, 0, -1)
    seen = []
    for mended in (
        {"marker": None}, {"origin": "us"}, {"ledger_id": 1, "entry_id": 0}, {"replicate_to": None}, {"publish_time_us": NOW_US}, {},
    ):  # fmt: skip
        seen.append(verdict(RULE, row, NOW_US))
        row = replace(row, **mended)
    assert seen == list(Verdict)


@pytest.mark.parametrize(
    ("source", "origins", "ttl_s", "told"),
    [
        ("eu", {"us"}, None, "itself"),
        ("us", {"us", "eu"}, None, "and not eu"),
        ("us", set(), None, "at least one"),
        ("us", {"us"}, 0, "above 0"),
    ],
)
def test_a_rule_that_would_bring_messages_back_or_move_none_is_refused(
    source: str, origins: set[str], ttl_s: int | None, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        Rule(source, "eu", frozenset(origins), ttl_s)
    with pytest.raises(InvalidNameError):
        Rule("us", "EU", frozenset({"us"}))
