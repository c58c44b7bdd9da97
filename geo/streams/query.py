"""One streaming query: its start, what failed in it, and stopping it without hurting it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from geo.faults import as_raised

_POLL_S = 0.02
_WAIT_S = 1.0
"""Longest wait in the JVM, which sees no signal of this process."""


class BatchQuery:
    """A streaming query over `rows` that calls `each` with every batch and its number. Its construction starts it."""

    def __init__(
        self,
        rows: DataFrame,
        name: str,
        each: Callable[[DataFrame, int], None],
        *,
        checkpoint: str,
        trigger: Mapping[str, Any],
    ) -> None:
        self._each = each
        self._failure: BaseException | None = None
        self.in_batch = False
        """A batch is under way, or failed, or was stopped: what became of it only the next start finds out."""
        writer = rows.writeStream.queryName(name).foreachBatch(self._on_batch).option("checkpointLocation", checkpoint)
        self.query = writer.trigger(**trigger).start()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        self.in_batch = True
        try:
            self._each(rows, batch_id)
        except BaseException as error:
            self._failure = error
            raise
        self.in_batch = False

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    @property
    def error(self) -> BaseException | None:
        """Error that ended the query, as it was raised in the batch or in a task. None while it runs, if it ended well, and if it was stopped: what a
        stop raises inside the batch is no fault.
        """
        error: BaseException | None = self.query.exception()
        if error is None:
            return None
        return as_raised(self._failure or error)

    @property
    def ended_well(self) -> bool:
        """True if nothing is left open: it does not run, no batch was cut short, none failed."""
        return not self.is_active and not self.in_batch and self.error is None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it ends or the time is over; True if it ended. Raises nothing: `error` says why."""
        waited = 0.0
        while timeout_s is None or waited < timeout_s:
            step = _WAIT_S if timeout_s is None else min(_WAIT_S, timeout_s - waited)
            try:
                if self.query.awaitTermination(step):  # type: ignore[arg-type]
                    return True
            except StreamingQueryException:
                return True
            waited += step
        return not self.is_active

    def stop(self) -> None:
        """Let the running batch end, then stop. Interrupted, it stops at once."""
        stop_between_batches(self.query)


def stop_between_batches(query: StreamingQuery, within_s: float | None = None) -> None:
    """Let the running batch of a query end, but wait for it no longer than `within_s`, then stop the query. A stop inside a batch leaves
    it to a replay, and Spark then ends some of them with a StackOverflowError. Interrupted, it stops at once."""
    deadline = None if within_s is None else time.monotonic() + within_s
    try:
        while query.isActive and query.status["isTriggerActive"] and (deadline is None or time.monotonic() < deadline):
            time.sleep(_POLL_S)
    finally:
        query.stop()
