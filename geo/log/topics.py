"""The registry of a cluster's topics and how a topic comes into being. `system/topics` is how links discover topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from pyspark.sql.types import StructField, StructType

from geo.crash import CrashPoint, reach
from geo.log.names import Topic
from geo.log.tables import ClusterTables, open_log
from schemas import TOPIC_LOG, TOPICS


@dataclass(frozen=True, slots=True)
class Registered:
    topic: Topic
    created_at: datetime
    typed: bool


def registered_topics(tables: ClusterTables) -> list[Registered]:
    """The topics of a cluster by name; none if it has no registry yet (nothing was ever published or replicated there)."""
    rows = tables.journal(TOPICS).newest()
    return sorted((Registered(Topic.parse(r["topic"]), r["created_at"], r["typed"]) for r in rows), key=lambda r: r.topic)


def create_topic(tables: ClusterTables, topic: Topic, columns: Sequence[StructField] = ()) -> StructType:
    """The topic's log, created with `columns` as the user's own unless another process is quicker, and registered.

    1. Add the registry row → 2. create the log. So a log that is there is registered; a registered topic whose log is not
    there yet is passed over by links, and the next call for it creates the log.
    """
    registry = tables.journal(TOPICS)
    if not registry.newest(f"topic = '{topic}'"):
        now = datetime.now(timezone.utc)
        registry.append([{"topic": str(topic), "created_at": now, "typed": bool(columns), "sequence": 1}])
    reach(CrashPoint.TOPIC_REGISTERED)
    tables.log(topic).create(TOPIC_LOG, columns)
    return open_log(tables, topic)[1]
