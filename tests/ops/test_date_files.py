"""A log's files by date: expired and compacted without Spark's commits, beside who appends; and where columns have other names in files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from geo import crash
from geo.crash import CrashPoint
from geo.delta.appending import append_here
from geo.delta.arrow_rows import rows_table
from geo.delta.commits import EXPIRED, Kind
from geo.delta.committing import alone
from geo.delta.ddl import create_table
from geo.delta.driver import Driver
from geo.delta.frames import read_files
from geo.delta.local_state import own_state
from geo.delta.locks import without_waiting
from geo.delta.table import Table
from geo.errors import LockedError
from geo.ops.date_files import compact_date, counted_by_spark, date_files, footers, remove_dates
from geo.schemas import TOPIC_LOG
from geo.times import from_us
from tests.delta.logs import actions_of

pytestmark = pytest.mark.spark

_FIRST_US = 1_795_000_000_123_456
DAYS = [from_us(_FIRST_US).date() + timedelta(days=day) for day in range(2)]


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Table:
    """Four files: entries 6 and 7, 4 and 5, 2 and 3, 0 and 1, one of each two on the second day."""
    table = Table(Driver.of(spark), str(tmp_path / "log"), by_path=True, lock=tmp_path / "log.lock")
    create_table(table, TOPIC_LOG)
    for first in (6, 4, 2, 0):
        _append(table, first)
    return table


def _append(table: Table, first: int) -> None:
    same = {"origin": "us", "ledger_id": 7, "producer": "p"}
    times = [from_us(_FIRST_US + number % 2 * 86_400_000_000) for number in (first, first + 1)]
    rows = [
        {**same, "entry_id": first + at, "publish_time": time, "publish_date": time.date(), "payload": b"x" * first}
        for at, time in enumerate(times)
    ]
    assert append_here(table, rows_table(TOPIC_LOG.types, rows))


@pytest.mark.parametrize("spelt", ["file://{}", "file:{}", "{}/../log"])
def test_the_files_of_a_log_are_told_however_its_place_is_spelt(log: Table, spelt: str) -> None:
    other = Table(Driver.of(log.spark), spelt.format(log.name), by_path=True, lock=None)
    found = date_files(log)
    assert found is not None
    assert date_files(other) == found


def _actions(table: Table, kind: str) -> list[dict[str, Any]]:
    return actions_of(table, table.latest_version(), kind)


def _entries(table: Table) -> list[int]:
    return sorted(row["entry_id"] for row in DeltaTable(table.name).to_pyarrow_table().to_pylist())


def _assert_whole(table: Table) -> None:
    """Its checksum is that of the version: Spark and this process go on from it."""
    detail, state = table.delta().detail().collect()[0], own_state(table)
    assert state is not None
    assert (state.checksum["numFiles"], state.checksum["tableSizeBytes"]) == (detail["numFiles"], detail["sizeInBytes"])
    assert len(state.checksum["allFiles"]) == detail["numFiles"] == sum(state.checksum["fileSizeHistogram"]["fileCounts"])
    assert sorted(row["entry_id"] for row in table.read().collect()) == _entries(table)


def _once(act: Callable[[], None]) -> Callable[[CrashPoint], None]:
    """Something that happens once, when a file has been written or a commit is on its way."""
    done: list[CrashPoint] = []

    def at(point: CrashPoint) -> None:
        if point is CrashPoint.CHANGE_MADE and not done:
            done.append(point)
            act()

    return at


def test_whole_dates_go_in_one_commit_with_their_record_and_what_comes_into_them_meanwhile_too(log: Table) -> None:
    with crash.watched(_once(lambda: _append(log, 8))):
        remove_dates(log, DAYS[:1], json.dumps({EXPIRED: 1}))
    assert _entries(log) == [1, 3, 5, 7, 9]
    (commit,) = log.commits(log.latest_version(), log.latest_version())
    assert (commit.kind, commit.operation, commit.metrics["numDeletedRows"], commit.version) == (Kind.EXPIRY, "DELETE", 5, 6)
    assert {(one["dataChange"], one["partitionValues"]["publish_date"]) for one in _actions(log, "remove")} == {
        (True, str(DAYS[0]))
    }
    assert not _actions(log, "add")
    _assert_whole(log)
    feed = log.spark.read.format("delta").options(readChangeFeed="true", startingVersion="6").load(log.name).collect()
    assert sorted((row["_change_type"], row["entry_id"]) for row in feed) == [("delete", entry) for entry in (0, 2, 4, 6, 8)]
    remove_dates(log, DAYS[:1], "again")
    assert log.latest_version() == 6, "nothing is left to do"


def test_the_files_of_a_date_become_one_in_the_order_of_ids_beside_who_appends_and_who_compacts(log: Table) -> None:
    def others() -> None:
        _append(log, 8)
        compact_date(log, DAYS[0])

    with crash.watched(_once(others)):
        compact_date(log, DAYS[0])
    assert _entries(log) == list(range(10))
    listed = date_files(log)
    assert listed is not None
    assert [(one.day, one.files, one.rows) for one in listed.values()] == [(DAYS[0], 1, 5), (DAYS[1], 5, 5)]
    (commit,) = log.commits(log.latest_version(), log.latest_version())
    assert (commit.kind, commit.operation) == (Kind.NEUTRAL, "OPTIMIZE")
    (added,) = _actions(log, "add")
    assert {one["dataChange"] for one in (added, *_actions(log, "remove"))} == {False}
    told = json.loads(added["stats"])
    assert (told["minValues"]["entry_id"], told["maxValues"]["entry_id"], told["nullCount"]["marker"]) == (0, 8, 5)
    rows = read_files(log, [(added["path"], added["partitionValues"])]).collect()
    assert [(row["entry_id"], len(row["payload"]), row["publish_date"]) for row in rows] == [
        (entry, entry, DAYS[0]) for entry in (0, 2, 4, 6, 8)
    ]
    _assert_whole(log)
    named = {name.rsplit("/", 1)[1] for name in log.read().inputFiles()}
    young = (
        {path.name for path in Path(log.name).glob("*/*.parquet")}
        - named
        - {one["path"].rsplit("/", 1)[1] for one in _actions(log, "remove")}
    )
    assert len(young) == 5, "what was compacted, and nothing that no commit added"


def _append_by_delta(log: Table, **properties: str) -> None:
    """Entries 8 and 9, with these properties of Delta's."""
    for key, value in properties.items():
        log.spark.sql(f"ALTER TABLE {log.sql} SET TBLPROPERTIES ('delta.{key}' = '{value}')")
    columns = (name if name != "entry_id" else "entry_id + 8 AS entry_id" for name in TOPIC_LOG.names)
    log.read().where("entry_id < 2").selectExpr(*columns).write.format("delta").mode("append").save(log.name)
    assert any("publish_date=" not in name for name in log.read().inputFiles())


def test_files_in_folders_of_random_names_are_of_the_dates_of_the_log(log: Table) -> None:
    _append_by_delta(log, randomizeFilePrefixes="true")
    listed = date_files(log)
    assert listed is not None
    assert [(one.day, one.files, one.rows) for one in listed.values()] == [(day, 5, 5) for day in DAYS]
    compact_date(log, DAYS[1])
    assert _entries(log) == list(range(10))
    _assert_whole(log)


def test_where_columns_have_other_names_in_files_spark_is_asked_for_the_dates_of_the_log(log: Table) -> None:
    _append_by_delta(log, **{"columnMapping.mode": "name", "minReaderVersion": "2", "minWriterVersion": "5"})
    assert date_files(log) is None
    assert counted_by_spark(log) == dict.fromkeys(DAYS, 5)
    compact_date(log, DAYS[1])
    remove_dates(log, DAYS[:1], json.dumps({EXPIRED: 1}))
    assert footers(log, [date(2020, 1, 1), *DAYS])[DAYS[1]].rows == 5
    (commit,) = log.commits(log.latest_version(), log.latest_version())
    assert commit.kind is Kind.EXPIRY


def test_a_change_of_a_log_that_was_put_back_meanwhile_is_made_anew(log: Table, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(log.name, older)
    _append(log, 8)

    def put_back() -> None:
        shutil.rmtree(Path(log.name) / "_delta_log")
        shutil.copytree(older / "_delta_log", Path(log.name) / "_delta_log")
        _append(log, 10)

    with crash.watched(_once(put_back)):
        compact_date(log, DAYS[0])
    assert _entries(log) == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]
    _assert_whole(log)


def test_a_change_that_does_not_wait_for_the_lock_leaves_no_file(log: Table) -> None:
    before = sorted(Path(log.name).rglob("*.parquet"))
    with alone(log), without_waiting(), pytest.raises(LockedError):
        compact_date(log, DAYS[0])
    assert sorted(Path(log.name).rglob("*.parquet")) == before
