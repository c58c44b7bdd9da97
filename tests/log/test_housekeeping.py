"""Signs of life, whose turn it is to keep house, and that it is kept without anybody noticing."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.config.cluster import Cluster
from geo.config.model import Config
from geo.coordination import heartbeat
from geo.coordination.claiming import claim
from geo.coordination.heartbeat import keep_alive, leave
from geo.coordination.ownership import release
from geo.coordination.runners import Runner
from geo.coordination.signs import signs
from geo.coordination.storage_clock import renew
from geo.delta.process import Process, this_process
from geo.errors import AlreadyOwnedError
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables, connect
from geo.log import housekeeping
from geo.log.housekeeping import HousekeepingThread, is_keeper, keep_journals, open_for_writing, wait_for_cleaning
from geo.now import now_us
from geo.schemas import LINKS, OWNERS, PROCESSES
from geo.times import in_us
from tests.rows import owner
from tests.waiting import until


def test_it_is_the_turn_of_the_one_with_the_least_name() -> None:
    assert is_keeper("b", set())
    assert is_keeper("b", {"b", "c"})
    assert not is_keeper("b", {"a", "b"})


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Iterator[ClusterTables]:
    cluster = Cluster("eu", root=str(tmp_path / "eu"), owner_timeout_s=30)
    made = connect(spark, cluster)
    open_for_writing(made, _config(made))
    yield made
    with heartbeat._lock:
        heart = heartbeat._beating.pop(made.place, None)
    if heart is not None:
        heart.stop()
    wait_for_cleaning()


def _config(tables: ClusterTables) -> Config:
    return Config("geo.yaml", {"eu": tables.cluster})


def _filled(tables: ClusterTables, files: int) -> None:
    for number in range(files):
        tables.journal(OWNERS).append([owner(generation=number)])


def _sign_of_life(tables: ClusterTables, process: Process, age_s: float) -> None:
    at = datetime.now(timezone.utc) - timedelta(seconds=age_s)
    row = {"process": process.name, "holder": process.encode(), "renewed_at": at, "sequence": in_us(at)}
    tables.journal(PROCESSES).append([row])


def _signed_us(tables: ClusterTables, process: Process) -> int:
    return signs(tables)[process.name][0]


# -- signs of life -----------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_as_long_as_something_is_owned_a_process_renews_its_row(tables: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEATS", 60)  # each half a second
    assert signs(tables) == {}
    before_us = now_us()
    keep_alive(tables, 2)
    until(lambda: len(tables.journal(PROCESSES).newest()) == 1)
    first_us = _signed_us(tables, tables.me)
    assert before_us <= first_us <= now_us()
    leave(tables)
    until(lambda: _signed_us(tables, tables.me) > first_us)
    heart = heartbeat._beating[tables.place]
    leave(tables)
    assert tables.place not in heartbeat._beating
    assert heart._stop.is_set()
    assert isinstance(heart.housekeeper, HousekeepingThread)
    assert heart.housekeeper._stop.is_set()
    leave(tables)  # one too many is no fault


@pytest.mark.spark
def test_the_last_sign_of_life_counts(tables: ClusterTables) -> None:
    other = Process("elsewhere", 7, "1")
    _sign_of_life(tables, other, 5)
    _sign_of_life(tables, other, 500)
    renew(tables)
    assert 4e6 < now_us() - _signed_us(tables, other) < 60e6
    (mine,) = tables.journal(PROCESSES).newest(process=tables.me.name)
    assert Process.decode(mine["holder"]) == tables.me
    assert in_us(mine["renewed_at"]) == _signed_us(tables, tables.me)


# -- keeping house -----------------------------------------------------------------------------------------------------


def _house(tables: ClusterTables) -> HousekeepingThread:
    """Of a cluster whose owners are in three files; rounds are made by hand, and all is looked through later."""
    _filled(tables, 3)
    house = HousekeepingThread(tables, _config(tables))
    house.stop()
    house._full_at = time.monotonic()
    return house


@pytest.mark.spark
def test_only_the_one_whose_turn_it_is_keeps_house(tables: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "FILES", 2)
    house = _house(tables)
    before_me = Process("", 1, "1")
    assert before_me.name < tables.me.name
    _sign_of_life(tables, before_me, 5)
    house.round()
    assert upkeep.count_files(tables.journal(OWNERS)) == 3, "another one lives"
    _sign_of_life(tables, dataclasses.replace(this_process(0), pid=0, started="1"), 1)
    house.round()
    assert upkeep.count_files(tables.journal(OWNERS)) == 3
    # What the first one neglects is done by whoever sees it, now and then.
    monkeypatch.setattr(housekeeping, "NEGLECTED", 1)
    house._full_at = -1e9
    house.round()
    assert upkeep.count_files(tables.journal(OWNERS)) == 1


@pytest.mark.spark
def test_one_that_is_silent_or_dead_has_no_turn(tables: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "FILES", 2)
    house = _house(tables)
    _sign_of_life(tables, Process("", 1, "1"), 31)
    _sign_of_life(tables, dataclasses.replace(this_process(0), pid=-1, started="1"), 1)
    house.round()
    assert upkeep.count_files(tables.journal(OWNERS)) == 1


@pytest.mark.spark
def test_what_cannot_be_kept_small_holds_up_nothing_else(tables: ClusterTables) -> None:
    broken = Path(str(tables.cluster.root)) / "system" / "ledgers" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("no JSON\n")
    _filled(tables, 3)
    keep_journals(tables, 3)
    assert upkeep.count_files(tables.journal(OWNERS)) == 3
    keep_journals(tables, 2)
    assert upkeep.count_files(tables.journal(OWNERS)) == 1
    assert not tables.journal(LINKS).exists()


@pytest.mark.spark
def test_a_run_that_ends_tidies_up_what_nobody_kept_small(tables: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "FILES_OF_SHORT_RUNS", 4)
    _filled(tables, 4)
    first, second = claim(tables, [[Runner("a", "a", "a")], [Runner("b", "b", "b")]])
    release([first])
    assert tables.place not in housekeeping._cleaning, "something is still owned"
    with pytest.raises(AlreadyOwnedError, match="b: already run by"):
        claim(tables, [[Runner("b", "b", "b")]])
    release([second])
    wait_for_cleaning(120)
    assert upkeep.count_files(tables.journal(OWNERS)) == 1
    assert {row["runner"]: row["state"] for row in tables.journal(OWNERS).newest()} == {
        "r": "owned",
        "a": "released",
        "b": "released",
    }
    # Not after each of many short runs.
    _filled(tables, 5)
    release(claim(tables, [[Runner("a", "a", "a")]]))
    wait_for_cleaning(120)
    assert upkeep.count_files(tables.journal(OWNERS)) > 4


@pytest.mark.spark
def test_the_end_of_a_run_never_fails_by_it(tables: ClusterTables, caplog: pytest.LogCaptureFixture) -> None:
    held = Path(tables.checkpoint("held", "p"))
    held.mkdir(parents=True)
    (held / "of-another-disk.arrow").symlink_to(held / "that-is-away")
    with caplog.at_level(logging.INFO, housekeeping.__name__):
        release(claim(tables, [[Runner("a", "a", "a")]]))
        wait_for_cleaning(120)
    assert "its tables was not kept small this time" in caplog.text
    assert not housekeeping._cleaning[tables.place].is_alive()


def test_the_end_of_a_process_waits_a_while_and_no_longer() -> None:
    hangs = threading.Event()
    thread = threading.Thread(target=hangs.wait, daemon=True)
    thread.start()
    housekeeping._cleaning["a place"] = thread
    try:
        wait_for_cleaning(0.05)
        assert thread.is_alive()
    finally:
        hangs.set()
        del housekeeping._cleaning["a place"]


@pytest.mark.spark
def test_rows_that_a_killed_publisher_held_go_when_they_are_old(tables: ClusterTables) -> None:
    folder = Path(tables.checkpoint("held", "a/b/c", "p", "5f"))
    folder.mkdir(parents=True)
    (folder / "1.arrow").write_text("rows")
    housekeeping.remove_held(tables, 3600.0)
    assert (folder / "1.arrow").exists(), "a publisher may be writing it"
    housekeeping.remove_held(tables, -1.0)
    assert not folder.exists()
    housekeeping.remove_held(tables, -1.0)
