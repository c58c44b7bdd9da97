"""Which errors are whose. No Spark."""

from __future__ import annotations

from pyspark.errors import PythonException

from geo.errors import SourceChangedError, UsageError
from geo.faults import as_raised, needs_person

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
