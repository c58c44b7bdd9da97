"""One flipped bit in a file of a table on a local disk: the same rows as were written, or an error that says so; never others."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from geo.errors import DamagedError, RetryableError
from geo.faults import SPARK_ERRORS
from geo.log.topic_log import ID
from geo.tables import native, native_rows
from geo.tables.arrow_rows import rows_table
from geo.tables.delta_log import opened_commits
from geo.tables.delta_state import newest_state
from geo.tables.driver import Driver
from geo.tables.sums import sum_of
from geo.tables.table import Table
from schemas import TOPIC_LOG

pytestmark = pytest.mark.spark

COLUMNS = ("origin", "ledger_id", "entry_id", "key", "payload", "marker", "properties")


def _rows(first: int, end: int) -> pa.Table:
    now = datetime(2026, 11, 27, tzinfo=timezone.utc)
    same = {"origin": "us", "ledger_id": 7, "publish_time": now, "producer": "p", "publish_date": now.date()}
    return rows_table(
        TOPIC_LOG.types,
        [
            {**same, "entry_id": n, "key": f"k{n % 7}", "payload": f"payload {n}".encode(), "properties": [("a", str(n))]}
            for n in range(first, end)
        ],
    )


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Some commits of this process, a checkpoint among them."""
    table = Table(Driver.of(spark), str(tmp_path_factory.mktemp("damage") / "log"), by_path=True, lock=None)
    table.create(TOPIC_LOG)
    table.set_property("delta.checkpointInterval", "3")
    for number in range(4):
        assert table.append_here(_rows(100 * number, 100 * number + 100), f'{{"record": {number}}}')
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


@pytest.mark.parametrize("kind", KINDS)
def test_what_this_process_reads_is_what_was_written_or_is_left_to_spark(log: Table, tmp_path: Path, kind: str) -> None:
    folder, newest = Path(log.name) / "_delta_log", log.latest_version()
    assert newest == 5
    state = newest_state(folder)
    assert state is not None
    expected = _sorted(log.read().toArrow())
    commits = list(opened_commits(folder, 0, newest))
    found: Counter[str] = Counter()
    for damaged in _flipped(log, tmp_path, _files(log)[kind], Random(kind), 40):
        there = Path(damaged.name) / "_delta_log"
        rows = native_rows.added_rows(there, state, newest, newest)
        assert rows is None or _sorted(rows) == expected[-100:]
        found["rows" if rows is not None else "left"] += 1
        assert (seen := newest_state(there)) is None or seen == state
        few = native.few_rows(damaged, newest)
        assert few is None or _sorted(few) == expected
        markers = native_rows.added_where(there, newest, "marker", COLUMNS)
        assert markers is None or (len(markers[0]), markers[1]) == (0, True)
        try:
            assert list(opened_commits(there, 0, newest)) == commits
        except (DamagedError, RetryableError):
            found["commits"] += 1
    assert found["left"] == (40 if kind in ("rows", "commit") else 0)
    assert found["commits"] == (40 if kind == "commit" else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_spark_reads_is_what_was_written_or_an_error(log: Table, tmp_path: Path, kind: str) -> None:
    expected = _sorted(log.read().toArrow())
    errors = 0
    for damaged in _flipped(log, tmp_path, _files(log)[kind], Random(kind), 2):
        try:
            assert _sorted(damaged.read().toArrow()) == expected
        except SPARK_ERRORS:
            errors += 1
    assert errors == {"rows": 2, "commit": 2}.get(kind, errors)


def test_pages_that_were_changed_are_refused_where_no_sum_is_kept_beside_the_file(log: Table, tmp_path: Path) -> None:
    """As on storages that keep their own: by the sums within the file."""
    file = _files(log)["rows"]
    end = int.from_bytes(file.read_bytes()[-8:-4], "little")
    copy = tmp_path / "copy"
    shutil.copytree(log.name, copy)
    there = copy / file.relative_to(log.name)
    sum_of(there).unlink()
    content = bytearray(file.read_bytes())
    for at in range(4, len(content) - 8 - end, 61):
        content[at] ^= 1
    there.write_bytes(content)
    with pytest.raises(SPARK_ERRORS, match=r"(?i)crc|checksum|corrupt|page"):
        Table(Driver.of(log.spark), str(copy), by_path=True, lock=None).read().toArrow()
    folder, state = copy / "_delta_log", newest_state(Path(log.name) / "_delta_log")
    assert state is not None
    assert native_rows.added_rows(folder, state, 5, 5) is None
