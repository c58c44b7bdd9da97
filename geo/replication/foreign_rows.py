"""Finds messages that a link's target holds otherwise than its source, or a log holds more than once, where somebody else put or changed
rows."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from geo.delta.actions import Partition, Touched
from geo.ids import LedgerId
from geo.log.topic_log import ERASED_PROPERTY, ID, is_message
from geo.sql_text import identifier

_DATE = "publish_date"
"""Column by which topic logs are partitioned."""

EXAMPLES = 10
"""Messages that are named: a person looks for the others by their dates."""


def differing(source: DataFrame, target: DataFrame, origins: Collection[str]) -> tuple[list[str], list[str]]:
    """The messages of these origins that both hold with different content, and those that the target holds more than once. They are given as
    `origin:ledger:entry`, at most EXAMPLES each, in order.

    A message that was erased in one of them is left out: each cluster is erased on its own. Equal is what is equal as JSON.
    """
    here, there = (_content(rows.where(_asked(origins))) for rows in (target, source))
    twice = here.groupBy(*ID).count().where("count > 1")
    other = here.join(there.withColumnRenamed("content", "wanted"), list(ID)).where(F.col("content") != F.col("wanted"))
    return _named(other), _named(twice)


def ambiguous(rows: DataFrame, origins: Collection[str]) -> list[str]:
    """The messages of these origins that one log holds more than once, with different content. As in `differing`."""
    held = _content(rows.where(_asked(origins))).groupBy(*ID)
    return _named(held.agg(F.min("content").alias("one"), F.max("content").alias("other")).where("one <> other"))


def in_partitions(rows: DataFrame, touched: Touched) -> DataFrame:
    """The rows in these partitions; None: all. A row's date is that of its publish time, alike everywhere."""
    if touched is None:
        return rows
    dates = [
        values[_DATE] for partition in touched if (values := dict(partition)).keys() == {_DATE} and values[_DATE] is not None
    ]
    others = [partition for partition in touched if dict(partition).get(_DATE) not in dates]
    return rows.where(reduce(or_, map(_is_in, others), F.col(_DATE).isin(dates)))


def _is_in(partition: Partition) -> Column:
    return reduce(and_, (F.col(name).eqNullSafe(F.lit(value)) for name, value in partition), F.lit(True))


def _asked(origins: Collection[str]) -> Column:
    return is_message() & F.col("origin").isin(*origins)


def _content(rows: DataFrame) -> DataFrame:
    """The id and the content, without what was erased. A column without a value is as one that is not there."""
    is_erased = F.coalesce(F.map_contains_key("properties", F.lit(ERASED_PROPERTY)), F.lit(False))
    columns = [F.col(identifier(name)) for name in sorted(rows.columns)]
    return rows.where(~is_erased).select(*ID, F.to_json(F.struct(*columns)).alias("content"))


def _named(rows: DataFrame) -> list[str]:
    found = rows.select(*ID).distinct().orderBy(*ID).limit(EXAMPLES).collect()
    return [f"{LedgerId(row['origin'], row['ledger_id'])}:{row['entry_id']}" for row in found]
