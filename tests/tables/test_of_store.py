"""What the store that lets this process in says of a table that Spark reads and writes, for one request where Spark makes twenty.

The store is a folder of this machine, which Spark knows by another scheme, so that to both it is no local disk.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from geo.tables import journal as journals
from geo.tables.driver import Driver
from geo.tables.journal import Journal
from geo.tables.places import Store
from geo.tables.table import Table
from schemas import OWNERS

pytestmark = pytest.mark.spark


class _Counted(Table):
    """A table that counts how often its rows are read."""

    times_read = 0

    def read(self, version: int | None = None) -> DataFrame:
        self.times_read += 1
        return super().read(version)


@dataclass(frozen=True)
class Far:
    """A folder that Spark knows as `viewfs://NAME/`. Each test has a name of its own, since Hadoop remembers it."""

    spark: SparkSession
    folder: Path

    def table(self, store: Path | None) -> _Counted:
        """With a store that has the folder in the one of this path."""
        files = None if store is None else Store(fs.SubTreeFileSystem(str(store), fs.LocalFileSystem()), {})
        return _Counted(
            Driver.of(self.spark, store=lambda: files), f"viewfs://{self.folder.name}/owners", by_path=True, lock=None
        )


@pytest.fixture
def far(spark: SparkSession, tmp_path: Path) -> Far:
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    session = spark.newSession()
    session.conf.set(f"fs.viewfs.mounttable.{folder.name}.linkFallback", folder.as_uri())
    return Far(session, folder)


def _owner(token: str) -> dict[str, object]:
    same = {"runner": "r", "holder": "{}", "state": "owned", "in_flight": False, "sequence": 0}
    return {**same, "generation": int(token), "token": token, "since": datetime.now(timezone.utc)}


def _tokens(journal: Journal) -> list[str]:
    return [row["token"] for row in journal.newest()]


def test_it_says_the_same_as_spark(far: Far, tmp_path: Path) -> None:
    by_store, by_spark = far.table(tmp_path), far.table(None)
    missing = Table(by_store._driver, f"{by_store.name}-missing", by_path=True, lock=None)
    assert by_store.look() is by_spark.look() is missing.look() is None, "nothing is there yet"
    Journal(by_spark, OWNERS).append([_owner("1")])
    assert by_store.look() == by_spark.look() is not None
    assert by_store.latest_version() == by_spark.latest_version() == 1
    for version in (0, 1, 2):
        assert by_store.has_commit(version) is by_spark.has_commit(version) is (version < 2)
        assert by_store.has_of_store(version) is (version < 2)
        assert by_spark.has_of_store(version) is None
    assert missing.look() is None
    assert missing.has_of_store(5) is False, "the store has shown that it is Spark's"


def test_a_journal_is_read_again_when_something_has_come(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = far.table(tmp_path)
    journal, other = Journal(table, OWNERS), Journal(far.table(None), OWNERS)
    assert [journal.exists() for _ in range(2)] == [False] * 2
    assert journal.newest() == []
    other.append([_owner("1")])
    assert [_tokens(journal) for _ in range(3)] == [["1"]] * 3
    assert table.times_read == 1
    assert [row["token"] for row in journal.newest(runner="r")] == ["1"]
    assert journal.newest(runner="s") == []
    assert table.times_read == 3, "other questions"
    other.append([_owner("2")])
    assert [_tokens(journal) for _ in range(2)] == [["2"]] * 2
    journal.append([_owner("3")])
    assert [_tokens(journal) for _ in range(2)] == [["3"]] * 2
    assert table.times_read == 5
    newest = far.folder / "owners" / "_delta_log" / f"{journal.version():020}.json"
    newest.unlink()  # as a backup of the log has it
    assert _tokens(journal) == ["3"]
    monkeypatch.setattr(journals, "_KNOWN_S", 0.0)
    journal._known = None
    assert [_tokens(journal) for _ in range(2)] == [["2"]] * 2, "each time, since no time has passed in which it counts"
    assert table.times_read == 7


@pytest.mark.parametrize("what", ["is another one", "cannot be read"])
def test_a_store_that_does_not_show_what_spark_has_is_not_asked(far: Far, tmp_path: Path, what: str) -> None:
    there = Journal(far.table(None), OWNERS)
    there.append([_owner("1")])
    other = tmp_path / "other"
    if what == "cannot be read":
        (other / far.folder.name / "owners").mkdir(parents=True)
        (other / far.folder.name / "owners" / "_delta_log").touch()
    there.append([_owner("2")])
    table = far.table(other)
    journal = Journal(table, OWNERS)
    assert _tokens(journal) == ["2"]
    there.append([_owner("3")])
    assert _tokens(journal) == ["3"]
    assert table.has_commit(1)
