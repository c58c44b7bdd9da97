"""A table on an object store, of which every commit is this program's: without Spark, by any number of writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

from geo.delta import mirror
from geo.delta.appending import append_rows, append_rows_once
from geo.delta.arrow_rows import rows_table
from geo.delta.commits import checksum_file, commit_file
from geo.delta.counted import Counted, counted
from geo.delta.ddl import add_columns, create_table, remove_table, set_property, set_property_once
from geo.delta.definition import columns_of
from geo.delta.delta_log import read_folder, remove_below
from geo.delta.delta_state import require_state
from geo.delta.derived_checksum import UntoldError, checksum_after
from geo.delta.driver import Driver
from geo.delta.mirror import rows_now
from geo.delta.object_store import ObjectStore
from geo.delta.predicate import ANY_ROW
from geo.delta.put_commit import put_commit
from geo.delta.row_files import write_files
from geo.delta.scan import few_rows
from geo.delta.spark_commits import commit_by_spark
from geo.delta.table import Table
from geo.delta.tail import Tail
from geo.delta.writer import commit_files, forget_committed
from geo.errors import RetryableError, UnknownAnswerError, UnsafeError, UsageError
from geo.schemas import OWNERS, TOPIC_LOG
from geo.schemas.table import Column
from tests.another_process import forget
from tests.delta.on_s3 import no_spark, table_on
from tests.delta.on_s3 import opened_on as _table
from tests.object_store import ObjectStore as S3

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)


@pytest.fixture
def log(s3: S3) -> Table:
    log = _table(s3)
    create_table(log, TOPIC_LOG)
    return log


def _rows(first: int, end: int) -> pa.Table:
    same = {"origin": "us", "ledger_id": 7, "publish_time": NOW, "producer": "p", "publish_date": NOW.date()}
    return rows_table(
        TOPIC_LOG.types, [{**same, "entry_id": n, "payload": b"x", "properties": [("n", str(n))]} for n in range(first, end)]
    )


def _entries(table: Table) -> list[int]:
    found = few_rows(table, table.latest_version())
    assert found is not None
    return sorted(found["entry_id"].to_pylist())


def test_a_table_is_made_once_and_then_is_as_it_is(log: Table) -> None:
    seen = log.snapshot()
    assert seen is not None
    assert (seen.version, seen.columns.names) == (0, [column.name for column in TOPIC_LOG.columns])
    create_table(log, TOPIC_LOG)
    assert log.table_id() == seen.table_id
    assert log.properties()["geo.table"] == "topic-log"


def test_of_those_who_make_a_table_at_once_all_have_the_same(s3: S3) -> None:
    place, together = table_on(s3), Barrier(4)

    def make(_: int) -> str:
        table = _table(s3, place)
        together.wait()
        create_table(table, OWNERS)
        return table.table_id()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(make, range(4)))) == 1


def test_what_is_no_table_is_not_written_over(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geo.delta.ddl._BEING_MADE_S", 0.0)
    place = table_on(s3)
    place.store.put(str(place / "a-file-of-somebody"), b"x")
    with pytest.raises(RetryableError, match="something that is no Delta table is there"):
        create_table(_table(s3, place), OWNERS)


def test_writers_who_append_at_once_lose_nothing(s3: S3, log: Table) -> None:
    assert log.log_folder is not None
    writers, each, together = 4, 3, Barrier(4)

    def append(who: int) -> None:
        table = _table(s3, log.log_folder.parent)  # type: ignore[union-attr]  # it is there
        together.wait()
        for number in range(each):
            at = who * each + number
            append_rows(table, _rows(at, at + 1), f"record {at}")

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(append, range(writers)))
    assert _entries(log) == list(range(writers * each))
    assert log.latest_version() == writers * each
    assert sorted(str(commit.user_metadata) for commit in log.commits(1, writers * each)) == sorted(
        f"record {at}" for at in range(writers * each)
    )


def test_a_writer_goes_on_from_its_own_commit_and_meets_anothers(s3: S3, log: Table) -> None:
    assert log.log_folder is not None
    other = _table(s3, log.log_folder.parent)
    append_rows(log, _rows(0, 1))
    before = s3.counts()
    append_rows(log, _rows(1, 2))
    asked = s3.counts() - before
    assert (asked["PUT"], asked["LIST"], asked.total()) == (3, 0, 4), (
        "rows, commit, checksum, and whether the commit before is there"
    )
    append_rows(other, _rows(2, 3))
    append_rows(log, _rows(3, 4))
    assert _entries(other) == [0, 1, 2, 3]


def test_a_fence_stops_who_read_the_table_before(s3: S3, log: Table) -> None:
    """The property takes the version away that the stale one would have: it asks again whether it is the owner."""
    assert log.log_folder is not None
    append_rows(log, _rows(0, 1))
    set_property(_table(s3, log.log_folder.parent), "geo.fence.x", "token")

    def refuse() -> None:
        if "geo.fence.x" in log.properties():
            raise UnsafeError("it is another's")

    asked: list[int] = []

    def refuse_once_fenced() -> None:
        asked.append(1)
        if len(asked) > 1:
            refuse()

    with pytest.raises(UnsafeError, match="it is another's"):
        append_rows(log, _rows(1, 2), refuse=refuse_once_fenced)
    assert _entries(log) == [0]


def test_a_writer_follows_on_what_it_read_and_meets_what_came_since(s3: S3, log: Table) -> None:
    """Rows of another one and a fence: it is asked again whether it may; a column: it is looked for."""
    assert log.log_folder is not None
    place, asked = log.log_folder.parent, list[int]()
    other, reader = _table(s3, place), _table(s3, place)
    append_rows(other, _rows(0, 1))
    assert _entries(reader) == [0]
    before = s3.counts()
    append_rows(reader, _rows(1, 2))
    assert (s3.counts() - before)["LIST"] == 0, "what was read a moment ago"
    forget_committed(reader.log_folder)  # type: ignore[arg-type]  # it is there
    assert _entries(reader) == [0, 1]
    append_rows(other, _rows(2, 3))
    set_property(other, "geo.fence.x", "token")
    append_rows(reader, _rows(3, 4), refuse=lambda: asked.append(1))
    assert (_entries(reader), len(asked)) == ([0, 1, 2, 3], 2)
    wider = replace(TOPIC_LOG, columns=(*TOPIC_LOG.columns, Column("more", "BIGINT", "new", added=True)))
    add_columns(other, columns_of(wider))
    append_rows(reader, _rows(4, 5).append_column("more", pa.array([5], pa.int64())))
    assert _entries(other) == [0, 1, 2, 3, 4]


def test_a_number_of_a_transaction_is_used_once_whoever_asks(s3: S3) -> None:
    place, together = table_on(s3), Barrier(4)
    first = _table(s3, place)
    create_table(first, OWNERS)

    def claim(who: int) -> int | None:
        table = _table(s3, place)
        row = {
            "runner": "r",
            "generation": 1,
            "token": str(who),
            "holder": "{}",
            "state": "OWNED",
            "in_flight": False,
            "since": NOW,
        }
        rows = rows_table(OWNERS.types, [{**row, "sequence": 0}])
        together.wait()
        return append_rows_once(table, rows, str(who), ("geo.claims", 1))

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(claim, range(4)))
    assert [one for one in won if one is not None] == [1]
    assert first.latest_version() == 1
    rows = few_rows(first, 1)
    assert rows is not None
    assert rows["token"].to_pylist() == [str(won.index(1))]


def test_columns_and_properties_come_without_spark(log: Table) -> None:
    append_rows(log, _rows(0, 1))
    wider = replace(TOPIC_LOG, columns=(*TOPIC_LOG.columns, Column("more", "BIGINT", "new", added=True)))
    add_columns(log, columns_of(wider))
    add_columns(log, columns_of(wider))
    assert (log.latest_version(), log.snapshot().columns.names[-1]) == (2, "more")  # type: ignore[union-attr]  # it is there
    set_property_once(log, "k", "first")
    set_property_once(log, "k", "second")
    assert (log.properties()["k"], log.latest_version()) == ("first", 3)
    rows = _rows(1, 2).append_column("more", pa.array([5], pa.int64()))
    append_rows(log, rows)
    found = few_rows(log, log.latest_version())
    assert found is not None
    assert sorted(found["more"].to_pylist(), key=str) == [5, None]


def test_a_column_that_this_program_could_not_append_to_is_refused_before_it_is_there(s3: S3, log: Table) -> None:
    spans = StructField("at", StructType([StructField("took", DayTimeIntervalType())]))
    with pytest.raises(UnsafeError, match="column 'at' has a field 'took', which is interval day to second, a type that Delta"):
        add_columns(log, [spans])
    append_rows(log, _rows(0, 1))
    assert _entries(log) == [0]
    other = _table(s3)
    with pytest.raises(UsageError, match=r"its column at is of a type .* Nothing was made"):
        create_table(other, TOPIC_LOG, [spans])
    assert not other.exists()


def test_what_was_put_below_a_cut_is_not_taken_for_the_next(s3: S3, log: Table) -> None:
    """Its writer was halted before its put, and has not found out yet."""
    folder = log.log_folder
    assert folder is not None
    append_rows(log, _rows(0, 1))
    tail, halted = Tail.at_newest(log), require_state(folder)
    other = _table(s3, folder.parent)
    for at in range(1, 5):
        append_rows(other, _rows(at, at + 1))
    DeltaTable(str(folder.parent), storage_options=s3.options()).create_checkpoint()
    assert remove_below(folder, read_folder(folder), 5) == 5
    stray = write_files(folder.parent, halted, _rows(9, 10))
    assert put_commit(folder, 2, [{"commitInfo": {"txnId": "stray"}}, *({"add": file.action} for file in stray.files)])
    with pytest.raises(RetryableError, match="are gone"):
        tail.next()


def test_what_spark_alone_could_do_is_refused_by_name(log: Table) -> None:
    with pytest.raises(UnsafeError, match=r"commits of Spark's can be lost\. Nothing was written"):
        commit_by_spark(log, lambda: None)
    with pytest.raises(UnsafeError, match="these rows are not as its columns are"):
        append_rows(log, pa.table({"no_such_column": [1]}))


@pytest.mark.parametrize("lost", [(3,), (1, 2, 3), (0, 1, 2, 3)])
def test_a_version_whose_writer_died_before_its_checksum_is_gone_on_from(s3: S3, log: Table, lost: tuple[int, ...]) -> None:
    folder = log.log_folder
    assert folder is not None
    append_rows_once(log, _rows(0, 1), "token", ("app", 7))
    set_property(log, "k", "v")
    append_rows(log, _rows(1, 3))
    whole = require_state(folder)
    for version in lost:
        (folder / checksum_file(version)).delete()
    derived = require_state(folder)
    plain = {name: value for name, value in whole.checksum.items() if "istogram" not in name}
    assert _sorted(derived.checksum) == _sorted(plain)
    forget_committed(folder)
    other = _table(s3, folder.parent)
    append_rows(other, _rows(3, 4))
    assert append_rows_once(other, _rows(4, 5), "token", ("app", 7)) is None
    assert _entries(log) == [0, 1, 2, 3]


def _sorted(checksum: Any) -> Any:
    listed = [{**file, "tags": None} for file in checksum["allFiles"]]
    return {**checksum, "allFiles": sorted(listed, key=lambda file: str(file["path"]))}


def test_of_a_commit_that_does_not_tell_no_checksum_is_derived() -> None:
    before = {"txnId": "a", "numFiles": 1, "tableSizeBytes": 5, "setTransactions": [], "domainMetadata": []}
    told = checksum_after(
        before, ['{"commitInfo":{"txnId":"b"}}', '{"remove":{"path":"x","size":5}}', '{"txn":{"appId":"s","version":2}}']
    )
    assert (told["txnId"], told["numFiles"], told["tableSizeBytes"]) == ("b", 0, 0)
    assert [one["appId"] for one in told["setTransactions"]] == ["s"]
    assert "allFiles" not in told
    with pytest.raises(UntoldError):
        checksum_after(before, ['{"remove":{"path":"x"}}'])


def test_rows_that_were_deleted_one_by_one_are_counted() -> None:
    """Where who deleted them put no checksum; a file is taken behind the line that adds it with others deleted."""
    file = {"path": "x", "size": 5}
    first, second = (
        {"storageType": "u", "pathOrInlineDv": name, "offset": 1, "cardinality": rows} for name, rows in (("a", 1), ("b", 3))
    )
    before = {"txnId": "a", "numFiles": 2, "tableSizeBytes": 9, "allFiles": [file, {"path": "y", "size": 4}]}
    became: dict[str, Any] = before
    for old, new in ((None, first), (first, second)):
        add, take = {"add": {**file, "deletionVector": new}}, {"remove": {**file, "deletionVector": old}}
        became = checksum_after(became, [json.dumps(add), json.dumps(take)])
    assert (became["numDeletionVectorsOpt"], became["numDeletedRecordsOpt"]) == (1, 3)
    assert (became["numFiles"], became["tableSizeBytes"]) == (2, 9)
    assert [one.get("deletionVector") for one in became["allFiles"]] == [None, second]
    gone = checksum_after(became, [json.dumps({"remove": {**file, "deletionVector": second}})])
    assert (gone["numDeletionVectorsOpt"], gone["numDeletedRecordsOpt"], gone["numFiles"]) == (0, 0, 1)


def test_a_checkpoint_is_written_when_it_is_due_and_what_it_holds_is_read(s3: S3, log: Table) -> None:
    set_property(log, "delta.checkpointInterval", "3")
    for at in range(5):
        append_rows(log, _rows(at, at + 1))
    folder = log.log_folder
    assert folder is not None
    assert [name for name in folder.names() if "checkpoint" in name] == [
        "00000000000000000003.checkpoint.parquet",
        "00000000000000000006.checkpoint.parquet",
        "_last_checkpoint",
    ]
    for version in range(5):
        (folder / commit_file(version)).delete()
    there = DeltaTable(str(folder.parent), storage_options=s3.options())
    assert (there.version(), sorted(there.to_pyarrow_table()["entry_id"].to_pylist())) == (6, list(range(5)))
    assert _entries(_table(s3, folder.parent)) == list(range(5))


def test_a_commit_that_was_cut_with_the_log_had_counted_and_its_files_stay(s3: S3, log: Table) -> None:
    """Its writer was halted right after its put; others went on, and cut the log below a checkpoint that names its files."""
    folder = log.log_folder
    assert folder is not None
    before = require_state(folder)
    append_rows(log, _rows(0, 1))
    files = [json.loads(line)["add"]["path"] for line in (folder / commit_file(1)).lines() if line.startswith('{"add"')]
    other = _table(s3, folder.parent)
    for at in range(1, 4):
        append_rows(other, _rows(at, at + 1))
    DeltaTable(str(folder.parent), storage_options=s3.options()).create_checkpoint()
    before_cut = s3.counts()
    assert remove_below(folder, read_folder(folder), 4) == 4
    assert (s3.counts() - before_cut)["POST"] == 1 + 4, "the commits one after the other"
    assert counted(folder, before, files) is Counted.LONG_AGO
    with pytest.raises(UnknownAnswerError, match="nobody can tell whether it counts"):
        counted(folder, before, ["another"])
    assert _entries(_table(s3, folder.parent)) == [0, 1, 2, 3]


@pytest.mark.parametrize("what", ["put back", "gone"])
def test_a_commit_behind_the_end_of_another_log_does_not_count_and_is_removed(s3: S3, log: Table, what: str) -> None:
    folder = log.log_folder
    assert folder is not None
    for at in range(2):
        append_rows(log, _rows(at, at + 1))
    before = require_state(folder)
    if what == "put back":  # an older copy, which has grown to the same version
        for name in (commit_file(2), checksum_file(2)):
            (folder / name).delete()
        forget_committed(folder)
        append_rows(_table(s3, folder.parent), _rows(7, 8))
    else:
        for name in folder.names():
            (folder / name).delete()
    written = write_files(folder.parent, before, _rows(9, 10))
    assert not commit_files(folder, before, written.files, None)
    assert not (folder / commit_file(3)).is_there()


def test_an_erased_memory_of_a_table_that_is_made_anew_is_not_gone_on_from(log: Table) -> None:
    append_rows(log, _rows(0, 1))
    assert remove_table(log)
    assert not log.exists()
    create_table(log, TOPIC_LOG)
    append_rows(log, _rows(5, 6))
    assert (log.latest_version(), _entries(log)) == (1, [5])


@pytest.fixture
def journal(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Table:
    forget(monkeypatch)
    table = _table(s3)
    create_table(table, OWNERS)
    return table


def _row(runner: str) -> pa.Table:
    row = {"runner": runner, "generation": 1, "token": "t", "holder": "{}", "state": "OWNED", "in_flight": False, "since": NOW}
    return rows_table(OWNERS.types, [{**row, "sequence": 0}])


def _runners(table: Table) -> list[str] | None:
    rows = rows_now(table, ("runner",), ANY_ROW)
    return None if rows is None else sorted(row["runner"] for row in rows)


def test_what_was_read_of_a_small_table_is_kept_until_a_commit_comes(s3: S3, journal: Table) -> None:
    append_rows(journal, _row("a"))
    assert _runners(journal) == ["a"]

    def requests(ask: Callable[[], object]) -> int:
        before = s3.counts()
        ask()
        return (s3.counts() - before).total()

    assert requests(lambda: _runners(journal)) == 1, "whether the next commit is there"
    other = _table(s3, journal.log_folder.parent)  # type: ignore[union-attr]  # it is there
    append_rows(other, _row("b"))
    assert _runners(journal) == ["a", "b"]
    set_property(other, "k", "v")
    assert _runners(journal) == ["a", "b"]
    assert requests(lambda: _runners(journal)) == 1


def test_what_is_not_there_any_more_is_not_told_from_memory(journal: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "REMOTE_PRESENCE_S", 0.0)
    append_rows(journal, _row("a"))
    assert _runners(journal) == ["a"]
    folder = journal.log_folder
    assert folder is not None
    for name in (commit_file(1), checksum_file(1)):
        (folder / name).delete()
    assert _runners(journal) == []


def test_what_was_read_long_ago_is_told_of_the_commit_alone_of_which_it_was_read(
    s3: S3, journal: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "REMOTE_FULL_LOOK_S", 0.0)
    append_rows(journal, _row("a"))
    assert _runners(journal) == ["a"]
    before = s3.counts()
    assert _runners(journal) == ["a"]
    assert (s3.counts() - before).total() == 1, "a list shows that the commit is the one that was read"
    folder = journal.log_folder
    assert folder is not None
    for name in (commit_file(1), checksum_file(1)):
        (folder / name).delete()
    forget_committed(folder)
    append_rows(journal, _row("b"))
    assert (journal.latest_version(), _runners(journal)) == (1, ["b"])
    append_rows(journal, _row("c"))
    assert _runners(journal) == ["b", "c"]


def test_a_copy_is_in_the_same_bucket_only(s3: S3) -> None:
    port = ObjectStore("one", s3.options())
    assert [port.holds(at) for at in ("s3a://one/t", "s3://one/t", "s3a://other/t", "/one/t", "hdfs://one/t")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert Driver(no_spark, find_port=lambda: port).port_at("/data/t") is None
