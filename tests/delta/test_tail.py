"""A table that is followed commit by commit: what comes, and what is no continuation of what was read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from geo.delta import tail as tail_module
from geo.delta.appending import append_frame
from geo.delta.table import Table
from geo.delta.tail import Tail
from geo.errors import RetryableError
from tests.delta.logs import commit_of, log_of
from tests.world import World

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def _written_once(spark: object, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("followed"), spark=spark)  # type: ignore[arg-type]
    for first in range(0, 6, 2):
        world.write("eu", first, first + 2)
    return world


@pytest.fixture
def world(_written_once: World, tmp_path: Path) -> World:
    """A log of eu with three commits of two messages each."""
    return _written_once.copy(tmp_path)


def _read(tail: Tail) -> list[list[int]]:
    """The entries that come, by turns, read without Spark and with it."""
    turns = []
    while (turn := tail.next()) is not None:
        by_spark = sorted(row["entry_id"] for row in tail.rows(turn).collect()) if turn.brings else []
        few = tail.few(turn)
        assert few is None or sorted(few["entry_id"].to_pylist()) == by_spark
        turns.append(by_spark)
        tail.take(turn)
    return turns


def test_what_comes_after_the_newest_commit_comes_once_in_whole_commits(world: World) -> None:
    tail = Tail.at_newest(world.log("eu"))
    assert tail.next() is None
    for first in range(6, 12, 2):
        world.write("eu", first, first + 2)
    assert _read(tail) == [[6, 7, 8, 9], [10, 11]], "in ever longer steps"
    assert tail.next() is None
    assert tail.at.version == world.log("eu").latest_version()


def test_no_turn_is_larger_than_a_commit_and_the_bounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = Tail.at_newest(world.log("eu"))
    for first in range(6, 12, 2):
        world.write("eu", first, first + 2)
    monkeypatch.setattr(tail_module, "TURN_BYTES", 1)
    assert _read(tail) == [[6, 7], [8, 9], [10, 11]]


def test_commits_that_bring_no_row_are_passed(world: World) -> None:
    log, tail = world.log("eu"), Tail.at_newest(world.log("eu"))
    log.delta().optimize().executeCompaction()
    world.spark.sql(f"ALTER TABLE {log.sql} ADD COLUMNS (note STRING)")
    turn = tail.next()
    assert turn is not None
    assert (turn.brings, turn.alters) == (False, True)
    assert _read(tail) == [[]]


@pytest.mark.parametrize(
    "change", ["RESTORE TABLE {} TO VERSION AS OF 2", "UPDATE {} SET key = 'x'", "DELETE FROM {} WHERE entry_id = 1"]
)
def test_rows_that_somebody_changed_removed_or_put_back_are_no_continuation(world: World, change: str) -> None:
    log, tail = world.log("eu"), Tail.at_newest(world.log("eu"))
    world.spark.sql(change.format(log.sql))
    with pytest.raises(RetryableError, match=f"version {log.latest_version()} is a {change.split(maxsplit=1)[0]} by"):
        _read(tail)


def test_an_older_copy_that_has_grown_again_is_another_log(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    log = world.log("eu")
    place = Path(log.name)
    copy = shutil.copytree(place, tmp_path_factory.mktemp("aside") / "copy")
    world.write("eu", 6, 8)
    tail = Tail.at_newest(log)
    shutil.rmtree(place)
    shutil.move(copy, place)
    world.write("us", 0, 2)
    _other_rows(log, world)
    with pytest.raises(RetryableError, match="has another commit at version"):
        tail.next()


def _other_rows(log: Table, world: World) -> None:
    for _ in range(2):
        append_frame(log, world.entries("us", 0, 2))


def test_a_place_that_was_cut_with_what_came_after_it_is_noticed_at_once(world: World) -> None:
    log, tail = world.log("eu"), Tail.at_newest(world.log("eu"))
    for first in range(6, 12, 2):
        world.write("eu", first, first + 2)
    for version in (tail.at.version, tail.at.version + 1):
        commit_of(log, version).unlink()
    with pytest.raises(RetryableError, match="are gone"):
        tail.next()


@pytest.mark.parametrize("gone", ["table", "commits", "newest"])
def test_what_is_gone_is_noticed_while_nothing_comes(world: World, gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log, tail = world.log("eu"), Tail.at_newest(world.log("eu"))
    monkeypatch.setattr(tail_module, "FULL_LOOK_S", 0.0)
    assert tail.next() is None
    if gone == "table":
        shutil.rmtree(log.name)
        said = "there is no table now"
    elif gone == "commits":
        for first in (6, 8):
            world.write("eu", first, first + 2)
        commit_of(log, tail.at.version + 1).unlink()
        said = "are gone"
    else:
        for file in log_of(log).glob(f"{tail.at.version:020}.*"):
            file.unlink()
        said = "an older copy was put back"
    with pytest.raises(RetryableError, match=said):
        tail.next()
