"""What whoever runs a streaming query needs: stopping it without hurting it, and telling its errors from others."""

from __future__ import annotations

import time

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from geo.errors import GeoError, RetryableError

_POLL_S = 0.02

FAULTS = (GeoError, PySparkException, Py4JError, OSError)
"""What fails of all that this program works with. Any other exception is a fault of this program (or of a user's function)."""


def stop_between_batches(query: StreamingQuery) -> None:
    """Let the running micro-batch end, then stop the query. A stop inside a batch leaves it to a replay, and Spark then
    ends some of them with a StackOverflowError. Interrupted, it stops the query at once."""
    try:
        while query.isActive and query.status["isTriggerActive"]:
            time.sleep(_POLL_S)
    finally:
        query.stop()


def may_pass(error: BaseException) -> bool:
    """Whether it is a fault of Spark or of storage, or one that says that it may pass by itself."""
    return of_spark(error) or isinstance(error, (OSError, RetryableError))


def of_spark(error: BaseException) -> bool:
    """Classic Spark lets some errors of the JVM through as they come."""
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")
