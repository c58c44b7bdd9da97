"""Rows that no producer can have written: a person accepts that a link leaves them out, who was told how many they are, and nothing else does. On
a local disk, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from geo.journal.event_rate import EventKind
from geo.journal.events import SETTING, flush_all, read_events
from geo.ops.verify.quick import verify_by_ends
from geo.reasons import Reason
from geo.replication.link_state import LinkState, accepted_of
from geo.replication.link_table import read_links
from geo.streams.life import State
from geo.times import EPOCH
from tests.broken.place import TOPIC, Place, without_spark

ENDS = ("--source", "us", "--target", "eu", "--topic", str(TOPIC))
DAY_S = 86_400


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv(SETTING, "on")
    with without_spark():
        one = Place(tmp_path, None)
        one.publish(10)
        yield one


@pytest.mark.parametrize(
    ("impossible", "accepted", "not_accepted", "still_accepted"),
    [
        (5, 0, 0, 0),  # the first comparison
        (5, 5, 0, 5),
        (7, 5, 0, 5),
        (3, 5, 0, 3),
        (5, 5, 5, 0),  # of ten five are gone
        (7, 5, 5, 2),
        (12, 5, 5, 5),
        (5, 5, None, 0),
    ],
)
def test_of_rows_left_out_rather_those_are_gone_that_were_accepted(
    impossible: int, accepted: int, not_accepted: int | None, still_accepted: int
) -> None:
    assert accepted_of(impossible, accepted, not_accepted, was_failed=False) == still_accepted
    assert accepted_of(impossible, accepted, not_accepted, was_failed=True) == 0


def _row(place: Place) -> LinkState:
    return read_links(place.far.tables("eu"))["us", str(TOPIC)]


def test_what_nobody_was_told_of_nobody_has_accepted(place: Place) -> None:
    def fail() -> LinkState:
        """The source is made anew, with rows that no producer can have written."""
        place.remove_log("us")
        place.publish(10)
        place.forge(3)
        place.replicate("eu")
        return _row(place)

    place.replicate("eu")
    row = fail()
    assert (row.state, row.impossible) == (State.FAILED, 0), "it has not read them"

    def said(*verb: str) -> tuple[object, int | None, int | None]:
        """Of the topic, and what its row says afterwards."""
        told = place.geo(*verb, *ENDS, "-o", "json")
        (one,) = told.data
        row = _row(place)
        assert (told.code, one["impossible"]) == (0, 3)
        return one["impossible_not_accepted"], row.impossible, row.not_accepted

    assert said("links", "resolve", "--dry-run") == (3, 0, 0)
    assert said("links", "resolve") == (3, 3, 3)
    assert said("links", "reset", "--to", "earliest") == (3, 3, 3)
    printed = place.geo("reconcile", *ENDS, "--dry-run").text
    told = "3 rows left out that no producer can have written; nobody has accepted 3 of them, as geo reconcile"
    assert told in " ".join(printed.split())
    assert said("reconcile") == (0, 3, 0)
    assert "3 rows left out that no producer can have written, which was accepted" in place.geo("reconcile", *ENDS).text
    flush_all()
    noted = read_events(place.far.tables("eu"), EPOCH, EventKind.REJECT)
    assert {(one.reason_code, one.reason) for one in noted} == {
        (Reason.IMPOSSIBLE_ROWS, "3 rows that no producer can have written")
    }
    assert (noted[-1].to_state, sum(one.count for one in noted)) == ("accepted", 2)

    row = fail()
    assert (row.state, row.impossible, row.not_accepted) == (State.FAILED, 3, 0)
    assert said("links", "resolve", "--dry-run") == (3, 3, 0)
    assert said("links", "resolve") == (3, 3, 3), "as many others"


def test_an_overdue_message_is_told_though_its_ledger_has_a_row_of_a_later_time_that_no_producer_can_have_written(
    place: Place,
) -> None:
    ledger = next(ledger for ledger, _ in place.far.messages("us", TOPIC))
    place.forge(2, ledger)
    far = place.far
    with place.later(8 * DAY_S):
        found = verify_by_ends({name: far.tables(name) for name in ("us", "eu")}, far.config)
    assert any("10 messages in flight since before" in line for line in found.lines())
