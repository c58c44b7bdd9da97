"""`system/markers`: its rows, and which of them stay."""

from __future__ import annotations

import pytest

from geo.coordination.ownership import claim, version_sync_runner
from geo.delta.history import CommitName
from geo.ids import Position
from geo.subscription import marker_journal
from geo.subscription.controller_rows import MarkerRow, Progress, Row, Subscribed, Tick, Unsubscribed, Void
from geo.subscription.marker_journal import Heard, LookedAt, MarkerJournal, decode, encode
from schemas import MARKERS
from tests.world import World


@pytest.mark.parametrize(
    "row",
    [
        MarkerRow(7, "SNAPSHOT", b"\x00\xff", "us", Position.end(3), 4, "t"),
        MarkerRow(7, None, None, None, Position(3, 0), 4),
        Tick(7, 1.5, 3, ("ap", "eu"), {"ap": "PAUSED"}, {"ap": ("hub",), "eu": ()}, 4, "t"),
        Progress(7, "s", 3, "t"),
        Subscribed(7, "s", None, "t", 9),
        Unsubscribed(7, "s"),
        Void(7, "backfill", begins=True, table="t"),
    ],
    ids=lambda row: type(row).__name__,
)
def test_a_row_is_read_as_it_was_written(row: Row) -> None:
    assert decode(7, encode(row)) == row


@pytest.mark.spark
def test_numbers_ascend_whatever_the_clock_does_and_the_newest_row_of_each_topic_is_never_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    eu, now = world.tables("eu"), 1_800_000_000_000_000
    monkeypatch.setattr(marker_journal, "now_us", lambda: now)
    monkeypatch.setattr(marker_journal, "TRIM_S", 0.0)
    monkeypatch.setattr(marker_journal, "KEPT_S", 1)

    def opened() -> MarkerJournal:
        (ownership,) = claim(eu, [[version_sync_runner(eu)]], take_over=True)
        return MarkerJournal(eu, ownership)

    def heard(topic: str, journal: MarkerJournal, read_to: int) -> Heard:
        return Heard(topic, Progress(journal.next_seq(), "s", read_to), LookedAt(CommitName("t", read_to, "c"), read_to))

    first = opened()
    first.append([heard("rests", first, 1), heard("rests", first, 2), heard("moves", first, 3)])
    first_seq, now = now, now - 3_600_000_000  # the clock was put back
    second = opened()
    assert {topic: at.moved for topic, at in second.looked_at.items()} == {"rests": 2, "moves": 3}
    second.append([heard("moves", second, 4)])
    assert [seq for _, seq in kept(world)] == [first_seq + nth for nth in range(4)]
    now += 2 * 3_600_000_000
    second.append([heard("moves", second, 5)])
    second.trim_if_due()
    assert kept(world) == [("rests", first_seq + 1), ("moves", now)], "the others are older than what is kept"


def kept(world: World) -> list[tuple[str, int]]:
    rows = world.tables("eu").journal(MARKERS).rows()
    assert rows is not None
    return [(row["topic"], row["seq"]) for row in rows.orderBy("seq").collect()]
