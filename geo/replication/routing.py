"""Applies the routing rule (`rule.py`) to Arrow rows and to Spark columns.

Columns read: origin STRING, ledger_id BIGINT, entry_id BIGINT, replicate_to ARRAY<STRING>, marker STRING, publish_time TIMESTAMP. Spark
gets SQL text, not functions: these are calls into the JVM and took a tenth of a small batch's time.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from geo.delta.predicate import to_sql
from geo.delta.predicate_arrow import kept, mask
from geo.replication.rule import Floors, LeftOut, Rule, Verdict, filters, from_floors


def verdict_column(rule: Rule, now_us: int) -> Column:
    """STRING, the name of each row's Verdict, never NULL. `now_us` as in `filters`."""
    cases = " ".join(f"WHEN ({to_sql(refused)}) THEN '{one.value}'" for one, refused in filters(rule, now_us))
    return F.expr(f"CASE {cases} ELSE '{Verdict.REPLICATE.value}' END")


def crossing(rule: Rule, floors: Floors | None, rows: pa.Table, now_us: int) -> tuple[pa.Table, LeftOut]:
    """The rows of a topic log that cross the link, from its floors on, as `rule.crosses`. And what is left out that is to be counted."""
    left: dict[Verdict, int] = {}
    refused_by = pa.repeat(False, len(rows))
    for one, refused in filters(rule, now_us):
        by_this = pc.and_not(mask(refused, rows), refused_by)
        if count := by_this.true_count:
            left[one], refused_by = count, pc.or_(refused_by, by_this)
    if left:
        rows = rows.filter(pc.invert(refused_by))
    return kept(from_floors(floors), rows) if floors else rows, LeftOut.of(left)
