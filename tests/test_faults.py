"""Which errors are whose. No Spark."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PythonException

from geo.errors import FencedError, RetryableError, SourceChangedError, UsageError
from geo.faults import Tried, as_raised, needs_person

_TRACE = """Job aborted due to stage failure: Task 0 in stage 4.0 failed: org.apache.spark.api.python.PythonException: Traceback:
  File "geo/log/sources/kafka.py", line 210, in read
    raise SourceChangedError(
geo.errors.SourceChangedError: Kafka topic a, partition 0: offset 5 was deleted while the batch was read.

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_what_a_task_raised_is_ours_again() -> None:
    found = as_raised(PythonException(_TRACE))
    assert isinstance(found, SourceChangedError)
    assert str(found) == "Kafka topic a, partition 0: offset 5 was deleted while the batch was read."
    assert needs_person(found)
    assert not needs_person(PythonException(_TRACE))


def test_anything_else_is_as_it_is() -> None:
    for error in (UsageError("geo.errors.UsageError: x"), PythonException("ValueError: x"), PythonException("geo.errors.os: x")):
        assert as_raised(error) is error


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (OSError("away"), True),
        (RetryableError("away"), True),
        (PythonException("ValueError: x"), True),
        (FencedError("replaced"), False),
        (ConnectionRefusedError(111, "Connection refused"), False),
        (Py4JNetworkError("Answer from Java side is empty"), False),
        (ValueError("a fault of this program"), False),
    ],
)
def test_a_fault_is_kept_the_end_of_spark_and_what_is_asked_for_is_raised(error: Exception, is_kept: bool) -> None:
    with nullcontext() if is_kept else pytest.raises(type(error)), Tried(FencedError) as tried:
        raise error
    assert tried.fault is (error if is_kept else None)
