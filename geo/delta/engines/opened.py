"""Opens a table: where its log is, and who answers questions about it, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from geo.delta.disk_store import DiskPath, disk_of, on_disk
from geo.delta.driver import Driver, Reads
from geo.delta.engine import Engine, UnsupportedError, attempt
from geo.delta.engines.native.asked_log import AskedLog
from geo.delta.engines.native.engine import NativeEngine
from geo.delta.engines.spark.engine import SparkEngine
from geo.delta.store import WritePath
from geo.disk import local_path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """A table, and who answers questions about it: `native`, or of its log alone `asked`, and what they do not know Spark.

    `folder`: its `_delta_log`, with all its commits, on a store that this process writes (a local disk); None elsewhere.
    """

    spark: SparkEngine
    folder: WritePath | None = None
    native: NativeEngine | None = None
    asked: AskedLog | None = None

    @property
    def disk(self) -> DiskPath | None:
        """The `folder` on a local disk; None elsewhere."""
        return None if self.folder is None else disk_of(self.folder)

    def ask(self, question: Callable[[Engine], T]) -> T:
        if (first := self.native or self.asked) is not None:
            found = attempt(lambda: question(first))
            if not isinstance(found, UnsupportedError):
                return found
        return question(self.spark)


def opened(driver: Driver, spark: SparkEngine) -> Opened:
    """A table that exists, unless it is by path: where one in a catalog lies Spark is asked."""
    local = None if spark.location is None else local_path(spark.location)
    if local is not None:
        folder = on_disk(local) / "_delta_log"
        native = NativeEngine(lambda: folder, driver.reads, lambda: driver.commits_by_itself)
        return Opened(spark, folder, native)
    if not spark.by_path:  # of one in a catalog, that alone may know its newest commits
        return Opened(spark)
    far = f"{spark.location}/_delta_log"
    if driver.reads is Reads.ALL:
        return Opened(spark, native=NativeEngine(lambda: driver.remote.at(far), driver.reads, lambda: False))
    return Opened(spark, asked=AskedLog(driver.remote, far))
