"""Which rows of a batch are new, how many there are of each ledger, and the entries they get in offset order.

Three ways, which tests hold equal: `OnDriver` for a few rows; `InFiles` for any number where the log is on a local disk; `OnSpark` for
any number anywhere.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack, suppress

from pyspark.sql import DataFrame

from geo.log.in_files import InFiles
from geo.log.on_driver import TAKEN, OnDriver
from geo.log.on_spark import OnSpark
from geo.log.runs import OTHER_ROWS
from geo.log.source_identity import Identity
from geo.log.tallies import REPEATED, TEXT, Writer
from geo.log.topic_log import user_columns
from geo.tables.files import local_path
from geo.tables.small_batch import fetch_if_small
from geo.tables.table import Table


def numbering(
    tagged: DataFrame,
    given: Collection[str],
    identity: Identity,
    writer: Writer,
    log: Table,
    folder: str,
    held: ExitStack,
    *,
    was_few: bool | None,
) -> OnDriver | InFiles | OnSpark:
    """The way for one batch. `tagged` has the columns of `log`, of which those that are not `given` are NULL, SOURCE, OFFSET, HASH, ERROR and PUBLISHED. `folder` is a place for this batch
    alone. `was_few`: whether the batch before was of few rows, so that this one may be, and need not be held to be looked at. `held`
    releases at its end what is held. Raises UsageError for which `is_repeated`."""
    place, table, state = local_path(folder), log.log_folder, log.own_state()
    if place is None or table is None or state is None:
        return _by_spark(tagged, identity, writer, held, was_few=was_few)
    if was_few and (few := _few(tagged, identity, writer)) is not None:
        return few
    files = InFiles(tagged, given, identity, writer, place, table.parent, state)
    held.callback(files.release)
    return files


def _by_spark(
    tagged: DataFrame, identity: Identity, writer: Writer, held: ExitStack, *, was_few: bool | None
) -> OnDriver | OnSpark:
    if not was_few:
        held.callback(tagged.persist().unpersist)
    if was_few is not False and (few := _few(tagged, identity, writer)) is not None:
        return few
    if was_few:
        held.callback(tagged.persist().unpersist)
    return OnSpark(tagged, identity, writer, held)


def _few(tagged: DataFrame, identity: Identity, writer: Writer) -> OnDriver | None:
    """The rows, if they are few and of a bytes topic."""
    if user_columns(writer.columns):
        return None
    head = fetch_if_small(tagged.withColumn(TEXT, identity.text), TAKEN)
    if head is not None:
        with suppress(OverflowError, UnicodeDecodeError):  # a date beyond 9999, text that is not UTF-8
            return OnDriver(head, identity, writer)
    return None


def is_repeated(error: Exception) -> bool:
    """Whether it says that two rows have the same offset."""
    return REPEATED in str(error)


def is_other_rows(error: Exception) -> bool:
    """Whether it says that the rows to be written are not those that were counted."""
    return OTHER_ROWS in str(error)
