"""Rows are appended to a table in one commit: a DataFrame, rows at hand, or files that were written beside it before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from geo.crash import CrashPoint, reach
from geo.delta.arrow_rows import columns_in
from geo.delta.disk_store import disk_of
from geo.delta.engine import UnsupportedError
from geo.delta.engines.spark.files import have_types, no_pattern, staged, write
from geo.delta.engines.spark.task_files import write_by_tasks, write_files_by_tasks
from geo.delta.file_rows import FileRows
from geo.delta.frames import read_written
from geo.delta.local_commits import add_written, commit_written, remove_written
from geo.delta.local_state import state_for, state_to_follow, state_with
from geo.delta.row_files import Added, Written, fits, write_files
from geo.delta.spark_commits import CHANGED, UNLIKE, leave_rows, save
from geo.delta.writer import is_for_spark
from geo.disk import full_at
from geo.late import spark_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from geo.delta.table import Table

_FEED = "_change_data/"
"""The place where the files of a change feed are."""


def append_frame(
    table: Table,
    rows: DataFrame,
    user_metadata: str | None = None,
    transaction: tuple[str, int] | None = None,
    refuse: Callable[[], None] = lambda: None,
    fenced: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> None:
    """Append in one commit; a DataFrame without rows makes none. Retries what cannot have landed.

    Where there is a lock and the table is there, Spark writes files before the lock is taken. What a plan reads may be slow or hang, and holds up
    nobody. A column without a type is left out, and is NULL. With `transaction` (application id, number) nothing is appended if the table has that
    number or a higher one of it. Delta's own commit then writes the files once more, under the lock. `refuse` raises unless it may be appended. It
    is asked before each try, where there is a lock while nobody of ours can commit. `fenced` adds to the plan what is asked where Spark commits.

    Raises UnsafeError where it is Spark's to do, and Spark's commits are not safe.
    """
    refuse()
    by_spark = table.may_spark_commit
    if by_spark and (table.lock is None or not table.exists()):
        save(table, fenced(rows), user_metadata, transaction, refuse)
        return
    rows = rows.drop(*(field.name for field in rows.schema if isinstance(field.dataType, spark_types.NullType)))
    if (transaction is None or not by_spark) and (written := write_frame(table, rows)) is not None:
        reach(CrashPoint.APPEND_WRITTEN)
        append_written(table, written, user_metadata, refuse, fenced, transaction)
        return
    leave_rows(table, rows.schema)
    # Delta's own commit writes them once more: it alone knows numbers that were used.
    with staged(str(table.location)) as place:
        rows.write.parquet(place)
        files = table.spark.read.schema(rows.schema).parquet(no_pattern(place))
        save(table, fenced(files), user_metadata, transaction, refuse)


def write_frame(table: Table, rows: DataFrame) -> Written | None:
    """Rows as files beside the table, which a commit may add without Spark. None where that is not so."""
    folder, state = table.log_folder, state_with(table, rows.columns)
    if folder is None or state is None or not have_types(rows.schema, table.require_snapshot().columns):
        return None
    if (disk := disk_of(folder)) is None:
        return write_by_tasks(rows, folder.parent, state)
    if state.is_mapped:  # of which Spark's files know nothing
        return None
    return write(rows, str(table.location), disk.parent, state)


def write_file_rows(table: Table, rows: FileRows, order: Sequence[str]) -> Written | None:
    """Writes as `write_files` rows that tasks of Spark's read from their files; those of a file in this order."""
    folder, state = table.log_folder, state_with(table, rows.state.schema.names)
    if folder is None or state is None or folder.store.is_near or not set(rows.state.schema) <= set(state.schema):
        return None
    return write_files_by_tasks(table.spark, rows, order, folder.parent, state)


def write_rows(table: Table, rows: pa.Table) -> Written | None:
    """Writes as `write_files` rows that this process has at hand."""
    folder, state = table.log_folder, state_for(table, lambda state: fits(state, rows))
    if folder is None or state is None:
        return None
    return write_files(folder.parent, state, rows)


def write_feed(table: Table, rows: DataFrame) -> tuple[Added, ...] | None:
    """Rows of a change, with their `_change_type`, as files of the table's change feed, which a change may name. None where the table has no such
    feed. None where Spark is to do it."""
    folder, state = table.log_folder, state_to_follow(table)
    if folder is None or state is None:
        return None
    if str(table.properties().get("delta.enableChangeDataFeed")).lower() != "true":
        return ()
    if (disk := disk_of(folder)) is None:
        written = write_by_tasks(rows, folder.parent, state, into=_FEED)
    else:
        written = write(rows, str(table.location), disk.parent, state, into=_FEED)
    return None if written is None else written.files


def append_written(
    table: Table,
    written: Written,
    user_metadata: str | None = None,
    refuse: Callable[[], None] = lambda: None,
    fenced: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    transaction: tuple[str, int] | None = None,
) -> None:
    """Appends as `append` files that were written beside the table."""
    if not commit_written(table, written, user_metadata, refuse, transaction):
        try:
            leave_rows(table, None)
            save(table, fenced(read_written(table, written)), user_metadata, transaction, refuse)
        finally:
            remove_written(table, written)


def append_rows(
    table: Table,
    rows: pa.Table,
    user_metadata: str | None = None,
    refuse: Callable[[], None] = lambda: None,
    fenced: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> None:
    """Appends as `append` rows that this process has at hand: where it can, without Spark."""
    if not append_here(table, rows, user_metadata, refuse):
        leave_rows(table, columns_in(rows))
        save(table, fenced(table.spark.createDataFrame(rows).coalesce(1)), user_metadata, None, refuse)


def append_rows_once(table: Table, rows: pa.Table, user_metadata: str, transaction: tuple[str, int]) -> int | None:
    """Append rows in one commit of this process's, unless that number of the transaction's application, or a higher one, was used.
    Returns its version; None: it was used. Where it is Spark's to do, raises UnsupportedError, or UnsafeError if its commits are not
    safe."""
    folder, state = table.log_folder, state_for(table, lambda state: fits(state, rows))
    if folder is None or state is None:
        leave_rows(table, columns_in(rows))
        raise UnsupportedError(UNLIKE)
    written = write_files(folder.parent, state, rows)
    reach(CrashPoint.APPEND_WRITTEN)
    is_done, version = add_written(table, written, user_metadata, lambda: None, transaction)
    if not is_done:
        remove_written(table, written)
        leave_rows(table, None)
        raise UnsupportedError(CHANGED)
    return version


def append_here(
    table: Table, rows: pa.Table, user_metadata: str | None = None, refuse: Callable[[], None] = lambda: None
) -> bool:
    """Append in one commit without Spark; False, and nothing was written, where Spark is to do it. `refuse` as
    `commit_written`."""
    folder, state = table.log_folder, state_for(table, lambda state: fits(state, rows))
    if folder is None or state is None or is_for_spark(folder, state):
        return False
    try:
        written = write_files(folder.parent, state, rows)
    except OSError as error:
        if (full := full_at(error, folder.parent)) is not None:
            raise full from None
        if not table.may_spark_commit:
            raise
        return False  # Spark meets it too, and its errors are known
    reach(CrashPoint.APPEND_WRITTEN)
    committed = commit_written(table, written, user_metadata, refuse)
    if not committed:
        remove_written(table, written)
    return committed
