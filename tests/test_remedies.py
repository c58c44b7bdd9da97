"""What people are told of a storage that cannot be reached: one line, with what to do."""

from __future__ import annotations

import pytest

from geo.text import first_line

_CALL = "An error occurred while calling z:io.delta.tables.DeltaTable.forPath.\n: java.lang.RuntimeException: x\n\tat y\n"


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "--scheme s3a),"),
        ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.gs.GoogleHadoopFileSystem not found", "--scheme gs),"),
        (
            "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found",
            "--scheme abfss),",
        ),
        ('org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"', "write s3a://"),
        ('org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "oss"', "add the jar"),
        (
            "software.amazon.awssdk.services.s3.model.NoSuchBucketException: The specified bucket does not exist (Service: S3, Status Code: 404)",
            "make the bucket",
        ),
        (
            "software.amazon.awssdk.core.exception.SdkClientException: Unable to load credentials from system settings.",
            "say in `storage` of its cluster how it is reached",
        ),
        (
            "software.amazon.awssdk.services.s3.model.S3Exception: Access Denied (Service: S3, Status Code: 403)",
            "check the credential",
        ),
        (
            "software.amazon.awssdk.services.s3.model.S3Exception: The provided token has expired. (Service: S3, Status Code: 400)",
            "renew",
        ),
        ("S3 bucket b: GET http://h/b/x: 403 Forbidden, AccessDenied", "check the credential"),
        ("S3 bucket b: GET https://h/b/x: no trust: error sending request", "let SSL_CERT_FILE name its file"),
        ("S3 bucket b: PUT http://h/b/x: 400 Bad Request, ExpiredToken", "renew"),
        ("S3 bucket b: GET http://h/b/x: no answer: HTTP error: error sending request", "nobody answers there"),
        ("S3 bucket b: GET http://h/b/x: 404 Not Found, NoSuchBucket", "make the bucket"),
        ("java.net.ConnectException: Connection refused", "nobody answers there"),
        ("java.net.UnknownHostException: no.such.host", "nobody knows that host"),
        ("OSError: [Errno 28] No space left on device: '/d'", "free space there"),
        ("OSError: [Errno 122] Disk quota exceeded: '/d'", "free space in that quota"),
        ("OSError: [Errno 30] Read-only file system: '/d'", "mounted read-only"),
        ("PermissionError: [Errno 13] Permission denied: '/d'", "let this user read and write there"),
        ("java.io.FileNotFoundException: /d/x (Permission denied)", "let this user read and write there"),
        ("java.nio.file.FileSystemException: /d/x: Read-only file system", "mounted read-only"),
    ],
)
def test_a_fault_of_a_storage_is_one_line_with_what_to_do(cause: str, remedy: str) -> None:
    for text in (f"{_CALL}Caused by: java.io.IOException: z\n\tat y\nCaused by: {cause}\n\t... 3 more\n", cause):
        said = first_line(Exception(text))
        assert said.startswith(f"{cause}; ")
        assert remedy in said
        assert "\n" not in said


def test_what_python_raised_in_a_task_is_its_last_line_with_what_to_do() -> None:
    trace = 'Traceback (most recent call last):\n  File "worker.py", line 1, in write\n    open(path)\n'
    raised = "OSError: [Errno 28] No space left on device: '/d'"
    aborted = "Job aborted due to stage failure: Task 0 in stage 1.0 failed: org.apache.spark.api.python.PythonException: "
    for begin in ("An exception was thrown from the Python worker. Please see the stack trace below.\n", aborted):
        said = first_line(Exception(f"{begin}{trace}{raised}\n\nJVM stacktrace:\n\tat x\n"))
        assert said == f"{raised}; free space there; it goes on by itself"


def test_a_fault_that_is_told_on_has_its_remedy_once() -> None:
    once = first_line(Exception("java.net.ConnectException: Connection refused"))
    assert first_line(Exception(f"cluster us cannot be read: {once}")) == f"cluster us cannot be read: {once}"


def test_of_another_error_nothing_is_made_up() -> None:
    assert first_line(Exception("Connection refused, or Status Code: 403")) == "Connection refused, or Status Code: 403"
    assert (
        first_line(Exception(f"{_CALL}Caused by: java.lang.IllegalStateException: z\n")) == "java.lang.IllegalStateException: z"
    )
