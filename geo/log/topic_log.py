"""A topic's log as everybody reads it: its columns, what identifies and orders its rows, which of them are messages. Read only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from geo.errors import SchemaError
from geo.ids import LedgerId, MessageId
from geo.names import Topic
from geo.tables.cluster import ClusterTables
from geo.tables.table import Table
from schemas import ENVELOPE, TOPIC_LOG

ID = ("origin", "ledger_id", "entry_id")
"""The columns of a message id."""

PUBLISH_ORDER = ("publish_time", *ID)
"""Sorts messages as they were published: within a ledger that is entry order, and so is it for a key that one producer writes."""


def is_message() -> Column:
    """True for messages, false for markers."""
    return F.col("marker").isNull()


def is_of(ledger: LedgerId) -> Column:
    """True for the rows of one ledger."""
    return (F.col("origin") == ledger.origin) & (F.col("ledger_id") == ledger.ledger_id)


def ledger_ranges(rows: DataFrame) -> dict[LedgerId, tuple[int, int]]:
    """First and last entry of each ledger in `rows`. A whole log has all between them (L5)."""
    found = rows.groupBy("origin", "ledger_id").agg(F.min("entry_id").alias("first"), F.max("entry_id").alias("last"))
    return {LedgerId(row["origin"], row["ledger_id"]): (row["first"], row["last"]) for row in found.collect()}


def open_log(tables: ClusterTables, topic: Topic) -> tuple[Table, StructType]:
    """A topic log that exists, checked, with its columns.

    Raises SchemaError if it is missing, foreign or newer.
    """
    table = tables.log(topic)
    columns = table.find(TOPIC_LOG)
    if columns is None:
        raise SchemaError(f"{topic}: has no log in cluster {tables.cluster.name} ({table}).")
    return table, columns


def user_columns(columns: StructType) -> list[StructField]:
    """A typed topic's own columns, in table order; none for a bytes topic."""
    envelope = {column.name for column in ENVELOPE}
    return [field for field in columns if field.name not in envelope]


def messages(tables: ClusterTables, topic: Topic) -> DataFrame:
    """All messages of a topic in this cluster, all columns of the log, markers left out.

    Raises SchemaError if the topic is not there.
    """
    table, _ = open_log(tables, topic)
    return table.read().where(is_message())


def newest(tables: ClusterTables, topic: Topic, count: int) -> Iterator[dict[str, Any]]:
    """The newest messages by publish time, oldest of them first: `message_id`, envelope fields, and a typed topic's own
    columns under `columns`."""
    rows = messages(tables, topic)
    own = [field.name for field in user_columns(rows.schema)]
    for row in reversed(rows.orderBy(*(F.desc(name) for name in PUBLISH_ORDER)).limit(count).collect()):
        fields = row.asDict(recursive=True)
        yield {
            "message_id": str(MessageId(fields["origin"], fields["ledger_id"], fields["entry_id"])),
            "publish_time": fields["publish_time"],
            "event_time": fields["event_time"],
            "producer": fields["producer"],
            "key": fields["key"],
            "properties": fields["properties"],
            "replicate_to": fields["replicate_to"],
            "payload": None if fields["payload"] is None else bytes(fields["payload"]),
            "columns": {name: fields[name] for name in own},
        }
