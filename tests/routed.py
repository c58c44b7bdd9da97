"""The routing rule, asked of one row. (A program asks it of many: `geo.replication.routing`.)"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from geo.delta.predicate import holds
from geo.replication.rule import Rule, Verdict, filters


@dataclass(frozen=True, slots=True)
class RoutedRow:
    """The columns of a topic log that the rule reads. Any may be NULL: a table does not enforce what we meant."""

    origin: str | None
    replicate_to: Collection[str | None] | None
    marker: str | None
    publish_time_us: int | None
    ledger_id: int | None
    entry_id: int | None


def verdict(rule: Rule, row: RoutedRow, now_us: int) -> Verdict:
    """What becomes of one row at the link, `now_us` microseconds after the epoch."""
    columns = {
        "origin": row.origin, "replicate_to": row.replicate_to, "marker": row.marker, "publish_time": row.publish_time_us,
        "ledger_id": row.ledger_id, "entry_id": row.entry_id,
    }  # fmt: skip
    return next((one for one, refused in filters(rule, now_us) if holds(refused, columns)), Verdict.REPLICATE)
