"""A table of a catalog whose log is on an object store that this program writes: all of it is read and written at its location, and the catalog
has its name, by which others find it.

The log comes first and goes first: a name without a log is no table, and neither is a log without its name, which whoever makes the table gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from geo.delta.driver import Driver
from geo.delta.engine import Seen
from geo.delta.engines.spark.engine import MISSING, SparkEngine
from geo.delta.table import Table
from geo.errors import UnsafeError
from geo.late import spark_errors
from geo.schemas import TableSchema
from geo.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


def table_in_catalog(driver: Driver, name: str, place: str) -> Table:
    """The table of this name: where the catalog has it, and at `place` if it has none. One whose commits the catalog keeps to itself is Spark's.

    Raises UnsafeError for one that lies elsewhere than on the store which `driver` writes.
    """
    named = SparkEngine(driver, name, by_path=False)
    try:
        location = named.location
    except spark_errors.AnalysisException as error:
        if error.getCondition() not in MISSING:
            raise
        return CatalogTable(driver, named, place, is_named=False)
    if location is None:
        return Table(driver, name, by_path=False, lock=None)
    if driver.port_at(location) is None:
        raise UnsafeError(
            f"{name}: lies at {location}, elsewhere than its schema, at {place.rpartition('/')[0]}: nobody here may write it. Nothing was "
            "written. Move it there, or choose another schema."
        )
    return CatalogTable(driver, named, location, is_named=True)


class CatalogTable(Table):
    """`named`: the table as the catalog knows it, `place` where it is."""

    def __init__(self, driver: Driver, named: SparkEngine, place: str, *, is_named: bool) -> None:
        super().__init__(driver, place, by_path=True, lock=None)
        self._named, self._is_named = named, is_named

    @property
    def sql(self) -> str:
        return self._named.sql

    @property
    def is_in_catalog(self) -> bool:
        return True

    def look(self, *, again: bool = False) -> Seen | None:
        seen = super().look(again=again)
        if seen is not None and not self._is_named:
            self._is_named = self.spark.catalog.tableExists(self.sql)
        return seen if self._is_named else None

    def create(
        self, schema: TableSchema, extra: Iterable[StructField] = (), own: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._is_named = True
        try:
            super().create(schema, extra, own)
            self._name_it()
        except BaseException:
            self._is_named = False
            raise

    def _name_it(self) -> None:
        try:
            self.spark.sql(f"CREATE TABLE IF NOT EXISTS {self.sql} USING delta LOCATION {literal(self.name)}")
        except spark_errors.PySparkException:
            if not self.spark.catalog.tableExists(self.sql):  # another process was quicker
                raise

    def remove(self) -> bool:
        done = super().remove()
        self.spark.sql(f"DROP TABLE IF EXISTS {self.sql}")
        self._is_named = False
        return done
