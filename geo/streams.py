"""Stopping a streaming query without hurting it. One function, used by whoever runs a query."""

from __future__ import annotations

import time

from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.02


def stop_between_batches(query: StreamingQuery) -> None:
    """Let the running micro-batch end, then stop the query. A stop inside a batch leaves it to a replay, and Spark then
    ends some of them with a StackOverflowError."""
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(_POLL_S)
    query.stop()
