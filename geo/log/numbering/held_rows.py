"""Numbering where the log is on a local disk: the rows of a batch are held once, by whoever has them, and written by this
process.

A task of Spark's holds its partition's rows in a file (geo.log.numbering.holding), or this process does if they are few. Each
file becomes a data file of the log, or one for each date. A row is computed once, so what is written is what was counted.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from geo.delta.delta_state import DeltaState
from geo.delta.store import WritePath
from geo.delta.writer import Written, remove_files, write_files
from geo.errors import UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import Batch
from geo.log.numbering.holding import (
    FIRST,
    KEY,
    LAST,
    LAST_TEXT,
    OFFSET_PART,
    REPORT,
    TEXT_PART,
    HeldPart,
    Holding,
    Order,
    are_apart,
    entries_of,
    numbers_of,
    parsed_reports,
)
from geo.log.numbering.tagging import Tagging
from geo.log.numbering.tallies import LEDGER_KEY, REPEATED, Common, Rejected, Tally, merged
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, Identity
from geo.log.sources.source import SourceBatch
from geo.sql_text import identifier

_SOME_ROWS = 1_000
"""So many first rows are looked at for their order: a job of one task. Of rows that are shuffled, some of them fall."""


class Workspace:
    """Where a batch is held and written: `folder` is a folder on a local disk for this batch alone, which `held` removes at its
    end, `table` that of the log, whose newest version is `state`."""

    def __init__(self, folder: Path, table: WritePath, state: DeltaState, held: ExitStack) -> None:
        self.folder, self.table, self.state = folder, table, state
        held.callback(self.clear)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class HeldRows:
    """The rows of a batch, held in files: their columns `columns`, as reports have them."""

    def __init__(
        self,
        workspace: Workspace,
        common: Common,
        parts: Sequence[HeldPart],
        rejected: Sequence[Rejected],
        columns: Sequence[str],
    ) -> None:
        self._workspace, self._common, self._columns = workspace, common, columns
        self._parts, self._rejected = parts, rejected

    def tallies(self) -> list[Tally]:
        return merged((part.tally, part.last) for part in self._parts)

    def rejected(self, most: int | None = None) -> Sequence[Rejected]:
        """The new rows that are bad, all or some of them."""
        return self._rejected[:most]

    def entries(self, batch: Batch) -> Written:
        """The new rows as they stand in the log, as files that a commit may add. Raises OSError; then no file is left."""
        found = entries_of(self._parts, batch.spans)
        with ThreadPoolExecutor(min(len(found), os.cpu_count() or 1), "geo-write") as pool:
            writes = [pool.submit(self._write, batch, file, starts) for file, starts in found.items()]
        files = tuple(file for one in writes if one.exception() is None for file in one.result().files)
        for failed in filter(None, (one.exception() for one in writes)):
            remove_files(self._workspace.table, files)
            raise failed
        state = self._workspace.state
        return Written(files, state.schema, state.partition_by, state.table_id)

    def _write(self, batch: Batch, file: str, starts: Mapping[int, tuple[int, int]]) -> Written:
        with pa.memory_map(file) as source:
            rows, kinds = pa.ipc.open_file(source).read_all(), self._workspace.state.schema
            ledgers, entries = numbers_of(rows[KEY].combine_chunks(), starts)
            common = self._common.of(batch).items()
            columns = {"ledger_id": ledgers, "entry_id": entries, **{name: pa.repeat(value, len(rows)) for name, value in common}}
            columns |= {name: rows[name].cast(kinds.field(name).type) for name in self._columns}
            return write_files(self._workspace.table, self._workspace.state, pa.table(columns))


def hold_frame(
    rows: DataFrame, tag: Callable[[DataFrame], DataFrame], identity: Identity, common: Common, workspace: Workspace
) -> HeldRows:
    """Hold the rows of a DataFrame, in order.

    `tag` gives rows the log's columns, SOURCE, OFFSET, HASH, ERROR and PUBLISHED; those of the log that `rows` do not have are
    NULL. Raises UsageError for which `is_repeated` if two rows are one.
    """
    columns = [name for name in workspace.state.schema.names if name in rows.columns]
    found = _held(tag(rows), identity, columns, workspace) if _seem_in_order(rows, identity) else None
    if found is None:
        found = _held(tag(_in_ranges(rows, identity)), identity, columns, workspace)
    if found is None:
        raise UsageError(REPEATED)
    return HeldRows(workspace, common, *found, columns)


def hold_spans(spark: SparkSession, batch: SourceBatch, tagging: Tagging, common: Common, workspace: Workspace) -> HeldRows:
    """Hold the rows of a source of ours: each span by a task, or all of them by this process if they are few. Raises what reading
    raises."""
    columns = [name for name in workspace.state.schema.names if name in tagging.columns]
    folder, read = str(workspace.folder), batch.reader.read
    workspace.folder.mkdir(parents=True)

    def hold(number: int, *spans: Any) -> Iterator[pa.RecordBatch]:
        blocks = (tagging.tagged(block) for span in spans for block in read(span))
        yield from Holding(_file(folder, number), number, columns, unique=True).hold(blocks)

    if batch.is_few:
        lines = [line for block in hold(0, *batch.spans) for line in block.to_pylist()]
    else:
        report = _report({f"{OFFSET_PART}0": LongType(), f"{TEXT_PART}0": StringType()})
        lines = batch.by_tasks(spark, hold, report).toArrow().to_pylist()
    found = parsed_reports(lines)
    assert found is not None, "a source of ours is in order"
    return HeldRows(workspace, common, *found, columns)


def _file(folder: str, number: int) -> str:
    """A name for the rows of a task; a task that is run again, or twice, takes another one."""
    return f"{folder}/{number:06}-{uuid.uuid4()}.arrow"


def _held(
    tagged: DataFrame, identity: Identity, columns: Sequence[str], workspace: Workspace
) -> tuple[list[HeldPart], list[Rejected]] | None:
    """Hold the rows by the tasks that have them. None, and nothing is held, unless those of each source are in order."""
    workspace.clear()
    workspace.folder.mkdir(parents=True)
    parts = range(len(identity.offsets))
    more = {KEY: f"xxhash64({LEDGER_KEY})"}
    more |= {f"{OFFSET_PART}{at}": f"{OFFSET}.o{at}" for at in parts}
    more |= {f"{TEXT_PART}{at}": f"CAST({OFFSET}.o{at} AS STRING)" for at in parts}
    sent = tagged.selectExpr(
        SOURCE, HASH, ERROR, PUBLISHED, *(f"{sql} AS {name}" for name, sql in more.items()), *map(identifier, columns)
    )
    folder, unique = str(workspace.folder), identity.unique

    def of_partition(blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        yield from Holding(_file(folder, number), number, columns, unique=unique).hold(blocks)

    report = _report({field.name: field.dataType for field in sent.schema})
    found = parsed_reports(sent.mapInArrow(of_partition, report).toArrow().to_pylist())
    return found if found is None or not unique or are_apart(found[0]) else None


def _report(kinds: Mapping[str, DataType]) -> StructType:
    """The columns of tasks' reports, of offsets whose parts are of these kinds."""
    fields = list(from_arrow_schema(pa.schema(REPORT)))
    for name, of in ((FIRST, OFFSET_PART), (LAST, OFFSET_PART), (LAST_TEXT, TEXT_PART)):
        parts = [kind for column, kind in kinds.items() if column.startswith(of)]
        fields += [StructField(f"{name}{at}", kind) for at, kind in enumerate(parts)]
    return StructType(fields)


def _seem_in_order(rows: DataFrame, identity: Identity) -> bool:
    """Whether the first rows are, of a user's DataFrame: to find that out of all of it takes as long as to hold it."""
    if not identity.gapless:
        return True
    named = (f"{sql} AS {OFFSET_PART}{at}" for at, sql in enumerate(identity.offsets))
    first = rows.selectExpr(f"{identity.source} AS {SOURCE}", *named).limit(_SOME_ROWS).toArrow()
    return not len(first) or Order().rises(*(column.combine_chunks() for column in first.columns))


def _in_ranges(rows: DataFrame, identity: Identity) -> DataFrame:
    """The rows in Spark partitions of which each has a range of offsets, in order. Nothing but what was given is moved."""
    order = [F.expr(sql) for sql in (*([identity.source] if identity.is_scattered else []), *identity.offsets)]
    return rows.repartitionByRange(*order).sortWithinPartitions(*order)
