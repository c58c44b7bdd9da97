"""The routing rule over a few rows that are at hand. What the rule is, and why, stands in `rule.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from geo.ids import LedgerId
from geo.replication.rule import LeftOut, RoutedRow, Rule, Verdict, verdict

ROUTED_COLUMNS = ("origin", "ledger_id", "entry_id", "replicate_to", "marker", "publish_time")
"""What `crossing` reads, the ID among it."""


def crossing(rule: Rule, floors: Mapping[str, int] | None, rows: pa.Table, now_us: int) -> tuple[pa.Table, LeftOut]:
    """The rows of a topic log that cross the link, from its floors on (`start: latest`), as `missing_rows.wanted`; and what is
    left out that is to be counted."""
    read = rows.select(ROUTED_COLUMNS)
    times = read["publish_time"].cast(pa.int64()).to_pylist()
    kept, verdicts = [], Counter[Verdict]()
    for at, (row, time_us) in enumerate(zip(read.drop_columns(["publish_time"]).to_pylist(), times, strict=True)):
        found = verdict(rule, _routed(row, time_us), now_us)
        verdicts[found] += 1
        if found is Verdict.REPLICATE and (
            not floors or row["entry_id"] >= floors.get(str(LedgerId(row["origin"], row["ledger_id"])), 0)
        ):
            kept.append(at)
    return rows if len(kept) == len(rows) else rows.take(pa.array(kept, pa.int64())), LeftOut.of(verdicts)


def _routed(row: Mapping[str, Any], publish_time_us: int | None) -> RoutedRow:
    return RoutedRow(row["origin"], row["replicate_to"], row["marker"], publish_time_us, row["ledger_id"], row["entry_id"])
