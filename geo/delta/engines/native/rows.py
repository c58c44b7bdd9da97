"""The rows of a Delta table's files, those that some commits added, by the files that these name, and those of a small table. No Spark.

A Spark job takes 0.2 s for it, this one a few milliseconds; so for few rows, which are read into this process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from geo.delta.arrow_rows import plain_values
from geo.delta.commits import commit_file
from geo.delta.delta_state import DeltaState, schema_of
from geo.delta.engine import UnsupportedError, refusing
from geo.delta.engines.native.active_files import active_files
from geo.delta.file_rows import FileRows, RowsFile
from geo.delta.predicate import ANY_ROW, Predicate
from geo.delta.predicate_arrow import kept
from geo.delta.store import ReadPath, parquet, parquet_checked, read_each
from geo.errors import DamagedError

MOST_ROWS, MOST_BYTES = 10_000, 16 * 1024 * 1024
"""Rows, and bytes of the files, that are read like this at once."""

_MOST_IN_MEMORY, _BATCH_ROWS = 64 * 1024 * 1024, 256
"""Bytes of rows at once: a payload that comes again and again is in a file once."""

MOST_SMALL_ROWS, _SMALL_BATCH_ROWS = 200_000, 16_384
"""Rows that are read as Python objects, at most: some 200 MB, a second. So many at a time are read and filtered: of millions few are held."""

_GROUP_BATCH_ROWS = 1_024
"""Rows of a batch of what is read by groups of rows. So many at a time, not less, take a third of the time."""

_TRIES = 3
"""A log may be cut while it is read."""

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, DamagedError)
"""A commit or a file is gone or damaged, or is of a kind not known here. Spark meets it too, and has the words for it."""


def added_rows(folder: ReadPath, state: DeltaState, first: int, last: int) -> pa.Table:
    """The rows that the versions `first` to `last` added, with the columns of `state`. Raises UnsupportedError if they are many, and
    wherever Spark is to say what they are."""
    found = added(folder, state, first, last)
    if not isinstance(found, pa.Table):
        raise UnsupportedError(f"versions {first} to {last} added many rows")
    return found


def added(folder: ReadPath, state: DeltaState, first: int, last: int) -> pa.Table | FileRows:
    """Reads as `added_rows`; rows that are many are left in their files."""
    with refusing(*_UNREADABLE):
        listed = list[Mapping[str, Any]]()
        for some in read_each(folder.store, range(first, last + 1), lambda version: list(_added(folder, version))):
            if some is None:
                raise FileNotFoundError(f"a commit of {folder}")
            listed += some
        files = tuple(RowsFile(folder.parent / unquote(add["path"]), add["partitionValues"], add["size"]) for add in listed)
        rows = sum(json.loads(add["stats"])["numRecords"] for add in listed)
        if rows <= MOST_ROWS and sum(file.size for file in files) <= MOST_BYTES:
            with suppress(_LargeError):
                return read_files(((file.path, file.partition) for file in files), state)
        return FileRows(state, files)


class _LargeError(UnsupportedError):
    """Rows take more memory than this process gives them."""


def added_where(folder: ReadPath, version: int, column: str, columns: Sequence[str]) -> tuple[pa.Table, bool]:
    """Those of the rows that a version added which have a value in a column, with these columns, and whether it added others. What a
    file says of itself is asked first, so that of a large one without such rows nothing else is read. Raises UnsupportedError wherever
    Spark is to say it."""
    found, others = [], False
    with refusing(*_UNREADABLE):
        for add in _added(folder, version):
            path = folder.parent / unquote(add["path"])
            file = parquet_checked(path, add["size"])
            end = file.metadata
            at = [end.schema.column(number).path for number in range(len(end.schema))].index(column)
            for group in range(end.num_row_groups):
                part = end.row_group(group)
                statistics = part.column(at).statistics
                if statistics is not None and statistics.has_null_count and statistics.null_count == part.num_rows:
                    others |= part.num_rows > 0
                    continue
                there = file.read_row_group(group, columns=list(columns))
                there = there.select(columns).cast(pa.schema([_as_read(field) for field in there.select(columns).schema]))
                some = there.filter(there[column].is_valid())
                others |= len(some) < len(there)
                found.append(some)
    return (pa.concat_tables(found) if found else pa.table({name: pa.nulls(0) for name in columns})), others


def _as_read(field: pa.Field) -> pa.Field:
    """Writers keep short texts as dictionaries."""
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _added(folder: ReadPath, version: int) -> Iterator[dict[str, Any]]:
    """The files by which a commit added rows. Raises UnsupportedError if it did so in another way."""
    for line in (folder / commit_file(version)).lines():
        action = json.loads(line)
        if "cdc" in action:
            raise UnsupportedError("the change feed has files of its own")
        if (add := action.get("add")) is not None and add["dataChange"]:
            if add.get("deletionVector"):
                raise UnsupportedError("not all rows of a file count")
            yield add


def read_files(files: Iterable[tuple[ReadPath, Mapping[str, str]]], state: DeltaState) -> pa.Table:
    """The rows of files of a table, given with the values of their partitions; columns of `state`. Raises UnsupportedError if they are too
    large in memory, and wherever Spark is to say what they are."""
    parts, size, files = [state.schema.empty_table()], 0, list(files)
    with refusing(*_UNREADABLE):
        opened = read_each(files[0][0].store, [path for path, _ in files], parquet_checked) if files else ()
        for (path, partition), file in zip(files, opened, strict=True):
            if file is None:
                raise FileNotFoundError(str(path))
            parts.append(_read(file, state, partition, _MOST_IN_MEMORY - size))
            size += parts[-1].nbytes
        return pa.concat_tables(parts)


def _read(file: pq.ParquetFile, state: DeltaState, partition: Mapping[str, str], most: int) -> pa.Table:
    inside = [field.name for field in state.schema if field.name not in state.partition_by]
    found, size = [], 0
    for batch in batches(file, inside, _BATCH_ROWS, most):
        size += batch.nbytes
        if size > most:
            raise _LargeError("its rows are too large to be held")
        found.append(batch)
    return _with_all_columns(pa.Table.from_batches(found) if found else file.read(columns=inside), state, partition)


def batches(
    file: pq.ParquetFile, columns: Sequence[str], rows: int, most: int = _MOST_IN_MEMORY, groups: Iterable[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, or of some of its groups of rows, in batches. Each has at most so many rows, and about so many bytes at most. Of large
    rows there are few in each, and one has those of one group alone. (A value that comes again and again in a group is counted once.)
    """
    for group in range(file.num_row_groups) if groups is None else groups:
        of = file.metadata.row_group(group)
        parts = (of.column(at) for at in range(of.num_columns))
        # What is within a column is named behind a dot.
        size = sum(
            part.total_uncompressed_size
            for part in parts
            if {part.path_in_schema, part.path_in_schema.partition(".")[0]} & set(columns)
        )
        at_once = max(1, min(rows, of.num_rows * most // max(1, size)))
        yield from file.iter_batches(at_once, row_groups=[group], columns=columns)


def read_groups(file: RowsFile, state: DeltaState, share: int, of: int, most: int) -> Iterator[pa.Table]:
    """The rows of one of the equal shares of a file's row groups, in tables of about so many bytes in memory. Raises as `read_files`."""
    with refusing(*_UNREADABLE):
        opened, inside = parquet(file.path), [field.name for field in state.schema if field.name not in state.partition_by]
        groups = [at for at in range(opened.num_row_groups) if at * of // opened.num_row_groups == share]
        held, size = list[pa.RecordBatch](), 0
        for batch in batches(opened, inside, _GROUP_BATCH_ROWS, most, groups):
            held.append(batch)
            size += batch.nbytes
            if size >= most:
                yield _with_all_columns(pa.Table.from_batches(held), state, file.partition)
                held, size = [], 0
        if held:
            yield _with_all_columns(pa.Table.from_batches(held), state, file.partition)


def _with_all_columns(there: pa.Table, state: DeltaState, partition: Mapping[str, str]) -> pa.Table:
    """Rows of a file as the table has them."""
    if not there.column_names:
        raise UnsupportedError("its columns have other names in the files")
    there = as_typed(there, pa.schema([state.schema.field(name) for name in there.column_names]))
    kinds = {name: state.schema.field(name).type for name in state.partition_by}
    same = {name: pa.scalar(date.fromisoformat(partition[name]), kind) for name, kind in kinds.items()}
    return all_columns(dict(zip(there.column_names, there.columns, strict=True)), same, len(there), state.schema)


def all_columns(read: Mapping[str, pa.ChunkedArray], same: Mapping[str, pa.Scalar], count: int, columns: pa.Schema) -> pa.Table:
    """So many rows with all columns of a table. Some were read of a file, of others all its rows have the same value, as of a partition. NULL where
    neither says anything.
    """
    found = [
        read[field.name] if field.name in read
        else pa.repeat(same[field.name], count) if field.name in same
        else pa.nulls(count, field.type)
        for field in columns
    ]  # fmt: skip
    return pa.table(found, schema=columns)


def small_rows(folder: ReadPath, columns: Sequence[str], where: Predicate = ANY_ROW) -> list[dict[str, Any]]:
    """Reads the rows of the newest version of a table of this program's own making, without partitions, that fulfil `where`, which is of these
    columns. Times are in UTC, maps are dicts. Rows that it leaves out never become Python objects.

    Raises UnsupportedError if more than MOST_SMALL_ROWS are left, or the table takes more than this reader knows.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError), refusing(ValueError, KeyError, pa.ArrowException, DamagedError):
            found: list[dict[str, Any]] = []
            files, listed = active_files(folder)
            kinds = schema_of([listed[name] for name in columns if name in listed])
            if any(file["partitionValues"] for file in files):
                raise UnsupportedError("it has partitions")
            for opened in read_each(folder.store, files, partial(_opened, folder.parent)):
                if opened is None:
                    raise FileNotFoundError(f"a file of {folder.parent}")
                found += as_collected(_few(opened, kinds, where, MOST_SMALL_ROWS - len(found)), columns)
            return found
    raise UnsupportedError("its files go while they are read")


def _opened(table: ReadPath, file: Mapping[str, Any]) -> pq.ParquetFile:
    """A file as a log has it."""
    return parquet_checked(table / unquote(file["path"]), file["size"] or 0)


def _few(file: pq.ParquetFile, columns: pa.Schema, where: Predicate, most: int) -> pa.Table:
    """The rows of a file that fulfil `where`, with those of the columns that it has."""
    names = file.schema_arrow.names
    if not (there := pa.schema([field for field in columns if field.name in names])).names:
        raise UnsupportedError("its columns have other names in the files")
    batches = []
    for batch in file.iter_batches(_SMALL_BATCH_ROWS, columns=there.names):
        batches.append(kept(where, as_typed(pa.Table.from_batches([batch]), there)))
        most -= len(batches[-1])
        if most < 0:
            raise UnsupportedError(f"more than {MOST_SMALL_ROWS} rows would be held")
    return pa.concat_tables(batches) if batches else there.empty_table()


def as_typed(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Columns of a file as the table has them now: of a type that was made wider since too. Raises UnsupportedError if one is not there, or of
    a type that is no narrower form of the table's."""
    found = []
    for field in columns:
        if field.name not in rows.column_names:
            raise UnsupportedError("a file has columns of other names")
        column = rows[field.name]
        if not _is_narrower(column.type, field.type):
            raise UnsupportedError(f"a file has another type of the column {field.name} ({column.type})")
        # Old writers kept times in nanoseconds.
        found.append(column.cast(field.type, safe=not pa.types.is_timestamp(field.type)))
    return pa.table(found, schema=columns)


def _is_narrower(kind: pa.DataType, wanted: pa.DataType) -> Any:
    """Tells whether values of a type in a file may stand for another one: it is the same, or was made wider."""
    types = pa.types
    if types.is_dictionary(kind):
        return _is_narrower(kind.value_type, wanted)
    if types.is_struct(wanted):  # what it got later is NULL
        there = {field.name: field.type for field in kind.fields} if types.is_struct(kind) else {}
        known = [field for field in wanted.fields if field.name in there]
        return bool(known) and all(_is_narrower(there[field.name], field.type) for field in known)
    if types.is_map(wanted):
        return (
            types.is_map(kind) and _is_narrower(kind.key_type, wanted.key_type) and _is_narrower(kind.item_type, wanted.item_type)
        )
    if types.is_list(wanted):
        return (types.is_list(kind) or types.is_large_list(kind)) and _is_narrower(kind.value_type, wanted.value_type)
    if types.is_timestamp(wanted):  # Spark keeps times with a zone in 96 bits, which have none
        is_wider = types.is_date(kind) and wanted.tz is None
        return is_wider or (types.is_timestamp(kind) and (kind.tz is None or wanted.tz is not None))
    if types.is_string(wanted) or types.is_binary(wanted):
        return kind in ((pa.string(), pa.large_string()) if types.is_string(wanted) else (pa.binary(), pa.large_binary()))
    if types.is_integer(kind):
        is_wider = types.is_integer(wanted) and wanted.bit_width >= kind.bit_width
        return is_wider or (types.is_float64(wanted) and kind.bit_width < 64) or types.is_decimal(wanted)
    return (
        kind == wanted or (kind, wanted) == (pa.float32(), pa.float64()) or (types.is_decimal(kind) and types.is_decimal(wanted))
    )


def as_collected(table: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with these columns, as `geo.delta.arrow_rows.plain_values` has them, NULL where there is no such column."""
    values = {name: plain_values(table[name]) if name in table.column_names else [None] * len(table) for name in columns}
    return [{name: values[name][at] for name in columns} for at in range(len(table))]
