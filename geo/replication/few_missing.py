"""What of a small source is missing in a small target, found without Spark. `missing_rows.py` is the same of any size.

Two small logs are compared here in milliseconds; Spark takes a second or two for it, and a link does so for each topic at its
first start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa

from geo.log.topic_log import ID
from geo.tables.native import few_rows, scan
from geo.tables.table import Table


def few_missing(
    source: Table, version: int, target: Table, target_version: int, wanted: Callable[[pa.Table], pa.Table]
) -> pa.Table | None:
    """The messages of the source at a version that are `wanted` and whose MessageId is not in the target at its version, ordered by
    it. Columns as the source has now. None where the source is large, or only
    Spark can read both; a target may be of any size where this process only looks."""
    rows = few_rows(source, version)
    present = None if rows is None else scan(target, target_version, ID, lambda read: set(_ids(read)))
    if rows is None or present is None:
        return None
    with suppress(UnicodeDecodeError, pa.ArrowException):  # a text that Python does not read
        messages = wanted(rows.filter(rows["marker"].is_null()))
        there = set().union(*present)
        lacking = messages.filter(pa.array((one not in there for one in _ids(messages)), pa.bool_()))
        return lacking.sort_by([(name, "ascending") for name in ID])
    return None


def in_steps(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """The rows in steps of at most so many; none if there is no row."""
    return (rows.slice(first, most) for first in range(0, len(rows), most))


def _ids(rows: pa.Table) -> Iterator[tuple[str, int, int]]:
    return zip(*(rows[name].to_pylist() for name in ID), strict=True)
