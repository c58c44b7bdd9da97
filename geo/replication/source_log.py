"""The log of a link's source, for all who bring what is in it."""

from __future__ import annotations

from pyspark.sql.types import StructType

from geo.config.model import Link
from geo.delta.table import Table
from geo.journal.cluster import ClusterTables
from geo.log.kept_policies import refuse_forbidden
from geo.log.topic_log import seen_log
from geo.names import Topic
from schemas.table import POLICIES_PROPERTY


def open_source_log(source: ClusterTables, topic: Topic, link: Link, who: str) -> tuple[Table, StructType]:
    """The topic's log in the link's source, checked, with its columns.

    Raises SchemaError as `open_log`, RetryableError if the log says that the topic does not go this way; `who` brings it.
    """
    log_table, seen = seen_log(source, topic)
    refuse_forbidden(seen.properties.get(POLICIES_PROPERTY), link.source, link.target, who, str(log_table), str(topic))
    return log_table, seen.columns
