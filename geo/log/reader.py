"""Reading a topic's messages for people and programs: no markers, in a stable order. Read only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.log.message_id import MessageId
from geo.log.names import Topic
from geo.log.tables import ClusterTables, open_log, user_columns


def messages(tables: ClusterTables, topic: Topic) -> DataFrame:
    """All messages of a topic in this cluster, all columns of the log, markers left out.

    Raises SchemaError if the topic is not there.
    """
    table, _ = open_log(tables, topic)
    return table.read().where(F.col("marker").isNull())


def newest(tables: ClusterTables, topic: Topic, count: int) -> Iterator[dict[str, Any]]:
    """The newest messages by publish time, oldest of them first: `message_id`, envelope fields, and a typed topic's own
    columns under `columns`."""
    rows = messages(tables, topic)
    own = [field.name for field in user_columns(rows.schema)]
    order = [F.col("publish_time"), F.col("origin"), F.col("ledger_id"), F.col("entry_id")]
    for row in reversed(rows.orderBy(*(c.desc() for c in order)).limit(count).collect()):
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
