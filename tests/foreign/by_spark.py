"""Kinds of commits that Spark makes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import functions as F

from tests.foreign.place import LATER, OF_OLD_DATE, SOME, Kind, Place, message, messages


def _set(**properties: str) -> str:
    pairs = ", ".join(f"'delta.{key.replace('__', '.')}' = '{value}'" for key, value in properties.items())
    return f"ALTER TABLE {{log}} SET TBLPROPERTIES ({pairs})"


VECTORS = _set(enableDeletionVectors="true")
MAPPED = _set(columnMapping__mode="name", minReaderVersion="2", minWriterVersion="5")
SEATS = "ALTER TABLE {log} ADD COLUMNS (seats INT)"


def _sql(name: str, *statements: str, before: str | tuple[str, ...] = (), **settings: str) -> Kind:
    def run(statements: tuple[str, ...]) -> object:
        def make(place: Place) -> None:
            for statement in statements:
                place.sql(statement, **settings)

        return make

    prepared = (before,) if isinstance(before, str) else before
    return Kind(name, "Spark", run(statements), run(prepared) if prepared else None)  # type: ignore[arg-type]


def _stream(place: Place) -> None:
    folder = Path(place.path).parent / f"in-{time.monotonic_ns()}"
    place.frame(place.new()).write.parquet(str(folder / "rows"))
    source = place.spark.readStream.schema(place.rows().schema).parquet(str(folder / "rows"))
    query = source.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start(place.path).awaitTermination()


def _merge(place: Place, *clauses: str, vectors: bool = False) -> None:
    if vectors:
        place.sql(VECTORS)
    rows = [message(place.here, 7, key="merged"), message(place.there, 8, key="merged"), *place.new()]
    place.frame(rows).createOrReplaceTempView("merged")
    condition = "t.origin = s.origin AND t.ledger_id = s.ledger_id AND t.entry_id = s.entry_id"
    place.sql(f"MERGE INTO {{log}} t USING merged s ON {condition} {' '.join(clauses)}")


_INSERT, _UPDATE, _DELETE = (
    "WHEN NOT MATCHED THEN INSERT *",
    "WHEN MATCHED THEN UPDATE SET key = s.key",
    "WHEN MATCHED THEN DELETE",
)


def _restore_before(operation: str | None):  # type: ignore[no-untyped-def]
    """To the version before the newest commit, or before the first one of an operation."""

    def make(place: Place) -> None:
        version = place.version()
        if operation is not None:
            history = place.spark.sql(f"DESCRIBE HISTORY delta.`{place.path}`").where(F.col("operation") == operation)
            version = history.agg(F.min("version")).collect()[0][0]
        place.sql(f"RESTORE TABLE {{log}} TO VERSION AS OF {version - 1}")

    return make


def _delete_and_restore(place: Place) -> None:
    version = place.version()
    place.sql(f"DELETE FROM {{log}} WHERE {OF_OLD_DATE}")
    place.sql(f"RESTORE TABLE {{log}} TO VERSION AS OF {version}")


def _clone_over(place: Place) -> None:
    copy = f"{place.path}-copy-{time.monotonic_ns()}"
    shutil.copytree(place.path, copy)
    place.sql(f"CREATE OR REPLACE TABLE {{log}} SHALLOW CLONE delta.`{copy}`")


def _replaced_by_select(place: Place) -> None:
    place.frame(place.old()).createOrReplaceTempView("selected")
    place.sql("CREATE OR REPLACE TABLE {log} USING delta PARTITIONED BY (publish_date) AS SELECT * FROM selected")


def _converted(place: Place) -> None:
    shutil.rmtree(place.log)
    place.spark.sql(f"CONVERT TO DELTA parquet.`{place.path}` PARTITIONED BY (publish_date DATE)")


def checkpoint(place: Place) -> None:
    jvm = place.spark._jvm
    assert jvm is not None
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(place.spark._jsparkSession, place.path)
    log.checkpoint()


def _v2_checkpoint(place: Place) -> None:
    place.sql(_set(checkpointPolicy="v2"))
    checkpoint(place)


def aged(place: Place) -> None:
    """All commits but the newest look two months old."""
    old = time.time() - 60 * 86_400
    for file in sorted(place.log.glob("*.json"))[:-1]:
        os.utime(file, (old, old))


def _cleaned_up(place: Place) -> None:
    aged(place)
    place.sql(_set(logRetentionDuration="interval 7 days"))
    checkpoint(place)


def _protocol(place: Place) -> None:
    from delta.tables import DeltaTable

    DeltaTable.forPath(place.spark, place.path).upgradeTableProtocol(1, 7)


def _kind(name: str, make: Callable[[Place], object], before: Callable[[Place], object] | None = None) -> Kind:
    return Kind(name, "Spark", make, before)


KINDS = [
    _kind("append of new messages", lambda place: place.write(place.frame(place.new()))),
    _kind("append of messages that are there", lambda place: place.write(place.frame(place.old()))),
    _kind("append of messages that are coming", lambda place: place.write(place.frame(messages(place.there, LATER)))),
    _kind("append of other messages under ids that are used", lambda place: place.write(place.frame(messages(place.here, range(10, 12), key="other")))),
    _kind("append by a stream", _stream),
    _kind("append with a transaction id", lambda place: place.write(place.frame(place.new()), txnAppId="somebody", txnVersion="1")),
    _kind("append that adds a column", lambda place: place.write(place.frame(place.new()).withColumn("seats", F.lit(2)), mergeSchema="true")),
    _kind("overwrite with fewer messages", lambda place: place.write(place.frame(place.old()), "overwrite")),
    _kind("overwrite with the same messages", lambda place: place.write(place.rows(), "overwrite")),
    _kind("overwrite of a date (replaceWhere)", lambda place: place.write(place.frame([message(place.here, 2)]), "overwrite", replaceWhere=OF_OLD_DATE)),
    _kind("overwrite of a date with the same messages", lambda place: place.write(place.rows().where(OF_OLD_DATE), "overwrite", replaceWhere=OF_OLD_DATE)),
    _kind("overwrite of dates (dynamic)", lambda place: place.write(
        place.frame([message(place.here, 2)]), "overwrite", partitionOverwriteMode="dynamic")),
    _kind("overwrite that changes no data (dataChange false)", lambda place: place.write(place.rows().coalesce(1), "overwrite", dataChange="false")),
    _sql("INSERT OVERWRITE", "INSERT OVERWRITE {log} SELECT * FROM {log} WHERE entry_id < 12"),
    _sql("TRUNCATE by DELETE of everything", "DELETE FROM {log}"),
    _kind("CREATE OR REPLACE TABLE AS SELECT", _replaced_by_select),
    _sql("DELETE of a date (metadata only)", f"DELETE FROM {{log}} WHERE {OF_OLD_DATE}"),
    _sql("DELETE of messages", f"DELETE FROM {{log}} WHERE {SOME}"),
    _sql("DELETE of nothing", "DELETE FROM {log} WHERE entry_id = 777"),
    _sql("DELETE with deletion vectors", VECTORS, f"DELETE FROM {{log}} WHERE {SOME}"),
    _sql("UPDATE", f"UPDATE {{log}} SET key = 'changed' WHERE {SOME}"),
    _sql("UPDATE to what is there", f"UPDATE {{log}} SET key = key WHERE {SOME}"),
    _sql("UPDATE of nothing", "UPDATE {log} SET key = 'changed' WHERE entry_id = 777"),
    _sql("UPDATE with deletion vectors", VECTORS, f"UPDATE {{log}} SET key = 'changed' WHERE {SOME}"),
    _sql("UPDATE without a change feed", _set(enableChangeDataFeed="false"), f"UPDATE {{log}} SET key = 'changed' WHERE {SOME}"),
    _kind("MERGE that inserts", lambda place: _merge(place, _INSERT)),
    _kind("MERGE that updates", lambda place: _merge(place, _UPDATE)),
    _kind("MERGE that deletes", lambda place: _merge(place, _DELETE)),
    _kind("MERGE that updates and inserts", lambda place: _merge(place, _UPDATE, _INSERT)),
    _kind("MERGE with deletion vectors", lambda place: _merge(place, _UPDATE, _INSERT, vectors=True)),
    _kind("MERGE that does nothing", lambda place: _merge(place, "WHEN MATCHED AND t.entry_id = 777 THEN DELETE")),
    _sql("OPTIMIZE", "OPTIMIZE {log}"),
    _sql("OPTIMIZE ZORDER", "OPTIMIZE {log} ZORDER BY (entry_id)"),
    _sql("OPTIMIZE over deletion vectors", "OPTIMIZE {log}", before=(VECTORS, f"DELETE FROM {{log}} WHERE {SOME}")),
    _sql("REORG PURGE over deletion vectors", "REORG TABLE {log} APPLY (PURGE)", before=(VECTORS, f"DELETE FROM {{log}} WHERE {SOME}")),
    _sql("VACUUM, logged", "VACUUM {log}", vacuum__logging__enabled="true"),
    _sql("VACUUM of all that is not current", "VACUUM {log} RETAIN 0 HOURS", retentionDurationCheck__enabled="false", vacuum__logging__enabled="true"),
    _sql("OPTIMIZE and VACUUM of what it replaced", "OPTIMIZE {log}", "VACUUM {log} RETAIN 0 HOURS", retentionDurationCheck__enabled="false"),
    _kind("RESTORE that removes only", _restore_before(None)),
    _kind("RESTORE that adds only, after a DELETE", _delete_and_restore),
    _kind("RESTORE that does both", _restore_before("DELETE"), lambda place: place.sql(f"DELETE FROM {{log}} WHERE {OF_OLD_DATE}")),
    _kind("SHALLOW CLONE over the log", _clone_over),
    _kind("CONVERT TO DELTA of the folder", _converted),
    _sql("ADD COLUMNS", SEATS),
    _sql("RENAME COLUMN of a user's column", "ALTER TABLE {log} RENAME COLUMN seats TO places", before=(SEATS, MAPPED)),
    _sql("DROP COLUMN of a user's column", "ALTER TABLE {log} DROP COLUMN seats", before=(SEATS, MAPPED)),
    _sql("RENAME COLUMN of ours", "ALTER TABLE {log} RENAME COLUMN key TO name", before=MAPPED),
    _sql("DROP COLUMN of ours", "ALTER TABLE {log} DROP COLUMN key", before=MAPPED),
    _sql("ALTER COLUMN, its place", "ALTER TABLE {log} ALTER COLUMN key AFTER payload"),
    _sql("ALTER COLUMN COMMENT", "ALTER TABLE {log} ALTER COLUMN key COMMENT 'the key'"),
    _sql("ALTER COLUMN DEFAULT", _set(feature__allowColumnDefaults="supported"), "ALTER TABLE {log} ALTER COLUMN key SET DEFAULT 'x'"),
    _sql("ALTER COLUMN DROP NOT NULL", "ALTER TABLE {log} ALTER COLUMN publish_time DROP NOT NULL"),
    _sql("ALTER COLUMN TYPE (widening)", _set(enableTypeWidening="true"), "ALTER TABLE {log} ALTER COLUMN seats TYPE BIGINT", before=SEATS),
    _sql("COMMENT ON TABLE", "COMMENT ON TABLE {log} IS 'somebody was here'"),
    _sql("ADD CONSTRAINT", "ALTER TABLE {log} ADD CONSTRAINT positive CHECK (entry_id >= 0)"),
    _sql("DROP CONSTRAINT", "ALTER TABLE {log} DROP CONSTRAINT positive", before="ALTER TABLE {log} ADD CONSTRAINT positive CHECK (entry_id >= 0)"),
    _sql("SET TBLPROPERTIES", "ALTER TABLE {log} SET TBLPROPERTIES ('note' = 'x')"),
    _sql("UNSET TBLPROPERTIES", "ALTER TABLE {log} UNSET TBLPROPERTIES ('note')", before="ALTER TABLE {log} SET TBLPROPERTIES ('note' = 'x')"),
    _sql("UNSET of our properties", "ALTER TABLE {log} UNSET TBLPROPERTIES ('geo.table')"),
    _sql("column mapping on", MAPPED),
    _sql("random file prefixes on", _set(randomizeFilePrefixes="true")),
    _sql("deletion vectors on", VECTORS),
    _sql("deletion vectors off", _set(enableDeletionVectors="false"), before=VECTORS),
    _sql("row tracking on, with its backfill", _set(enableRowTracking="true")),
    _sql("row tracking off", _set(enableRowTracking="false"), before=_set(enableRowTracking="true")),
    _sql("in-commit timestamps on", _set(enableInCommitTimestamps="true")),
    _sql("in-commit timestamps off", _set(enableInCommitTimestamps="false"), before=_set(enableInCommitTimestamps="true")),
    _kind("v2 checkpoints on, and one made", _v2_checkpoint),
    _sql("v2 checkpoints off", _set(checkpointPolicy="classic"), before=_set(checkpointPolicy="v2")),
    _sql("type widening on", _set(enableTypeWidening="true")),
    _sql("domain metadata on", _set(feature__domainMetadata="supported")),
    _sql("append only on", _set(appendOnly="true")),
    _sql("change feed off", _set(enableChangeDataFeed="false")),
    _sql("DROP FEATURE deletionVectors", "ALTER TABLE {log} DROP FEATURE deletionVectors", before=(VECTORS, f"DELETE FROM {{log}} WHERE {SOME}")),
    _sql("DROP FEATURE v2Checkpoint", "ALTER TABLE {log} DROP FEATURE v2Checkpoint", before=_set(checkpointPolicy="v2")),
    _kind("protocol upgraded", _protocol),
    _kind("checkpoint", checkpoint),
    _kind("log clean-up", _cleaned_up),
    _sql("ANALYZE TABLE", "ANALYZE TABLE {log} COMPUTE DELTA STATISTICS"),
]  # fmt: skip
