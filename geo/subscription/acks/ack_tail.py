"""The records that an `__acks` log gets, as they come: of a cluster's own, or of a peer's what its link would replicate."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa

from geo.delta.predicate import Among, Predicate
from geo.delta.scan import rows_where
from geo.delta.table import Table
from geo.delta.tail import Tail
from geo.subscription.acks.fold import Received
from geo.subscription.acks.gathered_frames import RECORD, RECORD_COLUMNS, records_of

Crossing = Callable[[pa.Table], pa.Table]
"""Filter of the rows that count."""

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
        found = _records(self._tail.rows_where(turn, _READ, _records_of(wanted)), self._crossing) if wanted else []
        self._tail.take(turn)
        return found


def read_records(log_table: Table, version: int, keys: Collection[str], crossing: Crossing) -> list[Received]:
    """The records of subscriptions with these keys in an `__acks` log at a version."""
    return _records(rows_where(log_table, version, _READ, _records_of(keys)), crossing)


def _records_of(keys: Collection[str]) -> Predicate:
    return RECORD & Among("key", frozenset(keys))


def _records(rows: pa.Table, crossing: Crossing | None) -> list[Received]:
    """Those records of an `__acks` log that cross, as the fold takes them."""
    return list(records_of(crossing(rows) if crossing is not None and rows.num_rows else rows))
