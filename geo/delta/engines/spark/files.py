"""Files of rows that Spark writes beside a table on a local disk, before the table's lock is taken: a commit adds them afterwards.

A plan may read another region, which may be slow or hang. So no plan of an append to a table that is there runs while the lock is held.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from geo.delta.delta_state import DeltaState
from geo.delta.disk_store import DiskPath, path_of
from geo.delta.row_files import Added, Written, remove_files, statistics, write_out
from geo.delta.sums import sum_of
from geo.disk import local_path
from geo.now import now_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_PREFIX = "_geo-written-"
"""Beginning of the names of folders in which Spark writes. Delta and its VACUUM pass over names that begin so."""

STAGED_S = 86_400.0
"""A folder in which nothing was written for so long is of a process that died, or of a plan that hangs and may fail."""


@contextmanager
def staged(location: str) -> Iterator[str]:
    """The place of a new folder in the table at `location`, for Spark to write into. Removed at the end with what is left in it."""
    place = f"{location}/{_PREFIX}{uuid.uuid4()}"
    try:
        yield place
    finally:
        if (folder := local_path(place)) is not None:
            shutil.rmtree(folder, ignore_errors=True)


def sweep(table: Path) -> int:
    """Remove the folders of `staged` that processes left which died, and sums of files that are gone. Returns how many folders."""
    gone, old = 0, now_s() - STAGED_S
    for sums in (*table.glob(".*.parquet.crc"), *table.glob("*/.*.parquet.crc")):
        with suppress(FileNotFoundError):
            if sums.stat().st_mtime < old and not (sums.parent / sums.name[1 : -len(".crc")]).exists():
                sums.unlink()
    for folder in table.glob(f"{_PREFIX}*"):
        newest = 0.0
        for path in (folder, *folder.rglob("*")):
            with suppress(FileNotFoundError):
                newest = max(newest, path.stat().st_mtime)
        if newest < old:
            shutil.rmtree(folder, ignore_errors=True)
            gone += 1
    return gone


def have_types(rows: StructType, table: StructType) -> bool:
    """Tells whether each column of the rows is one of the table's, of its type; one that the rows lack is NULL."""
    # As texts, which leave out what a column may be required to have.
    there = {field.name: field.dataType.simpleString() for field in table}
    return len(set(rows.names)) == len(rows) and all(there.get(one.name) == one.dataType.simpleString() for one in rows)


def no_pattern(path: str) -> str:
    """A path as Spark's readers take it by the letter: of some characters they make patterns."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def write(rows: DataFrame, location: str, table: DiskPath, state: DeltaState, *, into: str = "") -> Written | None:
    """Write rows of the table's types with Spark, sorted as they are, and out to the disk. `into` a folder of the table that ends with a slash.
    None, and nothing is left, where Delta is to say what is wrong with them: a value is missing that is required."""
    with staged(location) as place:
        writer = rows.write.partitionBy(*state.partition_by) if state.partition_by else rows.write
        writer.parquet(place)
        folder = local_path(place)
        assert folder is not None, "the table is on a local disk"
        found = [_described(path, folder, state) for path in sorted(folder.rglob("part-*.parquet"))]
        if None in found:
            return None
        files = tuple(replace(file, path=f"{into}{file.path}") for file in found if file is not None and file.rows)
        try:
            for file in files:
                _move(folder / file.path.removeprefix(into), path_of(table / file.path))
            write_out(table, files)
        except BaseException:
            remove_files(table, files)
            raise
    return Written.of(files, state)


def _move(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    path.rename(to)
    with suppress(FileNotFoundError):  # its sums, where Hadoop keeps them
        sum_of(path).rename(sum_of(to))


def _described(path: Path, folder: Path, state: DeltaState) -> Added | None:
    """A file as a commit adds it; None if a value is missing that is required."""
    name = path.relative_to(folder)
    partition = dict(unquote(part).split("=", 1) for part in name.parts[:-1])
    required = {field.name for field in state.schema if not field.nullable} - partition.keys()
    # Spark keeps times in 96 bits, of which a file has no statistics.
    file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    names = [n for n in file.schema_arrow.names if n in state.statistics_of | required]
    columns = file.read(columns=names).cast(pa.schema([(n, state.schema.field(n).type) for n in names]))
    if not required <= set(columns.column_names) or any(columns[n].null_count for n in required):
        return None
    rows = file.metadata.num_rows
    for column, value in partition.items():
        try:
            columns = columns.append_column(column, pa.repeat(pa.scalar(date.fromisoformat(value), pa.date32()), rows))
        except ValueError:  # no date
            return None
    found = path.stat()
    return Added(str(name), partition, found.st_size, rows, int(found.st_mtime * 1000), statistics(columns, state.statistics_of))
