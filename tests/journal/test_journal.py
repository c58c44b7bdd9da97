"""System tables: which row counts, that keeping them small loses nothing, and that nobody does it while appending."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from geo.delta.appending import write_rows
from geo.delta.ddl import set_property
from geo.delta.delta_log import read_folder
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.engines.native.engine import NativeEngine
from geo.delta.predicate import ANY_ROW
from geo.delta.row_files import Written
from geo.delta.spark_commits import overwrite
from geo.delta.table import Table
from geo.journal import upkeep
from geo.journal.cached_view import fingerprint, is_unchanged
from geo.journal.journal import Journal
from geo.log.housekeeping import SILENT_FOR, rows_kept
from geo.schemas import LINKS, OWNERS, PROCESSES, TableSchema
from geo.schemas.table import VERSION_PROPERTY
from tests.delta.engines import refuses
from tests.rows import owner

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


def _journal(spark: SparkSession, folder: Path, schema: TableSchema = OWNERS) -> Journal:
    table = Table(Driver.of(spark), str(folder / schema.kind), by_path=True, lock=None)
    return Journal(table, schema)


def _process(name: str, sequence: int, at: datetime = NOW) -> dict[str, Any]:
    return {"process": name, "holder": "{}", "renewed_at": at, "sequence": sequence}


def _tokens(journal: Journal) -> dict[str, str]:
    return {row["runner"]: row["token"] for row in journal.newest()}


@pytest.mark.spark
def test_the_row_that_is_last_by_generation_and_then_by_sequence_counts(spark: SparkSession, tmp_path: Path) -> None:
    journal = _journal(spark, tmp_path)
    assert (journal.exists(), journal.newest(), upkeep.count_files(journal), upkeep.clean(journal), upkeep.cut(journal)) == (
        False,
        [],
        0,
        0,
        0,
    )
    journal.append([owner("a", 2, 0), owner("a", 1, 9), owner("b", 1, 1), owner("b", 1, 0)])
    assert _tokens(journal) == {"a": "2-0", "b": "1-1"}
    assert [row["token"] for row in journal.newest(runner="b")] == ["1-1"]
    assert sorted(row["token"] for row in journal.newest(runner=["a", "b", "c"])) == ["1-1", "2-0"]
    assert journal.newest(runner=[]) == []


@pytest.mark.spark
def test_a_journal_made_before_a_column_was_added_reads_null_and_gets_the_column_with_its_next_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = replace(LINKS, columns=tuple(column for column in LINKS.columns if not column.added))
    row = {"source": "us", "topic": "t", "state": "STOPPED", "generation": 1, "origins": ["us"], "expired": 0, "updated_at": NOW}
    old, new = _journal(spark, tmp_path, before), _journal(spark, tmp_path, LINKS)
    old.append([{**row, "sequence": 1}])
    with monkeypatch.context() as by_spark:
        by_spark.setattr(NativeEngine, "small_rows", refuses)
        assert [one["impossible"] for one in new.newest()] == [None]
    assert [one["impossible"] for one in new.newest()] == [None]
    new.append([{**row, "sequence": 2, "impossible": 3}])
    assert [one["impossible"] for one in _journal(spark, tmp_path, LINKS).newest()] == [3]
    old.append([{**row, "sequence": 3}])
    assert [one["impossible"] for one in new.newest()] == [None], "a program that does not know it goes on writing"
    new.append([{**row, "topic": "other", "sequence": 1, "impossible": 0}])
    assert upkeep.clean(new) == 2


@pytest.mark.spark
def test_whether_something_has_come_is_seen_without_reading_also_where_another_table_took_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = _journal(spark, tmp_path)
    assert fingerprint(journal) is None, "it is not there"
    journal.append([owner("a", 1)])
    before = fingerprint(journal)
    assert before is not None
    assert is_unchanged(journal, before)
    shutil.move(tmp_path / OWNERS.kind, tmp_path / "moved")
    journal = _journal(spark, tmp_path)
    journal.append([owner("b", 1)])
    assert not is_unchanged(journal, before), "another table at the same version"
    now = fingerprint(journal)
    assert now is not None
    assert now[0] == before[0]
    journal.append([owner("b", 2)])
    assert not is_unchanged(journal, now)


@pytest.mark.spark
def test_appends_do_nothing_but_append_and_cleaning_keeps_what_counts(spark: SparkSession, tmp_path: Path) -> None:
    journal = _journal(spark, tmp_path)
    for number in range(9):
        journal.append([owner("a", number), owner(f"r{number % 2}", number)])
    folder = tmp_path / "owners" / "_delta_log"
    assert [commit.operation for commit in journal.table.commits(0, 99)] == ["CREATE TABLE", *["WRITE"] * 9]
    assert upkeep.count_files(journal) == len(journal.table.read().inputFiles()) == 9
    before = _tokens(journal)
    assert upkeep.clean(journal, dry_run=True) == 15
    assert len(read_folder(on_disk(folder)).commits) == 10
    assert upkeep.clean(journal) == 15
    assert (_tokens(journal), upkeep.count_files(journal)) == (before, 1)
    assert journal.table.read().count() == 3
    assert upkeep.clean(journal) == 0
    assert len(read_folder(on_disk(folder)).commits) == 11, "nothing to do is no commit"


def _meet(monkeypatch: pytest.MonkeyPatch, pipe: Path, *, by_spark: bool) -> None:
    """Whoever replaces rows waits for somebody who opens the pipe: the plan is made, the snapshot it reads is fixed, nothing is
    committed."""
    os.mkfifo(pipe)

    def write(table: Table, rows: pa.Table) -> Written | None:
        with open(pipe) as opened:  # returns once the other side opens it too
            opened.read()  # and this once it closes it
        return write_rows(table, rows)

    def meet(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open(pipe) as opened:
            opened.read()
        yield from batches

    monkeypatch.setattr("geo.delta.rewrite.write_rows", write)
    monkeypatch.setattr("geo.delta.rewrite.overwrite", lambda table, rows: overwrite(table, rows.mapInArrow(meet, rows.schema)))
    if by_spark:
        monkeypatch.setattr("geo.delta.rewrite.change_here", lambda *_: None)


@pytest.mark.spark
@pytest.mark.parametrize("by_spark", [False, True])
def test_an_append_in_the_middle_of_cleaning_is_not_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_spark: bool
) -> None:
    _meet(monkeypatch, pipe := tmp_path / "pipe", by_spark=by_spark)
    journal, other = _journal(spark, tmp_path), _journal(spark, tmp_path)
    for number in range(3):
        journal.append([owner("a", number)])
    done: list[int] = []
    cleaning = threading.Thread(target=lambda: done.append(upkeep.clean(journal)))
    cleaning.start()
    with open(pipe, "w"):
        other.append([owner("a", 7)])
        assert other.append_once([owner("b", 8)], ("geo.claims", 8), "8-0")
    cleaning.join()
    assert done == [2]
    assert _tokens(other) == {"a": "7-0", "b": "8-0"}
    operations = [commit.operation for commit in other.table.commits(1, 99)]
    assert operations == ["WRITE"] * 6
    assert other.table.read().count() == 3, "what was superseded when it began is gone, what came meanwhile is there"
    assert [commit.parameters["mode"] for commit in other.table.commits(6, 6)] == ["Overwrite"]


@pytest.mark.spark
def test_a_number_that_was_used_stays_used_after_cleaning(spark: SparkSession, tmp_path: Path) -> None:
    journal = _journal(spark, tmp_path)
    assert journal.append_once([owner("a", 5)], ("geo.claims", 5), "5-0")
    journal.append([owner("a", 5, 1)])
    assert upkeep.clean(journal) == 1
    assert not journal.append_once([owner("b", 5)], ("geo.claims", 5), "other")
    assert _tokens(journal) == {"a": "5-1"}
    fresh = _journal(spark.newSession(), tmp_path)
    assert not fresh.append_once([owner("b", 4)], ("geo.claims", 4), "older")
    assert fresh.append_once([owner("b", 6)], ("geo.claims", 6), "6-0")


@pytest.mark.spark
def test_processes_that_are_long_silent_are_dropped(spark: SparkSession, tmp_path: Path) -> None:
    journal = _journal(spark, tmp_path, PROCESSES)
    journal.append([_process("old", 1, NOW - SILENT_FOR - timedelta(minutes=1)), _process("new", 1, NOW - timedelta(hours=23))])
    journal.append([_process("new", 2, NOW - timedelta(hours=1))])
    assert upkeep.clean(journal, rows_kept(PROCESSES, NOW)) == 2
    assert [(row["process"], row["sequence"]) for row in journal.newest()] == [("new", 2)]
    assert rows_kept(OWNERS, NOW) == ANY_ROW


@pytest.mark.spark
def test_old_commits_of_a_journal_go(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "KEEP_OF_JOURNAL", 3)
    journal = _journal(spark, tmp_path)
    journal.append([owner("a", 1)])
    set_property(journal.table, "delta.checkpointInterval", "4")
    for number in range(2, 8):
        assert journal.append_once([owner("a", number)], ("geo.claims", number), f"{number}-0")
    assert upkeep.cut(journal) == 4
    assert read_folder(on_disk(tmp_path / "owners" / "_delta_log")).commits == (4, 5, 6, 7, 8)
    assert _tokens(_journal(spark.newSession(), tmp_path)) == {"a": "7-0"}
    assert not journal.append_once([owner("b", 2)], ("geo.claims", 2), "again"), "the numbers are in the checkpoint"
    assert upkeep.cut(journal) == 0


@pytest.mark.spark
def test_an_upgrade_leaves_the_version_of_a_later_program_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(Driver.of(spark), str(tmp_path / OWNERS.kind), by_path=True, lock=None)
    Journal(table, OWNERS).append([owner("a", 1)])
    known = OWNERS.version
    journal = Journal(table, replace(OWNERS, version=known + 1))
    journal.newest()
    upkeep.upgrade(journal)
    assert table.properties()[VERSION_PROPERTY] == str(known + 1)
    set_property(table, VERSION_PROPERTY, str(known + 2))  # while this process runs, which looked before
    upkeep.upgrade(journal)
    assert table.properties()[VERSION_PROPERTY] == str(known + 2)


@pytest.mark.spark
def test_whoever_cleans_holds_up_nobody_while_the_rows_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _meet(monkeypatch, pipe := tmp_path / "pipe", by_spark=False)
    place, lock = str(tmp_path / "locked"), tmp_path / "lock"
    journal = Journal(Table(Driver.of(spark), place, by_path=True, lock=lock), OWNERS)
    other = Journal(Table(Driver.of(spark), place, by_path=True, lock=lock), OWNERS)
    for number in range(3):
        journal.append([owner("a", number)])
    cleaning = threading.Thread(target=upkeep.clean, args=(journal,))
    cleaning.start()
    with open(pipe, "w"):  # its task is at it
        other.append([owner("b", 7)])
    cleaning.join()
    assert _tokens(other) == {"a": "2-0", "b": "7-0"}
    assert other.table.read().count() == 2
