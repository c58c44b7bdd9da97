"""Reads a Delta table without Spark: counts rows, finds the last ones, hands over all in batches.

Each function returns None where it cannot know: `deltalake` is not there (the code came as a zip), the table uses more of the
protocol than plain files, its files lack statistics, or there is more than a little to read and Spark is at hand
(geo.delta.driver.Reads). Then Spark is asked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from geo.delta.data_file import DataFile
from geo.delta.delta_log import is_undamaged
from geo.delta.delta_state import DeltaState, is_known_to_deltalake, newest_state
from geo.delta.driver import Reads
from geo.delta.engines.native.rows import MOST_BYTES, MOST_ROWS, read_files
from geo.delta.engines.native.small_table import as_collected
from geo.delta.predicate import ROUNDED_US, Predicate, may_hold
from geo.delta.predicate_arrow import kept
from geo.delta.protocol import why_not_read
from geo.delta.store import ReadPath, parquet, parquet_checked
from geo.errors import DamagedError
from geo.times import in_us

_BATCH_ROWS = 8_192

LITTLE_FILES, LITTLE_ROWS, LITTLE_BYTES = 1_000, 100_000, 16 * 1024**2
"""What takes less time to read here than a job of Spark's does: files of a table, and the rows and bytes of those that the
statistics do not tell of."""

_UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError, OverflowError, DamagedError)
"""A file was removed meanwhile, is damaged, or is of another kind; a text is no UTF-8; a date is beyond Python's."""

T = TypeVar("T")

_PLAIN = (pa.types.is_string, pa.types.is_binary, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal,
          pa.types.is_date, pa.types.is_timestamp)  # fmt: skip


def count_where_null(folder: ReadPath | None, reads: Reads, column: str) -> int | None:
    """How many rows of a table have NULL in a column."""
    folder = _readable(folder, reads)
    if folder is None:
        return None
    files = _listed(folder)
    if files is None:
        files = data_files(folder)
    if files is None or (reads is Reads.LITTLE and len(files) > LITTLE_FILES):
        return None
    with suppress(*_UNREADABLE):
        counts = [file.nulls(column) for file in files]
        return None if None in counts else sum(count or 0 for count in counts)
    return None


def last_rows(
    folder: ReadPath | None, reads: Reads, columns: Sequence[str], order: Sequence[str], count: int, *, where_null: str
) -> list[dict[str, Any]] | None:
    """The last `count` rows by the columns `order`, of which the first is a time, among those with NULL in one column: the last
    one first, these columns, those of `order` among them, as Spark's `collect` gives them."""
    files, greatest = None if folder is None or reads is not Reads.ALL else data_files(folder), f"max.{order[0]}"
    if files is None or any(file.statistics.get(greatest) is None for file in files):
        return None
    files.sort(key=lambda file: in_us(file.statistics[greatest]), reverse=True)
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    with suppress(*_UNREADABLE):
        for file in files:
            if len(found) == count and in_us(file.statistics[greatest]) + ROUNDED_US < found[-1][0][0]:
                break
            read_from = parquet(file.path)
            for group in range(read_from.num_row_groups):
                table = read_from.read_row_group(group, [*columns, where_null])
                if not _has_plain_types(table) or not {*order, where_null} <= set(table.column_names):
                    return None
                table = table.filter(table[where_null].is_null())
                table = table.sort_by([(name, "descending") for name in order])[:count]
                found += zip(_keys(table, order), _rows(table, columns), strict=True)
                found.sort(key=lambda one: one[0], reverse=True)
                del found[count:]
        return [row for _, row in found]
    return None


def scan(
    folder: ReadPath | None,
    reads: Reads,
    version: int,
    columns: Sequence[str],
    each: Callable[[pa.Table], T],
    where: Predicate,
    from_stats: Callable[[DataFile], T | None],
) -> list[T] | None:
    """As `geo.delta.scan.scan`; `where` is of these columns. Nothing is read of a file that by its statistics has no such row."""
    folder = _readable(folder, reads)
    if folder is None or (files := data_files(folder, version)) is None:
        return None
    found: list[T] = []
    with suppress(*_UNREADABLE):
        files = [file for file in files if may_hold(where, file.statistics)]
        known = [from_stats(file) for file in files]
        found += [one for one in known if one is not None]
        unknown = [file for file, one in zip(files, known, strict=True) if one is None]
        if reads is Reads.LITTLE and not _are_little(unknown):
            return None
        for file in unknown:
            read_from = parquet_checked(file.path, file.statistics.get("size_bytes") or 0)
            # Of payloads a few megabytes each may come, so batches are small.
            for batch in read_from.iter_batches(_BATCH_ROWS, columns=list(columns)):
                read = pa.Table.from_batches([batch])
                if not _has_plain_types(read) or not set(columns) <= set(read.column_names):
                    return None
                for at, field in enumerate(read.schema):
                    if pa.types.is_timestamp(field.type):
                        read = read.set_column(at, field.name, read[at].cast(pa.timestamp("us", "UTC"), safe=False))
                found.append(each(kept(where, read)))
        return found
    return None


def few_rows(folder: ReadPath, state: DeltaState, version: int) -> pa.Table | None:
    """All rows of a table at a version, with the columns that it has now, in `state`. None if they are many, too."""
    if _has_many(state):
        return None
    files = data_files(folder, version)
    if files is None or not _are_at_most(files, MOST_ROWS, MOST_BYTES):
        return None
    return read_files(((file.path, {name: file.partition(name) for name in state.partition_by}) for file in files), state)


def is_empty(folder: ReadPath | None, reads: Reads, version: int) -> bool:
    """Whether a version of a table is known to have no rows at all: of one on a local disk, without reading any."""
    folder = _readable(folder, reads)
    return folder is not None and data_files(folder, version) == []


def _readable(folder: ReadPath | None, reads: Reads) -> ReadPath | None:
    """The `_delta_log` of a table, if it is for this process to read: unless it has many files and Spark is at hand."""
    is_others = folder is None or reads is Reads.NONE or (reads is Reads.LITTLE and _is_large(folder))
    return None if is_others else folder


def _is_large(folder: ReadPath) -> bool:
    state = newest_state(folder)
    return state is not None and _has_many(state)


def _has_many(state: DeltaState) -> bool:
    """Whether the newest checksum says that there are many files: asked before the whole log is read for it."""
    return (state.checksum.get("numFiles") or 0) > LITTLE_FILES


def _are_little(files: Sequence[DataFile]) -> bool:
    return len(files) <= LITTLE_FILES and _are_at_most(files, LITTLE_ROWS, LITTLE_BYTES)


def _are_at_most(files: Sequence[DataFile], rows: int, size: int) -> bool:
    def total(name: str) -> float:
        return sum(math.inf if (found := file.statistics.get(name)) is None else found for file in files)

    return total("num_records") <= rows and total("size_bytes") <= size


def _listed(folder: ReadPath) -> list[DataFile] | None:
    """The files of the newest version, of their statistics the NULLs alone, if its checksum lists them: then the log need not be read."""
    state = newest_state(folder)
    listed = None if state is None else state.checksum.get("allFiles")
    return None if listed is None else [DataFile(folder.parent / unquote(file["path"]), _nulls(file)) for file in listed]


def _nulls(file: Mapping[str, Any]) -> dict[str, int]:
    """What a listed file says of NULLs, of columns without inner ones; nothing if that cannot be read."""
    with suppress(ValueError, TypeError, AttributeError):
        counts = json.loads(file["stats"])["nullCount"].items() if file.get("stats") else ()
        return {f"null_count.{name}": count for name, count in counts if isinstance(count, int)}
    return {}


def data_files(folder: ReadPath, version: int | None = None) -> list[DataFile] | None:
    """The files of a version, or of the newest, of the table whose `_delta_log` is `folder`."""
    table = _table(folder, version)
    if table is None:
        return None
    with suppress(*_UNREADABLE):
        listed = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [DataFile(folder.parent / unquote(file["path"]), file) for file in listed]
    return None


def _table(folder: ReadPath, version: int | None = None) -> Any:
    """The table as `deltalake` has it, at a version or at its newest."""
    if not is_known_to_deltalake(folder) or (folder.store.is_near and not is_undamaged(folder, version)):
        return None
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        return None
    try:
        options = folder.store.options
        table = DeltaTable(str(folder.parent), version=version, storage_options=None if options is None else dict(options))
        return None if why_not_read(_protocol(table), table.metadata().configuration) is not None else table
    except (DeltaError, OSError):
        return None


def _protocol(table: Any) -> Mapping[str, Any]:
    found = table.protocol()
    return {"minReaderVersion": found.min_reader_version, "readerFeatures": found.reader_features}


def _has_plain_types(table: pa.Table) -> bool:
    """Whether Spark gives these columns as this reader does."""
    return all(map(_is_plain, table.schema.types))


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):  # whether an element may be NULL is each writer's to say
        return bool(pa.types.is_string(kind.value_type))
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type) and pa.types.is_string(kind.item_type))
    return any(is_kind(kind) for is_kind in _PLAIN)


def _rows(table: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    there: Mapping[str, list[Any]] = {
        name: as_collected(table[name]) if name in table.column_names else [None] * len(table) for name in columns
    }
    return [{name: there[name][at] for name in columns} for at in range(len(table))]


def _keys(table: pa.Table, order: Sequence[str]) -> list[tuple[Any, ...]]:
    """By which the rows are ordered: a time in microseconds, which unlike a time of day never goes back."""
    times = table[order[0]].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    return list(zip(times.to_pylist(), *(table[name].to_pylist() for name in order[1:]), strict=True))
