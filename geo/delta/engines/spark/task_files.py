"""Files of rows that Spark's tasks write beside a table on a store that this program writes. Nothing large passes the driver, whose commit adds
them afterwards. A file of a task that was tried again is named by nobody, and goes with the table's next clean-up. Rows that are in files of
another such table tasks read themselves: as Spark's own they take three times as long.

Before the first of a session executors are asked whether they can: a process that has no large batch starts no Spark for it.
"""

from __future__ import annotations

import logging
import math
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from geo.delta.arrow_rows import map_in_arrow, with_times_in_utc
from geo.delta.commits import commit_file
from geo.delta.delta_state import DeltaState
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.engines.native.rows import read_groups
from geo.delta.file_rows import FileRows, RowsFile
from geo.delta.predicate import Predicate
from geo.delta.predicate_arrow import kept
from geo.delta.row_files import Added, FileWriter, Written, fits, parted, remove_files
from geo.delta.store import ReadPath, ReadStore, WritePath, read_each
from geo.errors import RetryableError, SetupError
from geo.late import arrow_types, spark_errors
from geo.slices import slices
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

PART_BYTES, FILE_BYTES = 64 * 1024**2, 256 * 1024**2
"""In memory: of so many the rows of a task are a row group, and a file is of so many that were written. One for each partition."""

_OPEN_BYTES, _SMALL_BYTES = 4 * 1024**2, 1024**2
"""To open a file takes as long as to read so many; files of so many are read some at once."""

_CHANGE = pa.field("_change_type", pa.string())

_FILE = pa.schema(
    {
        "path": pa.string(),
        "partition": pa.map_(pa.string(), pa.string()),
        "size": pa.int64(),
        "rows": pa.int64(),
        "modified_ms": pa.int64(),
        "statistics": pa.string(),
    }
)
"""Answer of a task for each file, as `Added` has it; one without a path says that the rows of a task do not fit."""

_ANSWER = pa.schema({"host": pa.string(), "lacks": pa.string(), "said": pa.string()})
"""Answer of an executor: what its Python lacks, what the store said; nothing where it can write."""

_NO_MODULE = re.compile(r"No module named '([\w.]+)'")

_asked: set[tuple[str, ReadStore]] = set()
"""Applications, and the stores to which their executors can write."""


def write_by_tasks(rows: DataFrame, table: WritePath, state: DeltaState, *, into: str = "") -> Written | None:
    """Write rows of the table's types by Spark's tasks, in their order. None, and none is left, where a value is missing that is required.
    `into` a folder of the table that ends with a slash, for rows of its change feed, with their `_change_type`. Raises as
    `ask_executors`."""
    plain = replace(state, checksum={})
    if into:
        schema = plain.schema.append(_CHANGE)  # of a table that maps its columns no change is made here
        plain = replace(plain, schema=schema, stored=schema, statistics_of=frozenset())

    _make_sure(rows.sparkSession, table, state)
    return _by_tasks(
        rows, lambda batches: _written(_joined(pa.Table.from_batches([one]) for one in batches), table, plain, into), table, state
    )


def write_files_by_tasks(
    spark: SparkSession, rows: FileRows, order: Sequence[str], table: WritePath, state: DeltaState
) -> Written | None:
    """Writes as `write_by_tasks` rows that tasks read by themselves, so that those of each file come in this order. None also where a file is to be
    read by Spark, which then says why.
    """
    shares, read, where = shared(rows.files, spark.sparkContext.defaultParallelism), replace(rows.state, checksum={}), rows.where
    plain = replace(state, checksum={})

    def written(batches: Iterable[pa.RecordBatch]) -> list[Added]:
        pieces = [piece for batch in batches for at in batch["id"].to_pylist() for piece in shares[at]]
        return written_in_order(pieces, read, where, order, table, plain)

    _make_sure(spark, table, state)
    return _by_tasks(spark.range(0, len(shares), 1, len(shares)), written, table, state)


def _by_tasks(
    rows: DataFrame, written: Callable[[Iterable[pa.RecordBatch]], list[Added]], table: WritePath, state: DeltaState
) -> Written | None:
    """Collects what `written` writes of the rows of each task."""

    def told_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = attempt(lambda: written(batches))
        yield _told([Added("", {}, 0, 0, 0, str(files))] if isinstance(files, UnsupportedError) else files)

    try:
        told = map_in_arrow(rows, told_of, arrow_types.from_arrow_schema(_FILE)).toArrow().to_pylist()
    except spark_errors.PySparkException:
        _asked.clear()  # it may have been an executor that came later
        raise
    found = [Added(**{**one, "partition": dict(one["partition"])}) for one in told]
    files = tuple(file for file in found if file.path)
    if len(files) < len(found):
        remove_files(table, files)
        log.info("%s: rows are left to Spark: %s", table, next(file.statistics for file in found if not file.path))
        return None
    return Written.of(files, state)


def _make_sure(spark: SparkSession, table: ReadPath, state: DeltaState) -> None:
    """Ask the executors of a session once. Raises as `ask_executors`."""
    asked = spark.sparkContext.applicationId, table.store
    if asked not in _asked:
        ask_executors(spark, table / "_delta_log" / commit_file(state.version))
        _asked.add(asked)


def ask_executors(spark: SparkSession, commit: ReadPath) -> None:
    """Let each executor read a commit, which may have been cut meanwhile, as its tasks would reach the store. So many tasks try it as run at once.

    Raises SetupError where one lacks something, RetryableError where one does not reach the store, with hosts and what to do.
    """

    def answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pylist([_answer(commit)], _ANSWER)

    count = spark.sparkContext.defaultParallelism
    try:
        told = spark.range(0, count, 1, count).mapInArrow(answer, arrow_types.from_arrow_schema(_ANSWER)).toArrow().to_pylist()
    except spark_errors.PySparkException as error:  # it lacks what even the question takes
        if (lacking := _NO_MODULE.search(str(error))) is None:
            raise
        told = [{"host": "at least one host", "lacks": lacking[1], "said": None}]
    faults = dict[str, set[str]]()
    for one in told:
        if one["lacks"] is not None:
            faults.setdefault(f"the Python of executors has no {one['lacks']}, install it there", set()).add(one["host"])
        elif one["said"] is not None:
            faults.setdefault(one["said"], set()).add(one["host"])
    if faults:
        where = "; ".join(f"on {', '.join(sorted(hosts))}: {why}" for why, hosts in sorted(faults.items()))
        is_lacking = any(one["lacks"] is not None for one in told)
        raise (SetupError if is_lacking else RetryableError)(
            f"{commit.parent.parent}: Spark's tasks cannot write there. {where}. Nothing was written."
        )


def _answer(commit: ReadPath) -> dict[str, str | None]:
    """Asks an executor about itself, in a task."""
    found: dict[str, str | None] = {"host": socket.gethostname(), "lacks": None, "said": None}
    try:
        commit.get()
    except FileNotFoundError:
        pass
    except ImportError as error:
        found["lacks"] = f"{error.name or error} ({sys.executable})"
    except Exception as error:  # whatever it is, it is the answer
        found["said"] = first_line(error)
    return found


Piece: TypeAlias = tuple[RowsFile, int, int]
"""Share of a file: which one of so many equal ones."""


def shared(files: Sequence[RowsFile], count: int) -> list[list[Piece]]:
    """Shares out files in their order among tasks, where so many run at once."""
    most = max(PART_BYTES, min(FILE_BYTES, math.ceil(sum(file.size + _OPEN_BYTES for file in files) / count)))
    pieces = [(file, at, of) for file in files for of in [math.ceil(file.size / most) or 1] for at in range(of)]
    return list(slices(pieces, lambda piece: piece[0].size // piece[2] + _OPEN_BYTES, most))


def written_in_order(
    pieces: Iterable[Piece], read: DeltaState, where: Predicate, order: Sequence[str], table: WritePath, state: DeltaState
) -> list[Added]:
    """Writes as `_written` the rows in pieces of files of a table in the state `read` that fulfil `where`."""
    parts = _joined(kept(where, part) for part in _read(pieces, read))
    return _written((_sorted(part, order) for part in parts), table, state, "", order)


def _read(pieces: Iterable[Piece], state: DeltaState) -> Iterator[pa.Table]:
    """The rows in pieces of files, in their order. Small files are asked for some at once."""

    def rows(piece: Piece) -> Iterator[pa.Table]:
        return read_groups(piece[0], state, *piece[1:], PART_BYTES)

    for is_small, some in groupby(pieces, lambda piece: piece[0].size <= _SMALL_BYTES):
        if not is_small:
            for piece in some:
                yield from rows(piece)
            continue
        together = list(some)
        for parts in read_each(together[0][0].path.store, together, lambda piece: list(rows(piece))):
            assert parts is not None, "what is not there is refused"
            yield from parts


def _written(parts: Iterable[pa.Table], table: WritePath, state: DeltaState, into: str, order: Sequence[str] = ()) -> list[Added]:
    """The files of one task; none is left if it fails. With `order`, in which the rows of each part are, those of each file are."""
    files, opened, ends = list[Added](), dict[str, FileWriter](), dict[str, tuple[Any, ...]]()
    try:
        for some in parts:
            whole = _as_stored(some, state)
            if not fits(state, whole):
                raise UnsupportedError("a value is missing that is required")
            for partition, part in parted(state, whole):
                name = "/".join(partition.values())
                if order and len(part):
                    if name in opened and _key(part, 0, order) < ends[name]:
                        files.append(opened.pop(name).close())
                    ends[name] = _key(part, len(part) - 1, order)
                if name not in opened:
                    opened[name] = FileWriter(table, state, partition, into=into)
                opened[name].write(part)
                if opened[name].size > FILE_BYTES:
                    files.append(opened.pop(name).close())
        while opened:
            files.append(opened.popitem()[1].close())
    except BaseException:
        for one in opened.values():
            one.drop()
        remove_files(table, files)
        raise
    return files


def _joined(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of PART_BYTES and more, but for the last."""
    held, size = list[pa.Table](), 0
    for part in parts:
        held.append(part)
        size += part.nbytes
        if size >= PART_BYTES:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def _sorted(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    """The rows in this order, NULL last; mostly they are."""
    places = pc.sort_indices(rows, [(name, "ascending") for name in order])
    is_so = pc.all(pc.less(places.slice(0, max(0, len(places) - 1)), places.slice(1))).as_py()
    return rows if is_so is not False else rows.take(places)


def _key(rows: pa.Table, at: int, order: Sequence[str]) -> tuple[Any, ...]:
    """Key of a row's place in the order (`_sorted`)."""
    return tuple(((value := rows[name][at].as_py()) is None, value) for name in order)


def _as_stored(rows: pa.Table, state: DeltaState) -> pa.Table:
    """With the types that the table's files have: Spark says otherwise what may be NULL in a list or a map."""
    kinds = {field.name: field.type for field in state.schema}
    fields = [pa.field(name, kinds.get(name, kind)) for name, kind in zip(rows.column_names, rows.schema.types, strict=True)]
    return with_times_in_utc(rows).cast(pa.schema(fields))


def _told(files: Iterable[Added]) -> pa.RecordBatch:
    rows = [{**asdict(file), "partition": list(file.partition.items())} for file in files]
    return pa.RecordBatch.from_pylist(rows, _FILE)
