"""Errors of the rows that a user published, with what to do: rows that changed, and an order that does not tell rows apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from operator import xor

from pyspark.sql import DataFrame, SparkSession

from geo.errors import SourceChangedError, UnsafeError, UsageError
from geo.faults import SPARK_ERRORS
from geo.log.ledgers import SourceEnd
from geo.log.numbering.holding import OTHER_ROWS
from geo.log.numbering.tallies import REPEATED, Tally
from geo.log.source_identity import RowIdentity
from geo.log.sources.source import SourceBatch
from geo.names import Topic
from geo.text import counted, show


def refuse_changed(
    producer: str, topic: Topic, ends: Mapping[str, SourceEnd], tallies: Sequence[Tally], identity: RowIdentity
) -> None:
    """Raises SourceChangedError unless a gapless source has below its `ends` exactly the rows that were published."""
    if not identity.gapless:
        return
    for source, end in ends.items():
        here = [t for t in tallies if t.key.source == source]
        below = [t for t in here if t.is_published]
        count, found = sum(t.rows for t in below), reduce(xor, (t.hash for t in below), 0)
        if here and (count, found) != (end.count, end.hash):
            now = (
                f"now has {counted(count, 'row')} up to there"
                if count != end.count
                else "now has other rows up to there, as many"
            )
            raise SourceChangedError(
                f"{topic}: producer {producer} published {counted(end.count, 'row')} up to order {end.offset}"
                f"{f' of {source!r}' if source else ''}, the DataFrame {now}. Nothing was published. Rows may only be added after the "
                "end, and none may change (a column made anew at each call, such as the time of the call, changes all): publish "
                "other ones under another producer name or publish_id."
            )


@contextmanager
def explained(topic: Topic, spark: SparkSession, published: DataFrame | SourceBatch, identity: RowIdentity) -> Iterator[None]:
    """Raises UsageError for rows of one order, and UnsafeError for rows that changed while they were published. They take the place of what Spark or
    a count of them raised inside.
    """
    try:
        yield
    except (*SPARK_ERRORS, UsageError) as error:
        if REPEATED in str(error):
            raise UsageError(
                f"{topic}: two rows have the same order columns{_tie(spark, published, identity)}, so their order, and with it their identity, is open. "
                "Nothing of this DataFrame was published. Add a column that tells them apart to order_by."
            ) from None
        if OTHER_ROWS in str(error):
            raise UnsafeError(
                f"{topic}: Spark computed the DataFrame again while it was published, and got other rows than before: their number, "
                "or their order columns. Nothing of it was published. Make it deterministic, or keep its rows in a table or a "
                "checkpoint (DataFrame.checkpoint, localCheckpoint) and publish them from there."
            ) from None
        raise


def _tie(spark: SparkSession, published: DataFrame | SourceBatch, identity: RowIdentity) -> str:
    """The order columns that two rows have, in brackets; empty where none are found: rows may be others each time."""
    rows = published.frame(spark) if isinstance(published, SourceBatch) else published
    parts = [f"CAST({part} AS STRING) AS o{at}" for at, part in enumerate((identity.source, *identity.offsets))]
    with suppress(*SPARK_ERRORS):
        placed = rows.selectExpr(*parts)
        for *place, _ in placed.groupBy(*placed.columns).count().where("count > 1").limit(1).collect():
            source, *offset = map(str, place)
            return f" ({show(', '.join(offset))}{f' of {show(source)}' if source else ''})"
    return ""
