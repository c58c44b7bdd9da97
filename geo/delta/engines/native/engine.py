"""Answers questions about a Delta table without Spark, by its log and its files.

It refuses what it cannot know. So it does where the table uses more of the protocol than plain files, or its files lack statistics. It does too
where there is more than a little to read and Spark is at hand (geo.delta.driver.Reads).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from geo.delta.commits import Commit, commit_file
from geo.delta.data_file import DataFile
from geo.delta.delta_log import count_data_files, has_commit, opened_commits
from geo.delta.delta_state import DeltaState, newest_state, require_newest, require_state, schema_of, seen_in
from geo.delta.driver import Reads
from geo.delta.engine import Engine, Scan, TableSnapshot, UnsupportedError, refusing
from geo.delta.engines.native.active_files import active_files, described
from geo.delta.engines.native.rows import (
    MOST_BYTES,
    MOST_ROWS,
    added,
    added_rows,
    added_where,
    as_collected,
    as_typed,
    batches,
    read_files,
    small_rows,
)
from geo.delta.engines.native.summary import groups_from_stats, groups_of, joined
from geo.delta.file_rows import FileRows
from geo.delta.predicate import ROUNDED_US, Predicate, columns_of, may_hold
from geo.delta.predicate_arrow import kept
from geo.delta.store import ReadPath, parquet, parquet_checked, read_each
from geo.delta.summary import Groups, Summary
from geo.errors import DamagedError
from geo.times import from_us, in_us

_BATCH_ROWS = 8_192

LITTLE_FILES, LITTLE_ROWS, LITTLE_BYTES = 1_000, 100_000, 16 * 1024**2
"""Most files of a table, and most rows and bytes of which the statistics do not tell, that are read here. Up to these a job of Spark's takes longer.
"""

_UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError, OverflowError, DamagedError)
"""A file was removed meanwhile, is damaged, or is of another kind; a text is no UTF-8; a date is beyond Python's."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NativeEngine(Engine):
    """Reads the table whose `_delta_log` is `folder`, of its rows what `reads` says. `is_own`: whether this process appends to it by
    itself, which Spark may be asked for."""

    folder: ReadPath
    reads: Reads
    is_own: Callable[[], bool]

    # -- its log ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> TableSnapshot | None:
        return seen_in(self.folder)

    def newest(self) -> int:
        return require_newest(self.folder)

    def has_commit(self, version: int) -> bool:
        return has_commit(self.folder, version)

    def commits(self, first: int, last: int, only: Sequence[str], has_commit: Callable[[int], bool]) -> Iterator[Commit]:
        """The log is never listed for it, and few of them are held at a time."""
        return opened_commits(self.folder, first, last)

    def committed_at(self, version: int) -> datetime | None:
        came_us = self.folder.store.came_us(str(self.folder / commit_file(version)))
        return None if came_us is None else from_us(came_us)

    def count_files(self) -> int:
        count = count_data_files(self.folder)
        return int(require_state(self.folder).checksum["numFiles"]) if count is None else count

    # -- its rows --------------------------------------------------------------------------------------------------

    def count_nulls(self, version: int, column: str) -> int:
        self._refuse_large(version)
        files = self._listed(version)
        if files is None:
            files = self._files(version)
        if self.reads is Reads.LITTLE and len(files) > LITTLE_FILES:
            raise UnsupportedError(f"it has more than {LITTLE_FILES} files")
        with refusing(*_UNREADABLE):
            counts = [file.nulls(column) for file in files]
        if None in counts:
            raise UnsupportedError(f"a file does not say how often {column} is NULL")
        return sum(count or 0 for count in counts)

    def last_rows(self, columns: Sequence[str], order: Sequence[str], count: int, *, where_null: str) -> list[dict[str, Any]]:
        if self.reads is not Reads.ALL:
            raise UnsupportedError("Spark is at hand")
        files, there = self._described()
        greatest, kinds = f"max.{order[0]}", _schema(there, dict.fromkeys((*columns, where_null)))
        if any(file.statistics.get(greatest) is None for file in files):
            raise UnsupportedError(f"a file does not say how great {order[0]} is")
        files.sort(key=lambda file: in_us(file.statistics[greatest]), reverse=True)
        found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        with refusing(*_UNREADABLE):
            for file in files:
                if len(found) == count and in_us(file.statistics[greatest]) + ROUNDED_US < found[-1][0][0]:
                    break
                read_from = parquet(file.path)
                for group in range(read_from.num_row_groups):
                    table = as_typed(read_from.read_row_group(group, [*columns, where_null]), kinds)
                    table = table.filter(table[where_null].is_null())
                    table = table.sort_by([(name, "descending") for name in order])[:count]
                    found += zip(_keys(table, order), as_collected(table, columns), strict=True)
                    found.sort(key=lambda one: one[0], reverse=True)
                    del found[count:]
        return [row for _, row in found]

    def summarise(self, version: int, summary: Summary) -> Groups:
        def each(rows: pa.Table) -> Groups:
            return groups_of(summary, rows)

        return joined(self._scan_files(version, summary.columns, each, summary.where, groups_from_stats(summary)))

    def rows_where(self, version: int, columns: Sequence[str], where: Predicate) -> pa.Table:
        def each(rows: pa.Table) -> pa.Table:
            rows.validate(full=True)  # a text that is no UTF-8 is left to Spark
            return rows

        found = self.scan(version, Scan(columns, each, where))
        if not found:
            return pa.table({name: pa.nulls(0) for name in columns})
        with refusing(*_UNREADABLE):  # files of types that do not go together
            return pa.concat_tables(found, promote_options="permissive")  # each writer has its own idea of what may be NULL

    def scan(self, version: int, asked: Scan[T]) -> list[T]:
        found = self._scan_files(version, asked.columns, asked.each, asked.where, lambda file: None)
        return [asked.combine(found)] if asked.combine is not None and found else found

    def _scan_files(
        self,
        version: int,
        columns: Sequence[str],
        each: Callable[[pa.Table], T],
        where: Predicate,
        from_stats: Callable[[DataFile], T | None],
    ) -> list[T]:
        """Scans as `scan`. Nothing is read of a file that by its statistics has no row that fulfils `where`, nor of one of which `from_stats`
        tells. That one's answer is added.
        """
        self._refuse_large(version)
        files, there = self._described(version)
        found, wanted = list[T](), _schema(there, dict.fromkeys((*columns, *columns_of(where))))
        with refusing(*_UNREADABLE):
            files = [file for file in files if may_hold(where, file.statistics)]
            known = [from_stats(file) for file in files]
            found += [one for one in known if one is not None]
            unknown = [file for file, one in zip(files, known, strict=True) if one is None]
            if self.reads is Reads.LITTLE and not _are_little(unknown):
                raise UnsupportedError("there is much to read")
            for read_from in read_each(self.folder.store, unknown, _opened):
                if read_from is None:
                    raise FileNotFoundError(f"a file of {self.folder.parent}")
                for batch in batches(read_from, wanted.names, _BATCH_ROWS):
                    read = as_typed(pa.Table.from_batches([batch]), wanted)
                    found.append(each(kept(where, read).select(columns)))
        return found

    # -- as geo.delta.scan has them; Spark has each in a form of its own ---------------------------------------------

    def small_rows(self, columns: tuple[str, ...], where: Predicate) -> list[dict[str, Any]]:
        return small_rows(self.folder, columns, where)

    def few_rows(self, version: int) -> pa.Table:
        state = self._own_state(version)
        if self.reads is Reads.NONE or _has_many(state):
            raise UnsupportedError("it has many files")
        files = self._files(version)
        if not _are_at_most(files, MOST_ROWS, MOST_BYTES):
            raise UnsupportedError("it has many rows")
        return read_files(((file.path, {name: file.partition(name) for name in state.partition_by}) for file in files), state)

    def few_added(self, first: int, last: int) -> pa.Table:
        return added_rows(self.folder, self._own_state(last), first, last)

    def added(self, first: int, last: int) -> pa.Table | FileRows:
        return added(self.folder, self._own_state(last), first, last)

    def added_where(self, version: int, column: str, columns: Sequence[str]) -> tuple[pa.Table, bool]:
        self._own_state(version)
        return added_where(self.folder, version, column, columns)

    def data_files(self, version: int) -> list[DataFile]:
        return self._files(version)

    def is_empty(self, version: int) -> bool:
        self._refuse_large(version)
        return not self._files(version)

    def _own_state(self, seen: int) -> DeltaState:
        if self.reads is not Reads.ALL and not self.is_own():  # who only looks appends nothing
            raise UnsupportedError("Spark alone appends to it")
        state = require_state(self.folder, seen)
        if state.is_mapped:
            raise UnsupportedError("its columns have other names in the files")
        return state

    def _refuse_large(self, version: int) -> None:
        """Unless the table is for this process to read: it has not many files, or Spark is not at hand."""
        if self.reads is Reads.NONE:
            raise UnsupportedError("Spark is to read it")
        if self.reads is Reads.LITTLE:
            state = newest_state(self.folder, version)
            if state is not None and _has_many(state):
                raise UnsupportedError(f"it has more than {LITTLE_FILES} files")

    def _listed(self, version: int) -> list[DataFile] | None:
        """The files of a version, of their statistics no values, if its checksum lists them: then the log need not be read."""
        state = newest_state(self.folder, version)
        if state is None or state.is_mapped or state.version != version:
            return None
        listed = state.checksum.get("allFiles")
        if listed is None or any(file.get("deletionVector") for file in listed):
            return None
        return described(self.folder, listed, {})

    def _files(self, version: int | None = None) -> list[DataFile]:
        return self._described(version)[0]

    def _described(self, version: int | None = None) -> tuple[list[DataFile], Mapping[str, Any]]:
        """The files of a version, or of the newest, and the columns that the table has there, as the log lists them."""
        with refusing(*_UNREADABLE):
            files, columns = active_files(self.folder, version)
            return described(self.folder, files, columns), columns


def _opened(file: DataFile) -> pq.ParquetFile:
    return parquet_checked(file.path, file.statistics.get("size_bytes") or 0)


def _schema(there: Mapping[str, Any], columns: Iterable[str]) -> pa.Schema:
    """Some columns of a table. Raises UnsupportedError if it has no such."""
    with refusing(KeyError, ValueError, TypeError, AttributeError):
        return schema_of([there[name] for name in columns])


def _has_many(state: DeltaState) -> bool:
    """Tells whether the newest checksum says that there are many files: asked before the whole log is read for it."""
    return (state.checksum.get("numFiles") or 0) > LITTLE_FILES


def _are_little(files: Sequence[DataFile]) -> bool:
    return len(files) <= LITTLE_FILES and _are_at_most(files, LITTLE_ROWS, LITTLE_BYTES)


def _are_at_most(files: Sequence[DataFile], rows: int, size: int) -> bool:
    def total(name: str) -> float:
        return sum(math.inf if (found := file.statistics.get(name)) is None else found for file in files)

    return total("num_records") <= rows and total("size_bytes") <= size


def _keys(table: pa.Table, order: Sequence[str]) -> list[tuple[Any, ...]]:
    """Keys by which the rows are ordered: a time in microseconds, which unlike a time of day never goes back."""
    times = table[order[0]].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    return list(zip(times.to_pylist(), *(table[name].to_pylist() for name in order[1:]), strict=True))
