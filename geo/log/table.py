"""A Delta table by path or catalog name: create, check, read, append.

Nothing here knows about clusters, messages, links or producers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructField, StructType

from geo.errors import RetryableError, SchemaError, first_line
from geo.log.locks import table_lock
from geo.log.process import Process
from schemas import TableSchema
from schemas.table import KIND_PROPERTY, VERSION_PROPERTY

log = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 10
"""An append conflicts only with a metadata change: a fence at somebody's takeover, a new column. Ten in a row means a fault."""

_MISSING = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "PATH_NOT_FOUND",
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as `DESCRIBE HISTORY` tells it, newest first in lists."""

    version: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    user_metadata: str | None
    timestamp: str
    user: str | None

    @classmethod
    def of(cls, row: Row) -> Commit:
        return cls(
            row["version"],
            row["operation"],
            row["operationParameters"] or {},
            row["operationMetrics"] or {},
            row["userMetadata"],
            f"{row['timestamp']:%Y-%m-%d %H:%M:%S}",
            row["userName"],
        )


class Table:
    """One Delta table. Creating the object touches nothing."""

    def __init__(self, spark: SparkSession, name: str, *, by_path: bool, lock: Path | None, me: Process) -> None:
        self.spark = spark
        self.name = name
        self.by_path = by_path
        self._lock = lock
        self._me = me

    def __str__(self) -> str:
        return self.name

    @property
    def sql(self) -> str:
        """The table as SQL names it, quoted."""
        if self.by_path:
            return "delta.`" + self.name.replace("`", "``") + "`"
        return ".".join(f"`{part}`" for part in self.name.split("."))

    # -- what is there -------------------------------------------------------------------------------------------

    def delta(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.name) if self.by_path else DeltaTable.forName(self.spark, self.name)

    def exists(self) -> bool:
        return self._found() is not None

    def table_id(self) -> str:
        """Delta's id of the table: another one after the table was dropped and made again."""
        return str(self.delta().detail().collect()[0]["id"])

    def properties(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.sql}").collect()}

    def _found(self) -> DeltaTable | None:
        try:
            return self.delta()
        except AnalysisException as error:
            if error.getCondition() in _MISSING:
                return None
            raise

    def latest_version(self) -> int:
        return self.recent(1)[0].version

    def recent(self, count: int) -> list[Commit]:
        """The last `count` commits, newest first."""
        return [Commit.of(row) for row in self.delta().history(count).collect()]

    def history(self, after: int, until: int) -> list[Commit]:
        """The commits above version `after`, newest first; `until` is the newest version there is."""
        return self.recent(until - after) if until > after else []

    def read(self, version: int | None = None) -> DataFrame:
        """The table's rows, at `version` or at its newest."""
        if not self.by_path and version is not None:
            return self.spark.sql(f"SELECT * FROM {self.sql} VERSION AS OF {int(version)}")
        if not self.by_path:
            return self.spark.table(self.sql)
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.name)

    def read_stream(self, options: Mapping[str, str]) -> DataFrame:
        reader: DataStreamReader = self.spark.readStream.format("delta")
        reader = reader.options(**options)
        return reader.load(self.name) if self.by_path else reader.table(self.sql)

    # -- what is ours --------------------------------------------------------------------------------------------

    def create(self, schema: TableSchema, extra: Iterable[StructField] = ()) -> None:
        """Create the table if it is missing; `extra` are a typed topic's own columns. Idempotent."""
        maker = DeltaTable.createIfNotExists(self.spark)
        maker = maker.location(self.name) if self.by_path else maker.tableName(self.sql)
        for column in schema.columns:
            maker = maker.addColumn(column.name, column.type, nullable=column.nullable, comment=column.comment)
        for field in extra:
            maker = maker.addColumn(field.name, field.dataType, nullable=True)
        if schema.partitioned_by:
            maker = maker.partitionedBy(*schema.partitioned_by)
        for key, value in schema.all_properties.items():
            maker = maker.property(key, value)
        with self._locked():
            maker.execute()

    def find(self, schema: TableSchema) -> StructType | None:
        """The table's columns, once it is sure that it is ours and not newer than this program; None if there is no table.

        Raises SchemaError naming table, stored and known version, and the way out.
        """
        delta = self._found()
        if delta is None:
            return None
        properties = self.properties()
        kind, version = properties.get(KIND_PROPERTY), properties.get(VERSION_PROPERTY, "")
        if kind != schema.kind:
            raise SchemaError(
                f"{self}: is not a {schema.kind} of delta-geo ({KIND_PROPERTY} is {kind!r}). "
                "Nothing was written. Move that table away or choose another root or name."
            )
        if not version.isdigit() or int(version) > schema.version:
            raise SchemaError(
                f"{self}: has schema version {version!r}, this program knows up to {schema.version}. "
                "Nothing was written. Upgrade delta-geo here first."
            )
        columns = delta.toDF().schema
        missing = [name for name in schema.names if name not in columns.names]
        if missing:
            raise SchemaError(f"{self}: lacks the columns {', '.join(missing)} of a {schema.kind}. Nothing was written.")
        return columns

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, rows: DataFrame, user_metadata: str | None = None, transaction: tuple[str, int] | None = None) -> None:
        """Append in one commit; a DataFrame without rows makes none. Retries what cannot have landed.

        With `transaction` (application id, number) nothing is appended if the table has that number or a higher one of it.
        """

        def write() -> None:
            writer = rows.write.format("delta").mode("append")
            if user_metadata is not None:
                writer = writer.option("userMetadata", user_metadata)
            if transaction is not None:
                writer = writer.option("txnAppId", transaction[0]).option("txnVersion", transaction[1])
            if self.by_path:
                writer.save(self.name)
            else:
                writer.saveAsTable(self.sql)

        self.commit(write)

    def commit(self, action: Callable[[], T]) -> T:
        """Run one committing action under the table's lock, again if another commit came between.

        A conflict means that nothing of the action landed. Raises RetryableError after COMMIT_ATTEMPTS conflicts.
        """
        for _ in range(COMMIT_ATTEMPTS):
            with self._locked():
                try:
                    return action()
                except DeltaConcurrentModificationException as error:
                    conflict: Exception = error
                except PySparkException as error:
                    if error.getCondition() not in ("DELTA_METADATA_CHANGED", "DELTA_CONCURRENT_APPEND"):
                        raise
                    conflict = error
            log.info("%s: another commit came between, trying again: %s", self, first_line(conflict))
        raise RetryableError(f"{self}: {COMMIT_ATTEMPTS} commits in a row met another writer's; nothing was written. Try again.")

    def set_property(self, key: str, value: str) -> None:
        self.commit(lambda: self.spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ('{_quoted(key)}' = '{_quoted(value)}')"))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with table_lock(self._lock, self._me) if self._lock else nullcontext():
            yield


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
