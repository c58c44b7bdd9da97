"""Answers questions about a Delta table by Spark, which knows all of them, for a job or some requests each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from geo.delta.arrow_rows import collected
from geo.delta.commits import Commit, commit_file, of_history
from geo.delta.driver import Driver
from geo.delta.engine import Engine, Scan, TableSnapshot
from geo.delta.engines.spark.commit_pages import PAGE, read_page
from geo.delta.engines.spark.scan import filtered, scanned
from geo.delta.engines.spark.summary import groups_of
from geo.delta.predicate import IsNull, Predicate, to_sql
from geo.delta.summary import Groups, Summary
from geo.late import F, delta_tables, spark_errors
from geo.sql_text import identifier
from geo.times import from_us

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

T = TypeVar("T")

MISSING = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "PATH_NOT_FOUND",
)
"""Conditions of Spark for a table that is not there."""


class SparkEngine(Engine):
    """The table of that name or path. Nothing is asked, and Spark is not started, before a question comes."""

    def __init__(self, driver: Driver, name: str, *, by_path: bool) -> None:
        self._driver, self.name, self.by_path = driver, name, by_path

    @property
    def spark(self) -> SparkSession:
        return self._driver.spark

    @property
    def sql(self) -> str:
        """The table as SQL names it, quoted."""
        if self.by_path:
            return f"delta.{identifier(self.name)}"
        return ".".join(map(identifier, self.name.split(".")))

    def delta(self) -> DeltaTable:
        return (
            delta_tables.DeltaTable.forPath(self.spark, self.name)
            if self.by_path
            else delta_tables.DeltaTable.forName(self.spark, self.sql)
        )

    @cached_property
    def location(self) -> str | None:
        """The place where the files of a table that exists are; None where its newest commits are not in its `_delta_log` (catalog-managed)."""
        if self.by_path:
            return self.name
        detail = self.delta().detail().collect()[0]
        return None if "catalogManaged" in (detail["tableFeatures"] or ()) else str(detail["location"])

    # -- its log ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> TableSnapshot | None:
        try:
            delta = self.delta()
        except spark_errors.AnalysisException as error:
            if error.getCondition() in MISSING:
                return None
            raise
        detail = delta.detail().collect()[0]
        return TableSnapshot(str(detail["id"]), self.newest(), detail["properties"] or {}, delta.toDF().schema.json())

    def newest(self) -> int:
        return int(self.delta().history(1).collect()[0]["version"])

    def has_commit(self, version: int) -> bool:
        if (path := self._commit(version)) is None:
            return any(row["version"] == version for row in self._history_from(version))
        try:
            self.spark.read.text(path)  # asks for the file, reads nothing of it
        except spark_errors.AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return False
        return True

    def commits(self, first: int, last: int, only: Sequence[str], has_commit: Callable[[int], bool]) -> Iterator[Commit]:
        """The log is never listed for it, and few of them are held at a time."""
        if self.location is None:
            yield from (of_history(row) for row in self._history_from(first) if row["version"] <= last)
            return
        for page in range(first_there(first, last, has_commit), last + 1, PAGE):
            yield from read_page(self.spark, self.location, page, min(last, page + PAGE - 1), only)

    def committed_at(self, version: int) -> datetime | None:
        """None where the commits are a catalog's: in-commit timestamps are a writer's."""
        if (path := self._commit(version)) is None:
            return None
        try:
            row = self.spark.read.text(path).select(F.unix_micros("_metadata.file_modification_time")).first()
        except spark_errors.AnalysisException:
            return None
        return None if row is None else from_us(row[0])

    def _commit(self, version: int) -> str | None:
        return None if self.location is None else f"{self.location}/_delta_log/{commit_file(version)}"

    def _history_from(self, first: int) -> list[dict[str, Any]]:
        """The rows of DESCRIBE HISTORY from version `first` on, oldest first. It is asked for a number of newest commits, so what others commit
        meanwhile pushes the oldest out. It is asked for again, until the first one or all there are have come."""
        wanted = max(1, self.newest() - first + 1)
        while True:
            rows = collected(self.delta().history(wanted))
            if len(rows) < wanted or rows[-1]["version"] <= first:
                return [row for row in reversed(rows) if row["version"] >= first]
            wanted = rows[0]["version"] - first + 1

    def count_files(self) -> int:
        return len(self.read(None).inputFiles())

    # -- its rows --------------------------------------------------------------------------------------------------

    def read(self, version: int | None) -> DataFrame:
        """The table's rows, at `version` or at its newest."""
        if not self.by_path and version is not None:
            return self.spark.sql(f"SELECT * FROM {self.sql} VERSION AS OF {int(version)}")
        reader = self.spark.read.format("delta")
        return self.load(reader if version is None else reader.option("versionAsOf", version))

    def load(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        return reader.load(self.name) if self.by_path else reader.table(self.sql)

    def count_nulls(self, version: int, column: str) -> int:
        return self.read(version).where(to_sql(IsNull(column))).count()

    def last_rows(self, columns: Sequence[str], order: Sequence[str], count: int, *, where_null: str) -> list[dict[str, Any]]:
        rows = self.read(None).where(to_sql(IsNull(where_null))).orderBy(*(F.desc(name) for name in order)).limit(count)
        return collected(rows.select(*map(identifier, columns)))

    def summarise(self, version: int, summary: Summary) -> Groups:
        return groups_of(summary, self.read(version))

    def rows_where(self, version: int, columns: Sequence[str], where: Predicate) -> pa.Table:
        return filtered(self.read(version), where).select(*columns).toArrow()

    def scan(self, version: int, asked: Scan[T]) -> list[T]:
        return scanned(self.read(version), asked)


def first_there(first: int, last: int, has_commit: Callable[[int], bool]) -> int:
    """The first version from `first` to `last` that is there, by halving: clean-up takes the oldest. `last` + 1 if none is."""
    gone, there = first - 1, last + 1
    probe = first  # mostly nothing was cleaned up
    while gone + 1 < there:
        gone, there = (gone, probe) if has_commit(probe) else (probe, there)
        probe = (gone + there) // 2
    return there
