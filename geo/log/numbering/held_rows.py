"""Numbering of rows that are held once, by whoever has them, and written by this process: few anywhere, any number where the log
is on a local disk.

A task of Spark's holds its partition's rows in a file (geo.log.numbering.holding), or this process does if it reads them. Each
file becomes a data file of the log, or one for each date. The few rows of a DataFrame, of which Spark's jobs would be most of the
time, are fetched and held in memory. A row is computed once, so what is written is what was counted.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from geo.delta.arrow_rows import rows_table
from geo.delta.delta_state import DeltaState
from geo.delta.small_batch import fetch_if_small
from geo.delta.store import WritePath
from geo.delta.table import Table
from geo.delta.writer import Written, remove_files, write_files
from geo.disk import local_path
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
    Run,
    are_apart,
    log_lines,
    parsed_reports,
    runs_of,
)
from geo.log.numbering.order import Order, ordered
from geo.log.numbering.tagging import Tagging
from geo.log.numbering.tallies import LEDGER_KEY, REPEATED, Common, Rejected, Tally, merged
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, Identity
from geo.log.sources.source import SourceBatch
from geo.log.topic_log import user_columns
from geo.sql_text import identifier
from schemas import TOPIC_LOG
from schemas.topic_log import MESSAGE_INPUT

_SOME_ROWS = 1_000
"""So many first rows are looked at for their order: a job of one task. Of rows that are shuffled, some of them fall."""

_ENVELOPE = rows_table({name: TOPIC_LOG.types[name] for name in MESSAGE_INPUT}, []).schema
"""What a message of a bytes topic has."""


class Workspace:
    """Where a batch is held and written: `folder` is a folder on a local disk for this batch alone, which `held` removes at its
    end, `table` that of the log, whose newest version is `state`."""

    def __init__(self, folder: Path, table: WritePath, state: DeltaState, held: ExitStack) -> None:
        self.folder, self.table, self.state = folder, table, state
        held.callback(self.clear)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def workspace_of(folder: str, log: Table, held: ExitStack) -> Workspace | None:
    """Where a batch of `log` can be held and written by this process; None if Spark is to write it. `folder` is for this batch
    alone."""
    local, table, state = local_path(folder), log.log_folder, log.own_state()
    return None if local is None or table is None or state is None else Workspace(local, table.parent, state, held)


class HeldRows:
    """The rows of a batch, held in the files of a workspace or in memory. `found` is what reports say of them, `fields` are their
    columns as the log has them."""

    def __init__(
        self,
        held: Workspace | pa.Buffer,
        common: Common,
        found: tuple[Sequence[HeldPart], Sequence[Rejected]],
        fields: Sequence[pa.Field],
    ) -> None:
        self._held, self._common, self._fields = held, common, fields
        self._parts, self._rejected = found

    def tallies(self) -> list[Tally]:
        return merged(self._parts)

    def rejected(self, most: int | None = None) -> Sequence[Rejected]:
        """The new rows that are bad, all or some of them."""
        return self._rejected[:most]

    def entries(self, batch: Batch) -> Written | pa.Table:
        """The new rows as they stand in the log, or as files that a commit may add. Raises OSError; then no file is left."""
        found = runs_of(self._parts, batch.spans)
        if isinstance(self._held, pa.Buffer):
            (runs,) = found.values()
            return self._lines(self._held, batch, runs)
        table, state = self._held.table, self._held.state
        files_of = {part.partition: part.file for part in self._parts}

        def write(partition: int, runs: Mapping[int, Run]) -> Written:
            with pa.memory_map(files_of[partition]) as source:
                return write_files(table, state, self._lines(source, batch, runs))

        with ThreadPoolExecutor(min(len(found), os.cpu_count() or 1), "geo-write") as pool:
            writes = [pool.submit(write, *one) for one in found.items()]
        files = tuple(file for one in writes if one.exception() is None for file in one.result().files)
        for failed in filter(None, (one.exception() for one in writes)):
            remove_files(table, files)
            raise failed
        return Written(files, state.schema, state.partition_by, state.table_id)

    def _lines(self, source: Any, batch: Batch, runs: Mapping[int, Run]) -> pa.Table:
        rows = pa.ipc.open_file(source).read_all()
        columns = {field.name: rows[field.name].cast(field.type) for field in self._fields}
        return log_lines(pa.table({KEY: rows[KEY], **columns}), runs, self._common.of(batch))


def hold_frame(
    rows: DataFrame, tag: Callable[[DataFrame], DataFrame], identity: Identity, common: Common, workspace: Workspace
) -> HeldRows:
    """Hold the rows of a DataFrame, in order.

    `tag` gives rows the log's columns, SOURCE, OFFSET, HASH, ERROR and PUBLISHED; those of the log that `rows` do not have are
    NULL. Raises UsageError with REPEATED if two rows are one.
    """
    fields = [field for field in workspace.state.schema if field.name in rows.columns]
    columns = [field.name for field in fields]
    folder = workspace.folder
    found = hold_by_tasks(tag(rows), identity, columns, SOURCE, folder) if _seem_in_order(rows, identity) else None
    if found is None:
        found = hold_by_tasks(tag(_in_ranges(rows, identity)), identity, columns, SOURCE, folder)
    if found is None:
        raise UsageError(REPEATED)
    return HeldRows(workspace, common, found, fields)


def hold_few(tagged: DataFrame, identity: Identity, common: Common) -> HeldRows | None:
    """Hold the rows of a DataFrame, which `tag` of `hold_frame` made, in memory, if they are few and of a bytes topic. Raises UsageError
    with REPEATED if two new ones are one."""
    if user_columns(common.columns):
        return None
    sent = _sent(tagged, identity, MESSAGE_INPUT)
    if (head := fetch_if_small(sent, sent.columns)) is None:
        return None
    with suppress(OverflowError, UnicodeDecodeError):  # a date beyond 9999, text that is not UTF-8
        offsets = zip(*(head[name].to_pylist() for name in head.column_names if name.startswith(OFFSET_PART)), strict=True)
        places = list(zip(head[KEY].to_pylist(), map(ordered, offsets), strict=True))
        order = sorted(range(len(head)), key=places.__getitem__)
        is_new = pc.and_(head[ERROR].is_null(), pc.invert(head[PUBLISHED])).to_pylist()
        if identity.unique and any(places[one] == places[next_] for one, next_ in pairwise(at for at in order if is_new[at])):
            raise UsageError(REPEATED)
        rows = head.take(pa.array(order, pa.int64())).combine_chunks()
        holding = Holding("", 0, MESSAGE_INPUT, rising=None)
        found = parsed_reports(holding.hold(rows.to_batches()))
        assert found is not None, "they are sorted"
        return HeldRows(holding.memory, common, found, list(_ENVELOPE))
    return None


def hold_spans(spark: SparkSession, batch: SourceBatch, tagging: Tagging, common: Common, workspace: Workspace) -> HeldRows:
    """Hold the rows of a source of ours: each span by a task, or all of them by this process if they are few. Raises what reading
    raises."""
    fields = [field for field in workspace.state.schema if field.name in tagging.columns]
    columns = [field.name for field in fields]
    folder, read = str(workspace.folder), batch.reader.read
    workspace.folder.mkdir(parents=True)

    def hold(number: int, *spans: Any) -> Iterator[pa.RecordBatch]:
        blocks = (tagging.tagged(block) for span in spans for block in read(span))
        yield from Holding(_file(folder, number), number, columns, rising=SOURCE).hold(blocks)

    if batch.reader.are_few(batch.spans):
        found = parsed_reports(hold(0, *batch.spans))
    else:
        report = _report({f"{OFFSET_PART}0": LongType(), f"{TEXT_PART}0": StringType()})
        found = parsed_reports(batch.by_tasks(spark, hold, report).toArrow().to_batches())
    assert found is not None, "a source of ours is in order"
    return HeldRows(workspace, common, found, fields)


def _file(folder: str, number: int) -> str:
    """A name for the rows of a task; a task that is run again, or twice, takes another one."""
    return f"{folder}/{number:06}-{uuid.uuid4()}.arrow"


def hold_by_tasks(
    tagged: DataFrame, identity: Identity, columns: Sequence[str], rising: str, folder: Path | None = None
) -> tuple[list[HeldPart], list[Rejected]] | None:
    """Hold the rows, these columns of theirs, by the tasks that have them, in files of a folder, which is emptied first; without, they
    are only counted. None unless those of each source, or ledger key, are in order, as `Holding` has it, where offsets are unique."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    place, checked = None if folder is None else str(folder), rising if identity.unique else None
    sent = _sent(tagged, identity, columns)

    def of_partition(blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        file = None if place is None else _file(place, number)
        yield from Holding(file, number, columns, rising=checked).hold(blocks)

    report = _report({field.name: field.dataType for field in sent.schema})
    found = parsed_reports(sent.mapInArrow(of_partition, report).toArrow().to_batches())
    return found if found is None or checked is None or are_apart(found[0], checked) else None


def _sent(tagged: DataFrame, identity: Identity, columns: Sequence[str]) -> DataFrame:
    """What `Holding` needs of rows, and these columns of theirs."""
    parts = range(len(identity.offsets))
    more = {KEY: f"xxhash64({LEDGER_KEY})"}
    more |= {f"{OFFSET_PART}{at}": f"{OFFSET}.o{at}" for at in parts}
    more |= {f"{TEXT_PART}{at}": f"CAST({OFFSET}.o{at} AS STRING)" for at in parts}
    named = (f"{sql} AS {name}" for name, sql in more.items())
    return tagged.selectExpr(SOURCE, HASH, ERROR, PUBLISHED, *named, *map(identifier, columns))


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
