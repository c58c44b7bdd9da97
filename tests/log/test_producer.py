"""A producer and the log it writes, on real tables: what happens to either while the other runs, or does not."""

from __future__ import annotations

import itertools
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.coordination.owners import owned_now
from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.delta.ddl import set_property
from geo.errors import SourceChangedError, UnsafeError
from geo.log.ledger_table import LedgerTable
from geo.log.publish import publish
from geo.log.publish_stream import FrameStream
from geo.log.publisher import Published, Publisher
from geo.log.source_identity import by_order
from geo.now import now_us
from geo.schemas import LEDGERS
from geo.streams import timetable
from geo.testing import dies_at
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


@contextmanager
def _open(
    world: World, clock: Callable[[], int] | None = None, *, take_over: bool = False, frame: DataFrame | None = None
) -> Iterator[Publisher]:
    """Producer p of eu; whatever comes, it is closed without a word."""
    publisher = Publisher(world.tables("eu"), world.config, TOPIC, "p", clock=clock)
    publisher.open((world.rows(0, 0) if frame is None else frame).schema, {"number"}, take_over=take_over)
    try:
        yield publisher
    finally:
        publisher.close(clean=False)


def _publish(publisher: Publisher, rows: DataFrame) -> int:
    return publisher.publish(rows, by_order(rows, ["number"], None)).rows


def _ledger_table(world: World, generation: int) -> LedgerTable:
    return LedgerTable(world.tables("eu"), world.config, TOPIC, "p", world.log("eu"), generation)


def _ends(world: World) -> list[tuple[int, int, int]]:
    """Of each ledger of p, oldest first: first and last entry, and how many there are."""
    found = world.log("eu").read().where("producer = 'p'").groupBy("ledger_id").agg(
        F.min("publish_time"), F.min("entry_id"), F.max("entry_id"), F.count("*")
    )  # fmt: skip
    return [tuple(row[2:]) for row in sorted(found.collect(), key=lambda row: row[1])]  # ids of one second are in no order


# -- what is recorded ------------------------------------------------------------------------------------------------------


def test_a_record_names_the_producers_own_last_commit_and_says_whether_that_is_all(world: World) -> None:
    world.publish("eu", 5)
    log = world.log("eu")
    own = log.commit_at(log.latest_version())
    set_property(log, "note", "by somebody else")
    world.publish("eu", 5, producer="q")
    assert own is not None
    assert world.publish("eu", 5).rows == 0
    (row,) = world.tables("eu").journal(LEDGERS).newest(producer="p")
    assert (row["table_version"], row["table_commit"], row["complete"]) == (own.version, own.commit_id, True)
    with dies_at(CrashPoint.PUBLISH_AFTER_APPEND):
        world.publish("eu", 8)
    (row,) = world.tables("eu").journal(LEDGERS).newest(producer="p")
    assert (row["table_version"], row["end"], row["complete"]) == (own.version, 4, False)
    assert world.publish("eu", 9).rows == 1
    assert _ends(world) == [(0, 8, 9)]


def test_a_batch_that_landed_unknown_to_its_publisher_is_found_whatever_that_one_records(world: World) -> None:
    """As after `q.stop()` in the middle of a batch: the commit landed, the publisher does not know, and closes as if all was
    well."""
    with _open(world) as publisher:
        assert _publish(publisher, world.rows(0, 5)) == 5
        with dies_at(CrashPoint.PUBLISH_AFTER_APPEND):
            _publish(publisher, world.rows(0, 8))
        with pytest.raises(SourceChangedError, match="not by this process as far as it knows"):
            _publish(publisher, world.rows(0, 9))
        publisher.close()
    assert len(owned_now(world.tables("eu"))) == 1, "whoever starts next must find out"
    assert world.publish("eu", 10).rows == 2
    assert _ends(world) == [(0, 9, 10)]


def test_what_a_stale_publisher_records_late_counts_for_nothing(world: World) -> None:
    world.publish("eu", 5)
    stale = _ledger_table(world, 1)
    seen = world.log("eu").snapshot()
    assert seen is not None
    progress, _ = stale.resume(seen, now_us())
    with _open(world) as other:
        assert _publish(other, world.rows(0, 10)) == 5
    stale.record_ends(progress, progress.ledgers)
    assert world.publish("eu", 12).rows == 2
    assert _ends(world) == [(0, 11, 12)]


def test_a_publisher_that_was_replaced_sees_it_before_it_records(world: World) -> None:
    with _open(world) as stale:
        _publish(stale, world.rows(0, 5))
        with _open(world, take_over=True) as other:
            _publish(other, world.rows(0, 10))
        with pytest.raises(SourceChangedError, match="not by this process as far as it knows"):
            stale.writer.record_ends()
    assert world.publish("eu", 12).rows == 2
    assert _ends(world) == [(0, 11, 12)]


def test_a_ledger_that_is_opened_after_a_look_says_nothing_of_the_others_that_is_not_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch per file, each a new ledger; a look comes between two records, and the process dies before the next record."""
    monkeypatch.setattr(timetable, "LOG_LOOK_S", 0.0)

    def rows(end: int) -> DataFrame:
        return world.rows(0, end).withColumn("replicate_to", F.expr("CASE WHEN number >= 5 THEN array('us') END"))

    with _open(world, frame=rows(0)) as publisher:
        assert _publish(publisher, rows(5)) == 5
        with dies_at(CrashPoint.PUBLISH_LEDGERS_OPENED):
            _publish(publisher, rows(10))
    again = publish(rows(10), TOPIC, world.config, "eu", producer="p", order_by="number")
    assert isinstance(again, Published)
    assert again.rows == 5
    assert [end[2] for end in _ends(world)] == [5, 5]


def test_ends_are_recorded_though_no_further_batch_comes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "RECORD_IDLE_ENDS_S", 0.0)
    with _open(world) as publisher:
        _publish(publisher, world.rows(0, 5))
        publisher.writer._later.join()  # type: ignore[union-attr]
        (row,) = world.tables("eu").journal(LEDGERS).newest(producer="p")
        assert (row["end"], row["complete"]) == (4, False)


def test_a_stream_stopped_in_the_middle_of_a_batch_is_not_taken_for_clean(world: World) -> None:
    inbox, gate, inside = world.folder / "inbox", world.folder / "gate", world.folder / "inside"
    world.rows(0, 5).write.parquet(str(inbox))

    def wait(blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(inside).touch()
        while not Path(gate).exists():
            time.sleep(0.05)
        yield from blocks

    def stream() -> FrameStream:
        rows = world.spark.readStream.schema("number BIGINT, key STRING, payload BINARY").parquet(str(inbox))
        started = publish(rows.mapInArrow(wait, rows.schema).drop("number"), TOPIC, world.config, "eu", producer="p")
        assert isinstance(started, FrameStream)
        return started

    first = stream()
    while not inside.exists():
        assert first.query.isActive
        first.query.awaitTermination(0.1)  # type: ignore[arg-type]
    first.query.stop()
    assert first.await_termination()
    assert len(owned_now(world.tables("eu"))) == 1, "whoever starts next must find out"
    gate.touch()
    second = stream()
    second.await_termination()
    assert second.published.rows == 5
    assert owned_now(world.tables("eu")) == []
    assert _ends(world) == [(0, 4, 5)]


# -- the log changes under it ----------------------------------------------------------------------------------------------


def _restore(world: World) -> None:
    world.spark.sql(f"RESTORE TABLE {world.log('eu').sql} TO VERSION AS OF 1")


def _update(world: World) -> None:
    world.spark.sql(f"UPDATE {world.log('eu').sql} SET key = 'x' WHERE entry_id = 3")


def _put_back_and_grown(world: World) -> None:
    log = Path(world.log("eu").name)
    shutil.rmtree(log)
    shutil.copytree(world.folder / "copy", log)
    for first in (0, 10, 20):
        append_frame(world.log("eu"), world.entries("eu", first, first + 10))


def _made_anew(world: World) -> None:
    shutil.rmtree(world.log("eu").name)
    world.write("eu", 0, 5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_restore, r"version 3 of the log is a RESTORE by \S+ at"),
        (_update, r"version 3 of the log is a UPDATE by"),
        (_put_back_and_grown, r"has another commit at version 2 than it had \(WRITE by"),
        (_made_anew, r"the log was dropped and created again: its table id is"),
    ],
)
def test_a_log_that_was_changed_stops_a_running_producer_and_its_ledger(
    world: World, change: Callable[[World], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(world) as publisher:
        _publish(publisher, world.rows(0, 5))
        shutil.copytree(world.log("eu").name, world.folder / "copy")
        _publish(publisher, world.rows(0, 10))
        publisher.writer.record_ends()
        change(world)
        with pytest.raises(SourceChangedError, match=said):
            publisher.writer.record_ends()
        monkeypatch.setattr(timetable, "LOG_LOOK_S", 0.0)
        before = world.log("eu").latest_version()
        with pytest.raises(SourceChangedError, match=said):
            _publish(publisher, world.rows(0, 12))
        assert world.log("eu").latest_version() == before, "nothing was appended"
    for end in (12, 14):
        assert world.publish("eu", end).rows == 2
    assert _ends(world)[-1] == (0, 3, 4), "what comes goes to one new ledger"
    assert [row["closed"] is None for row in world.tables("eu").journal(LEDGERS).newest(producer="p")] == [True]


def test_commits_that_were_cleaned_up_after_a_clean_stop_are_not_missed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish("eu", 5)
    world.clean_up("eu")
    assert world.publish("eu", 8).rows == 3
    with _open(world) as running:
        _publish(running, world.rows(0, 9))
        running.writer.record_ends()
        world.clean_up("eu", first=world.log("eu").latest_version())
        monkeypatch.setattr(timetable, "LOG_LOOK_S", 0.0)
        assert _publish(running, world.rows(0, 11)) == 2, "nor by one that was running meanwhile"
        running.close()
    assert _ends(world) == [(0, 10, 11)]


def test_a_producer_that_died_and_whose_commits_were_cleaned_up_says_so(world: World) -> None:
    world.publish("eu", 5)
    with dies_at(CrashPoint.PUBLISH_BEFORE_APPEND):
        world.publish("eu", 8)
    world.clean_up("eu")
    assert world.publish("eu", 8).rows == 3, "it died before it published: the log's end says so"
    with dies_at(CrashPoint.PUBLISH_AFTER_APPEND):
        world.publish("eu", 10)
    kept = shutil.copytree(Path(world.log("eu").name) / "_delta_log", world.folder / "kept")
    world.clean_up("eu", first=5)
    with pytest.raises(
        UnsafeError, match=r"entries up to 7, the log holds them up to 9, .* were cleaned up .* new producer name"
    ):
        world.publish("eu", 12)
    shutil.copytree(kept, Path(world.log("eu").name) / "_delta_log", dirs_exist_ok=True)
    assert world.publish("eu", 12).rows == 2, "with the files back, as the message says"
    assert _ends(world) == [(0, 11, 12)]


# -- peers that are away ---------------------------------------------------------------------------------------------------


def test_a_producer_starts_while_a_peer_is_away_and_opens_one_ledger_for_that_time(world: World) -> None:
    us = world.folder / "us"

    def publish_to(end: int) -> list[str]:
        world.publish("eu", end)
        (row,) = world.tables("eu").journal(LEDGERS).newest(producer="p")
        return list(row["uncompared"])

    # Raises Py4JJavaError: there is no such file system in the JVM.
    world.path.write_text(world.path.read_text().replace("us: {root: us}", 'us: {root: "s3a://nowhere/us"}'))
    world.reload()
    assert (publish_to(2), publish_to(4)) == (["us"], ["us"])
    assert len(_ends(world)) == 1
    world.rewrite(["eu", "us"])
    assert publish_to(6) == [], "a root that is not there was never made: nothing there to compare"
    us.write_text("a file where the region's folder should be")
    assert (publish_to(8), publish_to(10)) == (["us"], ["us"])
    assert _ends(world) == [(0, 5, 6), (0, 3, 4)], "one that had been compared cannot be now"
    us.unlink()
    assert publish_to(12) == []
    assert _ends(world) == [(0, 5, 6), (0, 5, 6)]


# -- clocks ----------------------------------------------------------------------------------------------------------------


@dataclass
class Clock:
    """The time, or another one."""

    off_us: int = 0

    def __call__(self) -> int:
        return now_us() + self.off_us


def test_a_clock_that_is_behind_or_ahead_publishes_nothing(world: World) -> None:
    hour_us = 3_600_000_000
    world.publish("eu", 5)
    rows = world.rows(0, 8)
    with (
        pytest.raises(UnsafeError, match=r"behind the storage's\. This host says .*Z where the storage says"),
        _open(world, Clock(-hour_us)),
    ):
        pass
    with _open(world, Clock(hour_us)) as ahead, pytest.raises(UnsafeError, match="ahead of the storage's"):
        _publish(ahead, rows)
    clock = Clock()
    with _open(world, clock) as running:
        assert _publish(running, world.rows(0, 6)) == 1
        for clock.off_us in (hour_us, -hour_us):
            with pytest.raises(UnsafeError, match="the storage's"):
                _publish(running, rows)
        clock.off_us = 0
        assert _publish(running, rows) == 2
    latest = world.log("eu").read().agg(F.max("publish_time")).collect()[0][0]
    assert latest < datetime.now() + timedelta(minutes=5)
    assert _ends(world) == [(0, 7, 8)]


def test_ledgers_of_a_clock_that_was_ahead_are_left_behind(world: World) -> None:
    world.publish("eu", 5)
    table, seen = _ledger_table(world, 1), world.log("eu").snapshot()
    assert seen is not None
    progress, _ = table.resume(seen, now_us())
    in_2035 = int(datetime(2035, 1, 1, tzinfo=timezone.utc).timestamp()) * 1_000_000
    table.record_ends(
        replace(progress, ledgers={k: replace(ledger, time_us=in_2035) for k, ledger in progress.ledgers.items()}),
        progress.ledgers,
        complete=True,
    )
    assert world.publish("eu", 8).rows == 3
    assert sorted(_ends(world)) == [(0, 2, 3), (0, 4, 5)], "ids of one second are in any order"
    assert world.log("eu").read().where("publish_date >= '2035-01-01'").isEmpty()


# -- ids -------------------------------------------------------------------------------------------------------------------


def test_new_ledgers_never_share_an_id_however_many_are_opened_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = world.rows(0, 12).withColumn("gate", F.expr("number % 6"))
    now = now_us()
    for producer in ("p", "q"):
        drawn = itertools.chain((0, 0, 1, 1, 0, 2), itertools.count())
        monkeypatch.setattr(secrets, "randbits", lambda _, drawn=drawn: next(drawn))
        publisher = Publisher(world.tables("eu"), world.config, TOPIC, producer, clock=lambda: now)
        publisher.open(rows.schema, {"number", "gate"})
        assert publisher.publish(rows, by_order(rows, ["number"], "gate")).rows == 12
        publisher.close()
    ledgers = world.log("eu").read().groupBy("ledger_id").agg(F.count("*"), F.countDistinct("entry_id"), F.max("entry_id"))
    assert [tuple(row[1:]) for row in ledgers.collect()] == [(2, 2, 1)] * 12
