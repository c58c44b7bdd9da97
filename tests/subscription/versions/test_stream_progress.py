"""How far a Delta streaming query has come, by its checkpoint folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.delta.appending import append_frame
from geo.delta.driver import Driver
from geo.delta.files import SmallFiles
from geo.errors import RetryableError, UsageError
from geo.subscription.versions.stream_progress import StreamProgress, read_progress
from tests.subscription.streams_of_others import OTHER, QUERY, TABLE, DeltaStream, write_batch
from tests.world import World


def _no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


FILES = SmallFiles(Driver(_no_spark))


def test_the_newest_batch_that_has_ended_counts(tmp_path: Path) -> None:
    write_batch(tmp_path, 9, 20)
    write_batch(tmp_path, 10, 21)
    write_batch(tmp_path, 11, 30, committed=False)
    (tmp_path / "commits" / ".12.0e3f.tmp").write_text("on its way")
    assert read_progress(FILES, str(tmp_path), TABLE).finished == 20
    assert read_progress(FILES, f"file://{tmp_path}", TABLE).finished == 20


def test_a_query_that_has_ended_no_batch_has_finished_nothing(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, 5, committed=False)
    assert read_progress(FILES, str(tmp_path), TABLE).finished is None
    (tmp_path / "commits").mkdir()
    assert read_progress(FILES, str(tmp_path), TABLE).finished is None


def test_what_is_no_checkpoint_of_a_query_over_the_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkpoint of a streaming query"):
        read_progress(FILES, str(tmp_path / "nowhere"), TABLE)
    with pytest.raises(UsageError, match="is no checkpoint of a streaming query"):
        read_progress(FILES, str(tmp_path), TABLE)
    write_batch(tmp_path, 3, 5, table=OTHER)
    with pytest.raises(UsageError, match=f"offsets/3 is not of a query over the table with the id {TABLE}.*{OTHER}"):
        read_progress(FILES, str(tmp_path), TABLE)
    (tmp_path / "offsets" / "3").write_bytes(b"v1\n\xff\xfe")
    with pytest.raises(UsageError, match="offsets/3 is no text"):
        read_progress(FILES, str(tmp_path), TABLE)


def test_a_batch_whose_offsets_are_gone_is_read_later(tmp_path: Path) -> None:
    write_batch(tmp_path, 3, 5)
    (tmp_path / "offsets" / "3").unlink()
    with pytest.raises(RetryableError, match="the offsets of its newest batch, 3, are not there"):
        read_progress(FILES, str(tmp_path), TABLE)


def test_whose_checkpoint_it_is_stands_beside_its_batches(tmp_path: Path) -> None:
    write_batch(tmp_path, 3, 5)
    assert read_progress(FILES, str(tmp_path), TABLE) == StreamProgress(4, QUERY)
    (tmp_path / "metadata").unlink()
    with pytest.raises(RetryableError, match="metadata, which says whose checkpoint it is, is not there"):
        read_progress(FILES, str(tmp_path), TABLE)
    for content in (b"{}", b"v1", b"\xff\xfe"):
        (tmp_path / "metadata").write_bytes(content)
        with pytest.raises(UsageError, match=f"{tmp_path}/metadata (has no id of a streaming query|is no text)"):
            read_progress(FILES, str(tmp_path), TABLE)


@pytest.fixture
def few_kept(spark: SparkSession) -> Iterator[None]:
    """Spark keeps what it must of old batches."""
    key = "spark.sql.streaming.minBatchesToRetain"
    before = spark.conf.get(key)
    spark.conf.set(key, "1")
    yield
    spark.conf.set(key, before)  # type: ignore[arg-type]


def two_files(world: World, first: int) -> None:
    """A commit in eu with two files, entries `first` and the next one."""
    append_frame(world.log("eu"), world.entries("eu", first, first + 2).repartition(2))


@pytest.mark.spark
@pytest.mark.usefixtures("few_kept")
def test_a_stream_has_finished_a_version_with_its_last_file_also_after_a_restart(world: World) -> None:
    world.write("eu", 0, 1)  # versions 0, of the table, and 1
    two_files(world, 1)  # version 2, of two files
    stream = DeltaStream(world, maxFilesPerTrigger=1)
    stream.stops_in_batch = 1
    with pytest.raises(Exception, match="stopped on purpose"):
        stream.run()
    assert stream.finished() is None, "it reads what was there in parts, and has one of three"
    stream.stops_in_batch = None
    stream.run()
    assert stream.finished() == 2
    two_files(world, 3)
    two_files(world, 5)
    stream.finished_meanwhile.clear()
    stream.run()
    assert stream.finished() == 4
    assert stream.finished_meanwhile == [2, 2, 3, 3], "while one of two files is done the version is not"
    assert len(list(Path(stream.checkpoint, "commits").glob("[0-9]*"))) < 7, "old ones were let go"


@pytest.mark.spark
def test_a_stream_that_begins_at_a_version_has_finished_what_is_before_it_once_it_has_ended_a_batch(world: World) -> None:
    for first in range(4):
        world.write("eu", first, first + 1)
    stream = DeltaStream(world, startingVersion=3, maxFilesPerTrigger=1)
    with pytest.raises(UsageError, match="is no checkpoint"):
        stream.finished()
    stream.run()
    assert stream.finished_meanwhile == [None, 3]
    assert stream.finished() == 4


@pytest.mark.spark
def test_what_spark_reads_of_a_checkpoint_is_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(2):
        world.write("eu", first, first + 1)
    stream = DeltaStream(world)
    stream.run()
    monkeypatch.setattr("geo.delta.files.local_path", lambda location: None)  # as on another storage
    assert stream.finished() == 2
    with pytest.raises(UsageError, match="is no checkpoint"):
        read_progress(SmallFiles(Driver.of(world.spark)), str(world.folder / "nowhere"), stream.table_id)
