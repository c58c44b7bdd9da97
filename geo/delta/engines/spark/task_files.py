"""Files of rows that Spark's tasks write beside a table on a store that this program writes: nothing large passes the driver, whose commit
adds them afterwards. A file of a task that was tried again is named by nobody, and goes with the table's next clean-up.

Before the first of a session executors are asked whether they can: a process that has no large batch starts no Spark for it.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from geo.delta.arrow_rows import with_times_in_utc
from geo.delta.commits import commit_file
from geo.delta.delta_state import DeltaState
from geo.delta.store import ReadPath, ReadStore, WritePath
from geo.delta.writer import Added, FileWriter, Written, fits, parted, remove_files
from geo.errors import RetryableError, SetupError
from geo.late import arrow_types, spark_errors
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES, FILE_BYTES = 64 * 1024**2, 256 * 1024**2
"""In memory: of so many the rows of a task are a row group, and a file is of so many that were written; one for each partition."""

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
"""What a task tells of each file, as `Added` has it; one without a path says that the rows of a task do not fit."""

_ANSWER = pa.schema({"host": pa.string(), "lacks": pa.string(), "said": pa.string()})
"""Of an executor: what its Python lacks, what the store said; nothing where it can write."""

_NO_MODULE = re.compile(r"No module named '([\w.]+)'")

_asked: set[tuple[str, ReadStore]] = set()
"""Applications, and the stores to which their executors can write."""


def write_by_tasks(rows: DataFrame, table: WritePath, state: DeltaState, *, into: str = "") -> Written | None:
    """Write rows of the table's types by Spark's tasks, in their order. None, and none is left, where a value is missing that is required.
    `into` a folder of the table that ends with a slash, for rows of its change feed, with their `_change_type`. Raises as
    `ask_executors`."""
    asked = rows.sparkSession.sparkContext.applicationId, table.store
    if asked not in _asked:
        ask_executors(rows.sparkSession, table / "_delta_log" / commit_file(state.version))
        _asked.add(asked)
    plain = replace(state, checksum={})
    if into:
        schema = plain.schema.append(_CHANGE)  # of a table that maps its columns no change is made here
        plain = replace(plain, schema=schema, stored=schema, statistics_of=frozenset())

    def written(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files: list[Added] = []
        try:
            files += _written(batches, table, plain, into)
            yield _told(files)
        except _UnfitError:
            yield _told([Added("", {}, 0, 0, 0, "")])

    try:
        told = rows.mapInArrow(written, arrow_types.from_arrow_schema(_FILE)).toArrow().to_pylist()
    except spark_errors.PySparkException:
        _asked.discard(asked)  # it may have been an executor that came later
        raise
    found = [Added(**{**one, "partition": dict(one["partition"])}) for one in told]
    files = tuple(file for file in found if file.path)
    if len(files) < len(found):
        remove_files(table, files)
        return None
    return Written.of(files, state)


def ask_executors(spark: SparkSession, commit: ReadPath) -> None:
    """Let each executor read a commit, which may have been cut meanwhile, as its tasks would reach the store: as many tasks as run at once.

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
    """What an executor says of itself, in a task."""
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


class _UnfitError(Exception):
    """A value is missing that is required."""


def _written(batches: Iterable[pa.RecordBatch], table: WritePath, state: DeltaState, into: str) -> list[Added]:
    """The files of one task; none is left if it fails."""
    files, opened = list[Added](), dict[str, FileWriter]()
    try:
        for some in _gathered(batches):
            whole = _as_stored(some, state)
            if not fits(state, whole):
                raise _UnfitError
            for partition, part in parted(state, whole):
                name = "/".join(partition.values())
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


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables that are not large."""
    held, size = list[pa.RecordBatch](), 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= PART_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _as_stored(rows: pa.Table, state: DeltaState) -> pa.Table:
    """With the types that the table's files have: Spark says otherwise what may be NULL in a list or a map."""
    kinds = {field.name: field.type for field in state.schema}
    fields = [pa.field(name, kinds.get(name, kind)) for name, kind in zip(rows.column_names, rows.schema.types, strict=True)]
    return with_times_in_utc(rows).cast(pa.schema(fields))


def _told(files: Iterable[Added]) -> pa.RecordBatch:
    rows = [{**asdict(file), "partition": list(file.partition.items())} for file in files]
    return pa.RecordBatch.from_pylist(rows, _FILE)
