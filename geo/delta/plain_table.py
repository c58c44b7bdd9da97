"""A Delta table of somebody else, read by its log and its files without Spark. That is its commits, what a version has, and the rows of its files.

Only where all rows of its files count, and partitions have values that mean the same to everybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from geo.delta.commits import Commit, Kind, commit_file, of_file
from geo.delta.delta_log import first_commit, has_commit, metadata_before, newest_version
from geo.delta.delta_state import checksum_of, schema_of, seen_in, stored_schema_of
from geo.delta.disk_store import DiskStore
from geo.delta.engine import UnsupportedError, attempt, refusing
from geo.delta.engines.native.active_files import contents
from geo.delta.engines.native.rows import all_columns, as_typed, batches
from geo.delta.protocol import MAPPING, why_not_read, why_not_widened
from geo.delta.store import ReadPath, parquet_checked, read_each
from geo.disk import local_path
from geo.errors import DamagedError, UsageError
from geo.locations import has_scheme

Fields = Mapping[str, Any]
"""Fields of an action."""

_BATCH_ROWS, _MOST_BYTES = 2_000, 16 * 1024 * 1024
"""Rows of a file that are read at once, and about so many bytes of them."""

CHANGE_TYPE = "_change_type"
"""The column by which a change feed says what became of a row."""

_NOT_WHOLE = (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, DamagedError)

_ONE_TEXT = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_decimal)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a version. There are all in order, the same as files have them, and those of them by which it is partitioned, which no file
    has."""

    schema: pa.Schema
    stored: pa.Schema
    partitioned_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlainTable:
    """The table whose `_delta_log` is `folder`. May be sent to another process."""

    folder: ReadPath

    def __str__(self) -> str:
        return str(self.folder.parent)

    # -- its log -------------------------------------------------------------------------------------------------------

    @property
    def is_near(self) -> bool:
        """True if a look takes microseconds."""
        return self.folder.store.is_near

    def newest(self) -> int | None:
        """The newest version; None: there is no table."""
        return newest_version(self.folder)

    def table_id(self) -> str | None:
        """Id of the table by its metadata; None where its newest commits do not tell."""
        seen = attempt(lambda: seen_in(self.folder))
        return None if seen is None or isinstance(seen, UnsupportedError) else seen.table_id

    def has_commit(self, version: int) -> bool:
        """Tells whether a commit is there, by its name alone."""
        return has_commit(self.folder, version)

    def first_commit(self, first: int, last: int) -> int:
        """The first version from `first` to `last` that is there; `last` + 1 if none is."""
        return first_commit(self.folder, first, last)

    def commits(self, first: int, last: int) -> Iterator[tuple[Commit, list[Fields]]]:
        """The commits `first` to `last` that are there, oldest first, with their actions. Raises RetryableError for one that is not whole."""
        versions = range(first, last + 1)
        read = read_each(self.folder.store, versions, lambda version: (self.folder / commit_file(version)).lines())
        for version, lines in zip(versions, read, strict=True):
            if lines is not None:
                commit = of_file(version, lines)
                if commit.columns is not None:
                    commit = commit.since(metadata_before(self.folder, version))
                yield commit, [json.loads(line) for line in lines if line.strip()]

    def commit_at(self, version: int) -> Commit | None:
        """One commit; None if it is not there."""
        return next((commit for commit, _ in self.commits(version, version)), None)

    def at(self, version: int) -> tuple[list[Fields], str, Columns] | UnsupportedError:
        """The files of a version, as `add` actions have them, the table's id and its columns. Or why this program cannot tell them, or read them."""

        def found() -> tuple[list[Fields], str, Columns]:
            with refusing(FileNotFoundError, *_NOT_WHOLE):
                files, protocol, metadata = contents(self.folder, version)
                return files, metadata["id"], _columns(protocol, metadata)

        return attempt(found)

    def columns_at(self, version: int) -> Columns | UnsupportedError:
        """The columns of a version whose commit is there, also where its log is cut off so that its files cannot be told. Then they are those of a
        later one, if no commit on the way can have taken a column away or renamed it. Or why this program cannot tell them, or read them."""

        def found() -> Columns | None:
            with refusing(*_NOT_WHOLE), suppress(FileNotFoundError):
                if checksum := checksum_of(self.folder, version, (self.folder / commit_file(version)).lines()):
                    return _columns(checksum["protocol"], checksum["metadata"])
            return None

        if (said := attempt(found)) is not None:
            return said
        if not isinstance(at := self.at(version), UnsupportedError):
            return at[2]
        last = version
        for commit, actions in self.commits(version + 1, self.newest() or version):
            if commit.version > last + 1 or any(_may_lose_columns(commit, action) for action in actions):
                break
            last = commit.version
        at = self.at(last)
        return at if isinstance(at, UnsupportedError) else at[2]

    def columns_after(self, actions: Sequence[Fields], version: int) -> Columns | UnsupportedError:
        """The columns after a commit that describes the table; or why this program cannot read it then."""
        told = {name: fields for action in actions for name, fields in action.items()}
        if "protocol" not in told:  # of before
            return self.columns_at(version)

        def found() -> Columns:
            with refusing(*_NOT_WHOLE):
                return _columns(told["protocol"], told["metaData"])

        return attempt(found)

    # -- its rows ------------------------------------------------------------------------------------------------------

    def count(self, path: str, size: int) -> int:
        """Counts the rows of a file. Raises FileNotFoundError."""
        return int(parquet_checked(self._file(path), size).metadata.num_rows)

    def rows(
        self, path: str, size: int, partition: Mapping[str, str | None], columns: Columns, *, inserts: bool
    ) -> Iterator[pa.Table]:
        """The rows of a file, in its order, with all columns of the table. `inserts`: of a file of the change feed those that were inserted.
        Raises FileNotFoundError; UsageError for a file that is not as the log says."""
        read = _rows(self._file(path), size, partition, columns, inserts=inserts)
        while True:
            found = attempt(lambda: next(read, None))
            if isinstance(found, UnsupportedError):
                raise UsageError(f"{self._file(path)}: {found}. Nothing of it was published.")
            if found is None:
                return
            yield found

    def _file(self, path: str) -> ReadPath:
        """Raises UsageError for a file that is elsewhere than on the table's store."""
        if not has_scheme(path):
            return self.folder.parent / unquote(path)
        if isinstance(self.folder.store, DiskStore) and (local := local_path(path)) is not None:
            return self.folder.parent / unquote(str(local))
        raise UsageError(
            f"{self}: its file {path} is named by where it is, as of a table that was cloned without its files (SHALLOW CLONE), and such files are read "
            "on a local disk alone. Nothing of it was published. Publish a table that has its files (DEEP CLONE)."
        )


def has_one_text(kind: pa.DataType) -> bool:
    """Tells whether each value of a type is one text, whoever writes it, and its order is exact. A time is of its writer's zone."""
    return any(is_it(kind) for is_it in _ONE_TEXT)


def _may_lose_columns(commit: Commit, action: Fields) -> bool:
    """Tells whether a description may lose columns. Of a table that maps its columns any may; of another one only with its rows."""
    if (metadata := action.get("metaData")) is None:
        return False
    return commit.kind not in (Kind.NEUTRAL, Kind.APPEND) or (metadata.get("configuration") or {}).get(MAPPING, "none") != "none"


def _columns(protocol: Fields, metadata: Fields) -> Columns:
    """Raises UnsupportedError where rows are not read here."""
    listed = json.loads(metadata["schemaString"])["fields"]
    refused = (why for one in listed if (why := why_not_widened(one)) is not None)
    configuration = dict(metadata.get("configuration") or {})
    by_name = configuration.get(MAPPING) == "name"
    if (why := why_not_read(protocol, {} if by_name else configuration) or next(refused, None)) is not None:
        raise UnsupportedError(why)
    schema, partitioned_by = schema_of(listed), tuple(metadata.get("partitionColumns") or ())
    for name in partitioned_by:
        if not has_one_text(schema.field(name).type):
            raise UnsupportedError(
                f"it is partitioned by {name}, a {schema.field(name).type}, whose values each writer has in its own words"
            )
    return Columns(schema, stored_schema_of(listed) if by_name else schema, partitioned_by)


def _rows(
    place: ReadPath, size: int, partition: Mapping[str, str | None], columns: Columns, *, inserts: bool
) -> Iterator[pa.Table]:
    file = parquet_checked(place, size)
    has, stored = set(file.schema_arrow.names), dict(zip(columns.schema.names, columns.stored, strict=True))
    there = [name for name, field in stored.items() if field.name in has and name not in columns.partitioned_by]
    inside = pa.schema([stored[name] for name in there])
    same = {name: _value(partition.get(stored[name].name), stored[name].type) for name in columns.partitioned_by}
    may_lack = pa.schema([field.with_nullable(True) for field in columns.schema])
    names = [*inside.names, *([CHANGE_TYPE] if inserts else [])]
    if not names:
        raise UnsupportedError("it has none of the table's columns")
    for batch in batches(file, names, _BATCH_ROWS, _MOST_BYTES):
        rows = pa.Table.from_batches([batch])
        if inserts:
            rows = rows.filter(pc.equal(rows[CHANGE_TYPE].cast(pa.string()), "insert"))
        typed = zip(there, as_typed(rows, inside).columns, strict=True)
        read = {name: _named(column, columns.schema.field(name).type) for name, column in typed}
        yield all_columns(read, same, len(rows), may_lack)


def _named(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column whose parts have other names in files, by its own."""
    whole = column.combine_chunks()
    return whole if whole.type == kind else whole.view(kind)


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """A value of a partition, as the log has it: nothing is NULL."""
    if not text:
        return pa.scalar(None, kind)
    with refusing(pa.ArrowException, ValueError):
        return pa.scalar(text).cast(kind)
