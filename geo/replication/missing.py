"""Difference of a source log and a target log, derived from the two logs alone; nothing is written.

Bootstrap, repair, rebuild and backfill are all this; who may append it, and what is recorded, is their business. Of two small logs it is found
without Spark. Spark takes a second or two for what takes milliseconds here, and a link asks for each topic at its first start.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from itertools import product
from operator import or_

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.delta.arrow_rows import rows_frame
from geo.delta.engine import Scan
from geo.delta.predicate import Predicate
from geo.delta.predicate_arrow import kept
from geo.delta.scan import few_rows, read_where, scan_here, summarise_rows
from geo.delta.summary import Groups, Summary
from geo.delta.table import Table
from geo.ids import LedgerId
from geo.log.topic_log import ID, ids_of, is_of
from geo.progress import Progress
from geo.replication.gaps import STEP_ROWS, Extent, Gap, gaps, steps
from geo.sql_text import identifier

log = logging.getLogger(__name__)

FEW_GAPS = 20
"""Up to so many gaps are a condition by which Delta skips files; more are a join."""

ENTRIES = Summary(("origin", "ledger_id"), ("entry_id",), ("entry_id",), summed="entry_id")
"""Asks for the entries of each ledger, of which none is NULL."""


def find_missing(
    source: Table, version: int, target: Table, target_version: int, wanted: Predicate, what: str, most: int | None = None
) -> Iterator[DataFrame | pa.Table]:
    """The messages of the source at a version that are wanted and whose MessageId the target at its version lacks. They come in steps of at most so
    many, with the columns of the source. How far it has come is logged as `what`."""
    most = STEP_ROWS if most is None else min(most, STEP_ROWS)
    few = _few_missing(source, version, target, target_version, wanted)
    if few is not None:
        return (few.slice(first, most) for first in range(0, len(few), most))
    there, here = read_where(source, version, wanted), read_where(target, target_version, wanted)
    return missing_in_steps(there, here, what, most)


def _few_missing(source: Table, version: int, target: Table, target_version: int, wanted: Predicate) -> pa.Table | None:
    """All of it, ordered by MessageId. None where the source is large, or only Spark can read both; a target may be of any size where
    this process only looks."""
    rows = few_rows(source, version)
    present = None if rows is None else scan_here(target, target_version, Scan(ID, lambda read: set(ids_of(read))))
    if rows is None or present is None:
        return None
    with suppress(UnicodeDecodeError, pa.ArrowException):  # a text that Python does not read
        messages = kept(wanted, rows)
        there: set[Hashable] = set().union(*present)
        lacking = messages.filter(pa.array((_is_new(one, there) for one in ids_of(messages)), pa.bool_()))
        return lacking.sort_by([(name, "ascending") for name in ID])
    return None


def _is_new(one: Hashable, there: set[Hashable]) -> bool:
    """Tells whether a MessageId is not there yet. From now on it is: a source may hold a row twice."""
    is_new = one not in there
    there.add(one)
    return is_new


def extents(rows: DataFrame) -> dict[LedgerId, Extent]:
    """The entries of each ledger in a line."""
    return extents_of(summarise_rows(rows, ENTRIES))


def extents_of(found: Groups) -> dict[LedgerId, Extent]:
    """The answer to ENTRIES."""
    return {LedgerId(*key): Extent(one.least[0], one.greatest[0], one.count, *one.sums) for key, one in found.items()}


def missing_in_steps(source: DataFrame, target: DataFrame, what: str, most: int) -> Iterator[DataFrame]:
    """Finds what `target` lacks of the rows of `source`, in steps of at most so many entries. Columns as `source`. Progress is logged as `what`."""
    found = gaps(extents(source), extents(target))
    progress = Progress(log, what, "messages compared", sum(gap.size for gap in found))
    for step in steps(found, most):
        yield missing(source, target, step)
        progress.add(sum(gap.size for gap in step))


def missing(source: DataFrame, target: DataFrame, step: Sequence[Gap]) -> DataFrame:
    """The rows of `source` that are in the gaps and not in `target`, each MessageId once. Columns as `source`."""
    parts = []
    for compare, repeated in product((False, True), repeat=2):
        some = [gap for gap in step if (gap.compare, gap.repeated) == (compare, repeated)]
        if some:
            rows = within(source, some)
            rows = rows.dropDuplicates(list(ID)) if repeated else rows
            if compare:
                rows = rows.join(within(target, some).select(*ID), list(ID), "left_anti").select(*map(identifier, source.columns))
            parts.append(rows)
    return reduce(DataFrame.unionByName, parts)


def within(rows: DataFrame, found: Sequence[Gap]) -> DataFrame:
    """The rows whose entries are in the gaps. Columns as `rows`."""
    if len(found) <= FEW_GAPS:
        return rows.where(reduce(or_, (is_of(gap.ledger) & F.col("entry_id").between(gap.first, gap.last) for gap in found)))
    listed = [
        {"origin": gap.ledger.origin, "ledger_id": gap.ledger.ledger_id, "_geo_first": gap.first, "_geo_last": gap.last}
        for gap in found
    ]
    types = {"origin": "STRING", "ledger_id": "BIGINT", "_geo_first": "BIGINT", "_geo_last": "BIGINT"}
    joined = rows.join(F.broadcast(rows_frame(rows.sparkSession, types, listed)), ["origin", "ledger_id"])
    return joined.where(F.col("entry_id").between(F.col("_geo_first"), F.col("_geo_last"))).select(*map(identifier, rows.columns))


def count_rows(rows: DataFrame | pa.Table) -> int:
    return len(rows) if isinstance(rows, pa.Table) else rows.count()
