"""What this process appends and reads by itself is what Spark would have: the same rows, log, statistics and checksum."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from geo.config.cluster import Cluster
from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import Runner
from geo.crash import CrashPoint
from geo.delta import ddl, writer
from geo.delta.appending import append_frame, append_here, append_rows, append_written, write_frame
from geo.delta.arrow_rows import rows_table
from geo.delta.commits import Kind
from geo.delta.ddl import create_table, set_property
from geo.delta.delta_log import read_folder, remove_below
from geo.delta.delta_state import newest_state
from geo.delta.disk_store import DiskStore, on_disk
from geo.delta.driver import Driver, Reads
from geo.delta.engines.native.rows import MOST_ROWS
from geo.delta.frames import read_inserts
from geo.delta.local_commits import commit_written
from geo.delta.local_state import own_state
from geo.delta.row_files import Added, write_files
from geo.delta.scan import few_added
from geo.delta.store import Put, StorePath
from geo.delta.sums import sum_of
from geo.delta.table import Table
from geo.delta.writer import commit_files
from geo.errors import FencedError, UnknownAnswerError
from geo.journal.cluster import connect
from geo.now import now_us
from geo.schemas import TOPIC_LOG
from geo.testing import dies_at
from tests.delta.logs import NOW, actions_of, checksum_of, log_of, made_log, row_of, rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Table:
    return made_log(spark, tmp_path)


def _append_by_delta(table: Table, rows: DataFrame, user_metadata: str = "") -> None:
    rows.write.format("delta").mode("append").option("userMetadata", user_metadata).save(table.name)


def _checksum(table: Table, version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(checksum_of(table, version).read_text())
    return found


_TEXTS = st.none() | st.text(max_size=40).filter(lambda text: "\x00" not in text)
_TIMES = st.none() | st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(timezone.utc))
_OTHERS = st.fixed_dictionaries(
    {
        "event_time": _TIMES,
        "key": _TEXTS,
        "properties": st.none() | st.dictionaries(st.text(max_size=3), _TEXTS, max_size=3),
        "replicate_to": st.none() | st.lists(st.sampled_from(["eu", "ap"]), max_size=2),
        "payload": st.none() | st.binary(max_size=20),
        "marker": st.none() | st.just("SNAPSHOT"),
        "publish_date": st.sampled_from([NOW.date(), date(1969, 12, 31)]),
    }
)


def test_rows_of_every_kind_come_back_from_spark_and_from_the_files(spark: SparkSession, log: Table) -> None:
    kept: list[dict[str, Any]] = []

    @settings(max_examples=60, phases=[Phase.generate], derandomize=True, database=None)
    @given(st.lists(_OTHERS, min_size=1, max_size=5))
    def append(batch: list[dict[str, Any]]) -> None:
        rows = [row_of(len(kept) + at, **others) for at, others in enumerate(batch)]
        before = log.latest_version()
        assert append_here(log, rows_table(TOPIC_LOG.types, rows), f"batch {before}")
        kept.extend(rows)
        assert log.latest_version() == before + 1

    append()
    last = log.latest_version()
    expected = rows_table(TOPIC_LOG.types, kept).sort_by("entry_id").to_pylist()
    by_spark = log.read().toArrow().sort_by("entry_id").to_pylist()
    assert by_spark == expected
    few = few_added(log, 1, last)
    assert few is not None
    assert few.sort_by("entry_id").to_pylist() == expected
    feed = read_inserts(log, 1, last).select(*TOPIC_LOG.names).toArrow().sort_by("entry_id").to_pylist()
    assert feed == expected
    assert log.read().where("entry_id = 3 AND publish_date > '2000-01-01'").count() == sum(
        row["entry_id"] == 3 and row["publish_date"] > date(2000, 1, 1) for row in kept
    )


@pytest.mark.parametrize("written_by", ["this process", "Spark"])
def test_an_append_says_what_deltas_own_says(spark: SparkSession, log: Table, written_by: str) -> None:
    """Also one whose files Spark writes, and this process commits."""
    dates = [NOW.date(), date(1969, 12, 31), date(2026, 11, 25)]
    others = {"producer": "p" * 40, "properties": {"a": "b"}, "replicate_to": ["eu"]}
    times = [datetime(1684, 10, 19, 16, tzinfo=timezone.utc), None]
    listed = [row_of(n, publish_date=dates[n % 3], event_time=times[n % 2], **others) for n in range(10)]
    rows = rows_table(TOPIC_LOG.types, listed)
    _append_by_delta(log, spark.createDataFrame(rows).coalesce(1), '{"a": "record"}')
    if written_by == "Spark":
        append_frame(log, spark.createDataFrame(rows).coalesce(1), '{"a": "record"}')
    else:
        assert append_here(log, rows, '{"a": "record"}')
    theirs, ours = log.commits(1, 2)
    assert (ours.kind, ours.rows, ours.user_metadata, ours.operation) == (Kind.APPEND, 10, theirs.user_metadata, theirs.operation)
    assert ours.bytes > 1000
    assert not ours.commit_id.startswith("sha256:")
    assert ours.commit_id != theirs.commit_id
    adds = [sorted(actions_of(log, version, "add"), key=lambda add: str(add["partitionValues"])) for version in (1, 2)]
    assert len(adds[0]) == 3
    for spark_s, mine in zip(*adds, strict=True):
        assert mine.keys() == spark_s.keys()
        assert (mine["partitionValues"], mine["dataChange"]) == (spark_s["partitionValues"], spark_s["dataChange"])
        assert (told := json.loads(mine["stats"])) == json.loads(spark_s["stats"])
        assert told["minValues"].keys() >= {"origin", "ledger_id", "entry_id", "publish_time", "event_time"}
    newest = log.delta().history(1).collect()[0]
    assert (newest["version"], newest["userMetadata"], newest["isBlindAppend"]) == (2, '{"a": "record"}', True)
    feeds = [read_inserts(log, version, version).select(*TOPIC_LOG.names).toArrow().sort_by("entry_id") for version in (1, 2)]
    assert feeds[0].to_pylist() == feeds[1].to_pylist() == rows.to_pylist()
    assert own_state(log) is not None, "its checksum is that of the version"
    assert not list(Path(log.name).glob("_geo*"))


def test_a_checksum_is_that_of_the_version_and_spark_goes_on_from_it(spark: SparkSession, log: Table) -> None:
    for number in range(3):
        assert append_here(log, rows_of(number * 10, number * 10 + 10))
    found = _checksum(log, 3)
    detail = log.delta().detail().collect()[0]
    files = list(Path(log.name).glob("publish_date=*/*.parquet"))
    assert (found["numFiles"], found["tableSizeBytes"]) == (detail["numFiles"], detail["sizeInBytes"]) == (
        3, sum(path.stat().st_size for path in files),
    )  # fmt: skip
    assert {file["path"] for file in found["allFiles"]} == {str(path.relative_to(log.name)) for path in files}
    bins = Counter(bisect_right(found["fileSizeHistogram"]["sortedBinBoundaries"], path.stat().st_size) - 1 for path in files)
    assert {at: count for at, count in enumerate(found["fileSizeHistogram"]["fileCounts"]) if count} == bins
    _append_by_delta(log, spark.createDataFrame(rows_of(30, 40)))
    later = _checksum(log, 4)
    assert (later["numFiles"], len(later["allFiles"])) == (log.delta().detail().collect()[0]["numFiles"], later["numFiles"])
    assert sum(later["fileSizeHistogram"]["fileCounts"]) == later["numFiles"], "Spark derived its own from ours"
    assert append_here(log, rows_of(40, 50)), "and we ours from Spark's"


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_checkpoint_is_written_when_it_is_due_and_the_table_goes_on_from_it(
    log: Table, monkeypatch: pytest.MonkeyPatch, *, by_spark: bool
) -> None:
    if by_spark:
        monkeypatch.setattr(writer, "DeltaTable", None)  # as where the code came as a zip
    set_property(log, "delta.checkpointInterval", "5")
    for number in range(12):
        append_rows(log, rows_of(number, number + 1))
    folder = on_disk(log_of(log))
    assert [path.name[15:20] for path in sorted(log_of(log).glob("[!.]*.checkpoint.parquet"))] == ["00005", "00010"]
    remove_below(folder, read_folder(folder), 10)
    again = Table(Driver.of(log.spark.newSession()), log.name, by_path=True, lock=None)
    log.spark.catalog.clearCache()
    assert again.read().count() == 12
    assert again.delta().detail().collect()[0]["numFiles"] == 12
    append_frame(log, log.spark.createDataFrame(rows_of(12, 13)))
    append_rows(log, rows_of(13, 15))
    assert sorted(row["entry_id"] for row in log.read().collect()) == list(range(15))
    assert DeltaTable(log.name).count() == 15


_LEFT = {
    "a constraint": "ALTER TABLE {} ADD CONSTRAINT c CHECK (entry_id >= 0)",
    "a feature that is not known": "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.typeWidening-preview' = 'supported')",
}


@pytest.mark.parametrize("sql", _LEFT.values(), ids=_LEFT.keys())
def test_a_table_that_asks_more_of_a_writer_is_left_to_spark(spark: SparkSession, log: Table, sql: str) -> None:
    append_rows(log, rows_of(0, 1))
    spark.sql(sql.format(log.sql))
    _is_left(log, rows_of(1, 2))
    append_rows(log, rows_of(1, 2))
    assert log.read().count() == 2


def _is_left(log: Table, rows: pa.Table) -> None:
    """Nothing happens without Spark."""
    before, files = log.latest_version(), sorted(Path(log.name).rglob("*.parquet"))
    assert not append_here(log, rows)
    assert (log.latest_version(), sorted(Path(log.name).rglob("*.parquet"))) == (before, files)


def test_an_interval_of_0_that_another_writer_set_is_taken_as_deltas_own(log: Table) -> None:
    append_rows(log, rows_of(0, 1))
    checksum = checksum_of(log, 1)
    said = json.loads(checksum.read_text())
    said["metadata"]["configuration"]["delta.checkpointInterval"] = "0"  # which Delta refuses to set
    checksum.write_text(json.dumps(said))
    sum_of(checksum).unlink()
    state = own_state(log)
    assert state is not None
    assert state.checkpoint_interval == 10
    assert append_here(log, rows_of(1, 2))


def test_a_version_without_its_own_checksum_is_left_to_spark(log: Table) -> None:
    append_rows(log, rows_of(0, 1))
    checksum = checksum_of(log, 1)
    text = checksum.read_text()
    for damaged in (None, "", text[:100], text.replace(json.loads(text)["txnId"], "another"), "[]"):
        checksum.unlink()
        if damaged is not None:
            checksum.write_text(damaged)
        _is_left(log, rows_of(1, 2))
        if damaged is None:
            checksum.write_text(text)
    checksum.write_text(text)
    assert append_here(log, rows_of(1, 2))


def test_rows_that_are_not_the_tables_are_left_to_spark(log: Table) -> None:
    rows = rows_of(0, 3)
    at = rows.column_names.index("entry_id")
    _is_left(log, rows.append_column("unknown", pa.array([1, 2, 3])))
    _is_left(log, rows.set_column(at, "entry_id", pa.array([1, 2, 3], pa.int32())))
    _is_left(log, rows.set_column(at, "entry_id", pa.array([1, None, 3], pa.int64())))
    _is_left(log, rows.drop_columns(["entry_id"]))
    assert append_here(log, rows.drop_columns(["event_time"])), "a column that may be without a value may be left out"
    before = log.latest_version()
    assert append_here(log, rows.slice(0, 0)), "no row"
    assert log.latest_version() == before, "and no commit"


def test_a_typed_table_is_appended_to_and_read(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(Driver.of(spark), str(tmp_path / "typed"), by_path=True, lock=None)
    spark.sql(
        "SELECT CAST(1 AS TINYINT) AS b, CAST(2 AS SMALLINT) AS s, 3 AS i, 1.5D AS d, CAST(2.5 AS FLOAT) AS f, CAST(1.25 AS DECIMAL(9,3)) AS m, true AS t"
    ).write.format("delta").save(table.name)
    state = own_state(table)
    assert state is not None
    rows = pa.Table.from_pylist([{"b": 2, "s": 3, "i": 4, "d": 2.5, "f": None, "m": Decimal("-7.125"), "t": None}], state.schema)
    assert append_here(table, rows)
    assert table.read().where("i = 4").toArrow().to_pylist() == rows.to_pylist()
    assert few_added(table, 1, 1) == rows


def test_what_commits_added_is_read_or_left_to_spark(spark: SparkSession, log: Table) -> None:
    append_rows(log, rows_of(0, 5))
    append_frame(log, spark.createDataFrame(rows_of(5, 10)).repartition(3))
    set_property(log, "geo.fence.test", "1")
    spark.sql(f"ALTER TABLE {log.sql} ADD COLUMNS (late INT)")
    append_rows(log, rows_of(10, 12).append_column("late", pa.array([1, 2], pa.int32())))
    last = log.latest_version()

    def added() -> list[dict[str, Any]]:
        few = few_added(log, 1, last)
        assert few is not None
        feed = read_inserts(log, 1, last).select(*few.column_names).toArrow()
        found: list[dict[str, Any]] = few.sort_by("entry_id").to_pylist()
        assert found == feed.sort_by("entry_id").to_pylist()
        return found

    assert [row["late"] for row in added()] == [None] * 10 + [1, 2]
    log.delta().optimize().executeCompaction()
    assert len(added()) == 12
    compacted = log.latest_version()
    compaction = few_added(log, compacted, compacted)
    assert compaction is not None
    assert len(compaction) == 0, "a compaction adds no row"
    append_rows(log, rows_of(20, 20 + MOST_ROWS + 1))
    assert few_added(log, last, log.latest_version()) is None, "too many"
    spark.sql(f"DELETE FROM {log.sql} WHERE entry_id = 3")
    deleted = log.latest_version()
    assert few_added(log, deleted, deleted) is None, "the change feed has its own files"
    file = next(path for path in Path(log.name).glob("publish_date=*/*.parquet"))
    for path in file.parent.glob("*.parquet"):
        path.unlink()
    assert few_added(log, 1, last) is None, "Spark says that files are gone"


_APPENDS = """
import sys
from pathlib import Path
from geo.delta.delta_state import newest_state
from geo.delta.disk_store import on_disk
from geo.delta.row_files import Added
from geo.delta.writer import commit_files
from geo.now import now_us
folder, name = on_disk(Path(sys.argv[1])), sys.argv[2]
for number in range(60):
    added = [Added(f"{name}-{number}.parquet", {"publish_date": "2026-11-24"}, 1, 1, now_us() // 1000, "{}")]
    while (state := newest_state(folder)) is None or not commit_files(folder, state, added, f"{name} {number}"):
        pass
"""


def test_processes_that_commit_without_any_lock_lose_nothing(log: Table) -> None:
    names = ("a", "b", "c")
    ended = [subprocess.Popen([sys.executable, "-c", _APPENDS, str(log_of(log)), name]) for name in names]
    try:
        assert [process.wait(120) for process in ended] == [0, 0, 0]
    finally:
        for process in ended:
            process.kill()
    records = [commit.user_metadata for commit in log.commits(1, 1000)]
    assert sorted(map(str, records)) == sorted(f"{name} {number}" for name in names for number in range(60))
    assert not list(log_of(log).glob("*.tmp"))
    state = own_state(log)
    assert state is not None
    assert (state.version, state.checksum["numFiles"]) == (180, 180)


@pytest.mark.parametrize(
    "point",
    [CrashPoint.APPEND_WRITTEN, CrashPoint.APPEND_CHECKED, CrashPoint.COMMIT_WRITTEN, CrashPoint.APPEND_COMMITTED],
    ids=lambda point: point.value,
)
def test_an_append_that_stops_here_is_there_whole_or_not_at_all(log: Table, point: CrashPoint) -> None:
    append_rows(log, rows_of(0, 1))
    with dies_at(point):
        append_rows(log, rows_of(1, 3))
    landed = point is CrashPoint.APPEND_COMMITTED
    assert log.read().count() == (3 if landed else 1)
    for first in (3, 5):  # the next one is Spark's where the checksum was not written, the one after it is not
        append_rows(log, rows_of(first, first + 2))
    assert log.read().count() == (7 if landed else 5)
    assert _checksum(log, log.latest_version())["numFiles"] == log.delta().detail().collect()[0]["numFiles"]


@pytest.mark.parametrize("is_made", [True, False])
def test_what_a_commit_may_name_stays_and_spark_does_not_commit_it_again(
    log: Table, monkeypatch: pytest.MonkeyPatch, *, is_made: bool
) -> None:
    """The store does not say whether a commit was made, and cannot be read for a while."""
    put = DiskStore.put_if_absent

    def put_if_absent(store: DiskStore, path: str, content: bytes) -> Put:
        if is_made:
            put(store, path, content)
        return Put.UNKNOWN

    def gives_no_answer(store: DiskStore, path: str) -> None:
        raise OSError("no answer") if path.endswith(f"{1:020}.json") else FileNotFoundError(path)

    with monkeypatch.context() as away:
        away.setattr(DiskStore, "put_if_absent", put_if_absent)
        away.setattr(StorePath, "unchecked", lambda place: gives_no_answer(place.store, place.location))
        with pytest.raises(UnknownAnswerError):
            append_rows(log, rows_of(0, 3))
        written = write_frame(log, log.spark.createDataFrame(rows_of(3, 5)).coalesce(1)) if not is_made else None
        if written is not None:
            with pytest.raises(UnknownAnswerError):
                append_written(log, written)
    assert log.latest_version() == int(is_made)
    assert len(list(Path(log.name).rglob("part-*.parquet"))) == (1 if is_made else 2)
    assert log.read().count() == (3 if is_made else 0)


def test_whoever_may_not_append_leaves_nothing(log: Table) -> None:
    asked_at = []

    def refuse() -> None:
        asked_at.append(log.latest_version())
        raise FencedError("replaced")

    with pytest.raises(FencedError):
        append_here(log, rows_of(0, 1), refuse=refuse)
    assert asked_at == [0]
    assert not list(Path(log.name).rglob("*.parquet"))


def test_where_another_commit_comes_between_it_is_asked_again_whether_the_rows_may_be_appended(log: Table) -> None:
    """The one that came may be the metadata change of a takeover, behind which a stale owner must not come."""
    asked = []

    def refuse() -> None:
        asked.append(log.latest_version())
        if len(asked) == 1:
            state = newest_state(on_disk(Path(log.name) / "_delta_log"))
            assert state is not None
            assert commit_files(
                on_disk(Path(log.name) / "_delta_log"),
                state,
                [Added("x", {"publish_date": "2026-11-24"}, 1, 1, now_us() // 1000, "{}")],
                None,
            )

    assert append_here(log, rows_of(0, 1), refuse=refuse)
    assert asked == [0, 1]
    assert log.latest_version() == 2


def test_a_disk_that_takes_nothing_is_told_by_spark_and_leaves_nothing(log: Table) -> None:
    append_rows(log, rows_of(0, 1))
    place = Path(log.name) / f"publish_date={NOW.date()}"
    if os.getuid() == 0:
        (Path(log.name) / "publish_date=2026-11-25").write_text("no folder")
        rows = rows_table(TOPIC_LOG.types, [row_of(1, publish_date=date(2026, 11, 25))])
    else:
        place.chmod(0o500)
        rows = rows_of(1, 2)
    _is_left(log, rows)


_YEARS = (1, 999, 1000, 1969, 9999, 10_000, 55_000)


def test_times_of_any_year_are_appended_and_found_again(spark: SparkSession, log: Table) -> None:
    """Python has no year 10,000 and Spark does; a statistic that one of them writes otherwise would hide rows."""
    at = [f"timestamp_micros(unix_micros(make_timestamp({year}, 6, 1, 0, 0, 0, 'UTC')))" for year in _YEARS]
    rows = spark.sql(f"SELECT explode(array({', '.join(at)})) AS event_time").toArrow()
    for number in range(len(_YEARS)):
        given = rows_of(number, number + 1).drop_columns(["event_time"])
        assert append_here(log, given.append_column("event_time", rows["event_time"].slice(number, 1).combine_chunks()))
    for sql in at:
        assert log.read().where(f"event_time = {sql}").count() == 1
    assert log.read().where(f"event_time >= {at[5]}").count() == 2


def test_files_of_a_table_that_was_made_anew_meanwhile_are_not_added(log: Table) -> None:
    state = own_state(log)
    assert state is not None
    written = write_files(on_disk(Path(log.name)), state, rows_of(0, 1))
    shutil.rmtree(log.name)
    create_table(log, TOPIC_LOG)
    assert not commit_written(log, written)
    assert log.latest_version() == 0


def test_a_path_that_is_taken_for_another_one_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(Driver.of(spark), str(tmp_path / "a%20b"), by_path=True, lock=None)
    create_table(table, TOPIC_LOG)
    _is_left(table, rows_of(0, 1))


def test_checkpoints_that_cannot_be_written_are_left_to_spark(log: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unable:
        def __init__(self, folder: Path) -> None:
            raise OSError(f"{folder}: no")

    monkeypatch.setattr(writer, "DeltaTable", Unable)
    set_property(log, "delta.checkpointInterval", "3")
    for number in range(8):
        append_rows(log, rows_of(number, number + 1))
    found = [path.name[18:20] for path in sorted(log_of(log).glob("*.checkpoint.parquet"))]
    assert found == ["06", "09"], "after the first that was due"
    assert log.read().count() == 8


def test_where_a_log_store_is_configured_tables_are_made_and_commits_are_left_to_it(
    spark: SparkSession, log: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Configured(Driver):
        def log_store(self, scheme: str) -> str | None:
            asked.append(scheme)
            return "a.b.C"

    configured = Configured(lambda: spark)
    _is_left(Table(configured, log.name, by_path=True, lock=None), rows_of(0, 1))
    assert asked == ["file"]
    monkeypatch.setattr(ddl, "make", lambda *_: pytest.fail("it was made without Spark"))
    another = Table(configured, str(tmp_path / "another"), by_path=True, lock=None)
    create_table(another, TOPIC_LOG)
    assert another.latest_version() == 0


def test_a_lock_names_the_jvm_that_its_holder_has_by_then_and_a_claim_keeps_its_name(spark: SparkSession) -> None:
    driver = Driver(lambda: spark, reads=Reads.ALL)
    driver.commits_by_itself = True  # as it is known where no place of Spark's settings names a log store, and none is there
    claimed = driver.me
    assert (claimed.jvm_pid, driver.committer) == (0, claimed)
    assert driver.spares_spark
    assert driver.spark is spark
    assert driver.committer.jvm_pid > 0
    assert driver.me == claimed
    assert not driver.spares_spark, "Spark is there, and makes tables as it always did"


def test_rows_that_were_written_are_committed_by_spark_where_that_is_due(log: Table, tmp_path: Path, spark: SparkSession) -> None:
    """The version before has lost its checksum between the two; nothing is left beside the log."""
    tables = connect(spark, Cluster("eu", root=str(tmp_path / "eu")))
    (ownership,) = claim(tables, [[Runner("p", "p", "p")]])
    try:
        state = own_state(log)
        assert state is not None
        written = write_files(on_disk(Path(log.name)), state, rows_of(0, 3))
        checksum_of(log, 0).unlink()
        ownership.append(log, written, "record")
        assert sorted(row["entry_id"] for row in log.read().collect()) == [0, 1, 2]
        assert not any((Path(log.name) / file.path).exists() for file in written.files)
        assert [commit.user_metadata for commit in log.commits(1, 1)] == ["record"]
    finally:
        release([ownership])
