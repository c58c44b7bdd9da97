"""What the tail of a cluster tells the controllers, round by round, of real tables and by a clock that stands."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import filling_runners, version_sync_runner
from geo.delta.appending import append_frame
from geo.ids import Position
from geo.replication.link_state import LinkRecord
from geo.schemas import MARKERS
from geo.streams import timetable
from geo.subscription.pip33 import topic_feed
from geo.subscription.pip33.controller_rows import (
    FinishedUpTo,
    Invalidated,
    MarkerRow,
    Notes,
    Resnapshot,
    Row,
    Subscribed,
    Tick,
    Unsubscribed,
)
from geo.subscription.pip33.marker_journal import decode
from geo.subscription.pip33.marker_tail import MarkerTail
from geo.subscription.pip33.markers import SnapshotResponse, encode
from geo.subscription.pip33.peers import Peer
from geo.subscription.versions.version_subscriptions import create, delete, finish
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

NAME = "reports"
FREQUENCY_S = 10
_LIMIT_S = 60.0


class Tailing:
    """The tail of us, beside all others. It looks at all in each round."""

    now = 1_800_000_000.0

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timetable, "MARKERS_LOOK_S", 0.0)
        monkeypatch.setattr(timetable, "MARKERS_PEERS_LOOK_S", 0.0)
        monkeypatch.setattr(topic_feed, "now_us", lambda: round(self.now * 1e6))
        us = world.tables("us")
        self.notes = Notes()
        (ownership,) = claim(us, [[version_sync_runner(us)]], take_over=True)
        others = {name: Peer(world.tables(name)) for name in world.config.clusters if name != "us"}
        self._tail = MarkerTail(us, others, world.config, ownership, self.notes)
        self._journal = us.journal(MARKERS)
        self._seen = len(self._rows())

    def round(self) -> list[Row]:
        """What it tells in a round."""
        self._tail.round()
        new = self._rows()[self._seen :]
        self._seen += len(new)
        return new

    def until_tick(self) -> Tick:
        """The first tick that it tells."""
        deadline = time.monotonic() + _LIMIT_S
        while True:
            if found := [row for row in self.round() if isinstance(row, Tick)]:
                return found[0]
            assert time.monotonic() < deadline, "no tick"

    def _rows(self) -> list[Row]:
        rows = self._journal.rows()
        return [] if rows is None else [decode(row["seq"], row["fact"]) for row in rows.orderBy("seq").collect()]


def voids(rows: list[Row]) -> list[tuple[str, bool]]:
    """What makes snapshots void by these rows, and whether it begins."""
    return [(row.what, row.begins) for row in rows if isinstance(row, Invalidated)]


def test_it_tells_of_time_while_a_controller_does_not_rest_of_consumers_and_of_what_makes_snapshots_void(
    linked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked.rewrite(("ap", "eu", "us"), [("ap", "us"), ("eu", "us"), ("us", "eu")])
    linked.configure(f"topics:\n- {{match: '{TOPIC}', replication_clusters: [eu, us]}}\n")
    (linked.folder / "ap").mkdir()
    us, log = linked.tables("us"), linked.log("us")
    one = create(us, TOPIC, NAME)
    tail = Tailing(linked, monkeypatch)
    filling = filling_runners({"eu"}, TOPIC, "us")
    (ended, first, subscribed) = tail.round()
    assert ended == Invalidated(ended.seq, filling[0].name, begins=False), "the link has compared both logs before"
    assert isinstance(first, Tick)
    assert (first.asked, first.unable, first.looked, first.comes) == (("eu",), {}, log.latest_version(), ("eu",))
    assert isinstance(subscribed, Subscribed)
    assert tail.round() == []
    tail.now += FREQUENCY_S
    (again,) = tail.round()
    assert isinstance(again, Tick), "its controller has not said that it rests"
    tail.notes.rests[str(TOPIC)] = again.seq
    tail.now += FREQUENCY_S
    assert tail.round() == []
    linked.write("us", 20, 21)
    (moved,) = tail.round()
    assert isinstance(moved, Tick)
    assert moved.moved == log.latest_version()
    tail.now += FREQUENCY_S
    (again,) = tail.round()
    for nth, (after_s, is_told) in enumerate([(1, True), (1, False), (FREQUENCY_S - 1, True)]):
        linked.write("us", 22 + nth, 23 + nth)
        tail.now += after_s
        assert bool(tail.round()) == is_told, "of messages it tells at once, once in the time between two snapshots"
    finish(us, TOPIC, NAME, log.latest_version())
    (progress,) = tail.round()
    assert progress == FinishedUpTo(progress.seq, NAME, log.latest_version(), one.table_id)

    held = linked.link_state("us", "eu").cursor
    assert held is not None
    compared = LinkRecord("ap->us", ("ap",), str(TOPIC), held, 1, "of a test", reconciling=True)
    append_frame(log, linked.entries("eu", 20, 21).withColumn("origin", F.lit("ap")), compared.encode())
    linked.write("us", 21, 22)
    tail = Tailing(linked, monkeypatch)
    rows = tail.round()
    assert [type(row) for row in rows] == [Invalidated, Tick, Invalidated, Invalidated, Subscribed, FinishedUpTo], (
        "it goes on where the last one was"
    )
    assert voids(rows[1:]) == [("comparison of ap->us", True), ("comparison of ap->us", False)]
    assert isinstance(rows[1], Tick)
    assert rows[1].comes == ("ap", "eu"), "no policy says so, but the link has brought it"
    later = tail.until_tick()
    assert later.comes == ("eu",), "the policies were read since"
    log.delta().delete("entry_id = 21")
    (begun, is_begun), (done, is_done) = voids(tail.round())
    assert "is a DELETE" in begun
    assert (begun, is_begun, is_done) == (done, True, False)

    tail.notes.lost_updates[str(TOPIC)] = 7
    first_of_all, *_ = tail.round()
    assert isinstance(first_of_all, Resnapshot)
    assert tail.notes.lost_updates == {}
    assert not any(isinstance(row, Resnapshot) for row in tail.round())

    tail.now += FREQUENCY_S
    tail.round()
    owned = claim(us, [filling])
    assert voids(tail.round()) == [(filling[0].name, True)]
    release(owned)
    assert voids(tail.round()) == [(filling[0].name, False)]

    eu = Path(str(linked.config.cluster("eu").root))
    eu.rename(eu.with_name("elsewhere"))
    eu.symlink_to(eu)
    deadline, told = time.monotonic() + _LIMIT_S, [first]
    while not told[-1].unable:
        assert time.monotonic() < deadline, "nobody says that eu is away"
        tail.now += FREQUENCY_S
        told += [row for row in tail.round() if isinstance(row, Tick)]
    assert list(told[-1].unable) == ["eu"]
    assert told[-1].unable["eu"].startswith("eu cannot be read: ")
    delete(us, TOPIC, NAME)
    (gone,) = tail.round()
    assert gone == Unsubscribed(gone.seq, NAME)


def test_of_two_clusters_that_answer_the_first_waits_for_the_second_but_not_for_long(
    linked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked.rewrite(("ap", "eu", "us"))
    (linked.folder / "ap").mkdir()
    create(linked.tables("us"), TOPIC, NAME)
    tail = Tailing(linked, monkeypatch)
    (tick,) = [row for row in tail.round() if isinstance(row, Tick)]
    assert tick.asked == ("ap", "eu")

    def answer(cluster: str, snapshot: int) -> None:
        one = SnapshotResponse(f"us:{TOPIC}:{snapshot}", "us", cluster, Position(1, 0))
        entry = 100 + linked.log("us").latest_version()
        rows = linked.entries(cluster, entry, entry + 1)
        append_frame(
            linked.log("us"), rows.withColumns({"marker": F.lit(one.kind.value), "payload": F.lit(bytearray(encode(one)))})
        )

    answer("eu", 1)
    assert tail.round() == []
    answer("ap", 1)
    told = tail.round()
    assert [row.sender for row in told if isinstance(row, MarkerRow)] == ["eu", "ap"]
    answer("ap", 2)
    assert tail.round() == []
    monkeypatch.setattr(timetable, "MARKERS_ANSWER_S", 0.0)
    (late,) = tail.round()
    assert isinstance(late, MarkerRow)
    assert late.sender == "ap"

    monkeypatch.setattr(timetable, "MARKERS_ANSWER_S", _LIMIT_S)
    answer("eu", 3)
    assert tail.round() == []
    delete(linked.tables("us"), TOPIC, NAME)
    assert [type(row) for row in tail.round()] == [MarkerRow, Unsubscribed], "what waited is told before the topic is left"
