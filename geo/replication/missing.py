"""What of a source log is missing in a target log. Of two small logs it is found without Spark: Spark takes a second or two for what
takes milliseconds here, and a link asks for each topic at its first start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from geo.delta.scan import few_rows, scan_here
from geo.delta.table import Table
from geo.log.topic_log import ID, ids_of, is_message
from geo.replication.gaps import STEP_ROWS
from geo.replication.missing_rows import missing_in_steps


def find_missing(
    source: Table,
    version: int,
    target: Table,
    target_version: int,
    wanted: Callable[[], Column],
    few_wanted: Callable[[pa.Table], pa.Table],
    what: str,
    most: int | None = None,
) -> Iterator[DataFrame | pa.Table]:
    """The messages of the source at a version that are wanted and whose MessageId the target at its version lacks: in steps of at most so
    many, with the columns of the source. What is wanted is said as a condition, made when it is needed since it takes a JVM, and as what
    it leaves of rows at hand. How far it has come is logged as `what`."""
    most = STEP_ROWS if most is None else min(most, STEP_ROWS)
    few = _few_missing(source, version, target, target_version, few_wanted)
    if few is not None:
        return (few.slice(first, most) for first in range(0, len(few), most))
    asked = is_message() & wanted()
    there, here = source.read(version).where(asked), target.read(target_version).where(asked)
    return missing_in_steps(there, here, what, most)


def _few_missing(
    source: Table, version: int, target: Table, target_version: int, wanted: Callable[[pa.Table], pa.Table]
) -> pa.Table | None:
    """All of it, ordered by MessageId. None where the source is large, or only Spark can read both; a target may be of any size where
    this process only looks."""
    rows = few_rows(source, version)
    present = None if rows is None else scan_here(target, target_version, ID, lambda read: set(ids_of(read)))
    if rows is None or present is None:
        return None
    with suppress(UnicodeDecodeError, pa.ArrowException):  # a text that Python does not read
        messages = wanted(rows.filter(rows["marker"].is_null()))
        there: set[Hashable] = set().union(*present)
        lacking = messages.filter(pa.array((_is_new(one, there) for one in ids_of(messages)), pa.bool_()))
        return lacking.sort_by([(name, "ascending") for name in ID])
    return None


def _is_new(one: Hashable, there: set[Hashable]) -> bool:
    """Whether a MessageId is not there yet. From now on it is: a source may hold a row twice."""
    is_new = one not in there
    there.add(one)
    return is_new
