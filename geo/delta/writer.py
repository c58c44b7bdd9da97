"""Appends to a Delta table without Spark: files of rows, one commit that adds them, and the checksum beside it.

An append by Spark takes 200 to 300 ms whatever it appends, this one 2 to 5. It knows what an append needs of Delta's protocol and
no more: a table that uses anything else, or that was last written without a checksum, is left to Spark (geo.delta.delta_state).
The checkpoints that come between are written by `deltalake`, on a store where a look is a request mostly by this process
(geo.delta.checkpoint); where that is not there the commits that are due one are Spark's.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import date, datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geo.crash import CrashPoint, reach
from geo.delta.checkpoint import write_checkpoint
from geo.delta.commits import ENGINE
from geo.delta.counted import Counted, counted
from geo.delta.delta_log import POINTER, newest_seen, saw
from geo.delta.delta_state import DeltaState, forget_read, last_read, newest_state, state_of
from geo.delta.derived_checksum import checksum_with
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.features import numbered, timed
from geo.delta.put_commit import put_checksum, put_commit
from geo.delta.store import WritePath
from geo.delta.young import refuse_old
from geo.now import now_us
from geo.text import first_line

try:
    from deltalake import DeltaTable
except ImportError:  # the code came as a zip
    DeltaTable = None  # type: ignore[assignment, misc]

log = logging.getLogger(__name__)

COMMITTED_S = 10.0
"""So long what a process committed last is taken for the newest, until a commit fails on it."""

_committed: dict[WritePath, tuple[int, Mapping[str, Any], float]] = {}
"""Version, by `_delta_log`, that this process committed last, its checksum, and when (monotonic)."""

_checkpoints_of_spark: set[str] = set()
"""Ids of tables of which `deltalake` could not write a checkpoint."""

_GROUP_BYTES = 128 * 1024 * 1024
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


def is_due(state: DeltaState) -> bool:
    """Tells whether the next commit is to write a checkpoint."""
    return (state.version + 1) % state.checkpoint_interval == 0


def is_for_spark(folder: WritePath, state: DeltaState) -> bool:
    """Tells whether the next commit is to write a checkpoint that is not written here. Where all commits are this program's none is: the next one
    that is due tries again.
    """
    return folder.store.is_near and is_due(state) and (DeltaTable is None or state.table_id in _checkpoints_of_spark)


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


def may_add(folder: WritePath, state: DeltaState, written: Written) -> bool:
    """Tells whether the next commit may add the files here: it is the same table and still has their columns and partitions."""
    is_same = (state.table_id, state.partition_by) == (written.table_id, written.partition_by)
    return is_same and set(written.stored) <= set(state.stored) and not is_for_spark(folder, state)


def commit_files(
    folder: WritePath,
    state: DeltaState,
    added: Sequence[Added],
    user_metadata: str | None,
    transaction: tuple[str, int] | None = None,
) -> bool:
    """Commit the files as the version after `state`, and that this number of a transaction's application was used: False and errors as
    `put_commit`."""
    rows, size = sum(file.rows for file in added), sum(file.size for file in added)
    told: dict[str, Any] = {
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(state.partition_by))},
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": str(len(added)), "numOutputRows": str(rows), "numOutputBytes": str(size)},
    }
    files, domains = numbered(state.checksum, state.version + 1, ((file.action, file.rows) for file in added))
    actions = [*({"add": file} for file in files), *({"domainMetadata": one} for one in domains)]
    changed = dict[str, Any]()
    if domains:
        named = {one["domain"] for one in domains}
        kept = (other for other in state.checksum["domainMetadata"] if other["domain"] not in named)
        changed["domainMetadata"] = [*kept, *domains]
    if transaction is not None:
        one = {"appId": transaction[0], "version": transaction[1], "lastUpdated": now_us() // 1000}
        actions.insert(0, {"txn": one})
        others = (other for other in state.checksum["setTransactions"] if other["appId"] != transaction[0])
        changed["setTransactions"] = [*others, one]
    return commit_actions(folder, state, told, actions, user_metadata, changed)


def commit_actions(
    folder: WritePath,
    state: DeltaState,
    told: Mapping[str, Any],
    actions: Sequence[Mapping[str, Any]],
    user_metadata: str | None,
    changed: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Commit actions as the version after `state`; `told` is what its `commitInfo` says of them. `changed`: what its checksum says otherwise
    than the one before, beside files. False and errors as `put_commit`; raises RetryableError for files that are no longer young."""
    version, transaction, now_ms = state.version + 1, str(uuid.uuid4()), now_us() // 1000
    time_of = timed(state.checksum, now_ms)
    info: dict[str, Any] = {
        **time_of,
        "timestamp": now_ms,
        **told,
        "readVersion": state.version,
        "isolationLevel": "Serializable",
        **({"userMetadata": user_metadata} if user_metadata is not None else {}),
        "engineInfo": ENGINE,
        "txnId": transaction,
    }
    added = [action["add"] for action in actions if "add" in action]
    taken = {action["remove"]["path"]: action["remove"]["size"] for action in actions if "remove" in action}
    paths = [file["path"] for file in added]
    # Large ones are on the disk already. Small ones are quicker written out with the commit, all at once.
    files = [folder.parent / path for path in paths]
    if named := [*files, *(folder.parent / action["cdc"]["path"] for action in actions if "cdc" in action)]:
        # Of files of the feed, which are written last, no commit says when that was.
        refuse_old(folder.parent, state.configuration, named, min((file["modificationTime"] for file in added), default=0) * 1000)
    if not put_commit(folder, version, [{"commitInfo": info}, *actions], files):
        return False
    # Where there is a lock, nobody cuts the log meanwhile.
    became = Counted.NEXT if folder.store.is_near else counted(folder, state, paths)
    if became is Counted.NOT:
        return False
    reach(CrashPoint.APPEND_COMMITTED)
    if became is Counted.LONG_AGO:
        forget_committed(folder)
        return True
    checksum = {**checksum_with(state.checksum, added, taken), **changed, "txnId": transaction}
    if time_of:
        checksum["inCommitTimestampOpt"] = time_of["inCommitTimestamp"]
    put_checksum(folder, version, checksum)
    if not folder.store.is_near:
        _committed[folder] = version, checksum, time.monotonic()
        saw(folder, version)
    if is_due(state):
        _write_checkpoint(folder, version, state.table_id, checksum)
    return True


def last_committed(folder: WritePath) -> DeltaState | None:
    """The version that this process committed last, on a store where a look is a request, if that was a moment ago. Another one may be newer:
    the next commit finds that out, and asks no more (`forget_committed`). None: it is not known."""
    version, checksum, at = _committed.get(folder, (-1, {}, -math.inf))
    if time.monotonic() - at < COMMITTED_S:
        return state_of(version, checksum)
    _committed.pop(folder, None)
    return None


def state_to_follow(folder: WritePath) -> DeltaState | None:
    """A version that a commit may follow on: where a look is a request the newest one that this process committed or read a moment ago, else
    the newest. None: the table is left to Spark.

    Another commit may have come since, a fence among them. Then the put finds its version taken, and whoever commits looks again
    (`forget_committed`), and asks once more whether it still may. One that went away with its log is found after the put (`counted`).
    """
    known = [one for one in (last_committed(folder), last_read(folder, COMMITTED_S)) if one is not None]
    newest = max(known, key=lambda one: one.version, default=None)
    return newest_state(folder) if newest is None or newest.version < newest_seen(folder) else newest


def files_committed(folder: WritePath) -> int:
    """Counts the files that a table on a store where a look is a request had after this process's last commit; 0: that is not known."""
    _, checksum, _ = _committed.get(folder, (-1, {"numFiles": 0}, -math.inf))
    return int(checksum["numFiles"])


def forget_committed(folder: WritePath) -> None:
    """Forgets what is known of the newest version."""
    _committed.pop(folder, None)
    forget_read(folder)


def remove_files(table: WritePath, added: Iterable[Added]) -> None:
    """Remove files that no commit will add."""
    for file in added:
        with suppress(OSError):  # a file that stays is removed by VACUUM
            (table / file.path).delete()


# -- its files ---------------------------------------------------------------------------------------------------------


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
    return max(1, int(len(rows) * _GROUP_BYTES // max(1, rows.nbytes)))


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


def _write_checkpoint(folder: WritePath, version: int, table_id: str, checksum: Mapping[str, Any]) -> None:
    """Write one of the newest version, which has this checksum. What fails here is no fault of the commit; those of that table are Spark's
    from then on."""
    try:
        if not folder.store.is_near:
            why = attempt(lambda: write_checkpoint(folder, version, checksum))
            if not isinstance(why, UnsupportedError):
                return
            log.info("%s: deltalake writes its checkpoint: %s", folder.parent, why)
        checkpoint = str(folder / f"{version:020}.checkpoint.parquet")
        for path in (checkpoint, str(folder / POINTER)):
            folder.store.forget(path)
        DeltaTable(str(folder.parent), storage_options=dict(folder.store.options)).create_checkpoint()
        with suppress(OSError):  # another commit came between
            folder.store.adopt(checkpoint)
    except Exception as error:  # of deltalake, whatever it is
        if folder.store.is_near:
            _checkpoints_of_spark.add(table_id)
        log.warning("%s: no checkpoint was written: %s", folder.parent, first_line(error))
