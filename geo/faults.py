"""Errors by whose they are: the one place that tells those of Spark and of storage from faults of this program.

Classic Spark lets some errors of the JVM through as Py4J has them, so both forms count as Spark's.
"""

from __future__ import annotations

import errno
import re
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from geo import errors
from geo.errors import AlreadyOwnedError, GeoError, RetryableError, WrongClockError
from geo.late import has_spark, spark_errors
from geo.reasons import Reason, Wrong
from geo.remedies import reason_of_cause
from geo.text import first_line, line_and_remedy

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

    SPARK_ERRORS: tuple[type[PySparkException], type[Exception]]
    """Every error of Spark and Delta, also one that Spark Connect or Py4J passes on as it came."""

    FAULTS: tuple[type[Exception], ...]
    """Errors of all that this program works with. Any other exception is a fault of this program, or of a user's function."""


def __getattr__(name: str) -> Any:
    """SPARK_ERRORS and FAULTS, for whoever works with Spark anyway: they import it."""
    match name:
        case "SPARK_ERRORS":
            return _spark_errors()
        case "FAULTS":
            return (GeoError, *_spark_errors(), OSError)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def spark_errors_here() -> tuple[type[Exception], ...]:
    """Lists those of SPARK_ERRORS that may have been raised by now: none where nothing of this process has imported Spark."""
    return _spark_errors() if has_spark() else ()


def faults_here() -> tuple[type[Exception], ...]:
    """Lists those of FAULTS that may have been raised by now."""
    return (GeoError, *spark_errors_here(), OSError)


@cache
def _spark_errors() -> tuple[type[PySparkException], type[Exception]]:
    import pyspark  # noqa: F401  # first, and whole: another thread may be at it
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


@cache
def _conflicts() -> tuple[type[Exception], ...]:
    from delta import exceptions as delta

    return (
        delta.ConcurrentAppendException,
        delta.ConcurrentDeleteDeleteException,
        delta.ConcurrentDeleteReadException,
        delta.ConcurrentTransactionException,
        delta.ConcurrentWriteException,
        delta.DeltaConcurrentModificationException,
        delta.MetadataChangedException,
        delta.ProtocolChangedException,
    )


_CONFLICT_CONDITIONS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""Beginnings of the conditions of conflicts."""

_RAISED = re.compile(r"^geo\.errors\.(\w+): (.+)$", re.MULTILINE)


def of_spark(error: BaseException) -> bool:
    """Tells whether Spark or Delta raised the error."""
    return isinstance(error, spark_errors_here())


def is_conflict(error: PySparkException) -> bool:
    """Tells whether Delta refused a commit because of another one; nothing of the commit landed. Delta's classes for that have
    no base in common, and some errors come without their class, others without their condition.
    """
    return isinstance(error, _conflicts()) or (error.getCondition() or "").startswith(_CONFLICT_CONDITIONS)


def may_pass(error: BaseException) -> bool:
    """Tells whether the error is a fault of Spark or of storage, or says itself that it may pass."""
    return of_spark(error) or isinstance(error, (OSError, RetryableError))


def needs_person(error: BaseException) -> bool:
    """Tells whether the fault of a long run stays as it is until somebody acts. Another runner ends some time, and a clock is
    set.
    """
    return isinstance(error, GeoError) and not isinstance(error, (RetryableError, AlreadyOwnedError, WrongClockError))


def session_is_gone(error: BaseException) -> bool:
    """Tells whether the JVM, or Spark in it, has ended: then nothing can go on in this process."""
    if not of_spark(error):
        return isinstance(error, ConnectionRefusedError)
    from py4j.protocol import Py4JNetworkError

    told = str(error)
    return isinstance(error, Py4JNetworkError) or "stopped SparkContext" in told or "SparkContext was shut down" in told


_OF_DISKS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), Reason.TARGET_DISK_FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), Reason.NO_RIGHT),
}


def reason_of(error: BaseException) -> Reason:
    """Tells why it was raised: an error of this package says it; of a storage's or Spark's it is known by number, class or remedy."""
    error = as_raised(error)
    if isinstance(error, GeoError):
        return error.code
    if isinstance(error, OSError) and error.errno in _OF_DISKS:
        return _OF_DISKS[error.errno]
    if (known := reason_of_cause(first_line(error))) is not None:
        return known
    if session_is_gone(error):
        return Reason.SPARK_ENDED
    if isinstance(error, spark_errors.PySparkException) and is_conflict(error):
        return Reason.CONFLICT
    if isinstance(error, PermissionError):
        return Reason.NO_RIGHT
    if isinstance(error, (ConnectionError, TimeoutError)):
        return Reason.NO_ANSWER
    if isinstance(error, OSError):
        return Reason.STORAGE
    return Reason.SPARK if of_spark(error) else Reason.OTHER


def wrong_of(error: BaseException) -> Wrong:
    """Derives what is wrong from an error that a look raised: as the error says, else by its code."""
    raised = as_raised(error)
    if raised.args and isinstance(told := raised.args[0], Wrong):
        return told
    code, (what, remedy) = reason_of(error), line_and_remedy(error)
    return Wrong(code, what, remedy or code.do or "put it back, or correct its place in the configuration")


class Tried(AbstractContextManager["Tried"]):
    """A fault of what is done inside is kept as `fault`, and what follows goes on. Raised are the end of Spark, after which nothing can, one
    of `but`, and what is no fault."""

    def __init__(self, *but: type[Exception]) -> None:
        self._but = but
        self.fault: BaseException | None = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, faults_here()) or isinstance(error, self._but) or session_is_gone(error):
            return False
        self.fault = error
        return True


def as_raised(error: BaseException) -> BaseException:
    """An error as it was raised. One of this package that was raised in a task of Spark's is derived from the trace that Spark passes on. Any other
    error is returned as it is."""
    found = _RAISED.search(str(error)) if of_spark(error) else None
    kind = getattr(errors, found[1], None) if found else None
    return kind(found[2]) if found and isinstance(kind, type) and issubclass(kind, GeoError) else error
