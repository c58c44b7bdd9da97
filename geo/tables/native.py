"""A large Delta table on a local disk, looked at by this process: how many rows, and the last of them. What Spark needs seconds to
start for, Delta's log and the ends of a few files say at once.

Each function returns None where it cannot know: `deltalake` is not there (the code came as a zip), the table uses more of the
protocol than plain files, or its files lack statistics. Then Spark is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from geo.tables.small_table import as_collected

_ROUNDED = timedelta(milliseconds=1)
"""Statistics of a time are cut to milliseconds."""

_PLAIN = (pa.types.is_string, pa.types.is_binary, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal,
          pa.types.is_date, pa.types.is_timestamp)  # fmt: skip


def count_where_null(folder: Path, column: str) -> int | None:
    """How many rows of the table whose `_delta_log` is `folder` have NULL in a column, by what each file says at its end."""
    files = _files(folder)
    if files is None:
        return None
    with suppress(FileNotFoundError, pa.ArrowException):
        counts = [_nulls(pq.read_metadata(_place(folder, file)), column) for file in files]
        return None if None in counts else sum(count or 0 for count in counts)
    return None


def _nulls(file: pq.FileMetaData, column: str) -> int | None:
    names = [file.schema.column(at).path for at in range(len(file.schema))]
    if column not in names:
        return int(file.num_rows)  # the table got it later
    found = [file.row_group(at).column(names.index(column)).statistics for at in range(file.num_row_groups)]
    if any(statistics is None or not statistics.has_null_count for statistics in found):
        return None
    return int(sum(statistics.null_count for statistics in found))


def last_rows(
    folder: Path, columns: Sequence[str], order: Sequence[str], count: int, *, null: str
) -> list[dict[str, Any]] | None:
    """The last `count` rows by the columns `order`, of which the first is a time, among those with NULL in the column `null`: the
    last one first, these columns, those of `order` among them, as Spark's `collect` gives them."""
    files = _files(folder)
    greatest = f"max.{order[0]}"
    if files is None or any(file.get(greatest) is None for file in files):
        return None
    files.sort(key=lambda file: _time(file[greatest]), reverse=True)
    with suppress(FileNotFoundError, pa.ArrowException):  # a file was removed meanwhile, or is of another kind
        found: list[dict[str, Any]] = []
        for file in files:
            if len(found) == count and _time(file[greatest]) + _ROUNDED < found[-1][order[0]]:
                break
            table = pq.ParquetFile(_place(folder, file)).read(columns=[*columns, null])
            if not _is_known(table) or not {*order, null} <= set(table.column_names):
                return None
            table = table.filter(table[null].is_null())
            table = table.sort_by([(name, "descending") for name in order])[:count]
            found += _rows(table, columns)
            found.sort(key=lambda row: tuple(row[name] for name in order), reverse=True)
            del found[count:]
        return found
    return None


def _files(folder: Path) -> list[dict[str, Any]] | None:
    """The files of the newest version, with `path` and what of their statistics there is, `max.COLUMN`."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        return None
    try:
        table = DeltaTable(folder.parent)
        if table.protocol().min_reader_version > 1:
            return None
        return list(pa.table(table.get_add_actions(flatten=True)).to_pylist())
    except (DeltaError, pa.ArrowException, OSError):
        return None


def _place(folder: Path, file: Mapping[str, Any]) -> Path:
    return folder.parent / unquote(file["path"])


def _is_known(table: pa.Table) -> bool:
    """Whether Spark gives these columns as this reader does."""
    return all(
        any(is_kind(field.type) for is_kind in _PLAIN) or field.type in (pa.map_(pa.string(), pa.string()), pa.list_(pa.string()))
        for field in table.schema
    )


def _rows(table: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    there: Mapping[str, list[Any]] = {
        name: as_collected(table[name]) if name in table.column_names else [None] * len(table) for name in columns
    }
    return [{name: there[name][at] for name in columns} for at in range(len(table))]


def _time(value: datetime) -> datetime:
    """A time of the statistics as `as_collected` gives times."""
    return value.astimezone().replace(tzinfo=None)
