"""Modules of Spark's, imported when they are first used: a verb that only looks mostly needs none, and is done before they
would be imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "F",
    "arrow_types",
    "delta_tables",
    "has_spark",
    "late",
    "pyspark",
    "spare_pandas",
    "spark_errors",
    "spark_sql",
    "spark_types",
]

_SPARK = ("pyspark", "py4j")
"""The packages whose errors are Spark's."""


def has_spark() -> bool:
    """Tells whether anything of this process has imported Spark. An error that is raised where nothing has is none of Spark's."""
    return not sys.modules.keys().isdisjoint(_SPARK)


class _NoPandas:
    """Finds none."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def spare_pandas() -> None:
    """Let Arrow do without pandas in this process, unless somebody has imported it. It would to find out whether a value is one of those, which
    takes a fifth of a second."""
    if "pandas" in sys.modules:
        return
    from pyarrow import scalar

    sys.meta_path.insert(0, _NoPandas)
    try:
        scalar(0)  # it asks once
    finally:
        sys.meta_path.remove(_NoPandas)


class _Late:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import_module(self._name.partition(".")[0])  # another thread may be at it, and what is in it begins in its middle
        return getattr(import_module(self._name), name)


def late(name: str) -> Any:
    """Stands for a module of ours that imports Spark, where it is mostly not needed. It takes the place of an import that is for types alone."""
    return _Late(name)


class _LateErrors(_Late):
    """A `_Late` module of errors, to be caught and asked for: an empty tuple in place of each where nothing has imported Spark."""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if has_spark() else ()


if TYPE_CHECKING:
    import pyspark
    from delta import tables as delta_tables
    from pyspark import errors as spark_errors
    from pyspark import sql as spark_sql
    from pyspark.sql import functions as F
    from pyspark.sql import types as spark_types
    from pyspark.sql.pandas import types as arrow_types
else:
    pyspark, spark_sql = _Late("pyspark"), _Late("pyspark.sql")
    spark_errors = _LateErrors("pyspark.errors")
    F, spark_types = _Late("pyspark.sql.functions"), _Late("pyspark.sql.types")
    arrow_types, delta_tables = _Late("pyspark.sql.pandas.types"), _Late("delta.tables")
