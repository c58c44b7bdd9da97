"""The streaming query that follows the source of a busy link."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from geo.delta.frames import read_stream
from geo.delta.table import Table
from geo.streams.checkpoint import forget, planned_end
from geo.streams.query import BatchQuery

TakeTurn = Callable[[Callable[[], bool], int, DataFrame | None], int | None]
"""Replicates what the next commits have, up to a version; the rows, if they are given, are those of all of them. Returns the version that it came to,
None if it was stopped.
"""


class LinkStream:
    """A query from the first version above `stands_at`, which must be there. Its construction starts it.

    Each batch is replicated in turns. What it leaves because it is to end, the next start does: the checkpoint is this run's alone.
    """

    def __init__(
        self, source: Table, stands_at: int, take: TakeTurn, name: str, *, checkpoint: str, trigger: Mapping[str, Any]
    ) -> None:
        self._take, self._name, self._checkpoint, self._spark = take, name, checkpoint, source.spark
        self._is_ending = False
        self._replicated_to = self._given = stands_at
        """The last version that was replicated, and the last one that a batch had."""
        rows = read_stream(source, {"startingVersion": str(stands_at + 1), "ignoreDeletes": "true"})
        self.query = BatchQuery(rows, name, self._on_batch, checkpoint=checkpoint, trigger=trigger)

    @property
    def is_active(self) -> bool:
        return self.query.is_active

    def end(self) -> bool:
        """Let it end after the turn it is in. Whether nothing is left open. Raises what ended it otherwise."""
        self._is_ending = True
        self.query.stop()
        ended_well, error = self.query.ended_well, self.query.error
        forget(self._checkpoint)
        if error is not None:
            raise error
        return ended_well

    def leave(self) -> None:
        """Stop it without waiting: it hangs."""
        self._is_ending = True
        threading.Thread(target=self.query.query.stop, name=f"leave {self._name}", daemon=True).start()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        last = planned_end(self._spark, self._checkpoint, batch_id)
        is_next = self._replicated_to == self._given  # otherwise the rows are not all that is to be replicated
        self._given = last
        while self._replicated_to < last:
            came_to = self._take(lambda: self._is_ending, last, rows if is_next else None)
            if came_to is None:
                return
            self._replicated_to, is_next = came_to, False
