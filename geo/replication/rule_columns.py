"""The routing rule as Spark columns over a topic log. What the rule is, and why, stands in `rule.py`.

Columns read: origin STRING, replicate_to ARRAY<STRING>, marker STRING, publish_time TIMESTAMP.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from geo.replication.rule import CROSSING_MARKERS, Rule, Verdict


def routing_column(rule: Rule, now_us: int) -> Column:
    """BOOLEAN, true exactly for the rows whose verdict is REPLICATE, and never NULL. `now_us` as in `verdict`."""
    return ~reduce(or_, (refused for _, refused in _filters(rule, now_us)))


def verdict_column(rule: Rule, now_us: int) -> Column:
    """STRING, the name of each row's Verdict, never NULL."""
    # Built from the last filter to the first, so that the first which refuses is the one that names the verdict.
    return reduce(
        lambda later, one: F.when(one[1], F.lit(one[0].value)).otherwise(later),
        reversed(_filters(rule, now_us)),
        F.lit(Verdict.REPLICATE.value),
    )


def _filters(rule: Rule, now_us: int) -> list[tuple[Verdict, Column]]:
    """The filters in the rule's order: a verdict and the rows it refuses. None of the columns is ever NULL."""
    marker, origin, replicate_to = F.col("marker"), F.col("origin"), F.col("replicate_to")
    foreign_marker = marker.isNotNull() & ~_true(marker.isin(*sorted(CROSSING_MARKERS)))
    not_addressed = replicate_to.isNotNull() & ~_true(F.array_contains(replicate_to, rule.target))
    filters = [
        (Verdict.MARKER, foreign_marker),
        (Verdict.FOREIGN_ORIGIN, ~_true(origin.isin(*sorted(rule.origins)))),
        (Verdict.NOT_ADDRESSED, not_addressed),
    ]
    expired_before_us = rule.expired_before_us(now_us)
    if expired_before_us is not None:
        publish_time, horizon = F.col("publish_time"), F.timestamp_micros(F.lit(expired_before_us).cast("long"))
        # Not by _true: the optimizer turns the negation of this into IS NULL OR >=, by which Delta can skip files.
        filters.append((Verdict.EXPIRED, publish_time.isNotNull() & (publish_time < horizon)))
    return filters


def _true(condition: Column) -> Column:
    """The condition with NULL read as false, as Python's `in` reads None."""
    return F.coalesce(condition, F.lit(False))
