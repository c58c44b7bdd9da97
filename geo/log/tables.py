"""The tables and folders of a cluster. The only file that knows how a cluster names a table."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from geo.config_tree import Cluster, Secret
from geo.errors import SchemaError
from geo.log.journal import Journal
from geo.log.names import Topic
from geo.log.process import Process, this_process
from geo.log.table import Table
from schemas import ENVELOPE, TOPIC_LOG, TableSchema

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


class ClusterTables:
    """The tables and folders of one cluster, by the names of design section 4."""

    def __init__(self, spark: SparkSession, cluster: Cluster) -> None:
        self.spark = spark
        self.cluster = cluster
        self._journals: dict[str, Journal] = {}
        for key, value in cluster.spark_conf.items():
            spark.conf.set(key, value.reveal() if isinstance(value, Secret) else value)

    @cached_property
    def me(self) -> Process:
        return this_process(_jvm_pid(self.spark))

    def log(self, topic: Topic) -> Table:
        return self._table(f"topics/{topic.path}", topic.table_name)

    def journal(self, schema: TableSchema) -> Journal:
        """A system table, the same object each time, so that it is checked once."""
        if schema.kind not in self._journals:
            self._journals[schema.kind] = Journal(self._table(f"system/{schema.kind}", f"system_{schema.kind}"), schema)
        return self._journals[schema.kind]

    def checkpoint(self, *parts: str) -> str:
        return "/".join((self.cluster.checkpoints, *parts))

    @property
    def lock_folder(self) -> Path | None:
        """Where the tables' file locks are, if the cluster is on a local disk; None elsewhere."""
        base = self.cluster.root if self.cluster.root is not None else self.cluster.checkpoints
        local = base.removeprefix("file://").removeprefix("file:")
        return None if _SCHEME.match(local) else Path(local) / "locks"

    def _table(self, path: str, name: str) -> Table:
        folder = self.lock_folder
        lock = None if folder is None else folder / f"{path}.lock"
        if self.cluster.root is not None:
            return Table(self.spark, f"{self.cluster.root}/{path}", by_path=True, lock=lock, me=self.me)
        full = f"{self.cluster.catalog}.{self.cluster.schema}.{name}"
        return Table(self.spark, full, by_path=False, lock=lock, me=self.me)


def open_log(tables: ClusterTables, topic: Topic) -> tuple[Table, StructType]:
    """A topic log that exists, checked, with its columns.

    Raises SchemaError if it is missing, foreign or newer.
    """
    table = tables.log(topic)
    columns = table.find(TOPIC_LOG)
    if columns is None:
        raise SchemaError(f"{topic}: has no log in cluster {tables.cluster.name} ({table}).")
    return table, columns


def user_columns(columns: StructType) -> list[StructField]:
    """A typed topic's own columns, in table order; none for a bytes topic."""
    envelope = {column.name for column in ENVELOPE}
    return [field for field in columns if field.name not in envelope]


def _jvm_pid(spark: SparkSession) -> int:
    """Process id of the driver's JVM, asked through SQL so that no JVM handle is needed; 0 where that is not allowed."""
    try:
        return int(spark.sql("SELECT reflect('java.lang.ProcessHandle', 'current')").collect()[0][0])
    except (PySparkException, ValueError):
        return 0
