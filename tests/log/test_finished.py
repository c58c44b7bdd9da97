"""Sources that ended are moved out of what a start reads, and are published no more for that."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from geo import crash
from geo.crash import CrashPoint, InjectedCrash
from geo.delta.ddl import set_property
from geo.delta.engines.native.engine import NativeEngine
from geo.errors import SourceChangedError
from geo.log import finished, ledger_writer
from geo.log.finished import forget, key_of, move_ended, recall
from geo.log.partitioned import create_single
from geo.log.publish import publish
from geo.log.publisher import Published
from geo.ops.delete_topic import delete_topics
from geo.schemas import FINISHED, LEDGERS
from geo.schemas.table import VERSION_PROPERTY
from geo.testing import dies_at
from tests.delta.engines import refuses
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture(autouse=True)
def _ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished, "IDLE_FOR", timedelta(hours=-1))
    monkeypatch.setattr(finished, "LEAST", 1)


def _write(folder: Path, name: str, *keys: str) -> None:
    with (folder / name).open("a") as file:
        file.writelines(json.dumps({"key": key}) + "\n" for key in keys)


def _published(world: World, folder: Path) -> int:
    return world.publish_lines("us", folder, producer="p").published.rows


def _two_published(world: World, folder: Path) -> None:
    """Two files of a line each, published one after the other."""
    for name in "ad":
        _write(folder, f"{name}.jsonl", f"{name}1")
        assert _published(world, folder) == 1


def _keys(world: World) -> list[str]:
    return sorted(row["key"] for row in world.messages("us").values())


def test_a_finished_file_is_known_for_ever(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = world.tables("us")
    for name in "abc":
        _write(folder, f"{name}.jsonl", f"{name}1", f"{name}2")
    assert _published(world, folder) == 6
    _write(folder, "d.jsonl", "d1")
    assert _published(world, folder) == 1
    ledgers = tables.journal(LEDGERS)
    set_property(ledgers.table, VERSION_PROPERTY, "2")  # a root of before

    assert move_ended(tables, datetime.now(timezone.utc)) == 3
    assert [Path(row["source"]).name for row in ledgers.newest()] == ["d.jsonl"]
    assert ledgers.table.properties()[VERSION_PROPERTY] == "3"
    assert move_ended(tables, datetime.now(timezone.utc)) == 0, "the newest row of the producer stays"

    (folder / "a.jsonl").rename(folder / "renamed.jsonl")
    _write(folder, "b.jsonl", "b3")
    assert _published(world, folder) == 1, "what was there is not published again, what grew goes on"
    assert _keys(world) == ["a1", "a2", "b1", "b2", "b3", "c1", "c2", "d1"]

    name = str(folder / "c.jsonl")
    found = recall(tables, TOPIC, "p", [name, "none"])
    assert list(found) == [name]
    with monkeypatch.context() as by_spark:
        by_spark.setattr(NativeEngine, "small_rows", refuses)
        assert recall(tables, TOPIC, "p", [name, "none"]) == found
    forget(tables, TOPIC, datetime.now(timezone.utc))
    assert recall(tables, TOPIC, "p", [name]) == {}


def test_a_finished_file_that_is_written_anew_is_published_no_more_and_one_that_was_edited_stops(
    world: World, folder: Path
) -> None:
    _two_published(world, folder)
    assert move_ended(world.tables("us"), datetime.now(timezone.utc)) == 1
    there = folder / "a.jsonl"
    (folder.parent / "copy").write_text(there.read_text())
    (folder.parent / "copy").replace(there)
    assert _published(world, folder) == 0
    there.write_text(there.read_text().replace("a1", "b1"))
    with pytest.raises(SourceChangedError, match=r"a\.jsonl"):
        _published(world, folder)
    assert _keys(world) == ["a1", "d1"]


def test_a_topic_that_is_made_again_knows_no_file_that_the_deleted_one_had_finished(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _two_published(world, folder)
    tables = world.tables("us")
    assert move_ended(tables, datetime.now(timezone.utc)) == 1
    file = str(folder / "a.jsonl")
    (known,) = recall(tables, TOPIC, "p", [file]).values()
    moved = tables.journal(FINISHED).newest(topic=str(TOPIC), producer="p")
    assert len(moved) == 2, "by its name, and whatever it is called"
    delete_topics(world.spark, world.config, "us", str(TOPIC), lose=True)
    tables.journal(FINISHED).append(moved)  # by who had read the ledgers before, and committed after the deletion
    assert recall(tables, TOPIC, "p", [file]) == {}
    create_single(tables, TOPIC)
    (folder / "d.jsonl").rename(folder.parent / "d.jsonl")
    assert _published(world, folder) == 1
    (folder.parent / "d.jsonl").rename(folder / "d.jsonl")
    assert _published(world, folder) == 1
    assert _keys(world) == ["a1", "d1"]

    later = datetime.now(timezone.utc) + finished.AGAIN_AFTER
    assert move_ended(tables, later) == 1
    assert recall(tables, TOPIC, "p", [file]) == {file: known}, "what it finished itself is known"
    assert _published(world, folder) == 0


def test_a_program_of_before_is_refused_from_the_first_place_on_that_it_does_not_read(world: World, folder: Path) -> None:
    ledgers = world.tables("us").journal(LEDGERS)
    world.publish("us", 3, producer="rows")
    set_property(ledgers.table, VERSION_PROPERTY, "2")  # a root of before
    world.publish("us", 6, producer="rows")
    assert ledgers.table.properties()[VERSION_PROPERTY] == "2", "nothing of it is new to that program"
    _write(folder, "a.jsonl", "a1")
    with dies_at(CrashPoint.PUBLISH_BEFORE_APPEND):
        _published(world, folder)
    assert ledgers.table.properties()[VERSION_PROPERTY] == "3", "before the first commit that says such a place"
    assert _published(world, folder) == 1


def test_a_publish_id_is_known_for_ever(world: World) -> None:
    def once(name: str) -> Published:
        done = publish(world.rows(0, 3), TOPIC, world.config, "us", producer="p", publish_id=name)
        assert isinstance(done, Published)
        return done

    assert once("x").rows == once("y").rows == 3
    assert move_ended(world.tables("us"), datetime.now(timezone.utc)) == 1
    assert (once("x").rows, once("x").already_published) == (0, 3)
    assert once("z").rows == 3
    assert len(_keys(world)) == 9


def test_a_source_with_several_ledgers_ends_where_the_newest_of_them_does(world: World, folder: Path) -> None:
    _write(folder, "a.jsonl", "a1", "a2")
    assert _published(world, folder) == 2
    with (folder / "a.jsonl").open("a") as file:
        file.write(json.dumps({"key": "a3", "replicate_to": ["us"]}) + "\n")
    assert _published(world, folder) == 1
    _write(folder, "d.jsonl", "d1")
    assert _published(world, folder) == 1
    assert move_ended(world.tables("us"), datetime.now(timezone.utc)) == 1
    assert [Path(row["source"]).name for row in world.tables("us").journal(LEDGERS).newest()] == ["d.jsonl"]
    assert _published(world, folder) == 0
    assert _keys(world) == ["a1", "a2", "a3", "d1"]


def test_a_source_that_a_producer_goes_on_with_is_not_moved_under_it(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _two_published(world, folder)
    tables = world.tables("us")
    monkeypatch.setattr(finished, "IDLE_FOR", timedelta(0))
    monkeypatch.setattr(ledger_writer, "IDLE_US", 0)
    began = datetime.now(timezone.utc)
    _write(folder, "a.jsonl", "a2")

    def reach(point: CrashPoint) -> None:
        if point is CrashPoint.PUBLISH_BEFORE_APPEND:
            move_ended(tables, began)
        if point is CrashPoint.PUBLISH_AFTER_APPEND:
            raise InjectedCrash("it dies with its ends unrecorded")

    with crash.watched(reach), pytest.raises(InjectedCrash):
        _published(world, folder)
    assert _published(world, folder) == 0
    assert _keys(world) == ["a1", "a2", "d1"]


def test_a_key_is_the_same_here_and_in_spark(world: World) -> None:
    row = world.spark.range(1).selectExpr("'/data/ü.jsonl' AS source").select(finished._key().alias("key")).collect()[0]
    assert bytes(row["key"]) == key_of("/data/ü.jsonl")
