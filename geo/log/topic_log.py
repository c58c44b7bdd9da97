"""A topic's log as everybody reads it: its columns, what identifies and orders its rows, which of them are messages. Read
only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from geo.delta.ddl import find_checked
from geo.delta.engine import TableSnapshot
from geo.delta.predicate import to_sql
from geo.delta.scan import count_nulls, last_rows
from geo.delta.table import Table
from geo.errors import NotThereError
from geo.ids import LedgerId, MessageId
from geo.journal.cluster import ClusterTables
from geo.late import F
from geo.log.conditions import IS_MESSAGE
from geo.names import Topic
from geo.schemas import ENVELOPE, TOPIC_LOG

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

ID = ("origin", "ledger_id", "entry_id")
"""The columns of a message id."""

ERASED_PROPERTY = "geo.erased"
"""Property of an erased message: `true`. Of a log, as a table property: when messages of it were last erased."""

PUBLISH_ORDER = ("publish_time", *ID)
"""Sorts messages as they were published: within a ledger that is entry order, and so is it for a key that one producer writes."""

_SHOWN = (*ID, "publish_time", "event_time", "producer", "key", "properties", "replicate_to", "payload")
"""Columns of the envelope that are of interest to a reader."""

_ENVELOPE_NAMES = {column.name for column in ENVELOPE}


def ids_of(rows: pa.Table) -> Iterator[tuple[str, int, int]]:
    """The message id of each row, in its parts."""
    return zip(*(rows[name].to_pylist() for name in ID), strict=True)


def is_message() -> Column:
    """True for messages, false for markers."""
    return F.expr(to_sql(IS_MESSAGE))


def is_of(ledger: LedgerId) -> Column:
    """True for the rows of one ledger."""
    return (F.col("origin") == ledger.origin) & (F.col("ledger_id") == ledger.ledger_id)


def ledger_ranges(rows: DataFrame) -> dict[LedgerId, tuple[int, int]]:
    """First and last entry of each ledger in `rows`. A whole log has all between them (L5)."""
    found = rows.groupBy("origin", "ledger_id").agg(F.min("entry_id").alias("first"), F.max("entry_id").alias("last"))
    return {LedgerId(row["origin"], row["ledger_id"]): (row["first"], row["last"]) for row in found.collect()}


def open_log(tables: ClusterTables, topic: Topic) -> tuple[Table, StructType]:
    """A topic log that exists, checked, with its columns.

    Raises NotThereError if it is missing, another SchemaError if it is foreign or newer.
    """
    table, seen = seen_log(tables, topic)
    return table, seen.columns


def seen_log(tables: ClusterTables, topic: Topic) -> tuple[Table, TableSnapshot]:
    """Open as `open_log` does, with all that the look at the log said."""
    table = tables.log(topic)
    seen = find_checked(table, TOPIC_LOG)
    if seen is None:
        raise NotThereError(
            f"{topic}: has no log in cluster {tables.cluster.name} ({table}). `geo topics` lists those that are there."
        )
    return table, seen


def user_columns(columns: StructType) -> list[StructField]:
    """A typed topic's own columns, in table order; none for a bytes topic."""
    return [field for field in columns if field.name not in _ENVELOPE_NAMES]


def messages(tables: ClusterTables, topic: Topic) -> DataFrame:
    """All messages of a topic in this cluster, all columns of the log, markers left out.

    Raises NotThereError if the topic is not there.
    """
    table, _ = open_log(tables, topic)
    return table.read().where(is_message())


def count_messages(log: Table, version: int) -> int:
    """Count the messages of a log at a version. Without Spark where this process reads files, if there are not many or it only looks."""
    return count_nulls(log, version, "marker")


def newest(tables: ClusterTables, topic: Topic, count: int) -> Iterator[dict[str, Any]]:
    """The newest messages by publish time, oldest of them first: `message_id`, envelope fields, and a typed topic's own
    columns under `columns`. Without Spark where this process reads files, but for columns with structure. Raises NotThereError if
    the topic is not there.
    """
    log, seen = seen_log(tables, topic)
    own = [name for name in seen.names if name not in _ENVELOPE_NAMES]
    names = [*_SHOWN, *own]
    for fields in reversed(last_rows(log, names, PUBLISH_ORDER, count, where_null="marker")):
        yield {
            "message_id": str(MessageId(fields["origin"], fields["ledger_id"], fields["entry_id"])),
            **{name: fields[name] for name in _SHOWN if name not in ID},
            "columns": {name: fields[name] for name in own},
        }
