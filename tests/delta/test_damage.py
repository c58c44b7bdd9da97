"""One flipped bit in a file of a table on a local disk: the same rows as were written, or an error that says so; never others."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from geo.delta.appending import append_here
from geo.delta.ddl import set_property
from geo.delta.delta_log import newest_metadata, opened_commits
from geo.delta.delta_state import newest_state
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.engine import Scan, UnsupportedError, attempt
from geo.delta.engines.native import rows as native_rows
from geo.delta.scan import few_rows, scan_here
from geo.delta.sums import copy_with_sum, put_sum, read_checked, sum_of
from geo.delta.table import Table
from geo.errors import DamagedError
from geo.faults import SPARK_ERRORS
from geo.log.topic_log import ID
from tests.delta.logs import log_of, made_log, rows_of

pytestmark = pytest.mark.spark

T = TypeVar("T")

COLUMNS = ("origin", "ledger_id", "entry_id", "key", "payload", "marker", "properties")


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Some commits of this process, a checkpoint among them."""
    table = made_log(spark, tmp_path_factory.mktemp("damage"))
    set_property(table, "delta.checkpointInterval", "3")
    for number in range(4):
        assert append_here(table, rows_of(100 * number, 100 * number + 100), f'{{"record": {number}}}')
    return table


def _flipped(table: Table, tmp_path: Path, file: Path, random: Random, times: int) -> Iterator[Table]:
    """Copies of a table, each with a bit of this file of it flipped."""
    content = file.read_bytes()
    for number in range(times):
        copy = tmp_path / f"{file.name[:40]}-{number}"
        shutil.copytree(table.name, copy)
        at = random.randrange(len(content))
        flipped = bytearray(content)
        flipped[at] ^= 1 << random.randrange(8)
        (copy / file.relative_to(table.name)).write_bytes(flipped)
        yield Table(Driver.of(table.spark), str(copy), by_path=True, lock=None)
        shutil.rmtree(copy)


def _files(table: Table) -> dict[str, Path]:
    """One of each kind."""
    folder = Path(table.name) / "_delta_log"
    return {
        "rows": max(Path(table.name).rglob("part-*.parquet"), key=lambda path: path.stat().st_mtime_ns),
        "commit": folder / f"{5:020}.json",
        "checksum": folder / f"{5:020}.crc",
        "checkpoint": folder / f"{3:020}.checkpoint.parquet",
        "pointer": folder / "_last_checkpoint",
    }


KINDS = ("rows", "commit", "checksum", "checkpoint", "pointer")


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    return list(rows.select(COLUMNS).sort_by([(name, "ascending") for name in ID]).to_pylist())


TIMES = 12


@pytest.mark.parametrize("kind", KINDS)
def test_what_this_process_reads_is_what_was_written_or_is_left_to_spark(log: Table, tmp_path: Path, kind: str) -> None:
    folder, newest = Path(log.name) / "_delta_log", log.latest_version()
    assert newest == 5
    expected, state, commits = (
        _sorted(log.read().toArrow()),
        newest_state(on_disk(folder)),
        list(opened_commits(on_disk(folder), 0, newest)),
    )
    assert state is not None
    readers: dict[str, Callable[[Table], Any]] = {
        "added": lambda table: _few(_known(lambda: native_rows.added_rows(on_disk(log_of(table)), state, newest, newest))),
        "all": lambda table: _few(few_rows(table, newest)),
        "scanned": lambda table: _few(_joined(scan_here(table, newest, Scan(COLUMNS, lambda rows: rows)))),
        "markers": lambda table: _known(lambda: native_rows.added_where(on_disk(log_of(table)), newest, "marker", COLUMNS)),
        "state": lambda table: newest_state(on_disk(log_of(table))),
        "metadata": lambda table: _or_none(lambda: newest_metadata(on_disk(log_of(table)), newest)),
        "commits": lambda table: _or_none(lambda: list(opened_commits(on_disk(log_of(table)), 0, newest))),
    }
    whole = {name: read(log) for name, read in readers.items()}
    assert (whole["added"], whole["all"], whole["scanned"]) == (expected[-100:], expected, expected)
    assert (len(whole["markers"][0]), whole["markers"][1], whole["state"], whole["commits"]) == (0, True, state, commits)
    left: Counter[str] = Counter()
    for damaged in _flipped(log, tmp_path, _files(log)[kind], Random(kind), TIMES):
        for name, read in readers.items():
            found = read(damaged)
            assert found is None or found == whole[name], f"{name} of damaged {kind}"
            left[name] += found is None
    all_of = {
        "rows": {"added", "all", "scanned", "markers"},
        "commit": {"added", "all", "scanned", "markers", "commits"},
        "checksum": {"all", "state"},
        "checkpoint": {"all", "scanned"},
        "pointer": set(),
    }[kind]
    assert {name for name, count in left.items() if count == TIMES} == all_of


def _known(question: Callable[[], T]) -> T | None:
    found = attempt(question)
    return None if isinstance(found, UnsupportedError) else found


def _few(rows: pa.Table | None) -> list[dict[str, Any]] | None:
    return None if rows is None else _sorted(rows)


def _joined(parts: list[pa.Table] | None) -> pa.Table | None:
    return None if parts is None else pa.concat_tables(parts)


def _or_none(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DamagedError:
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_what_spark_reads_is_what_was_written_or_an_error(log: Table, tmp_path: Path, kind: str) -> None:
    """Of a checkpoint it takes an older one, or all commits; a checksum and the pointer only save it work."""
    expected, errors = _sorted(log.read().toArrow()), 0
    for damaged in _flipped(log, tmp_path, _files(log)[kind], Random(kind), 1):
        try:
            rows = damaged.read().toArrow()
        except SPARK_ERRORS:
            errors += 1
        else:
            assert _sorted(rows) == expected
    assert errors == (1 if kind in ("rows", "commit", "checkpoint") else 0)


def test_pages_are_held_to_sums_of_their_own_where_none_is_kept_beside_the_file(log: Table, tmp_path: Path) -> None:
    """As on storages that keep their own. Without asking these sums, other rows would come of it."""
    file, others = _files(log)["rows"], 0
    content = file.read_bytes()
    written = pq.ParquetFile(pa.BufferReader(content)).read()
    for at in range(4, len(content) - 8 - int.from_bytes(content[-8:-4], "little"), 7):
        flipped = bytearray(content)
        flipped[at] ^= 1
        try:
            if pq.ParquetFile(pa.BufferReader(bytes(flipped))).read().equals(written):
                continue
        except (OSError, pa.ArrowException):
            continue
        others += 1
        copy = tmp_path / str(at)
        shutil.copytree(log.name, copy)
        there = copy / file.relative_to(log.name)
        sum_of(there).unlink()
        there.write_bytes(flipped)
        state = newest_state(on_disk(copy / "_delta_log"))
        assert state is not None
        with pytest.raises(UnsupportedError, match="it cannot be read"):
            native_rows.added_rows(on_disk(copy / "_delta_log"), state, 5, 5)
        if others <= 2:
            with pytest.raises(SPARK_ERRORS, match=r"(?i)crc|page integrity"):
                Table(Driver.of(log.spark), str(copy), by_path=True, lock=None).read().toArrow()
    assert others > 20


def test_a_file_is_copied_with_its_sums_and_not_if_it_does_not_fit_them(tmp_path: Path) -> None:
    file, copy = tmp_path / "rows", tmp_path / "copy"
    file.write_bytes(bytes(range(256)) * 1000)
    copy_with_sum(file, copy)  # another program's has none
    assert read_checked(copy) == file.read_bytes()
    put_sum(file)
    copy_with_sum(file, copy)
    assert sum_of(copy).read_bytes() == sum_of(file).read_bytes()
    file.write_bytes(bytes(range(1, 257 - 1)) * 1000)
    with pytest.raises(
        DamagedError, match=r"rows is damaged: .* in \.rows\.crc\. .* if the file is right as it is, remove its sums"
    ):
        copy_with_sum(file, copy)
    with pytest.raises(DamagedError):
        read_checked(file)


def test_a_commit_that_is_no_text_is_damaged_though_no_sum_says_so(log: Table, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(log.name, copy)
    commit = copy / "_delta_log" / f"{5:020}.json"
    sum_of(commit).unlink()
    commit.write_bytes(commit.read_bytes()[:50] + b"\xff" + commit.read_bytes()[51:])
    with pytest.raises(DamagedError, match="is damaged: it is no text"):
        list(opened_commits(on_disk(copy / "_delta_log"), 0, 5))
