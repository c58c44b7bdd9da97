"""What a store that lets this process in says of tables that Spark reads and writes.

The store is a folder of this machine, which Spark knows by another scheme: to both it is no local disk.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from geo.delta.arrow_store import ArrowStore
from geo.delta.driver import Driver
from geo.delta.engine import Seen, UnsupportedError, attempt
from geo.delta.engines.native.asked_log import AskedLog
from geo.delta.engines.spark.engine import SparkEngine
from geo.delta.remote import AGAIN_S, Remote
from geo.delta.table import Table
from geo.delta.tail import REMOTE_FULL_LOOK_S, REMOTE_PRESENCE_S
from geo.journal import journal as journals
from geo.journal.journal import Journal
from schemas import OWNERS
from tests.delta.engines import refuses
from tests.rows import owner

T = TypeVar("T")


def _store(folder: Path) -> ArrowStore:
    return ArrowStore(fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()))


def _log(remote: Remote, folder: Path) -> AskedLog:
    return AskedLog(remote, f"s3a://{folder.parent.name}/{folder.name}")


def _remote(folder: Path) -> Remote:
    store = _store(folder)
    return Remote(lambda: store)


def _commits(folder: Path, *versions: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for version in versions:
        (folder / f"{version:020}.json").write_text(
            json.dumps({"metaData": {"id": "t", "schemaString": '{"type": "struct", "fields": []}'}})
        )
    return folder


def _unreadable(place: Path) -> None:
    """Also for root: a link to itself."""
    place.symlink_to(place)


def _no_spark() -> SparkSession:
    raise AssertionError("Spark was asked")


UNKNOWN = None


def _told(question: Callable[[], T]) -> T | None:
    """What is said; UNKNOWN: Spark is asked."""
    found = attempt(question)
    return UNKNOWN if isinstance(found, UnsupportedError) else found


def _has(log: AskedLog, *versions: int) -> list[bool | None]:
    return [_told(lambda version=version: log.has_commit(version)) for version in versions]  # type: ignore[misc]


def test_what_a_store_does_not_show_is_not_there_once_it_has_shown_a_commit_of_any_table(tmp_path: Path) -> None:
    remote = _remote(tmp_path.parent)
    log, other = _log(remote, _commits(tmp_path / "a", 3, 4)), _log(remote, tmp_path / "b")
    assert (_has(other, 0, 5), str(attempt(other.look)), other.answers) == (
        [UNKNOWN, UNKNOWN],
        "its store has shown no commit yet",
        False,
    ), "it may be another store"
    assert _has(log, 5, 6) == [False, False], "the commit before the first is there"
    assert (_has(log, 3, 2), log.newest(), log.look()) == ([True, False], 4, Seen("t", 4, {}, StructType()))
    assert (_has(other, 0, 5), other.look(), _told(other.newest), other.answers) == ([False, False], None, UNKNOWN, True)


def test_a_log_that_gives_no_answer_is_left_to_spark_for_a_minute_and_others_are_not(tmp_path: Path) -> None:
    remote = _remote(tmp_path.parent)
    log, broken = _log(remote, _commits(tmp_path / "a", 0)), _log(remote, tmp_path / "b")
    assert log.newest() == 0
    assert broken.answers
    _unreadable(tmp_path / "b")
    assert (isinstance(attempt(broken.look), UnsupportedError), broken.answers) == (True, False)
    (tmp_path / "b").unlink()
    _commits(tmp_path / "b", 0)
    again = _log(remote, tmp_path / "b")
    assert (_has(again, 0, 1), str(attempt(again.look))) == ([UNKNOWN, UNKNOWN], "its store gave no answer lately")
    assert _has(log, 1) == [False]
    for place in remote._silent_until:
        remote._silent_until[place] -= AGAIN_S
    assert (again.answers, again.newest()) == (True, 0)


def test_no_table_is_missing_because_its_bucket_is_away(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    log = _log(_remote(tmp_path), _commits(bucket / "a", 0))
    assert log.newest() == 0
    bucket.rename(tmp_path / "away")
    assert (str(attempt(log.look)), log.answers) == ("its store gives no answer: there is no bucket bucket now", False)


def test_few_commits_are_read_for_the_metadata_of_a_log_without_checksums(tmp_path: Path) -> None:
    _commits(tmp_path / "a", 0)
    log = _log(_remote(tmp_path.parent), tmp_path / "a")
    for version in range(1, 12):
        (tmp_path / "a" / f"{version:020}.json").write_text("{}")
        assert _told(log.look) == (Seen("t", version, {}, StructType()) if version < 10 else UNKNOWN)


def test_a_store_that_lets_nobody_in_is_looked_for_again_a_minute_later(tmp_path: Path) -> None:
    found: list[ArrowStore | None] = [None, _store(tmp_path)]
    remote = Remote(lambda: found.pop(0))
    assert [_told(lambda: remote.at("s3a://b/t")) for _ in range(3)] == [UNKNOWN] * 3
    remote._find_at -= AGAIN_S
    assert [str(remote.at("s3a://b/t")) for _ in range(3)] == ["s3a://b/t"] * 3
    assert found == []


class _Counted(Table):
    """A table that counts how often it is looked at, and its rows are read."""

    looks = 0
    times_read = 0
    behind_look: Callable[[], None] = staticmethod(lambda: None)

    def look(self) -> Seen | None:
        self.looks += 1
        seen = super().look()
        behind, self.behind_look = self.behind_look, lambda: None
        behind()
        return seen

    def read(self, version: int | None = None) -> DataFrame:
        self.times_read += 1
        return super().read(version)


@dataclass(frozen=True)
class Far:
    """A folder that Spark knows as `viewfs://NAME/`. Each test has a name of its own, since Hadoop remembers it."""

    spark: SparkSession
    folder: Path

    def table(self, driver: Driver, name: str = "owners") -> _Counted:
        return _Counted(driver, f"viewfs://{self.folder.name}/{name}", by_path=True, lock=None)

    @property
    def by_spark(self) -> Driver:
        return Driver.of(self.spark)

    def and_store(self, folder: Path) -> Driver:
        store = _store(folder)
        return Driver.of(self.spark, store=lambda: store)


@pytest.fixture
def far(spark: SparkSession, tmp_path: Path) -> Far:
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    session = spark.newSession()
    session.conf.set(f"fs.viewfs.mounttable.{folder.name}.linkFallback", folder.as_uri())
    return Far(session, folder)


def _generations(journal: Journal) -> list[int]:
    return [row["generation"] for row in journal.newest()]


@pytest.mark.spark
def test_a_table_is_seen_as_spark_sees_it_and_without_spark(far: Far, tmp_path: Path) -> None:
    store = _store(tmp_path)
    by_spark, without_spark = far.table(far.by_spark), Driver(_no_spark, store=lambda: store)
    by_name, missing = (far.table(without_spark, name) for name in ("owners", "missing"))
    with pytest.raises(AssertionError, match="Spark was asked"):
        missing.look()
    Journal(by_spark, OWNERS).append([owner(generation=1)])
    assert by_name.look() == by_spark.look()
    assert by_name.look() is not None
    assert by_name.latest_version() == by_spark.latest_version() == 1
    for version in (0, 1, 2):
        assert by_name.has_commit(version) is by_spark.has_commit(version) is (version < 2)
    assert missing.look() is None
    assert not missing.has_commit(0)


@pytest.mark.spark
def test_the_first_commit_that_is_there_is_looked_for_by_name(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark makes eight requests for a name that is not there."""
    table = far.table(far.and_store(tmp_path))
    journal = Journal(table, OWNERS)
    for generation in (1, 2, 3):
        journal.append([owner(generation=generation)])
    (far.folder / "owners" / "_delta_log" / f"{0:020}.json").unlink()
    monkeypatch.setattr(SparkEngine, "has_commit", refuses)
    assert [commit.version for commit in table.commits(0, 3)] == [1, 2, 3]


@pytest.mark.spark
def test_a_journal_is_read_again_when_something_has_come(far: Far, tmp_path: Path) -> None:
    table = far.table(far.and_store(tmp_path))
    journal, other = Journal(table, OWNERS), Journal(far.table(far.by_spark), OWNERS)
    assert journal.newest() == []
    other.append([owner(generation=1)])
    assert [_generations(journal) for _ in range(3)] == [[1]] * 3
    assert table.times_read == 1
    assert [row["generation"] for row in journal.newest(runner="r")] == [1]
    assert journal.newest(runner="s") == []
    assert table.times_read == 3, "other questions"
    other.append([owner(generation=2)])
    assert [_generations(journal) for _ in range(2)] == [[2]] * 2
    journal.append([owner(generation=3)])
    assert [_generations(journal) for _ in range(2)] == [[3]] * 2
    assert table.times_read == 5
    known = journal._remembered
    assert known is not None
    known.asked_at -= REMOTE_PRESENCE_S
    assert _generations(journal) == [3], "its commit is still there"
    assert table.times_read == 5
    known.looked_at -= REMOTE_FULL_LOOK_S
    assert [_generations(journal) for _ in range(2)] == [[3]] * 2
    assert table.times_read == 6
    newest = far.folder / "owners" / "_delta_log" / f"{journal.table.latest_version():020}.json"
    newest.unlink()  # as in an older copy of the log
    assert _generations(journal) == [3]
    assert journal._remembered is not None
    journal._remembered.asked_at -= REMOTE_PRESENCE_S
    assert [_generations(journal) for _ in range(2)] == [[2]] * 2
    assert table.times_read == 7


@pytest.mark.spark
def test_no_more_is_remembered_of_a_journal_than_it_may_be(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = far.table(far.and_store(tmp_path))
    journal = Journal(table, OWNERS)
    journal.append([owner(generation=1)])
    monkeypatch.setattr(journals, "MOST_REMEMBERED", 1 + len(OWNERS.names) + len("r" + "1-0" + "{}" + "owned"))
    for runner in ("r", "s", "r", "s"):
        journal.newest(runner=runner)
    assert table.times_read == 3, "the answer with a row fills it"


@pytest.mark.spark
def test_a_journal_that_is_not_there_is_looked_for_by_its_first_commit(far: Far, tmp_path: Path) -> None:
    driver = far.and_store(tmp_path)
    Journal(far.table(driver, "another"), OWNERS).append([owner(generation=1)])
    assert far.table(driver, "another").latest_version() == 1
    table = far.table(driver)
    journal = Journal(table, OWNERS)
    assert [journal.exists() for _ in range(3)] == [False] * 3
    assert table.looks == 1
    assert journal._remembered is not None
    journal._remembered.asked_at -= REMOTE_PRESENCE_S
    assert [journal.exists() for _ in range(3)] == [False] * 3
    assert table.looks == 2
    Journal(far.table(far.by_spark), OWNERS).append([owner(generation=2)])
    assert _generations(journal) == [2]
    assert table.looks == 3


@pytest.mark.spark
def test_a_journal_that_comes_into_being_while_somebody_looks_is_there(far: Far, tmp_path: Path) -> None:
    driver = far.and_store(tmp_path)
    Journal(far.table(driver, "another"), OWNERS).append([owner(generation=1)])
    table = far.table(driver)
    journal = Journal(table, OWNERS)

    def as_other_threads_do() -> None:
        Journal(far.table(far.by_spark), OWNERS).append([owner(generation=2)])
        assert _generations(journal) == [2]

    table.behind_look = as_other_threads_do
    assert journal.exists()
    assert _generations(journal) == [2]


@pytest.mark.spark
@pytest.mark.parametrize("what", ["is another one", "cannot be read"])
def test_where_a_store_does_not_show_what_spark_has_spark_is_asked(far: Far, tmp_path: Path, what: str) -> None:
    there = Journal(far.table(far.by_spark), OWNERS)
    other = tmp_path / "other" / far.folder.name
    other.mkdir(parents=True)
    driver = far.and_store(other.parent)
    if what == "cannot be read":
        _commits(other / "another" / "_delta_log", 0)
        assert far.table(driver, "another").has_commit(0)
        (other / "owners").mkdir()
        _unreadable(other / "owners" / "_delta_log")
    table = far.table(driver)
    journal = Journal(table, OWNERS)
    for generation in (1, 2, 3):
        there.append([owner(generation=generation)])
        assert _generations(journal) == [generation]
    assert table.look() == far.table(far.by_spark).look()
    assert table.has_commit(3)
    assert not table.is_asked_by_name
