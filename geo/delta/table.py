"""A Delta table by path or catalog name, and the questions about it.

It is made and changed by `ddl.py`. Rows are appended by `appending.py`, in commits of this process's (`local_commits.py`) or of Spark's
(`spark_commits.py`), under its lock (`committing.py`). Nothing here knows about clusters, messages, links or producers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from geo.delta.catalog_name import CatalogName
from geo.delta.commits import Commit
from geo.delta.driver import Driver
from geo.delta.engine import Engine, TableSnapshot, UnsupportedError, attempt
from geo.delta.engines.native.engine import NativeEngine
from geo.delta.engines.opened import Opened
from geo.delta.engines.opened import opened as open_table
from geo.delta.engines.spark.engine import MISSING, SparkEngine
from geo.delta.store import WritePath
from geo.errors import RetryableError
from geo.late import spark_errors

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

T = TypeVar("T")


class Table:
    """One Delta table. Creating the object touches nothing."""

    def __init__(
        self, driver: Driver, name: str, *, by_path: bool, lock: Path | None, catalog_name: CatalogName | None = None
    ) -> None:
        self.driver = driver
        self.catalog_name = catalog_name
        self.name = name
        self.by_path = by_path
        self.lock = lock
        self.by_spark = SparkEngine(driver, name, by_path=by_path)
        self.synced_mark = None if lock is None else lock.with_name(f"{lock.name}.synced")

    def __str__(self) -> str:
        return self.name

    @property
    def spark(self) -> SparkSession:
        return self.driver.spark

    @property
    def sql(self) -> str:
        """The table as SQL names it, quoted."""
        return (self.catalog_name or self.by_spark).sql

    @property
    def is_in_catalog(self) -> bool:
        """True if a catalog has its name."""
        return not self.by_path or self.catalog_name is not None

    # -- who answers -----------------------------------------------------------------------------------------------

    @cached_property
    def opened(self) -> Opened:
        """The opened table, of one that exists, unless it is by path."""
        return open_table(self.driver, self.by_spark)

    def ask(self, question: Callable[[Engine], T]) -> T:
        """The answer of this process, where it knows one, or else Spark's."""
        return self.opened.ask(question)

    def ask_here(self, question: Callable[[NativeEngine], T]) -> T | None:
        """Asks as `ask`. None: Spark is to answer, in a form of its own."""
        if (native := self.opened.native) is None:
            return None
        found = attempt(lambda: question(native))
        return None if isinstance(found, UnsupportedError) else found

    def _by_name(self, question: Callable[[Engine], T]) -> T:
        """Asks as `ask`, of a table that may not exist: a catalog then has no place of it, and Spark says so."""
        try:
            there = self.opened
        except spark_errors.AnalysisException as error:
            if error.getCondition() not in MISSING:
                raise
            return question(self.by_spark)
        return there.ask(question)

    # -- what is there -------------------------------------------------------------------------------------------

    def delta(self) -> DeltaTable:
        return self.by_spark.delta()

    def snapshot(self, *, again: bool = False) -> TableSnapshot | None:
        """Returns the table as it is now. Derived from the files of its log alone, without a Spark job, where this process reads the log by
        itself. Of a driver that looks once it is as it was then, but `again`.

        None: there is no table; also where the catalog that is to have its name has none.
        """

        def ask() -> TableSnapshot | None:
            return self._by_name(lambda engine: engine.snapshot())

        seen = ask() if self.driver.looks is None or again else _asked_once(self.driver.looks, self.name, ask)
        return None if seen is None or (self.catalog_name is not None and not self.catalog_name.find()) else seen

    def exists(self) -> bool:
        return self.snapshot() is not None

    def require_snapshot(self) -> TableSnapshot:
        seen = self.snapshot()
        if seen is None:
            raise RetryableError(f"{self}: there is no table now.")
        return seen

    def table_id(self) -> str:
        return self.require_snapshot().table_id

    def properties(self) -> Mapping[str, str]:
        return self.require_snapshot().properties

    def latest_version(self) -> int:
        return self._by_name(lambda engine: engine.newest())

    @property
    def location(self) -> str | None:
        """The place where the files of a table that exists are; None where its newest commits are not in its `_delta_log` (catalog-managed)."""
        return self.by_spark.location

    @property
    def log_folder(self) -> WritePath | None:
        """The `_delta_log`, where that is on a store that this process writes (a local disk). It has all the commits of the table, which exists
        unless it is by path. None elsewhere.
        """
        return self.opened.folder

    @property
    def may_spark_commit(self) -> bool:
        """True if commits of Spark's are safe beside those of this process."""
        return not self.by_path or self.opened.may_spark_commit

    @property
    def is_near(self) -> bool:
        """True if a look at its commits takes microseconds. It exists unless it is by path."""
        return self.log_folder is not None and self.log_folder.store.is_near

    def count_files(self) -> int:
        """Counts the files of its rows now."""
        return self.ask(lambda engine: engine.count_files())

    # -- its commits ---------------------------------------------------------------------------------------------

    def commit_at(self, version: int) -> Commit | None:
        """One commit by its number; None if it is not there: not made yet, or cleaned up."""
        return next(iter(self.commits(version, version)), None)

    def has_commit(self, version: int) -> bool:
        """Tells whether a commit is there, by its name alone."""
        return self.ask(lambda engine: engine.has_commit(version))

    def commits(self, first: int, last: int, only: Sequence[str] = ()) -> Iterator[Commit]:
        """The commits `first` to `last`, oldest first, those that are there. The log is never listed for it, and few of them are
        held at a time. With `only`, a userMetadata with none of these keys may be left out (None)."""
        if first <= last:
            yield from self.ask(lambda engine: engine.commits(first, last, only, self.has_commit))

    # -- its rows --------------------------------------------------------------------------------------------------

    def read(self, version: int | None = None) -> DataFrame:
        """The table's rows, at `version` or at its newest."""
        return self.by_spark.read(version)


def _asked_once(
    looks: dict[str, Future[TableSnapshot | None]], name: str, ask: Callable[[], TableSnapshot | None]
) -> TableSnapshot | None:
    """Returns what is known of a table by this name, and asks if nothing is. Of several threads one asks."""
    mine: Future[TableSnapshot | None] = Future()
    first = looks.setdefault(name, mine)
    if first is mine:
        try:
            mine.set_result(ask())
        except BaseException as error:
            mine.set_exception(error)
    return first.result()
