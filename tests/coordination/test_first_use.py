"""What is asked of an object store before a process writes a cluster there."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from geo.coordination.first_use import Sign, admit, living
from geo.delta.object_store import ObjectStore
from geo.delta.process import Process, this_process
from geo.errors import AlreadyOwnedError, UnsafeError
from geo.journal.cluster import ClusterTables, connect_later
from geo.now import now_us
from tests.another_process import forget
from tests.delta.on_s3 import cluster_on
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3

MINUTE_US = 60_000_000
ELSEWHERE = Process("other-host", 7, "1")
DEAD = replace(this_process(0), pid=2**22, started="1")
HERE = replace(this_process(0), pid=1, started="")
"""Another process of this host, which lives."""


@pytest.mark.parametrize(
    ("process", "age_us", "lives"),
    [
        (HERE, 0, True),
        (HERE, 60 * MINUTE_US, True),
        (DEAD, 0, False),
        (ELSEWHERE, 10 * MINUTE_US, True),
        (ELSEWHERE, 10 * MINUTE_US + 1, False),
        (ELSEWHERE, -5 * MINUTE_US, True),
        (ELSEWHERE, -5 * MINUTE_US - 1, False),
    ],
)
def test_one_of_this_host_is_asked_for_another_is_believed_for_its_timeout(process: Process, age_us: int, lives: bool) -> None:
    at_us = 1_000 * MINUTE_US
    lines = {"other-0/part-0.txt": Sign(process, at_us - age_us, 300).encode(), "foreign": "?", "empty": ""}
    found = living(lines, at_us)
    assert (None if found is None else found.process) == (process if lives else None)


def _no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


@pytest.fixture
def tables(s3: S3, monkeypatch: pytest.MonkeyPatch) -> ClusterTables:
    forget(monkeypatch)
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    bucket = f"b{uuid.uuid4()}"
    s3.make_bucket(bucket)
    return connect_later(_no_spark, cluster_on(s3, bucket))


def _port(tables: ClusterTables) -> ObjectStore:
    assert tables.port is not None
    return tables.port


def test_a_store_is_tried_once_and_asked_little_then(s3: S3, tables: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    admit(tables)
    assert _port(tables).is_there(f"{tables.place}/store.json")
    forget(monkeypatch)
    before = s3.counts()
    admit(tables)
    assert (s3.counts() - before).total() == 2, "what came of it, and which signs there are"


def test_a_store_that_passes_the_condition_by_is_refused_with_the_reason(s3: S3, tables: ClusterTables) -> None:
    s3.next_of("PUT", "bare", 300)
    try:
        with pytest.raises(
            UnsafeError, match=r"not fit for logs: of 8 writers .* were told that they made it\. Nothing was written"
        ):
            admit(tables)
    finally:
        s3.forget_faults()
    assert not _port(tables).is_there(f"{tables.place}/store.json")


def test_a_program_of_before_that_lives_is_named_and_one_that_comes_later_finds_a_sign(tables: ClusterTables) -> None:
    place = f"{tables.place}/driver"
    _port(tables).put(f"{place}/other-0/part-0.txt", Sign(ELSEWHERE, now_us(), 300).encode().encode())
    _port(tables).put(f"{place}/other-0/_SUCCESS", b"")
    with pytest.raises(AlreadyOwnedError, match="is written by process 7 on other-host, a program of a version that took itself"):
        admit(tables)
    _port(tables).put(f"{place}/other-0/part-0.txt", Sign(ELSEWHERE, now_us() - 60 * MINUTE_US, 300).encode().encode())
    admit(tables)
    (later,) = [path for path in _port(tables).below(place) if path.startswith("later-program/")]
    ours = Sign.decode(_port(tables).get(f"{place}/{later}").decode())
    assert ours is not None
    assert all(ours.lives(now_us() + years * 365 * 86_400_000_000) for years in (0, 1, 10))
