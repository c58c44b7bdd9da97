"""Numbering of rows that are held once, by whoever has them, and written by this process. Few anywhere, any number where the log is on a local disk
or on S3.

A task of Spark's holds its partition's rows in a file (geo.log.numbering.holding), or this process does if it reads them. Each file becomes a data
file of the log, or one for each date. The few rows of a DataFrame, of which Spark's jobs would be most of the time, are fetched and held in memory.
A row is computed once, so what is written is what was counted.
"""

from __future__ import annotations

import os
import pickle
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo.delta.arrow_rows import arrow_type, map_in_arrow
from geo.delta.delta_state import DeltaState
from geo.delta.local_state import state_with
from geo.delta.row_files import Written, remove_files, write_files
from geo.delta.small_batch import fetch_if_small
from geo.delta.store import WritePath
from geo.delta.table import Table
from geo.disk import local_path
from geo.errors import UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import Batch
from geo.log.numbering.holding import (
    KEY,
    OFFSET_PART,
    TEXT_PART,
    EntryRun,
    Holding,
    Report,
    are_apart,
    joined,
    log_lines,
    runs_of,
)
from geo.log.numbering.order import Order, ordered
from geo.log.numbering.tagging import Tagging
from geo.log.numbering.tallies import LEDGER_KEY, REPEATED, Common, Rejected, Tally, merged
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, RowIdentity
from geo.log.sources.source import SourceBatch
from geo.log.topic_log import user_columns
from geo.schemas import TOPIC_LOG
from geo.schemas.topic_log import MESSAGE_INPUT
from geo.sql_text import identifier

_SOME_ROWS = 1_000
"""So many first rows are looked at for their order: a job of one task. Of rows that are shuffled, some of them fall."""

_PACKED = "report BINARY"

_ENVELOPE = pa.schema([(name, arrow_type(TOPIC_LOG.types[name])) for name in MESSAGE_INPUT])
"""Columns of a message of a bytes topic."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The place where a batch is held and written. `folder` is a folder on a local disk for this batch alone, `table` that of the log, which had
    `state` a moment ago."""

    folder: Path
    table: WritePath
    state: DeltaState


def workspace_of(folder: str, log: Table, columns: Collection[str], held: ExitStack) -> Workspace | None:
    """Tells where a batch of `log`, which has these columns, can be held and written by this process; None if Spark is to write it. `folder` is for
    this batch alone; `held` removes it at its end."""
    local, table, state = local_path(folder), log.log_folder, state_with(log, columns)
    if local is None or table is None or state is None:
        return None
    held.callback(shutil.rmtree, local, ignore_errors=True)
    return Workspace(local, table.parent, state)


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows of a batch, held in the files of a workspace or in memory. `report` is what is said of them, `fields` are their
    columns as the log has them."""

    held: Workspace | pa.Buffer
    common: Common
    report: Report
    fields: Sequence[pa.Field]

    def tallies(self) -> list[Tally]:
        return merged(self.report[0])

    def rejected(self, most: int | None = None) -> Sequence[Rejected]:
        """The new rows that are bad, all or some of them."""
        return self.report[1][:most]

    def entries(self, batch: Batch) -> Written | pa.Table:
        """The new rows as they stand in the log, or as files that a commit may add. Raises OSError; then no file is left."""
        parts, _ = self.report
        found = runs_of(parts, batch.spans)
        if isinstance(self.held, pa.Buffer):
            (runs,) = found.values()
            return self._lines(self.held, batch, runs)
        table, state = self.held.table, self.held.state
        files_of = {part.partition: part.file for part in parts}

        def write(partition: int, runs: Mapping[int, EntryRun]) -> Written:
            with pa.memory_map(files_of[partition]) as source:
                return write_files(table, state, self._lines(source, batch, runs))

        with ThreadPoolExecutor(min(len(found), os.cpu_count() or 1), "geo-write") as pool:
            writes = [pool.submit(write, *one) for one in found.items()]
        files = tuple(file for one in writes if one.exception() is None for file in one.result().files)
        for failed in filter(None, (one.exception() for one in writes)):
            remove_files(table, files)
            raise failed
        return Written.of(files, state)

    def _lines(self, source: Any, batch: Batch, runs: Mapping[int, EntryRun]) -> pa.Table:
        rows = pa.ipc.open_file(source).read_all()
        columns = {field.name: rows[field.name].cast(field.type) for field in self.fields}
        return log_lines(pa.table({KEY: rows[KEY], **columns}), runs, self.common.of(batch))


def hold_frame(
    rows: DataFrame, tag: Callable[[DataFrame], DataFrame], identity: RowIdentity, common: Common, workspace: Workspace
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


def hold_few(tagged: DataFrame, identity: RowIdentity, common: Common) -> HeldRows | None:
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
        found = joined(holding.hold(rows.to_batches()))
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

    def hold(number: int, *spans: Any) -> Iterator[Report | None]:
        blocks = (tagging.tagged(block) for span in spans for block in read(span))
        yield from Holding(_file(folder, number), number, columns, rising=SOURCE).hold(blocks)

    if batch.reader.are_few(batch.spans):
        found = joined(hold(0, *batch.spans))
    else:
        found = joined(_unpacked(batch.by_tasks(spark, lambda number, span: _packed(hold(number, span)), _PACKED)))
    assert found is not None, "a source of ours is in order"
    return HeldRows(workspace, common, found, fields)


def _file(folder: str, number: int) -> str:
    """A name for the rows of a task; a task that is run again, or twice, takes another one."""
    return f"{folder}/{number:06}-{uuid.uuid4()}.arrow"


def hold_by_tasks(
    tagged: DataFrame, identity: RowIdentity, columns: Sequence[str], rising: str, folder: Path | None = None
) -> Report | None:
    """Hold the rows, these columns of theirs, by the tasks that have them, in files of a folder, which is emptied first. Without, they are only
    counted. None unless those of each source, or ledger key, are in order, as `Holding` has it, where offsets are unique."""
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
        return _packed(Holding(file, number, columns, rising=checked).hold(blocks))

    found = joined(_unpacked(map_in_arrow(sent, of_partition, _PACKED)))
    return found if found is None or checked is None or are_apart(found[0], checked) else None


def _sent(tagged: DataFrame, identity: RowIdentity, columns: Sequence[str]) -> DataFrame:
    """Select what `Holding` needs of rows, and these columns of theirs."""
    parts = range(len(identity.offsets))
    more = {KEY: f"xxhash64({LEDGER_KEY})"}
    more |= {f"{OFFSET_PART}{at}": f"{OFFSET}.o{at}" for at in parts}
    more |= {f"{TEXT_PART}{at}": f"CAST({OFFSET}.o{at} AS STRING)" for at in parts}
    named = (f"{sql} AS {name}" for name, sql in more.items())
    return tagged.selectExpr(SOURCE, HASH, ERROR, PUBLISHED, *named, *map(identifier, columns))


def _packed(reports: Iterable[Report | None]) -> Iterator[pa.RecordBatch]:
    """Reports as tasks send them."""
    for report in reports:
        yield pa.record_batch({"report": pa.array([pickle.dumps(report)], pa.binary())})


def _unpacked(packed: DataFrame) -> Iterator[Report | None]:
    """The reports that tasks sent."""
    return (pickle.loads(row) for row in packed.toArrow()["report"].to_pylist())  # noqa: S301  # of this program's own tasks


def _seem_in_order(rows: DataFrame, identity: RowIdentity) -> bool:
    """True if the first rows of a user's DataFrame are in order. To find that out of all of it takes as long as to hold it."""
    if not identity.gapless:
        return True
    named = (f"{sql} AS {OFFSET_PART}{at}" for at, sql in enumerate(identity.offsets))
    first = rows.selectExpr(f"{identity.source} AS {SOURCE}", *named).limit(_SOME_ROWS).toArrow()
    return not len(first) or Order().rises(*(column.combine_chunks() for column in first.columns))


def _in_ranges(rows: DataFrame, identity: RowIdentity) -> DataFrame:
    """The rows in Spark partitions of which each has a range of offsets, in order. Nothing but what was given is moved."""
    order = [F.expr(sql) for sql in (*([identity.source] if identity.is_scattered else []), *identity.offsets)]
    return rows.repartitionByRange(*order).sortWithinPartitions(*order)
