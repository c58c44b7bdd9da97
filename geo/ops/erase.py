"""`geo erase`: take the content of some messages out of one cluster's log (the right to erasure).

The rows stay, with their ids and times and nothing else: a message that was removed altogether would be a hole in its ledger,
which everywhere else means a loss, and the next reconcile would fetch it again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from geo.config.model import Config
from geo.crash import CrashPoint, reach
from geo.errors import UsageError
from geo.log.housekeeping import open_for_writing
from geo.log.topic_log import ERASED_PROPERTY, open_log, user_columns
from geo.names import Topic
from geo.now import utc_now
from geo.tables.cluster import connect
from geo.tables.commits import ERASED, Kind
from geo.tables.table import Table
from geo.text import first_line


@dataclass(frozen=True, slots=True)
class Erased:
    """How many messages were erased, or would be."""

    topic: str
    cluster: str
    messages: int
    version: int | None
    files_gone_after: str
    """How long the files with the old content are still there for versions of before (a retention, as the table has it)."""


def erase(spark: SparkSession, config: Config, cluster: str, topic: Topic, where: str, *, dry_run: bool = False) -> Erased:
    """Empty key, payload, properties, event_time and the user's columns of the messages for which `where` (SQL) holds.

    Links that read this log go on by themselves; each cluster is erased on its own, and until all are `verify` says
    where the content differs. Raises UsageError for a condition that Spark does not take.
    """
    tables = open_for_writing(connect(spark, config.cluster(cluster)), config, rehearsal=dry_run)
    log, columns = open_log(tables, topic)
    try:
        chosen = F.expr(
            f"({where}) AND marker IS NULL AND NOT coalesce(map_contains_key(properties, '{ERASED_PROPERTY}'), false)"
        )
        messages = log.read().where(chosen).count()
    except (AnalysisException, ParseException) as error:
        raise UsageError(f"--where {where!r} is no condition on {topic}: {first_line(error)}") from None
    retention = log.properties().get("delta.deletedFileRetentionDuration", "interval 1 week")
    if dry_run:
        return Erased(str(topic), cluster, messages, None, retention)
    if messages:
        _empty(log, columns, chosen, messages)
    reach(CrashPoint.ERASE_UPDATED)
    newest = log.commit_at(log.latest_version())
    if newest is not None and newest.kind is Kind.ERASURE:
        # A commit that rewrites nothing: where a link's stream can begin that has to pass over this one.
        log.set_property(ERASED_PROPERTY, f"{utc_now():%Y-%m-%dT%H:%M:%SZ}")
    return Erased(str(topic), cluster, messages, newest.version if messages and newest else None, retention)


def _empty(log: Table, columns: StructType, chosen: Column, messages: int) -> None:
    emptied: dict[str, str | Column] = {name: F.lit(None) for name in ("key", "payload", "event_time")}
    emptied |= {field.name: F.lit(None) for field in user_columns(columns)}
    # The same in every cluster, so that erased copies are equal.
    emptied["properties"] = F.create_map(F.lit(ERASED_PROPERTY), F.lit("true"))
    # Links tell this commit from anybody's UPDATE by its record.
    erasing = log.saying(json.dumps({ERASED: 1, "messages": messages}))
    erasing.commit(lambda: erasing.delta().update(chosen, emptied))
