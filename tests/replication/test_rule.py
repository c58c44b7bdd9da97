"""The routing rule: which filter refuses a row, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geo.errors import InvalidNameError, UsageError
from geo.ids import LEDGER_ID_LIMIT
from geo.replication.rule import AHEAD_US, CROSSING_MARKERS, MICROSECONDS, RoutedRow, Rule, Verdict, verdict
from geo.times import LAST_US

NOW_US = 1_700_000_000 * MICROSECONDS
DAY_S = 86_400
RULE = Rule("us", "eu", frozenset({"us"}), DAY_S)
MESSAGE = RoutedRow("us", None, None, NOW_US, 7, 0)


def test_a_message_of_the_source_to_all_crosses() -> None:
    assert verdict(RULE, MESSAGE, NOW_US) is Verdict.REPLICATE


@pytest.mark.parametrize("kind", sorted(CROSSING_MARKERS))
def test_a_marker_for_other_clusters_crosses_like_a_message(kind: str) -> None:
    marker = replace(MESSAGE, marker=kind)
    assert verdict(RULE, marker, NOW_US) is Verdict.REPLICATE
    assert verdict(RULE, replace(marker, origin="asia"), NOW_US) is Verdict.FOREIGN_ORIGIN
    assert verdict(RULE, replace(marker, replicate_to=["asia"]), NOW_US) is Verdict.NOT_ADDRESSED


def test_the_kinds_that_cross_are_those_of_pip_33_without_the_local_snapshot() -> None:
    assert sorted(CROSSING_MARKERS) == ["SNAPSHOT_REQUEST", "SNAPSHOT_RESPONSE", "SUBSCRIPTION_UPDATE"]


@pytest.mark.parametrize("kind", ["SNAPSHOT", "", "snapshot_request", "SNAPSHOT_REQUEST ", "TXN_COMMIT"])
def test_a_local_or_unknown_marker_stays(kind: str) -> None:
    assert verdict(RULE, replace(MESSAGE, marker=kind), NOW_US) is Verdict.MARKER


@pytest.mark.parametrize("origin", ["eu", "asia", "", "US", None])
def test_a_message_of_another_origin_or_of_none_stays(origin: str | None) -> None:
    assert verdict(RULE, replace(MESSAGE, origin=origin), NOW_US) is Verdict.FOREIGN_ORIGIN


def test_a_hub_forwards_the_origins_of_its_rule() -> None:
    rule = replace(RULE, origins=frozenset({"us", "asia"}))
    assert verdict(rule, replace(MESSAGE, origin="asia"), NOW_US) is Verdict.REPLICATE
    assert verdict(rule, replace(MESSAGE, origin="eu"), NOW_US) is Verdict.FOREIGN_ORIGIN


@pytest.mark.parametrize(
    ("replicate_to", "expected"),
    [
        (None, Verdict.REPLICATE),
        (["eu"], Verdict.REPLICATE),
        (["asia", "eu"], Verdict.REPLICATE),
        ([None, "eu"], Verdict.REPLICATE),
        ([], Verdict.NOT_ADDRESSED),
        (["asia"], Verdict.NOT_ADDRESSED),
        ([None], Verdict.NOT_ADDRESSED),
        (["EU", "e"], Verdict.NOT_ADDRESSED),
    ],
)
def test_replicate_to_names_the_targets(replicate_to: list[str | None] | None, expected: Verdict) -> None:
    assert verdict(RULE, replace(MESSAGE, replicate_to=replicate_to), NOW_US) is expected


@pytest.mark.parametrize(
    ("age_us", "expected"),
    [
        (-MICROSECONDS, Verdict.REPLICATE),
        (DAY_S * MICROSECONDS - 1, Verdict.REPLICATE),
        (DAY_S * MICROSECONDS, Verdict.REPLICATE),
        (DAY_S * MICROSECONDS + 1, Verdict.EXPIRED),
    ],
)
def test_a_message_expires_one_microsecond_after_its_ttl(age_us: int, expected: Verdict) -> None:
    row = replace(MESSAGE, publish_time_us=NOW_US - age_us)
    assert verdict(RULE, row, NOW_US) is expected
    assert verdict(replace(RULE, message_ttl_s=None), row, NOW_US) is Verdict.REPLICATE


@pytest.mark.parametrize(
    "impossible",
    [
        {"ledger_id": None}, {"ledger_id": 0}, {"ledger_id": -7}, {"ledger_id": LEDGER_ID_LIMIT}, {"entry_id": None}, {"entry_id": -1},
        {"publish_time_us": -1}, {"publish_time_us": NOW_US + AHEAD_US + 1}, {"publish_time_us": LAST_US + 1},
    ],
)  # fmt: skip
def test_a_row_that_no_producer_can_have_written_stays(impossible: dict[str, int | None]) -> None:
    assert verdict(RULE, replace(MESSAGE, **impossible), NOW_US) is Verdict.IMPOSSIBLE  # type: ignore[arg-type]
    assert (
        verdict(RULE, replace(MESSAGE, ledger_id=LEDGER_ID_LIMIT - 1, publish_time_us=NOW_US + AHEAD_US), NOW_US)
        is Verdict.REPLICATE
    )


def test_a_message_without_a_publish_time_is_not_expired() -> None:
    assert verdict(RULE, replace(MESSAGE, publish_time_us=None), NOW_US) is Verdict.REPLICATE


def test_the_first_filter_that_refuses_gives_the_verdict() -> None:
    row = RoutedRow("asia", [], "SNAPSHOT", 0, 0, -1)
    seen = []
    for mended in (
        {"marker": None}, {"origin": "us"}, {"ledger_id": 1, "entry_id": 0}, {"replicate_to": None}, {"publish_time_us": NOW_US}, {},
    ):  # fmt: skip
        seen.append(verdict(RULE, row, NOW_US))
        row = replace(row, **mended)
    assert seen == list(Verdict)


def test_a_rule_that_would_bring_messages_back_or_move_none_is_refused() -> None:
    with pytest.raises(UsageError, match="itself"):
        Rule("eu", "eu", frozenset({"us"}))
    with pytest.raises(UsageError, match="and not eu"):
        Rule("us", "eu", frozenset({"us", "eu"}))
    with pytest.raises(UsageError, match="at least one"):
        Rule("us", "eu", frozenset())
    with pytest.raises(UsageError, match="above 0"):
        Rule("us", "eu", frozenset({"us"}), 0)
    with pytest.raises(InvalidNameError):
        Rule("us", "EU", frozenset({"us"}))
