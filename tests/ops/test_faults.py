"""When messages are no longer in flight, decided purely; real tables: test_absence.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geo.config.cluster import Cluster
from geo.config.model import Config, Link
from geo.ids import LedgerId
from geo.log.kept_policies import DELETED, REPLICATION_CLUSTERS, UNCLEAR
from geo.log.ledgers import LedgerPart
from geo.log.topics import Registered
from geo.ops.verify.ends import overdue_in
from geo.ops.verify.faults import faults, gone, uncounted
from geo.ops.verify.link_ends import End, due_before_us, overdue
from geo.times import from_us
from tests.world import TOPIC

MINUTE = 60 * 1_000_000
DAY = 1440 * MINUTE
NOW = 1_800_000_000_000_000
LINK = Link("us", "eu")
CONFIG = Config("geo.yaml", {name: Cluster(name, root=f"/{name}") for name in ("us", "eu")}, (LINK,))


def _end(state: str, age_us: int, version: int | None = 7) -> End:
    return End(state, None, "table", version, {}, None, NOW - age_us)


@pytest.mark.parametrize(
    ("end", "before"),
    [
        (None, NOW - 7 * DAY),
        (_end("RUNNING", MINUTE), NOW - 7 * DAY),
        (_end("RUNNING", 11 * MINUTE), NOW - 10 * MINUTE),
        (_end("DELAYED", 3 * DAY), NOW - 10 * MINUTE),
        (_end("RUNNING", 3 * DAY, version=None), NOW - 7 * DAY),
        (_end("STOPPED", MINUTE), NOW - 11 * MINUTE),
        (_end("STOPPED", 2 * DAY), NOW - 2 * DAY - 10 * MINUTE),
        (_end("STOPPED", 9 * DAY), NOW - 7 * DAY),
        (_end("PAUSED", 90 * DAY), None),
        (_end("FAILED", 90 * DAY), None),
        (End("RUNNING", None, "table", 7, {}, None), NOW - 7 * DAY),
    ],
)
def test_in_flight_has_an_age_by_what_the_links_row_explains(end: End | None, before: int | None) -> None:
    assert due_before_us(end, NOW, 7 * 86_400) == before


def test_messages_of_a_ledger_that_are_due_since_before_a_time_are_counted() -> None:
    one, two, other = LedgerId("us", 1), LedgerId("us", 2), LedgerId("eu", 3)
    source = {one: LedgerPart(0, 9, 10, None), two: LedgerPart(0, 4, 5, None), other: LedgerPart(0, 4, 5, None)}
    young = {one: LedgerPart(8, 9, 2, None)}
    target = {one: LedgerPart(0, 5, 6, None)}
    assert overdue_in(LINK, source, young, target, {}) == 2 + 5, "entries 6 and 7 of one, all of two"
    assert overdue_in(LINK, source, source, target, {}) == 0, "all are young"
    assert overdue_in(LINK, source, young, target, {"us:2": 4}) == 2 + 1, "what is below a floor is not wanted"


def test_an_overdue_message_is_told_with_the_state_of_its_link_and_the_remedy() -> None:
    key = ("eu", "us", str(TOPIC))
    (said,) = overdue(TOPIC, [LINK], {key: _end("RUNNING", 11 * MINUTE)}, {"us->eu": 5}, {"us->eu": NOW - 10 * MINUTE})
    assert said == (
        f"{TOPIC}: us->eu: 5 messages in flight since before 2027-01-15 07:50:00Z; it is RUNNING, recorded last at 2027-01-15 "
        "07:49:00Z. See that somebody runs it: geo broker or geo replicate --cluster eu; geo doctor"
    )
    assert list(overdue(TOPIC, [LINK], {}, {}, {})) == []


def test_a_link_that_failed_is_a_fault_for_who_looks_at_ends_alone_too_and_what_it_lacks_is_only_in_flight() -> None:
    ends = {("eu", "us", str(TOPIC)): replace(_end("FAILED", MINUTE), reason="messages were changed")}
    assert list(faults(TOPIC, {}, (), [LINK], ends)) == [f"{TOPIC}: us->eu is FAILED: messages were changed"]


def test_a_cluster_that_has_nothing_is_gone_if_others_have_read_it_and_new_otherwise() -> None:
    ends = {("eu", "us", str(TOPIC)): _end("STOPPED", 0)}
    (said,) = gone(CONFIG, {"us": {}, "eu": {}}, ends, NOW)
    assert said.startswith("us: nothing is registered at /us, and eu replicated from it")
    assert "geo rebuild" in said
    assert list(gone(CONFIG, {"us": {}, "eu": {}}, {("eu", "us", str(TOPIC)): _end("STOPPED", 0, version=None)}, NOW)) == []
    assert list(faults(TOPIC, {"us": {}, "eu": {}}, (), (LINK,), ends)) == []


def test_a_target_that_has_nothing_of_what_links_are_to_bring_is_named_with_the_remedy() -> None:
    one = Registered(TOPIC, from_us(NOW - 10 * MINUTE), False, None, 1)
    (said,) = gone(CONFIG, {"us": {TOPIC: one}, "eu": {}}, {}, NOW)
    assert said.startswith("eu: nothing is registered at /eu of eu")
    assert "geo replicate --cluster eu" in said
    assert "put its folder back" in said
    for not_due in (
        replace(one, policies={REPLICATION_CLUSTERS: "us"}),
        replace(one, policies={DELETED: "now"}),
        replace(one, policies={UNCLEAR: ""}),
        replace(one, created_at=from_us(NOW - 9 * MINUTE)),
    ):
        assert list(gone(CONFIG, {"us": {TOPIC: not_due}, "eu": {}}, {}, NOW)) == []
    assert list(gone(CONFIG, {"us": {TOPIC: one}, "eu": {TOPIC: one}}, {}, NOW)) == []


@pytest.mark.parametrize(
    ("version", "impossible", "faulty"), [(7, None, True), (7, 0, False), (7, 2, False), (None, None, False), (-1, None, True)]
)
def test_what_an_older_programs_row_does_not_count_is_unknown_and_not_0(
    version: int | None, impossible: int | None, *, faulty: bool
) -> None:
    ends = {("eu", "us", str(TOPIC)): End("RUNNING", None, "table", version, {}, impossible)}
    said = list(uncounted(TOPIC, [LINK], ends))
    assert bool(said) is faulty
    assert all("geo replicate --cluster eu" in one for one in said)
    assert list(uncounted(TOPIC, [LINK], {})) == [], "it has never run"
