"""The name that a catalog has of a table whose log is on an object store that this program writes. All of the table is read and written at its
location, and by its name others find it.

The log comes first and goes first: a name without a log is no table. A log without its name is none either; whoever makes the table names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from geo.delta.driver import Driver
from geo.delta.engines.spark.engine import SparkEngine
from geo.late import spark_errors
from geo.sql_text import literal


class CatalogName:
    """`named`: the table as the catalog knows it. `is_given`: the catalog had the name when somebody last looked."""

    def __init__(self, driver: Driver, named: SparkEngine, *, is_given: bool) -> None:
        self._driver, self._named, self._is_given = driver, named, is_given

    @property
    def sql(self) -> str:
        """The name as SQL has it, quoted."""
        return self._named.sql

    def find(self) -> bool:
        """True if the catalog has the name. Once it is there the catalog is not asked again."""
        if not self._is_given:
            self._is_given = self._driver.spark.catalog.tableExists(self.sql)
        return self._is_given

    @contextmanager
    def given(self, location: str) -> Iterator[None]:
        """Inside, the log that lies at `location` is made, and counts as named; at the end the catalog has its name. Idempotent, and any number
        of processes may do so at once."""
        self._is_given = True
        try:
            yield
            self._give(location)
        except BaseException:
            self._is_given = False
            raise

    def _give(self, location: str) -> None:
        try:
            self._driver.spark.sql(f"CREATE TABLE IF NOT EXISTS {self.sql} USING delta LOCATION {literal(location)}")
        except spark_errors.PySparkException:
            if not self._driver.spark.catalog.tableExists(self.sql):  # another process was quicker
                raise

    def drop(self) -> None:
        """Takes the name out of the catalog, which then has no such table. Idempotent."""
        self._driver.spark.sql(f"DROP TABLE IF EXISTS {self.sql}")
        self._is_given = False
