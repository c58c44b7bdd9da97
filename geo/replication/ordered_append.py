"""The append of a link, a reconcile and a rebuild."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from geo.coordination.ownership import Ownership
from geo.delta.table import Table
from geo.log.topic_log import ID


def append_in_order(
    ownership: Ownership, target: Table, rows: DataFrame | pa.Table, record: str, refuse: Callable[[], None]
) -> int:
    """Append rows of the target's shape in one commit with its record, sorted by id within the files of each date. Returns how
    many; without a row there is no commit. `refuse` is asked, and raised, as `Ownership.append` does."""
    if isinstance(rows, pa.Table):
        if len(rows):
            ownership.append(target, rows.sort_by([(name, "ascending") for name in ("publish_date", *ID)]), record, refuse)
        return len(rows)
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    ownership.append(target, counted.sortWithinPartitions("publish_date", *ID), record, refuse)
    return int(seen.get["rows"])
