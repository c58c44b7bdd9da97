"""`system/markers`: its rows, and which of them stay."""

from __future__ import annotations

import pytest

from geo.coordination.claiming import claim
from geo.coordination.runners import version_sync_runner
from geo.delta.history import CommitName
from geo.ids import Position
from geo.schemas import MARKERS
from geo.subscription.pip33 import marker_journal
from geo.subscription.pip33.controller_rows import FinishedUpTo, Invalidated, MarkerRow, Row, Subscribed, Tick, Unsubscribed
from geo.subscription.pip33.marker_journal import Heard, LookedUpTo, MarkerJournal, decode, encode
from tests.world import World


@pytest.mark.parametrize(
    "row",
    [
        MarkerRow(7, "SNAPSHOT", b"\x00\xff", "us", Position.end(3), 4, "t"),
        MarkerRow(7, None, None, None, Position(3, 0), 4),
        Tick(7, 1.5, 3, ("ap", "eu"), {"ap": "PAUSED"}, {"ap": ("hub",), "eu": ()}, 4, "t"),
        FinishedUpTo(7, "s", 3, "t"),
        Subscribed(7, "s", None, "t", 9),
        Unsubscribed(7, "s"),
        Invalidated(7, "backfill", begins=True, table="t"),
    ],
    ids=lambda row: type(row).__name__,
)
def test_a_row_is_read_as_it_was_written(row: Row) -> None:
    assert decode(7, encode(row)) == row


def opened(world: World) -> MarkerJournal:
    eu = world.tables("eu")
    (ownership,) = claim(eu, [[version_sync_runner(eu)]], take_over=True)
    return MarkerJournal(eu, ownership)


def kept(world: World) -> list[tuple[str, Row]]:
    rows = world.tables("eu").journal(MARKERS).rows()
    assert rows is not None
    return [(row["topic"], decode(row["seq"], row["fact"])) for row in rows.orderBy("seq").collect()]


@pytest.mark.spark
def test_numbers_ascend_whatever_the_clock_does_and_the_newest_row_of_each_topic_is_never_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_800_000_000_000_000
    monkeypatch.setattr(marker_journal, "now_us", lambda: now)
    monkeypatch.setattr(marker_journal, "TRIM_S", 0.0)
    monkeypatch.setattr(marker_journal, "KEPT_S", 1)

    def heard(topic: str, journal: MarkerJournal, read_to: int) -> Heard:
        return Heard(topic, FinishedUpTo(journal.next_seq(), "s", read_to), LookedUpTo(CommitName("t", read_to, "c"), read_to))

    first = opened(world)
    first.append([heard("rests", first, 1), heard("rests", first, 2), heard("moves", first, 3)])
    first_seq, now = now, now - 3_600_000_000  # the clock was put back
    second = opened(world)
    assert {topic: at.moved for topic, at in second.looked_at.items()} == {"rests": 2, "moves": 3}
    second.append([heard("moves", second, 4)])
    assert [row.seq for _, row in kept(world)] == [first_seq + nth for nth in range(4)]
    now += 2 * 3_600_000_000
    second.append([heard("moves", second, 5)])
    second.trim_if_due()
    left = [(topic, row.seq) for topic, row in kept(world)]
    assert left == [("rests", first_seq + 1), ("moves", now)], "the others are older than what is kept"


@pytest.mark.spark
def test_old_rows_go_also_after_a_clock_that_was_ahead_and_what_is_always_to_be_known_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, at, began = opened(world), LookedUpTo(CommitName("t", 1, "c"), 1), 1_764_000_000_000_000
    monkeypatch.setattr(marker_journal, "TRIM_S", 0.0)
    told = [
        (0, "of another table", "new"),
        (0, "old", None),
        (30, "while the clock was ahead", None),
        (3, "put right", None),
        (5, "young", None),
    ]
    for hours, what, table in [*told, (6, "newest", None)]:
        now = began + hours * 3_600_000_000
        monkeypatch.setattr(marker_journal, "now_us", lambda now=now: now)
        voids = [(topic, Invalidated(journal.next_seq(), what, begins=False, table=table)) for topic in ("one", "two")]
        journal.append([Heard(topic, void, at) for topic, void in voids])
    journal.trim_if_due()
    left = sorted(row.what for topic, row in kept(world) if topic == "one" and isinstance(row, Invalidated))
    assert left == ["newest", "of another table", "young"], "what came while the clock was ahead goes with what came after it"
