"""The records that an `__acks` log gets, as they come: of a cluster's own, or of a peer's what its link would bring."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from geo.delta.engines.native.read import scan
from geo.delta.table import Table
from geo.delta.tail import Tail, Turn
from geo.subscription.acks.acks_topic import RECORD_COLUMNS, as_ack_columns, received
from geo.subscription.acks.fold import Received

Crossing = Callable[[pa.Table], pa.Table]
"""Which of the rows count."""

_READ = (*RECORD_COLUMNS, "replicate_to")


class AckTail:
    """The records after a commit of an `__acks` log. `crossing` None: all count."""

    def __init__(self, tail: Tail, crossing: Crossing | None = None) -> None:
        self._tail, self._crossing = tail, crossing

    def next(self, keys: Callable[[], Collection[str]]) -> list[Received] | None:
        """The next records of subscriptions with these keys; None: no commit has come. Raises RetryableError as `Tail.next`.

        The keys are asked for once the commits are there: whoever reads the log after it wants more misses none.
        """
        turn = self._tail.next()
        if turn is None:
            return None
        wanted = keys() if turn.brings else ()
        found = self._read(turn, wanted) if wanted else []
        self._tail.take(turn)
        return found

    def _read(self, turn: Turn, keys: Collection[str]) -> list[Received]:
        rows = self._tail.few(turn)
        if rows is None:
            rows = self._tail.rows(turn).where(F.col("key").isin(*keys)).select(*_READ).toArrow()
        return _records(rows, keys, self._crossing)


def read_records(log_table: Table, version: int, keys: Collection[str], crossing: Crossing) -> list[Received]:
    """The records of subscriptions with these keys in an `__acks` log at a version."""
    where = pc.field("key").isin(pa.array(list(keys), pa.string()))
    parts = scan(log_table, version, _READ, lambda rows: _records(rows, keys, crossing), where=where)
    if parts is not None:
        return [record for part in parts for record in part]
    rows = log_table.read(version).where(F.col("key").isin(*keys)).select(*_READ).toArrow()
    return _records(rows, keys, crossing)


def _records(rows: pa.Table, keys: Collection[str], crossing: Crossing | None) -> list[Received]:
    """The records of subscriptions with these keys among rows of an `__acks` log."""
    rows = rows.select(_READ)
    rows = rows.filter(pc.and_(pc.is_null(rows["marker"]), pc.is_in(rows["key"], pa.array(list(keys), pa.string()))))
    if crossing is not None and rows.num_rows:
        rows = crossing(rows)
    return [received(row) for row in as_ack_columns(rows)]
