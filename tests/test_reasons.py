"""Why an error was raised: one code of a closed list, whoever raised it."""

from __future__ import annotations

import copy
import errno
import re
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from geo import errors
from geo.errors import GeoError, SourceChangedError
from geo.faults import reason_of
from geo.reasons import Reason


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.AlreadyOwnedError("x"), Reason.OWNED_ELSEWHERE),
        (errors.FencedError("x"), Reason.FENCED),
        (errors.WrongClockError("x"), Reason.CLOCK),
        (errors.ConfigError(["x"]), Reason.CONFIG),
        (GeoError("x"), Reason.OTHER),
        (SourceChangedError("x"), Reason.SOURCE_CHANGED),
        (SourceChangedError("x", code=Reason.SOURCE_RECREATED), Reason.SOURCE_RECREATED),
        (OSError(errno.ENOSPC, "No space left on device", "/data/us/a.parquet"), Reason.TARGET_DISK_FULL),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), Reason.TARGET_DISK_FULL),
        (PermissionError(errno.EACCES, "Permission denied", "/data/us"), Reason.NO_RIGHT),
        (OSError(errno.EROFS, "Read-only file system"), Reason.NO_RIGHT),
        (OSError("S3 bucket b: PUT http://h/b/x: 400 Bad Request, ExpiredToken"), Reason.KEYS_REFUSED),
        (PermissionError("S3 bucket b: GET http://h/b/x: 403 Forbidden, InvalidAccessKeyId"), Reason.KEYS_REFUSED),
        (PermissionError("S3 bucket b: GET http://h/b/x: 403 Forbidden, AccessDenied"), Reason.NO_RIGHT),
        (OSError("S3 bucket b: GET http://h/b/x: no answer: error sending request"), Reason.NO_ANSWER),
        (FileNotFoundError("S3 bucket b: GET http://h/b/x: 404 Not Found"), Reason.STORAGE),
        (PySparkException("java.io.IOException: No space left on device"), Reason.TARGET_DISK_FULL),
        (PySparkException("java.net.ConnectException: Connection refused"), Reason.NO_ANSWER),
        (PySparkException("geo.errors.DamagedError: a file"), Reason.DAMAGED),
        (PySparkException("Cannot call methods on a stopped SparkContext"), Reason.SPARK_ENDED),
        (PySparkException("Column x cannot be resolved"), Reason.SPARK),
        (Py4JNetworkError("Answer from Java side is empty"), Reason.SPARK_ENDED),
        (ConnectionResetError("peer"), Reason.NO_ANSWER),
        (KeyError("x"), Reason.OTHER),
    ],
    ids=str,
)
def test_an_error_has_one_code(error: BaseException, code: Reason) -> None:
    assert reason_of(error) is code


def test_a_code_that_was_given_stays_with_its_error() -> None:
    error = copy.copy(SourceChangedError("x", code=Reason.SOURCE_RESTORED))
    assert (str(error), error.code) == ("x", Reason.SOURCE_RESTORED)


def test_a_code_of_a_later_program_is_read() -> None:
    assert Reason("SOMETHING_NEW") is Reason.OTHER


def test_the_page_about_health_has_the_closed_list() -> None:
    page = (Path(__file__).parent.parent / "docs" / "health.md").read_text()
    of_codes = page.partition("## Reason codes")[2].partition("\n## ")[0]
    told = [line for line in of_codes.splitlines() if re.match(r"\| [A-Z]", line)]
    assert told == [f"| {one.value} | {one.means} | {one.do or ''} | {one.level} |" for one in Reason]
