"""A file is committed only while it is young against the clean-up, by the store's time. Time is moved, not waited for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.delta import writer
from geo.delta.appending import append_rows
from geo.delta.change import Change
from geo.delta.create import make_first
from geo.delta.ddl import create_table
from geo.delta.delta_state import DeltaState, require_newest, require_state
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.local_commits import change_here, commit_written
from geo.delta.object_store import ObjectStore
from geo.delta.process import this_process
from geo.delta.row_files import Written, write_files
from geo.delta.scan import files_at
from geo.delta.store import WritePath
from geo.delta.table import Table
from geo.delta.writer import commit_files
from geo.delta.young import RETENTION, retention_us
from geo.errors import RetryableError
from geo.schemas import TOPIC_LOG
from tests.clock_off import clock_off
from tests.delta.logs import rows_of
from tests.delta.on_s3 import table_on
from tests.object_store import ObjectStore as S3

HOUR_S, DAY_S = 3600, 86_400
QUARTER_S = 30 * DAY_S / 4


def _no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


@pytest.fixture
def log(s3: S3) -> Iterator[Table]:
    place = table_on(s3)
    port = ObjectStore(place.store.s3.bucket, s3.options())  # type: ignore[attr-defined]  # it is one
    driver = Driver(_no_spark, lambda: this_process(0), find_port=lambda: port)
    log = Table(driver, str(place), by_path=True, lock=None)
    create_table(log, TOPIC_LOG)
    yield log
    s3.go_on(0)


def _folder(log: Table) -> WritePath:
    assert log.log_folder is not None
    return log.log_folder.parent


def _left(log: Table) -> list[str]:
    """Files of the table that no commit needs to name, by now."""
    store = _folder(log).store
    assert isinstance(store, ObjectStore)
    return [path for path in store.below(log.name) if "_delta_log" not in path]


def _written(log: Table) -> Written:
    """Rows whose writer is halted between data and commit."""
    assert log.log_folder is not None
    return write_files(_folder(log), require_state(log.log_folder), rows_of(0, 3))


@pytest.mark.parametrize(("age_s", "is_young"), [(0, True), (QUARTER_S - HOUR_S, True), (QUARTER_S, False), (40 * DAY_S, False)])
def test_files_are_committed_while_they_are_younger_than_a_quarter_of_the_retention(
    s3: S3, log: Table, age_s: float, is_young: bool
) -> None:
    written = _written(log)
    s3.go_on(age_s)
    with (
        clock_off(age_s),
        nullcontext() if is_young else pytest.raises(RetryableError, match=r"not committed: .*Nothing was written"),
    ):
        assert commit_written(log, written)
    assert log.latest_version() == (1 if is_young else 0)
    assert _left(log) == ([file.path for file in written.files] if is_young else []), "nor is left what told the time"


def test_how_old_they_are_is_told_by_the_store_and_not_by_this_host(s3: S3, log: Table) -> None:
    for day in (-40, 40):
        with clock_off(day * DAY_S):
            written = _written(log)
        assert commit_written(log, written)
    assert log.latest_version() == 2


def test_a_file_that_is_gone_is_not_committed(log: Table) -> None:
    written = _written(log)
    (_folder(log) / written.files[0].path).delete()
    with clock_off(HOUR_S), pytest.raises(RetryableError, match="is gone"):
        commit_written(log, written)
    assert log.latest_version() == 0


def test_a_file_of_the_change_feed_that_is_gone_is_not_committed(log: Table) -> None:
    append_rows(log, rows_of(0, 3))
    written, feed = _written(log), _written(log)

    def make(state: DeltaState) -> Change:
        return Change(state.version, "UPDATE", {}, {}, tuple(files_at(log, state) or ()), written, feed.files)

    (_folder(log) / feed.files[0].path).delete()
    with clock_off(HOUR_S), pytest.raises(RetryableError, match="is gone"):
        change_here(log, make)
    assert log.latest_version() == 1


@pytest.mark.parametrize("knows", [True, False], ids=["it knows the newest commit", "it follows on its own last one"])
def test_a_host_that_was_halted_with_its_clocks_commits_no_file_that_is_gone(
    log: Table, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_rows(log, rows_of(0, 1))
    written, before = _written(log), log.latest_version()
    with monkeypatch.context() as other:
        if not knows:
            other.setattr(writer, "_committed", {})
        append_rows(log, rows_of(3, 4))
    (_folder(log) / written.files[0].path).delete()
    with pytest.raises(RetryableError, match="is gone"):
        commit_written(log, written)
    assert log.latest_version() == before + 1


def test_what_is_written_in_a_moment_asks_nothing_more(s3: S3, log: Table) -> None:
    written, before = _written(log), s3.counts()
    assert commit_written(log, written)
    asked = s3.counts() - before
    assert (asked["PUT"], asked["HEAD"]) == (2, 0), "the commit and its checksum"


@pytest.mark.parametrize("days", [7, 8])
def test_files_on_a_disk_have_the_time_of_the_disk(tmp_path: Path, days: int) -> None:
    folder = on_disk(tmp_path / "t" / "_delta_log")
    make_first(folder, TOPIC_LOG, (), {})
    state = require_state(folder)
    written = write_files(folder.parent, state, rows_of(0, 3))
    path = tmp_path / "t" / written.files[0].path
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - days * DAY_S))
    with (
        clock_off(days * DAY_S),
        nullcontext() if days < QUARTER_S / DAY_S else pytest.raises(RetryableError, match=r"192\.0 hours old"),
    ):
        assert commit_files(folder, state, written.files, None)
    assert (require_newest(folder), len(list((tmp_path / "t").glob("now-*")))) == (int(days == 7), 0)


@pytest.mark.parametrize(
    ("said", "hours"),
    [
        ("interval 30 days", 720),
        ("interval 1 week", 168),
        ("2 hours", 2),
        ("INTERVAL 90 minutes", 1.5),
        ("interval 1 month", 24),
        (None, 168),
    ],
)
def test_a_retention_is_known_as_tables_say_it_or_else_a_short_one(said: str | None, hours: float) -> None:
    assert retention_us({} if said is None else {RETENTION: said}) == hours * HOUR_S * 1_000_000
