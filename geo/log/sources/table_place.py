"""The place where a user's own Delta table is: a path, or what Spark's catalog says of a name."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from geo.config.cluster import Cluster
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.plain_table import PlainTable
from geo.delta.s3_store import port_at
from geo.delta.store import StorePath
from geo.delta.table import Table
from geo.disk import local_path
from geo.errors import UsageError
from geo.faults import SPARK_ERRORS
from geo.text import first_line, show


def open_table(spark: SparkSession, where: str, cluster: Cluster) -> PlainTable:
    """The table at a path, which has a slash in it, or of a catalog's name. Raises as `table_without_catalog`, and UsageError for a name that the catalog does
    not have."""
    found = table_without_catalog(where, cluster)
    return table_at(_in_catalog(spark, where), cluster) if found is None else found


def table_without_catalog(where: str, cluster: Cluster) -> PlainTable | None:
    """The table at a path; None of a catalog's name. Raises as `table_at`.

    Raises UsageError for what is no name. In a cluster with a root it does so, too, for a name that a table's folder has here.
    """
    if "/" in where:
        return table_at(where, cluster)
    if not where.strip() or where in (".", ".."):
        raise UsageError(
            f"delta: {show(where)} is neither a path nor a catalog's name. A path has a slash in it, such as ./orders."
        )
    if cluster.root is not None and Path(where, "_delta_log").is_dir():
        raise UsageError(
            f"delta: {where} would be a catalog's name, and there is a table in a folder of that name: ./{where} is its path."
        )
    return None


def table_at(location: str, cluster: Cluster) -> PlainTable:
    """The table there, on S3 reached as the cluster is. Raises UsageError if there is none, and for one elsewhere than on a local disk or on S3."""
    location = location.rstrip("/")
    if (local := local_path(location)) is not None:
        found = PlainTable(on_disk(Path(os.path.abspath(local))) / "_delta_log")
    elif (port := port_at(cluster, location)) is not None:
        found = PlainTable(StorePath(port, f"{location}/_delta_log"))
    else:
        raise UsageError(f"delta: {location} is neither on a local disk nor on S3: tables elsewhere are not read.")
    if found.newest() is None:
        raise UsageError(f"delta: there is no Delta table at {location}.")
    return found


def _in_catalog(spark: SparkSession, name: str) -> str:
    try:
        location = Table(Driver.of(spark), name, by_path=False, lock=None).location
    except SPARK_ERRORS as error:
        raise UsageError(
            f"delta: {name} is no Delta table that Spark's catalog has ({first_line(error)}). A path has a slash in it: ./{name}"
        ) from None
    if location is None:
        raise UsageError(f"delta: the commits of {name} are its catalog's alone (catalog-managed), and are not read.")
    return location
