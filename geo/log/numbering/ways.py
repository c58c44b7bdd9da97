"""Which rows of a batch are new, how many there are of each ledger, and the entries they get in offset order.

Three ways, which tests hold equal: `OnDriver` for a few rows; `HeldRows` for any number where the log is on a local disk;
`OnSpark` for any number anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.delta.small_batch import fetch_if_small
from geo.delta.table import Table
from geo.disk import local_path
from geo.log.numbering.held_rows import HeldRows, Workspace, hold_frame
from geo.log.numbering.on_driver import TAKEN, OnDriver
from geo.log.numbering.on_spark import OnSpark
from geo.log.numbering.runs import OTHER_ROWS
from geo.log.numbering.tallies import REPEATED, TEXT, Common
from geo.log.source_identity import Identity
from geo.log.topic_log import user_columns

Numbered = OnDriver | HeldRows | OnSpark


def workspace_of(folder: str, log: Table, held: ExitStack) -> Workspace | None:
    """Where a batch of `log` can be held and written by this process; None if Spark is to write it. `folder` is for this batch
    alone."""
    local, table, state = local_path(folder), log.log_folder, log.own_state()
    return None if local is None or table is None or state is None else Workspace(local, table.parent, state, held)


def numbering(
    rows: DataFrame,
    tag: Callable[[DataFrame], DataFrame],
    identity: Identity,
    common: Common,
    workspace: Workspace | None,
    held: ExitStack,
    *,
    was_few: bool | None,
) -> Numbered:
    """The way for one batch of a DataFrame. `tag` gives rows all columns of the log, SOURCE, OFFSET, HASH, ERROR and PUBLISHED.
    `was_few`: whether the batch before was of few rows, so that this one may be, and need not be held to be looked at. `held`
    releases at its end what is held. Raises UsageError for which `is_repeated`."""
    if workspace is None:
        return _by_spark(tag(rows), identity, common, held, was_few=was_few)
    if was_few and (few := _few(tag(rows), identity, common)) is not None:
        return few
    return hold_frame(rows, tag, identity, common, workspace)


def _by_spark(
    tagged: DataFrame, identity: Identity, common: Common, held: ExitStack, *, was_few: bool | None
) -> OnDriver | OnSpark:
    if not was_few:
        held.callback(tagged.persist().unpersist)
    if was_few is not False and (few := _few(tagged, identity, common)) is not None:
        return few
    if was_few:
        held.callback(tagged.persist().unpersist)
    return OnSpark(tagged, identity, common, held)


def _few(tagged: DataFrame, identity: Identity, common: Common) -> OnDriver | None:
    """The rows, if they are few and of a bytes topic."""
    if user_columns(common.columns):
        return None
    head = fetch_if_small(tagged.withColumn(TEXT, F.expr(identity.text)), TAKEN)
    if head is not None:
        with suppress(OverflowError, UnicodeDecodeError):  # a date beyond 9999, text that is not UTF-8
            return OnDriver(head, identity, common)
    return None


def is_repeated(error: Exception) -> bool:
    """Whether it says that two rows have the same offset."""
    return REPEATED in str(error)


def is_other_rows(error: Exception) -> bool:
    """Whether it says that the rows to be written are not those that were counted."""
    return OTHER_ROWS in str(error)
