"""Reads commits of a `_delta_log` by Spark, many in one job, where this process cannot open their files by itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from geo.delta.actions import actions_of
from geo.delta.commits import Commit, checksum_file, commit_file, of_file, of_info
from geo.faults import spark_errors_here
from geo.late import F, spark_errors
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, Row, SparkSession

log = logging.getLogger(__name__)

PAGE = 500
"""Commits that one job reads."""

_INFO_TEXTS = ("operation", "txnId", "timestamp", "inCommitTimestamp", "userName")
_INFO_OBJECTS = ("operationParameters", "operationMetrics")
"""Fields that are read of a `commitInfo` beside its userMetadata."""

_FILE_FIELDS = ("path", "partitionValues", "size", "dataChange", "deletionVector.cardinality")


def read_page(spark: SparkSession, location: str, first: int, last: int, only: Sequence[str]) -> list[Commit]:
    """The commits `first` to `last` of the table at a location, oldest first, those that are there. One job, or more of them where
    some are not there. With `only`, a userMetadata with none of these keys is left out (None)."""
    paths = [f"{location}/_delta_log/{commit_file(version)}" for version in range(first, last + 1)]
    try:
        rows = _trimmed(spark, paths, only)
    except spark_errors.AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        middle = (first + last) // 2
        halves = ((first, middle), (middle + 1, last)) if first < last else ()
        return [commit for half in halves for commit in read_page(spark, location, *half, only)]
    lines: dict[int, list[Row]] = {}
    for row in rows:
        lines.setdefault(int(row["file"][:20]), []).append(row)
    found = [_commit(spark, location, version, lines.get(version, [])) for version in range(first, last + 1)]
    return [c.since(_metadata_before(spark, location, c.version)) if c.columns and c.version else c for c in found]


def _trimmed(spark: SparkSession, paths: list[str], only: Sequence[str]) -> list[Row]:
    """A row for each line of the files: the file, the name of its action, and what is needed of it, as text."""

    def field(name: str) -> Column:
        return F.get_json_object("value", f"$.{name}").alias(name.replace(".", "_"))

    named = reduce(or_, (F.contains("value", F.lit(key)) for key in only), F.lit(not only))
    of_file_actions = [
        F.coalesce(field(f"add.{name}"), field(f"remove.{name}")).alias(name.replace(".", "_")) for name in _FILE_FIELDS
    ]
    stats = F.coalesce(field("add.stats"), field("remove.stats"))
    return (
        spark.read.text(paths)
        .where(F.trim("value") != "")
        .select(
            F.col("_metadata.file_name").alias("file"),
            F.regexp_extract("value", r'^\s*\{\s*"(\w+)"', 1).alias("action"),
            F.when(named, field("commitInfo.userMetadata")).alias("userMetadata"),
            *(field(f"commitInfo.{name}").alias(name) for name in (*_INFO_TEXTS, *_INFO_OBJECTS)),
            *of_file_actions,
            F.get_json_object(stats, "$.numRecords").alias("numRecords"),
            field("metaData.schemaString").alias("schemaString"),
        )
        .collect()
    )


def _commit(spark: SparkSession, location: str, version: int, lines: Iterable[Row]) -> Commit:
    lines = list(lines)
    info = next((line for line in lines if line["action"] == "commitInfo"), None)
    if info is None or not info["txnId"]:
        return _read_whole(spark, location, version)
    fields = {name: info[name] for name in ("userMetadata", "operation", "userName")}
    fields |= {name: json.loads(info[name] or "{}") for name in _INFO_OBJECTS}
    fields |= {name: int(info[name] or 0) for name in ("timestamp", "inCommitTimestamp")}
    return of_info(version, fields, info["txnId"], actions_of(map(_action, lines)))


def _action(line: Row) -> Mapping[str, Any]:
    """A line as the action that it was, with what `actions_of` asks of it."""
    name = line["action"]
    if name == "metaData":
        return {name: {"schemaString": line["schemaString"]}}
    if name not in ("add", "remove"):
        return {name: {}}
    deleted = line["deletionVector_cardinality"]
    return {
        name: {
            "path": line["path"],
            "partitionValues": json.loads(line["partitionValues"] or "{}"),
            "size": int(line["size"] or 0),
            "dataChange": line["dataChange"] == "true",
            "stats": None if line["numRecords"] is None else f'{{"numRecords":{line["numRecords"]}}}',
            "deletionVector": None if deleted is None else {"cardinality": int(deleted)},
        }
    }


def _read_whole(spark: SparkSession, location: str, version: int) -> Commit:
    """A commit whose writer gave it no transaction id."""
    path = f"{location}/_delta_log/{commit_file(version)}"
    (row,) = spark.read.text(path, wholetext=True).collect()
    return of_file(version, row["value"].split("\n"))


def _metadata_before(spark: SparkSession, location: str, version: int) -> Mapping[str, Any] | None:
    """The table's metadata before a version: by the checksum of the one before, or as Delta reads that; None where it is gone."""
    try:
        row = spark.read.text(f"{location}/_delta_log/{checksum_file(version - 1)}", wholetext=True).first()
        found: Mapping[str, Any] = json.loads(row["value"] if row is not None else "")["metadata"]
        return found
    except (spark_errors.AnalysisException, ValueError, KeyError, TypeError):
        pass  # another program wrote it
    try:
        return {"schemaString": spark.read.format("delta").option("versionAsOf", version - 1).load(location).schema.json()}
    except spark_errors_here() as error:
        log.info("%s: its columns before version %d cannot be read: %s", location, version, first_line(error))
        return None
