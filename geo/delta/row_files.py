"""Files of rows that a commit may add to a table, as this process writes them: by partition, with statistics."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geo.delta.delta_state import DeltaState
from geo.delta.store import WritePath
from geo.now import now_us

ROW_GROUP_BYTES = 128 * 1024 * 1024
"""Bytes in memory of a row group, of which a reader holds one: as Spark's own."""

_LONGEST_TEXT = 32
"""Statistics of longer texts are cut, in a way of their own; they are left out."""

_DAYS = range((date(1000, 1, 1) - date(1970, 1, 1)).days, (date(9999, 12, 31) - date(1970, 1, 1)).days + 1)
"""Since 1970: statistics of other times, which Python and Spark write otherwise, are left out."""


@dataclass(frozen=True, slots=True)
class Added:
    """A file that was written and that a commit may add. `path` is below the table's folder, `statistics` as Delta has them."""

    path: str
    partition: Mapping[str, str]
    size: int
    rows: int
    modified_ms: int
    statistics: str

    @property
    def action(self) -> dict[str, Any]:
        """The file as a commit adds it."""
        return {
            "path": self.path,
            "partitionValues": dict(self.partition),
            "size": self.size,
            "modificationTime": self.modified_ms,
            "dataChange": True,
            "stats": self.statistics,
        }


@dataclass(frozen=True, slots=True)
class Written:
    """Files of a table that had these columns, as files have them, and partitions when they were written, at this version or later."""

    files: tuple[Added, ...]
    stored: pa.Schema
    partition_by: tuple[str, ...]
    table_id: str
    version: int

    @classmethod
    def of(cls, files: Iterable[Added], state: DeltaState) -> Written:
        """Files that were written for a version."""
        return cls(tuple(files), state.stored, state.partition_by, state.table_id, state.version)


def fits(state: DeltaState, rows: pa.Table) -> bool:
    """Tells whether the rows have only columns of the table, each of its type, and a value wherever one is required or tells the partition."""
    there = {field.name: field for field in state.schema}
    if any(field.name not in there or field.type != there[field.name].type for field in rows.schema):
        return False
    required = {field.name for field in state.schema if not field.nullable} | set(state.partition_by)
    return all(name in rows.column_names and not rows[name].null_count for name in required)


def write_files(table: WritePath, state: DeltaState, rows: pa.Table) -> Written:
    """Write rows that fit, in their order, as one file for each partition of the table in the folder `table`."""
    files: list[Added] = []
    try:
        for partition, part in parted(state, rows):
            if len(part):
                files.append(_write(table, state, partition, part))
    except BaseException:
        remove_files(table, files)
        raise
    return Written.of(files, state)


def write_out(table: WritePath, files: Iterable[Added]) -> None:
    """Make the content of large files durable. It takes as long as they are large, so it comes before the table's lock."""
    table.store.write_out(str(table / file.path) for file in files)


def remove_files(table: WritePath, added: Iterable[Added]) -> None:
    """Remove files that no commit will add."""
    for file in added:
        with suppress(OSError):  # a file that stays is removed by VACUUM
            (table / file.path).delete()


def parted(state: DeltaState, rows: pa.Table) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """The rows by the values of the partition columns, which are dates, as files are named by them."""
    if not state.partition_by:
        yield {}, rows
        return
    combinations = rows.select(list(state.partition_by)).group_by(list(state.partition_by)).aggregate([]).to_pylist()
    for values in combinations:
        wanted: pc.Expression = pc.scalar(True)
        for name, value in values.items():
            wanted = wanted & (pc.field(name) == pa.scalar(value, pa.date32()))
        part = rows if len(combinations) == 1 else rows.filter(wanted)
        yield {state.stored_name(name): value.isoformat() for name, value in values.items()}, part


def _write(table: WritePath, state: DeltaState, partition: Mapping[str, str], rows: pa.Table) -> Added:
    file = FileWriter(table, state, partition)
    try:
        file.write(rows)
        return file.close()
    except BaseException:
        file.drop()
        raise


class FileWriter:
    """One new file of a table, of one partition, written part by part: there once it is closed. Whoever fails before drops it."""

    def __init__(self, table: WritePath, state: DeltaState, partition: Mapping[str, str], *, into: str = "") -> None:
        """`into`: a folder of the table that ends with a slash."""
        self._partition, self._state = partition, state
        inside = [at for at, name in enumerate(state.schema.names) if name not in state.partition_by]
        self._schema, self._stored = (pa.schema([of.field(at) for at in inside]) for of in (state.schema, state.stored))
        self._name, self._opened = into + new_name(partition), ExitStack()
        self._file = self._opened.enter_context(table.store.create(str(table / self._name)))
        self._parquet = pq.ParquetWriter(self._file, self._stored, write_page_checksum=True)
        self._told, self._rows = list[pa.Table](), 0
        """Columns, by part, that statistics tell of, and how many rows all have."""

    @property
    def size(self) -> int:
        """Bytes that were written by now."""
        return int(self._file.tell())

    def write(self, rows: pa.Table) -> None:
        there = rows.column_names
        columns = [rows[field.name] if field.name in there else pa.nulls(len(rows), field.type) for field in self._schema]
        inside = _stored(pa.table(columns, schema=self._schema), self._stored)
        self._parquet.write_table(inside, row_group_size=_rows_of_a_group(inside))
        told = [name for name in there if name in self._state.statistics_of]
        self._told.append(rows.select(told).rename_columns([self._state.stored_name(name) for name in told]))
        self._rows += len(rows)

    def close(self) -> Added:
        """The file. Raises OSError; then none is left."""
        with self._opened:
            self._parquet.close()
            size = self.size
        columns = {self._state.stored_name(name) for name in self._state.statistics_of}
        told = statistics(pa.concat_tables(self._told), columns, self._rows)
        return Added(self._name, self._partition, size, self._rows, now_us() // 1000, told)

    def drop(self) -> None:
        """Leave none, if it is not closed."""
        with suppress(_DroppedError), self._opened:
            raise _DroppedError


class _DroppedError(Exception):
    """A file is not wanted."""


def _stored(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """The rows with the columns' names in files, also those within columns."""
    if rows.schema.equals(stored, check_metadata=True):
        return rows
    columns = [
        pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], field.type)  # a cast goes by names
        for column, field in zip(rows.columns, stored, strict=True)
    ]
    return pa.table(columns, schema=stored)


def new_name(partition: Mapping[str, str]) -> str:
    """The path of a file that is new to a table."""
    return "/".join([*(f"{key}={value}" for key, value in partition.items()), f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"])


def _rows_of_a_group(rows: pa.Table) -> int:
    return max(1, int(len(rows) * ROW_GROUP_BYTES // max(1, rows.nbytes)))


def statistics(rows: pa.Table, columns: Collection[str], count: int | None = None) -> str:
    """Delta's statistics of a file with these rows, of the `columns` that the table names. A column that the rows lack is NULL in each.
    `count`: how many rows there are, if these have no columns of those."""
    least, greatest = {}, {}
    count = len(rows) if count is None else count
    nulls = {name: count for name in sorted(columns) if name not in rows.column_names}
    for name in rows.column_names:
        if name not in columns:
            continue
        column = rows[name]
        nulls[name] = column.null_count
        if column.null_count == len(column) or not _has_order(column.type):
            continue
        ends = pc.min_max(column)
        first, last = _statistic(ends["min"]), _statistic(ends["max"])
        if first is not None and last is not None:
            least[name], greatest[name] = first, last
    found = {"numRecords": count, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps(found, separators=(",", ":"))


def _has_order(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _statistic(scalar: pa.Scalar) -> Any:
    """A value as statistics have it, times cut to milliseconds; None for one that they have otherwise."""
    if pa.types.is_temporal(scalar.type) and pc.cast(scalar, pa.date32(), safe=False).cast(pa.int32()).as_py() not in _DAYS:
        return None
    value = scalar.as_py()
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else "Z"
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}{zone}"
    if isinstance(value, str):
        return value if len(value) < _LONGEST_TEXT else None
    return value if isinstance(value, int) else value.isoformat()
