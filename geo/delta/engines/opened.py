"""Opens a table: where its log is, and who answers questions about it, in which order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from geo.delta.disk_store import DiskPath, disk_of, on_disk
from geo.delta.driver import Driver
from geo.delta.engine import Engine, UnsupportedError, attempt
from geo.delta.engines.native.engine import NativeEngine
from geo.delta.engines.spark.engine import SparkEngine
from geo.delta.store import StorePath, WritePath
from geo.disk import local_path
from geo.errors import NoSparkError

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """A table, and who answers questions about it: `native`, and what it does not know Spark.

    `folder`: its `_delta_log`, with all its commits, on a store that this process writes; None elsewhere. `may_spark_commit`: Spark's own
    commits are safe beside this process's.
    """

    spark: SparkEngine
    folder: WritePath | None = None
    native: NativeEngine | None = None
    may_spark_commit: bool = True

    @property
    def disk(self) -> DiskPath | None:
        """The `folder` on a local disk; None elsewhere."""
        return None if self.folder is None else disk_of(self.folder)

    def ask(self, question: Callable[[Engine], T]) -> T:
        why = "it is in a catalog, or on a storage that this process does not read"
        if (native := self.native) is not None:
            found = attempt(lambda: question(native))
            if not isinstance(found, UnsupportedError):
                return found
            why = str(found)
        log.debug("%s: %s, so Spark reads it", self.spark.name, why)
        try:
            return question(self.spark)
        except NoSparkError as error:
            raise NoSparkError(f"{self.spark.name}: {why}, so Spark is to read it: {error}") from error


def opened(driver: Driver, spark: SparkEngine) -> Opened:
    """A table that exists, unless it is by path: where one in a catalog lies Spark is asked."""
    if spark.location is None:
        return Opened(spark)
    if (local := local_path(spark.location)) is not None:
        here = on_disk(local) / "_delta_log"
        return Opened(spark, here, NativeEngine(here, driver.reads, lambda: driver.commits_by_itself))
    # Of one in a catalog, that alone may know its newest commits.
    if not spark.by_path or (port := driver.port_at(spark.location)) is None:
        return Opened(spark)
    far: WritePath = StorePath(port, f"{spark.location}/_delta_log")
    return Opened(spark, far, NativeEngine(far, driver.reads, lambda: True), may_spark_commit=False)
