"""`geo erase`: take the content of some messages out of one cluster's log (the right to erasure).

The rows stay, with their ids and times and nothing else. A message that was removed altogether would be a hole in its ledger.
Everywhere else that means a loss, and the next reconcile would fetch it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from geo.config.model import Config
from geo.crash import CrashPoint, reach
from geo.delta.appending import write_feed, write_frame
from geo.delta.change import Change, DataFileOf
from geo.delta.commits import ERASED, Kind
from geo.delta.ddl import set_property
from geo.delta.delta_state import DeltaState
from geo.delta.frames import read_files
from geo.delta.local_commits import change_here, remove_written
from geo.delta.scan import files_at
from geo.delta.spark_commits import commit_by_spark, with_user_metadata
from geo.delta.table import Table
from geo.errors import UsageError
from geo.journal.cluster import connect
from geo.log.housekeeping import open_for_writing
from geo.log.topic_log import ERASED_PROPERTY, ID, open_log, user_columns
from geo.names import Topic
from geo.now import utc_now
from geo.sql_text import identifier
from geo.text import first_line


@dataclass(frozen=True, slots=True)
class Erased:
    """Count of messages that were erased, or would be."""

    topic: str
    cluster: str
    messages: int
    version: int | None
    files_gone_after: str
    """Time for which the files with the old content are still there for versions of before (a retention, as the table has it).
    """


def erase(spark: SparkSession, config: Config, cluster: str, topic: Topic, where: str, *, dry_run: bool = False) -> Erased:
    """Empty key, payload, properties, event_time and the user's columns of the messages for which `where` (SQL) holds.

    Links that read this log go on by themselves. Each cluster is erased on its own, and until all are `verify` says where the content differs.
    Raises UsageError for a condition that Spark does not take.
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
        set_property(log, ERASED_PROPERTY, f"{utc_now():%Y-%m-%dT%H:%M:%SZ}")
    return Erased(str(topic), cluster, messages, newest.version if messages and newest else None, retention)


def _empty(log: Table, columns: StructType, chosen: Column, messages: int) -> None:
    emptied: dict[str, str | Column] = {name: F.lit(None) for name in ("key", "payload", "event_time")}
    emptied |= {field.name: F.lit(None) for field in user_columns(columns)}
    # The same in every cluster, so that erased copies are equal.
    emptied["properties"] = F.create_map(F.lit(ERASED_PROPERTY), F.lit("true"))
    # Links tell this commit from anybody's UPDATE by its record.
    record = json.dumps({ERASED: 1, "messages": messages})
    if change_here(log, lambda state: _emptied(log, state, chosen, emptied), record) is None:
        erasing = with_user_metadata(log, record)
        commit_by_spark(
            erasing, lambda: erasing.delta().update(chosen, {identifier(name): value for name, value in emptied.items()})
        )


def _key(file: DataFileOf, state: DeltaState) -> tuple[str | None, ...]:
    return file.path.rpartition("/")[2], *(file.partition.get(name) for name in state.partition_by)


def _emptied(log: Table, state: DeltaState, chosen: Column, emptied: Mapping[str, str | Column]) -> Change | None:
    """The files with chosen rows, and others in which these are empty. None where Spark is to do it."""
    # A name alone is not enough: a task of Spark's gives its files in several dates the same one.
    parts = [F.col(name).cast("string").alias(name) for name in state.partition_by]
    by_file = log.read(state.version).where(chosen).groupBy(*parts, F.col("_metadata.file_name").alias("name")).count()
    counts = {(row["name"], *(row[name] for name in state.partition_by)): int(row["count"]) for row in by_file.collect()}
    taken = tuple(file for file in files_at(log, state) or () if _key(file, state) in counts)
    if len(taken) != len(counts):
        return None
    rows = read_files(log, ((file.path, file.partition) for file in taken))
    is_chosen = F.coalesce(chosen, F.lit(False))

    def made(rows: DataFrame, where: Column) -> DataFrame:
        return rows.select(
            *(
                F.when(where, emptied[n]).otherwise(F.col(identifier(n))).alias(n) if n in emptied else identifier(n)
                for n in rows.columns
            )
        )

    written = write_frame(log, made(rows, is_chosen).sortWithinPartitions("publish_date", *ID))
    if written is None:
        return None
    before, after = rows.where(is_chosen), made(rows.where(is_chosen), F.lit(True))
    told = [
        frame.withColumn("_change_type", F.lit(f"update_{what}")) for frame, what in ((before, "preimage"), (after, "postimage"))
    ]
    there, found = sum(file.rows for file in taken), sum(file.rows for file in written.files)
    feed = write_feed(log, told[0].unionByName(told[1])) if there == found else None
    if feed is None:
        remove_written(log, written)
        return None
    counted = {"numUpdatedRows": sum(counts.values()), "numCopiedRows": there - sum(counts.values())}
    return Change(state.version, "UPDATE", {"predicate": "[]"}, counted, taken, written, feed)
