"""The routing rule as Spark columns over a topic log. What the rule is, and why, stands in `rule.py`.

As text: made of functions, each a call or a dozen into the JVM, the rule took a tenth of a small batch's time. Columns read:
origin STRING, ledger_id BIGINT, entry_id BIGINT, replicate_to ARRAY<STRING>, marker STRING, publish_time TIMESTAMP.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from geo.ids import LEDGER_ID_LIMIT
from geo.log.topic_log import HAS_ID
from geo.replication.rule import AHEAD_US, CROSSING_MARKERS, Rule, Verdict


def routing_column(rule: Rule, now_us: int) -> Column:
    """BOOLEAN, true exactly for the rows whose verdict is REPLICATE, and never NULL. `now_us` as in `verdict`."""
    refused = " OR ".join(f"({condition})" for _, condition in _filters(rule, now_us))
    return F.expr(f"NOT ({refused})")


def verdict_column(rule: Rule, now_us: int) -> Column:
    """STRING, the name of each row's Verdict, never NULL."""
    cases = " ".join(f"WHEN ({condition}) THEN '{verdict.value}'" for verdict, condition in _filters(rule, now_us))
    return F.expr(f"CASE {cases} ELSE '{Verdict.REPLICATE.value}' END")


def impossible_column(rule: Rule, now_us: int) -> Column:
    """BOOLEAN, true for the rows whose verdict is IMPOSSIBLE, in a form by which Delta can skip files."""
    markers = f"marker IS NULL OR {_is_among('marker', CROSSING_MARKERS)}"
    outside = f"publish_time < timestamp_micros(0) OR publish_time > timestamp_micros({now_us + AHEAD_US}L)"
    no_id = f"ledger_id IS NULL OR ledger_id <= 0 OR ledger_id >= {LEDGER_ID_LIMIT}L OR entry_id IS NULL OR entry_id < 0"
    return F.expr(f"coalesce(({no_id} OR {outside}) AND ({markers}) AND {_is_among('origin', rule.origins)}, false)")


def _filters(rule: Rule, now_us: int) -> list[tuple[Verdict, str]]:
    """The filters in the rule's order: a verdict and the rows it refuses, as SQL. None of the conditions is ever NULL."""
    filters = [
        (Verdict.MARKER, f"marker IS NOT NULL AND NOT {_is_among('marker', CROSSING_MARKERS)}"),
        (Verdict.FOREIGN_ORIGIN, f"NOT {_is_among('origin', rule.origins)}"),
        (
            Verdict.IMPOSSIBLE,
            f"ledger_id IS NULL OR entry_id IS NULL OR NOT ({HAS_ID}) OR (publish_time IS NOT NULL AND NOT ({_is_of_now(now_us)}))",
        ),
        (
            Verdict.NOT_ADDRESSED,
            f"replicate_to IS NOT NULL AND NOT coalesce(array_contains(replicate_to, '{rule.target}'), false)",
        ),
    ]
    expired_before_us = rule.expired_before_us(now_us)
    if expired_before_us is not None:
        # No coalesce: the optimizer turns the negation of this into IS NULL OR >=, by which Delta can skip files.
        horizon = f"timestamp_micros({expired_before_us}L)"
        filters.append((Verdict.EXPIRED, f"publish_time IS NOT NULL AND publish_time < {horizon}"))
    return filters


def _is_among(column: str, names: Iterable[str]) -> str:
    """Whether it is one of the names, which are of letters, digits, `_` and `-`; NULL is none, as for Python's `in`."""
    listed = ", ".join(f"'{name}'" for name in sorted(names))
    return f"coalesce({column} IN ({listed}), false)"


def _is_of_now(now_us: int) -> str:
    return f"publish_time BETWEEN timestamp_micros(0) AND timestamp_micros({now_us + AHEAD_US}L)"
