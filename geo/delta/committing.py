"""The lock of a table, and the sections in which commits are made under it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import TYPE_CHECKING

from geo.delta.disk_store import DiskPath
from geo.delta.durable import sync_commits, sync_left
from geo.delta.engines.spark.engine import MISSING
from geo.delta.local_state import own_state
from geo.delta.locks import table_lock
from geo.late import spark_errors

if TYPE_CHECKING:
    from geo.delta.table import Table

COMMIT_ATTEMPTS = 10
"""An append conflicts only with a metadata change: a fence at somebody's takeover, a new column. Ten in a row means a fault."""


def wait_for_commits(table: Table) -> bool:
    """Wait until no process of ours is inside a commit to this table. False where there is no lock that could tell."""
    if table.lock is None:
        return False
    with locked(table):
        return True


@contextmanager
def alone(table: Table) -> Iterator[Table | None]:
    """Nobody else commits to it meanwhile: the table as it is to be used inside. None where there is no lock that could see
    to that. Where Spark is to commit inside it is started before, so that the lock names its JVM."""
    if table.lock is None:
        yield None
        return
    if not table.driver.has_spark and table.exists() and own_state(table) is None:
        _ = table.driver.spark
    with locked(table):
        inside = copy(table)
        inside.lock = None
        yield inside


@contextmanager
def committing(table: Table) -> Iterator[None]:
    """Under the lock; at the end what was committed on a local disk is written out, however it ended. What others left that is not
    known to be is written out before: that may take a while, and holds up nobody."""
    if (disk := _disk_if_there(table)) is not None:
        sync_left(disk, table.synced_mark)
    with locked(table):
        try:
            yield
        finally:
            if (disk := _disk_if_there(table)) is not None:
                sync_commits(disk, table.synced_mark)


def _disk_if_there(table: Table) -> DiskPath | None:
    """The log on a local disk; None, too, where there is no table: nothing was committed."""
    try:
        return table.opened.disk
    except spark_errors.AnalysisException as error:
        if error.getCondition() not in MISSING:
            raise
        return None


@contextmanager
def locked(table: Table) -> Iterator[None]:
    with table_lock(table.lock, table.driver.committer) if table.lock else nullcontext():
        yield
