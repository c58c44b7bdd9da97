"""Commits that Spark and Delta make, and what is left to them. Where commits of Spark's are not safe, nothing is."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn, TypeVar

from geo.delta.columns import growth
from geo.delta.commits import KEPT
from geo.delta.committing import COMMIT_ATTEMPTS, committing
from geo.delta.disk_store import path_of
from geo.delta.driver import Driver
from geo.delta.engines.spark.files import have_types, sweep
from geo.delta.local_state import why_left_to_spark
from geo.delta.table import Table
from geo.errors import RetryableError, UnsafeError
from geo.faults import is_conflict
from geo.late import spark_errors
from geo.reasons import Reason
from geo.session import own_session
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

T = TypeVar("T")

KEPT_RECORD = json.dumps({KEPT: 1})
"""Record of a commit that replaces the rows of a system table."""

UNLIKE, CHANGED, NOT_HERE = "these rows are not as its columns are", "its columns changed", "that is not done without Spark"
"""The reason why something is left to Spark."""


def leave_to_spark(table: Table, why: str) -> None:
    """Leaves to Spark what is not done here. Raises UnsafeError where commits of Spark's are not safe; `why` it is not done here, where the table
    itself does not say.
    """
    if not table.may_spark_commit:
        _refuse(table, why)


def leave_rows(table: Table, columns: StructType | None) -> None:
    """Rows with these columns are Spark's to append, or files (None), which had the table's when they were written. Raises as `leave_to_spark`.
    RetryableError where all that is in the way is that columns came meanwhile, or wider types, and who appends has to look again."""
    if table.may_spark_commit:
        return
    if why_left_to_spark(table) is None:
        there = table.require_snapshot().columns
        # Of rows whose types are the table's it is a value that is in the way.
        if columns is None or not ((needed := growth(there, columns)) or needed.clashes or have_types(columns, there)):
            raise RetryableError(f"{table}: {CHANGED} meanwhile. Nothing was written. Try again.", code=Reason.CONFLICT)
    _refuse(table, UNLIKE)


def _refuse(table: Table, why: str) -> NoReturn:
    why = why_left_to_spark(table) or why
    raise UnsafeError(
        f"{table}: {why}, and on its store commits of Spark's can be lost. Nothing was written. docs/guarantees.md, *What a table asks "
        "of its writers*, says what can be."
    )


def save(
    table: Table, rows: DataFrame, user_metadata: str | None, transaction: tuple[str, int] | None, refuse: Callable[[], None]
) -> None:
    """Append by Spark and Delta, whose plan runs inside the commit. Where there is a lock the rows are at hand, but for the first of a
    table."""

    def append() -> None:
        refuse()
        writer = rows.write.format("delta").mode("append")
        if user_metadata is not None:
            writer = writer.option("userMetadata", user_metadata)
        if transaction is not None:
            writer = writer.option("txnAppId", transaction[0]).option("txnVersion", transaction[1])
        _write(table, writer)

    commit_by_spark(table, append)


def _write(table: Table, writer: DataFrameWriter) -> None:
    writer.save(table.name) if table.by_path else writer.saveAsTable(table.sql)


def sweep_table(table: Table) -> None:
    """Remove what processes left beside a table on a local disk that died while Spark wrote files for a commit."""
    if (disk := table.opened.disk) is not None:
        sweep(path_of(disk.parent))


def overwrite(table: Table, rows: DataFrame) -> None:
    """Replace all rows by others made from them, by Spark and Delta, in one commit that says that it changes no data. Streams do not see it. What
    is appended meanwhile stays: within the commit Delta reads and replaces the files of one version. Raises as `commit_by_spark`."""
    # So that appends beside it are no conflict: there are always some, and it would lose against them for ever.
    writer = rows.write.format("delta").mode("overwrite").option("dataChange", "false").option("userMetadata", KEPT_RECORD)
    commit_by_spark(table, lambda: _write(table, writer))


def with_user_metadata(table: Table, user_metadata: str) -> Table:
    """This table in a session of its own, in which each commit carries that userMetadata: for changes that take it only from
    there."""
    return _in_session(table, {"spark.databricks.delta.commitInfo.userMetadata": user_metadata})


def _in_session(table: Table, settings: Mapping[str, str]) -> Table:
    """This table in a session of its own."""
    own = own_session(table.spark, settings)
    driver = Driver(lambda: own, lambda: table.driver.me, find_port=lambda: table.driver.port)
    return Table(driver, table.name, by_path=table.by_path, lock=table.lock)


def commit_by_spark(table: Table, action: Callable[[], T]) -> T:
    """Run one committing action under the table's lock, again if another commit came between.

    A conflict means that nothing of the action landed. What landed is durable when this returns, and when it raises. Raises
    RetryableError after COMMIT_ATTEMPTS conflicts, UnsafeError where commits of Spark's are not safe.
    """
    leave_to_spark(table, NOT_HERE)
    _ = table.spark  # the lock names the JVM that commits
    for _ in range(COMMIT_ATTEMPTS):
        with committing(table):
            try:
                return action()
            except spark_errors.PySparkException as error:
                if not is_conflict(error):
                    raise
                conflict = error
        log.info("%s: another commit came between, trying again: %s", table, first_line(conflict))
    raise RetryableError(
        f"{table}: {COMMIT_ATTEMPTS} commits in a row met another writer's; nothing was written. Try again.",
        code=Reason.CONFLICT,
    )


def vacuum_table(table: Table) -> None:
    """Remove the files that no version within the table's retention needs. It makes no commit, so no lock is held for it."""
    _in_session(table, {"spark.databricks.delta.vacuum.logging.enabled": "false"}).delta().vacuum()
    sweep_table(table)
