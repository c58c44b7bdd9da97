"""What a commit says of itself: kinds, ids and counts, as Delta really writes them."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.delta.appending import append_frame
from geo.delta.arrow_rows import collected
from geo.delta.commits import Commit, Kind, of_file, of_history
from geo.delta.ddl import set_property
from geo.delta.driver import Driver
from geo.delta.engines.spark.commit_pages import read_page
from geo.delta.engines.spark.engine import SparkEngine, first_there
from geo.delta.table import Table
from geo.errors import RetryableError
from geo.times import in_us
from tests.waiting import until

APPEND, NEUTRAL, REWRITE = Kind.APPEND, Kind.NEUTRAL, Kind.REWRITE


def test_a_commit_is_named_by_its_transaction_or_by_all_of_its_file() -> None:
    with_id = ['{"txn":{}}\n', '{"commitInfo":{"txnId":"u","timestamp":0,"operation":"WRITE"}}\n']
    found = of_file(5, iter(with_id))
    assert (found.version, found.commit_id, found.who) == (5, "u", "by someone at 1970-01-01 00:00:00Z")
    without = [
        '{"add":{"path":"x","size":7,"dataChange":true,"stats":"{\\"numRecords\\":3}"}}\n',
        '{"commitInfo":{"operation":"WRITE"}}\n',
    ]
    found = of_file(5, without)
    assert found.commit_id.startswith("sha256:")
    assert (found.operation, found.rows) == ("WRITE", 3)
    assert of_file(9, [line.rstrip("\n") + "\r\n" for line in without]).commit_id == found.commit_id
    assert of_file(9, [*without, ""]).commit_id == found.commit_id, "what is behind the last line is no line"
    assert of_file(5, without[:1]).commit_id != found.commit_id
    assert of_file(5, without[:1]).kind is APPEND, "its actions say what it did, whatever it calls itself"


@pytest.mark.parametrize(
    "line", ['{"commitInfo":{"txnId"', '{"commitInfo":', '{"commitInfo":null}', '{"commitInfo"}', '{"add":{"path":"x"}}', "[]"]
)
def test_a_commit_that_is_not_whole_is_waited_for(line: str) -> None:
    with pytest.raises(RetryableError, match="commit 5 of a log is not whole"):
        of_file(5, [line])


def test_a_commit_from_the_history_has_what_its_row_says() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    row = {
        "version": 7,
        "timestamp": at,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "operationMetrics": {"numOutputRows": "3"},
        "userMetadata": "a record",
        "userName": "ann",
    }
    found = of_history(row)
    assert (found.version, found.commit_id, found.operation, found.kind) == (7, f"at:{at.isoformat()}", "WRITE", APPEND)
    assert (found.parameters, found.rows, found.user_metadata) == ({"mode": "Append"}, 3, "a record")
    assert (found.committed_us, found.user) == (in_us(at), "ann")
    bare = of_history({**row, "operationParameters": None, "operationMetrics": None, "userMetadata": None, "userName": None})
    assert (bare.parameters, bare.rows, bare.user_metadata, bare.user) == ({}, None, None, None)


@pytest.mark.spark
def test_commits_of_delta_are_read_alike_by_name_and_from_the_history(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(Driver.of(spark), str(tmp_path / "t"), by_path=True, lock=None)
    rows = spark.range(10, numPartitions=1).withColumn("d", F.col("id") % 2)
    rows.write.format("delta").partitionBy("d").mode("append").save(table.name)
    append_frame(table, rows.limit(4), "a record")
    table.delta().delete("d = 0")
    table.delta().delete("id = 1")
    table.delta().delete("id = 99")
    table.delta().update("id = 3", {"id": F.lit(33)})
    spark.sql(f"OPTIMIZE {table.sql}")
    set_property(table, "geo.x", "y")
    spark.sql(f"RESTORE {table.sql} TO VERSION AS OF 1")
    write_deltalake(table.name, rows.where("id = 5").toPandas(), mode="append")
    kinds = [APPEND, APPEND, REWRITE, REWRITE, REWRITE, NEUTRAL, NEUTRAL, Kind.RESTORE, APPEND]
    by_name = list(table.commits(0, 99))
    assert [commit.kind for commit in by_name if commit.version != _nothing_deleted(by_name)] == kinds
    assert (by_name[1].user_metadata, by_name[1].rows, by_name[0].rows) == ("a record", 4, 10)
    assert by_name[0].bytes > 0
    assert by_name[-1].rows == 1
    assert len({commit.commit_id for commit in by_name}) == len(by_name)
    assert [commit.commit_id for commit in by_name if commit.commit_id.startswith("sha256:")] == [by_name[-1].commit_id]
    told = [of_history(row) for row in reversed(collected(table.delta().history()))]

    def seen(commit: Commit) -> tuple[object, ...]:
        return commit.version, commit.kind, commit.user_metadata, commit.rows if commit.kind is APPEND else None

    assert list(map(seen, told)) == list(map(seen, by_name))
    # And where this process cannot open files, by Spark: a page with a version that is not there, and one without a txnId.
    by_spark = SparkEngine(Driver.of(spark), table.name, by_path=True)
    paged = read_page(spark, table.name, 0, len(by_name) + 3, ("a record",))
    assert paged == by_name
    for version in range(3):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    assert [first_there(first, last, by_spark.has_commit) for first, last in ((0, 8), (0, 2), (4, 8), (0, 3))] == [3, 3, 4, 3]
    assert read_page(spark, table.name, 0, 8, ()) == by_name[3:9]
    assert [commit.version for commit in table.commits(0, 8)] == list(range(3, 9))


@pytest.mark.spark
def test_a_window_of_the_history_is_whole_though_others_commit_while_it_is_asked_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(Driver.of(spark), str(tmp_path / "t"), by_path=True, lock=None)
    for _ in range(7):
        spark.range(1).write.format("delta").mode("append").save(table.name)
    by_spark = SparkEngine(Driver.of(spark), table.name, by_path=True)
    monkeypatch.setattr(by_spark, "newest", lambda: 3)  # as it was three commits ago
    assert [row["version"] for row in by_spark._history_from(2)] == [2, 3, 4, 5, 6]


def _nothing_deleted(commits: list[Commit]) -> int:
    """A DELETE that finds nothing makes a commit in some versions of Delta, and none in others."""
    return next((c.version for c in commits if c.operation == "DELETE" and c.kind is NEUTRAL), -1)


@pytest.mark.spark
def test_asking_for_the_process_of_the_driver_runs_no_job(spark: SparkSession) -> None:
    # A job would be run by an executor, which answers with its own process.
    jobs = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("geo-asked", "the driver's process")
    found = Driver.of(spark.newSession()).me.jvm_pid  # one of which nobody has asked yet
    assert "java" in Path(f"/proc/{found}/cmdline").read_text()
    spark.sparkContext.setJobGroup("geo-asked-by-a-job", "without a table of values")
    spark.sql("SELECT reflect('java.lang.ProcessHandle', 'current')").collect()
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    until(lambda: bool(jobs.getJobIdsForGroup("geo-asked-by-a-job")))  # told later than it happens, in order
    assert list(jobs.getJobIdsForGroup("geo-asked")) == []
