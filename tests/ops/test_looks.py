"""What the doctor says of what it found, purely."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from geo.cli.doctor import exit_code
from geo.config.cluster import Cluster
from geo.config.model import Config
from geo.config.secret import Secret
from geo.journal.event_rate import Event, EventKind
from geo.ops.health import Health
from geo.ops.looks import clocks, retention, second, space, subscriptions
from geo.ops.looks.overdue import overdue
from geo.ops.looks.secrets import references
from geo.ops.symptom import Symptom
from geo.reasons import Level, Reason
from geo.schemas import TOPIC_LOG
from geo.schemas.table import duration_s
from geo.schemas.topic_log import RETENTION_PROPERTIES
from geo.subscription.status import Listed
from geo.times import from_us

DAY_S, DAY_US, NOW_US = 86_400, 86_400 * 1_000_000, 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("free_mib", "whole_gib", "level"),
    [(0, 100, "error"), (63, 1, "error"), (900, 100, "warn"), (900, 10, "ok"), (2_000, 1_000, "ok")],
)
def test_a_disk_that_is_full_is_an_error_and_one_that_is_nearly_so_a_warning(free_mib: int, whole_gib: int, level: str) -> None:
    found = space.judged("cluster eu", Path("/data/eu"), free_mib * 2**20, whole_gib * 2**30)
    assert (found.level, found.code) == (level, None if level == "ok" else Reason.TARGET_DISK_FULL)
    assert "/data/eu" in found.what
    assert bool(found.fix) is (level != "ok")


@pytest.mark.parametrize(
    ("ahead_s", "level", "what"),
    [
        (0, "ok", ""),
        (-5, "ok", ""),
        (6, "warn", "6 s ahead of"),
        (-299, "warn", "299 s behind"),
        (400, "error", "400 s ahead of"),
    ],
)
def test_a_clock_that_is_off_is_a_warning_and_beyond_what_is_tolerated_an_error(ahead_s: int, level: str, what: str) -> None:
    found = clocks.of_host("cluster eu", ahead_s * 1_000_000)
    assert (found.level, found.code) == (level, None if level == "ok" else Reason.CLOCK)
    assert what in found.what


@pytest.mark.parametrize(("us_s", "level"), [(1, "ok"), (-20, "warn"), (400, "error")])
def test_storages_whose_clocks_are_apart_are_told_by_which_is_ahead(us_s: int, level: str) -> None:
    (found,) = clocks.of_regions({"eu": 0, "us": us_s * 1_000_000})
    assert found.level == level
    ahead, behind = ("us", "eu") if us_s < 0 else ("eu", "us")
    assert level == "ok" or f"the storage of {ahead} says a time {abs(us_s)} s ahead of that of {behind}" in found.what
    assert not list(clocks.of_regions({"eu": 10**12}))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("interval 30 days", 30 * DAY_S), ("interval 1 week", 7 * DAY_S), ("1 HOUR", 3600), ("interval 2 months", None), ("", None)],
)
def test_how_long_something_stays_is_read_from_a_property(text: str, seconds: int | None) -> None:
    assert duration_s(text) == seconds


def _of_log(properties: Mapping[str, str], outage_days: float = 7) -> list[Symptom]:
    given = {**TOPIC_LOG.properties, **properties}
    return list(retention.of_log("t", given, outage_days * DAY_S, lambda key, value: f"SET {key} = {value}"))


@pytest.mark.parametrize(
    ("kept", "outage_days", "level", "fix"),
    [
        ("interval 30 days", 7, None, ""),
        ("interval 60 days", 7, None, ""),
        ("interval 10 days", 7, "warn", "interval 30 days"),
        ("interval 1 hour", 7, "error", "interval 30 days"),
        ("interval 30 days", 45, "error", "interval 45 days"),
        ("interval 1 month", 7, "warn", "interval 30 days"),
    ],
)
def test_a_log_that_keeps_less_than_the_longest_outage_is_an_error(
    kept: str, outage_days: float, level: str | None, fix: str
) -> None:
    for key in RETENTION_PROPERTIES:
        told = [(one.level, one.fix, one.code) for one in _of_log({key: kept}, outage_days) if f"{key} is" in one.what]
        assert told == ([] if level is None else [(level, f"SET {key} = {fix}", Reason.SHORT_RETENTION)])


def test_a_log_without_such_a_property_keeps_what_delta_keeps() -> None:
    properties = {key: value for key, value in TOPIC_LOG.properties.items() if key not in RETENTION_PROPERTIES}
    told = [one.level for one in retention.of_log("t", properties, 10 * DAY_S, lambda key, value: "")]
    assert told == ["warn", "error"], "30 days of commits, a week of files"


@pytest.mark.parametrize(("behind_days", "told"), [(0, 0), (14.9, 0), (15.1, 2), (40, 2)])
def test_a_link_that_is_behind_for_half_of_what_its_source_keeps_is_told(behind_days: float, told: int) -> None:
    found = list(retention.of_lag("link", TOPIC_LOG.properties, behind_days * DAY_S, lambda key, value: value))
    assert [one.code for one in found] == [Reason.SHORT_RETENTION] * told


@pytest.mark.parametrize(
    ("refused_s_ago", "owned_s_ago", "since_s_ago"),
    [
        ([30], [900], None),  # once: its exit code has told it
        ([90, 30], [900], 90),
        ([2000, 700, 500, 30], [3000], 700),  # what was long before is another time
        ([2000, 1300], [3000], None),  # it is no longer tried
        ([90, 30], [], None),  # nobody runs it by now
        ([90, 30], [10], None),  # the second one has it
    ],
)
def test_a_second_process_is_told_while_it_is_refused_again_and_again(
    refused_s_ago: list[int], owned_s_ago: list[int], since_s_ago: int | None
) -> None:
    def event(seconds: int) -> Event:
        at, kind, code = from_us(NOW_US - seconds * 1_000_000), EventKind.OWNER, Reason.OWNED_ELSEWHERE
        return Event("", at, "eu", kind, "eu", None, None, "replicate refused", code, "somebody runs it. Do", "u@h 1")

    owned = [NOW_US - seconds * 1_000_000 for seconds in owned_s_ago]
    found = list(second.refused("eu", map(event, refused_s_ago), owned, NOW_US))
    assert [one.since_us for one in found] == ([] if since_s_ago is None else [NOW_US - since_s_ago * 1_000_000])


@pytest.mark.parametrize(
    ("subject", "to_state", "typed"),
    [
        ("broker of eu", "FAILED", "broker --cluster eu"),
        ("broker b-2 of eu", "FAILED", "broker --cluster eu --name b-2"),
        ("eu", "broker refused", "broker --cluster eu"),
        ("eu", "replicate refused", "replicate --cluster eu"),
    ],
)
def test_what_ends_the_first_process_is_the_verb_that_was_refused(subject: str, to_state: str, typed: str) -> None:
    """Another one would take the links of a broker that is well, and leave it where it is."""
    at, code = from_us(NOW_US), Reason.OWNED_ELSEWHERE
    refused = Event("", at, "eu", EventKind.OWNER, subject, None, None, to_state, code, "somebody runs it", "u@h 1", count=2)
    (found,) = second.refused("eu", [refused], [NOW_US - 1], NOW_US)
    assert found.fix.endswith(f": geo {typed} --take-over")


def test_a_reference_that_leads_nowhere_is_told_and_no_secret_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEO_LOOKS_THERE", "canary")
    (tmp_path / "empty").touch()
    refer = {"a": "env/GEO_LOOKS_THERE", "b": "env/GEO_LOOKS_GONE", "c": f"file{tmp_path}/gone", "d": f"file{tmp_path}/empty"}
    conf = {f"fs.{name}.key": Secret(f"secret://{place}") for name, place in refer.items()}
    found = list(references(Config("geo.yaml", {"eu": Cluster("eu", root="/nowhere", spark_conf=conf)})))
    assert [(one.level, one.code) for one in found] == [("error", Reason.KEYS_REFUSED)] * 3 + [("ok", None)]
    assert "canary" not in str(found)
    assert "GEO_LOOKS_GONE is not set" in found[0].what
    assert found[3].what == "1 reference to secrets leads to something"


def _ended(kind: EventKind, days_ago: float, to_state: str | None = None) -> Event:
    to_state = to_state or ("clean" if kind is EventKind.VERIFY else "done")
    return Event("e", from_us(NOW_US - round(days_ago * DAY_US)), "eu", kind, "eu", None, None, to_state, None, None, "somebody")


@pytest.mark.parametrize(
    ("begun_days", "events", "told"),
    [
        (7.5, [], []),
        (9, [], ["geo verify", "geo maintain --cluster eu"]),
        (99, [_ended(EventKind.VERIFY, 7), _ended(EventKind.MAINTAIN, 9)], ["geo maintain --cluster eu"]),
        (99, [_ended(EventKind.VERIFY, 1, "clean (ends alone)"), _ended(EventKind.MAINTAIN, 1)], ["geo verify"]),
        (99, [_ended(EventKind.VERIFY, 1), _ended(EventKind.MAINTAIN, 1, "done (some topics)")], ["geo maintain --cluster eu"]),
        (99, [_ended(EventKind.VERIFY, 1, "verify failed"), _ended(EventKind.MAINTAIN, 1)], ["geo verify"]),
        (99, [_ended(EventKind.VERIFY, 9), _ended(EventKind.VERIFY, 2, "faults"), _ended(EventKind.MAINTAIN, 1)], []),
    ],
)
def test_who_was_not_verified_or_maintained_for_a_week_and_a_day_is_overdue(
    begun_days: float, events: list[Event], told: list[str]
) -> None:
    found = list(overdue("eu", events, NOW_US - round(begun_days * DAY_US), NOW_US))
    assert [one.fix for one in found if one.code is Reason.OVERDUE] == told
    assert {one.level for one in found if one.code is Reason.OVERDUE} <= {"warn"}
    assert any(one.level == "error" for one in found) == any(one.to_state == "faults" for one in events)


def _listed(cluster: str, backlog: int | None, days: float, **more: Any) -> Listed:
    given = {"deleted": False, "epoch": 0, "acknowledged": 0, "runs": False, **more}
    oldest = from_us(NOW_US - round(days * DAY_US)) if backlog else None
    return Listed("persistent://shop/web/orders", "billing", cluster, backlog=backlog, oldest_at=oldest, **given)


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ([_listed("eu", 0, 0), _listed("us", 900, 3)], None),  # it was consumed in eu
        ([_listed("eu", 9, 3), _listed("us", 900, 3)], "9 messages wait"),
        ([_listed("eu", 9, 3), _listed("us", 900, 3, runs=True)], None),
        ([_listed("eu", 9, 0.9)], None),
        ([_listed("eu", None, 0)], None),
        ([_listed("eu", 9, 3, deleted=True)], None),
        ([_listed("eu", 0, 0), _listed("us", 900, 3, replicated=False)], "900 messages wait"),
    ],
)
def test_a_subscription_is_forgotten_that_nobody_consumes_and_whose_messages_wait_for_a_day(
    listed: list[Listed], told: str | None
) -> None:
    found = list(subscriptions.forgotten(listed, NOW_US))
    assert [one.code for one in found] == ([] if told is None else [Reason.NO_OWNER])
    assert told is None or (told in found[0].what and "geo subscriptions delete --cluster" in found[0].fix)


@pytest.mark.parametrize(
    ("level", "health", "codes"),
    [("ok", None, (0, 0, 0)), ("warn", None, (0, 1, 0)), ("error", None, (1, 1, 1)),
     ("warn", Health.BEHIND, (1, 1, 0)), ("error", Health.FAILED, (1, 1, 1))],
)  # fmt: skip
def test_links_fail_the_doctor_as_they_fail_geo_status(level: Level, health: Health | None, codes: tuple[int, int, int]) -> None:
    found = Symptom(level, "here", "so it is", health=health)
    assert tuple(exit_code([found], fail_on) for fail_on in (None, "warn", "error")) == codes
