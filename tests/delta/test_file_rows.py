"""Rows that stay in their files until a task reads them: each once, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone

import pyarrow as pa
import pytest

from geo.delta import row_files
from geo.delta.create import make_first
from geo.delta.delta_state import require_state
from geo.delta.engine import UnsupportedError
from geo.delta.engines.native import rows
from geo.delta.engines.native.rows import added, read_groups
from geo.delta.engines.spark import task_files
from geo.delta.engines.spark.task_files import shared, written_in_order
from geo.delta.file_rows import FileRows
from geo.delta.predicate import Compare
from geo.delta.row_files import write_files
from geo.delta.store import StorePath, WritePath, parquet
from geo.delta.writer import commit_files
from geo.schemas import TOPIC_LOG
from tests.delta.memory_store import MemoryStore

_ORDER = ("publish_date", "origin", "ledger_id", "entry_id")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> WritePath:
    """Its files have groups of some ten rows, and nine are many."""
    monkeypatch.setattr(row_files, "ROW_GROUP_BYTES", 2_000)
    monkeypatch.setattr(rows, "MOST_ROWS", 9)
    place = StorePath(MemoryStore(), "memory://bucket/t")
    make_first(place / "_delta_log", TOPIC_LOG, (), {})
    return place


def _append(table: WritePath, entries: Sequence[int], day: int = 1, size: int = 0) -> None:
    state = require_state(table / "_delta_log")
    made = [
        {"origin": "us", "ledger_id": 1, "entry_id": at, "publish_time": datetime.now(timezone.utc), "producer": "p", "key": "k" * 100,
         "payload": bytes([at]) * size, "publish_date": date(2026, 1, day)} for at in entries
    ]  # fmt: skip
    there = pa.Table.from_pylist(made, pa.schema([state.schema.field(name) for name in made[0]]))
    assert commit_files(table / "_delta_log", state, write_files(table, state, there).files, None)


def _added(table: WritePath) -> FileRows:
    state = require_state(table / "_delta_log")
    found = added(table / "_delta_log", state, 1, state.version)
    assert isinstance(found, FileRows)
    return found


def _entries(parts: Iterator[pa.Table]) -> list[int]:
    return [entry for part in parts for entry in part["entry_id"].to_pylist()]


@pytest.mark.parametrize("most", [1, 10**9])
def test_shares_of_a_file_have_each_row_once(table: WritePath, most: int) -> None:
    _append(table, range(100))
    found = _added(table)
    (file,) = found.files
    assert parquet(file.path).num_row_groups > 5
    for of in (1, 2, 3, 50):
        of_each = [_entries(read_groups(file, found.state, share, of, most)) for share in range(of)]
        assert [entry for entries in of_each for entry in entries] == list(range(100))
    (part, *_) = read_groups(file, found.state, 0, 1, 10**9)
    assert (part.schema, set(part["publish_date"].to_pylist())) == (found.state.schema, {date(2026, 1, 1)})


@pytest.mark.parametrize("group_bytes", [1, 10**9])
def test_of_large_rows_few_are_in_memory_whether_they_are_in_one_group_or_in_many(
    table: WritePath, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    monkeypatch.setattr(row_files, "ROW_GROUP_BYTES", group_bytes)
    _append(table, range(60), size=50_000)
    found = _added(table)
    (file,) = found.files
    assert parquet(file.path).num_row_groups == (60 if group_bytes == 1 else 1)
    parts = list(read_groups(file, found.state, 0, 1, most := 200_000))
    assert _entries(iter(parts)) == list(range(60))
    assert max(part.nbytes for part in parts) < 2 * most
    assert [len(batch) for batch in rows.batches(parquet(file.path), ["entry_id"], 60)] == (
        [1] * 60 if group_bytes == 1 else [60]
    )


def test_few_rows_that_are_too_large_to_be_held_stay_in_their_files(table: WritePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_IN_MEMORY", 100_000)
    state = require_state(table / "_delta_log")
    _append(table, range(3), size=20_000)
    assert isinstance(added(table / "_delta_log", state, 1, 1), pa.Table)
    _append(table, range(3, 6), size=20_000)
    found = added(table / "_delta_log", state, 1, 2)
    assert isinstance(found, FileRows)
    assert [_entries(read_groups(file, found.state, 0, 1, 10**9)) for file in found.files] == [[0, 1, 2], [3, 4, 5]]


def test_tasks_have_all_shares_of_all_files_in_their_order(table: WritePath, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(0, 60, 20):
        _append(table, range(first, first + 20))
    files = _added(table).files
    assert [len(pieces) for pieces in shared(files, 2)] == [3], "they are small"
    monkeypatch.setattr(task_files, "PART_BYTES", files[0].size // 2)
    monkeypatch.setattr(task_files, "_OPEN_BYTES", 0)
    tasks = shared(files, 100)
    pieces = [piece for pieces in tasks for piece in pieces]
    cut = {file.path: of for file, _, of in pieces}
    assert pieces == [(file, at, cut[file.path]) for file in files for at in range(cut[file.path])]
    assert len(tasks) > len(files) == len(cut)
    assert shared([replace(files[0], size=0)], 2) == [[(replace(files[0], size=0), 0, 1)]]


@pytest.mark.parametrize("small_bytes", [0, 2**20])
def test_rows_that_are_wanted_come_in_order_in_each_file(
    table: WritePath, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(task_files, "PART_BYTES", 1)
    monkeypatch.setattr(rows, "_GROUP_BATCH_ROWS", 7)
    monkeypatch.setattr(task_files, "_SMALL_BYTES", small_bytes)
    for first, day in ((0, 1), (20, 2), (40, 1)):
        _append(table, [*range(first + 10, first + 20), *range(first, first + 10)], day)
    found = _added(table)
    (pieces,) = shared(found.files, 1)
    other = StorePath(MemoryStore(), "memory://bucket/u")
    make_first(other / "_delta_log", TOPIC_LOG, (), {})
    state = require_state(other / "_delta_log")
    where = Compare("entry_id", ">=", 15)
    files = written_in_order(pieces, found.state, where, _ORDER, other, state)
    read = [parquet(other / file.path).read()["entry_id"].to_pylist() for file in files]
    assert sorted(entry for entries in read for entry in entries) == list(range(15, 60))
    assert all(entries == sorted(entries) for entries in read)
    assert {file.partition["publish_date"] for file in files} == {"2026-01-01", "2026-01-02"}
    assert [file.rows for file in files] == [len(entries) for entries in read]


def test_of_rows_that_cannot_be_read_here_nothing_is_left(table: WritePath) -> None:
    _append(table, range(100))
    _append(table, range(100, 200))
    found = _added(table)
    store, damaged = table.store, str(found.files[1].path)
    content = store.get(damaged)
    store.put(damaged, content[:1_000] + bytes(1_000) + content[2_000:])
    (pieces,) = shared(found.files, 1)
    left = MemoryStore()
    other = StorePath(left, "memory://bucket/u")
    make_first(other / "_delta_log", TOPIC_LOG, (), {})
    with pytest.raises(UnsupportedError, match="cannot be read"):
        written_in_order(pieces, found.state, found.where, _ORDER, other, require_state(other / "_delta_log"))
    assert [name for name in left._files if name.endswith(".parquet")] == []
