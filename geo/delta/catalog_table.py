"""Finds a table of a catalog: at its location, where this program writes the store of that, or else by Spark alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geo.delta.catalog_name import CatalogName
from geo.delta.driver import Driver
from geo.delta.engines.spark.engine import MISSING, SparkEngine
from geo.delta.table import Table
from geo.errors import UnsafeError
from geo.late import spark_errors

if TYPE_CHECKING:
    pass


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
        return _at(driver, place, CatalogName(driver, named, is_given=False))
    if location is None:
        return Table(driver, name, by_path=False, lock=None)
    if driver.port_at(location) is None:
        raise UnsafeError(
            f"{name}: lies at {location}, elsewhere than its schema, at {place.rpartition('/')[0]}: nobody here may write it. Nothing was "
            "written. Move it there, or choose another schema."
        )
    return _at(driver, location, CatalogName(driver, named, is_given=True))


def _at(driver: Driver, place: str, name: CatalogName) -> Table:
    return Table(driver, place, by_path=True, lock=None, catalog_name=name)
