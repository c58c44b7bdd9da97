"""What the rows of a DataFrame have together (`geo.delta.summary`), by Spark's own aggregates: on a large log they are many times as
fast as rows that are handed to Python."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.delta.engines.spark.scan import filtered
from geo.delta.summary import Group, Groups, Summary


def groups_of(summary: Summary, rows: DataFrame) -> Groups:
    """The groups of the rows that fulfil the condition."""
    wanted = [
        *(F.min(name).alias(f"least_{name}") for name in summary.least),
        *(F.max(name).alias(f"greatest_{name}") for name in summary.greatest),
        *(F.first(name, ignorenulls=True).alias(f"same_{name}") for name in summary.same),
        F.count("*").alias("count"),
    ]
    return {
        tuple(row[name] for name in summary.by): Group(
            tuple(row[f"least_{name}"] for name in summary.least),
            tuple(row[f"greatest_{name}"] for name in summary.greatest),
            tuple(row[f"same_{name}"] for name in summary.same),
            row["count"],
        )
        for row in filtered(rows, summary.where).groupBy(*summary.by).agg(*wanted).collect()
    }
