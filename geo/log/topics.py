"""The registry of a cluster's topics and how a topic comes into being. `system/topics` is how links discover topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from pyspark.sql.types import StructField, StructType

from geo.crash import CrashPoint, reach
from geo.log.frames import rows_frame
from geo.log.names import Topic
from geo.log.tables import ClusterTables, Table, open_log, user_columns
from schemas import TOPIC_LOG, TOPICS


@dataclass(frozen=True, slots=True)
class Registered:
    topic: Topic
    created_at: datetime
    typed: bool


def registered_topics(tables: ClusterTables) -> list[Registered]:
    """The topics of a cluster by name; none if it has no registry yet (nothing was ever published or replicated there)."""
    registry = tables.system(TOPICS)
    if not registry.exists():
        return []
    registry.check(TOPICS)
    found: dict[str, Registered] = {}
    for row in registry.read().collect():
        known = found.get(row["topic"])
        if known is None or row["created_at"] < known.created_at:
            found[row["topic"]] = Registered(Topic.parse(row["topic"]), row["created_at"], row["typed"])
    return [found[name] for name in sorted(found)]


def ensure_topic(tables: ClusterTables, topic: Topic, columns: Sequence[StructField] = ()) -> tuple[Table, StructType]:
    """The topic's log, created with `columns` as the user's own if it is missing, and registered.

    1. Create the log table. 2. Add the registry row. A crash between the two is healed by the next call.
    """
    log = tables.log(topic)
    log.create(TOPIC_LOG, columns)
    reach(CrashPoint.TOPIC_TABLE_CREATED)
    registry = tables.opened_system(TOPICS)
    table, found = open_log(tables, topic)
    if registry.read().where(f"topic = '{topic}'").isEmpty():
        row = {"topic": str(topic), "created_at": datetime.now(timezone.utc), "typed": bool(user_columns(found))}
        registry.append(rows_frame(tables.spark, TOPICS.types, [row]))
    return table, found
