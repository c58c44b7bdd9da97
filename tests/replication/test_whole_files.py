"""Files that are taken whole: none of which the routing rule would leave a row out."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField

from geo.crash import CrashPoint, reach
from geo.delta.appending import append_rows
from geo.delta.arrow_rows import rows_table
from geo.delta.data_file import DataFile
from geo.delta.ddl import add_columns, create_table
from geo.delta.delta_state import DeltaState
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.local_commits import commit_written
from geo.delta.local_state import own_state
from geo.delta.object_store import ObjectStore
from geo.delta.predicate import All, Compare, Predicate, TimeUs
from geo.delta.process import this_process
from geo.delta.scan import few_rows
from geo.delta.table import Table
from geo.errors import RetryableError
from geo.ids import LedgerId
from geo.replication.gaps import Gap
from geo.replication.rule import Rule, Verdict, messages_wanted
from geo.replication.whole_files import Whole, _judged, all_files, copied, look_ahead, plain_state, whole_files, without
from geo.schemas import TOPIC_LOG
from geo.testing import dies_at
from geo.times import from_us
from tests.clock_off import clock_off
from tests.delta.on_s3 import table_on
from tests.object_store import ObjectStore as S3
from tests.routed import RoutedRow, verdict

NOW, SECOND = 1_800_000_000_000_000, 1_000_000
LEDGER = LedgerId("us", 7)
RULE = Rule("us", "eu", frozenset({"us"}), message_ttl_s=100)
ALL = {LEDGER: [Gap(LEDGER, 0, 1_000)]}
DAY = from_us(NOW).date()
WANTED = messages_wanted(RULE, None, NOW)


def _row(entry: int, **changes: Any) -> dict[str, Any]:
    row = {"origin": "us", "ledger_id": 7, "entry_id": entry, "publish_time": NOW, "key": f"k{entry}", "payload": b"p", "producer": "p",
           "publish_date": DAY, "replicate_to": None, "marker": None}  # fmt: skip
    return {**row, **changes}


def _taken(
    rows: Sequence[Mapping[str, Any]],
    wanted: Predicate = WANTED,
    gaps: Mapping[LedgerId, Sequence[Gap]] = ALL,
    dropped: Sequence[str] = ("publish_date",),
) -> Whole | None:
    """What becomes of a file with these rows, without the columns `dropped`."""
    table = rows_table(
        TOPIC_LOG.types, [{**row, "publish_time": row["publish_time"] and from_us(row["publish_time"])} for row in rows]
    )
    told: dict[str, Any] = {"num_records": len(rows), "partition.publish_date": DAY}
    for name in ("origin", "ledger_id", "entry_id"):
        values = [row[name] for row in rows if row[name] is not None]
        told |= {f"min.{name}": min(values, default=None), f"max.{name}": max(values, default=None)}
        told[f"null_count.{name}"] = len(rows) - len(values)
    state = DeltaState(
        1,
        "table",
        table.schema,
        table.schema,
        ("publish_date",),
        frozenset({"origin", "ledger_id", "entry_id", "publish_time"}),
        10,
        {},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.parquet"
        pq.write_table(table.drop_columns(list(dropped)), path)
        return _judged(DataFile(on_disk(path), told), state, wanted, gaps)


_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "origin": st.sampled_from(["us", "asia"]),
        "ledger_id": st.sampled_from([7, 8]),
        "entry_id": st.integers(0, 6),
        "marker": st.sampled_from([None, "SNAPSHOT", "SNAPSHOT_REQUEST"]),
        "replicate_to": st.sampled_from([None, [], ["eu"], ["asia"]]),
        "publish_time": st.sampled_from([NOW - 200 * SECOND, NOW - 100 * SECOND, NOW - 50 * SECOND, NOW, NOW + 90_000 * SECOND]),
    },
)


@given(
    changes=st.lists(_CHANGES, min_size=1, max_size=6),
    since=st.sampled_from([None, NOW - 50 * SECOND]),
    until=st.sampled_from([None, NOW]),
)
def test_of_a_file_that_is_taken_every_row_crosses_is_a_message_and_is_wanted_once(
    changes: list[dict[str, Any]], since: int | None, until: int | None
) -> None:
    rows = [_row(at, **change) for at, change in enumerate(changes)]
    times = [
        *([Compare("publish_time", ">=", TimeUs(since))] if since else []),
        *([Compare("publish_time", "<", TimeUs(until))] if until else []),
    ]
    taken = _taken(rows, All((WANTED, *times)))
    verdicts = [
        verdict(
            RULE, RoutedRow(r["origin"], r["replicate_to"], r["marker"], r["publish_time"], r["ledger_id"], r["entry_id"]), NOW
        )
        for r in rows
    ]
    if taken is not None:
        assert set(verdicts) == {Verdict.REPLICATE}
        assert all(row["marker"] is None for row in rows)
        assert all((since or 0) <= row["publish_time"] and (until is None or row["publish_time"] < until) for row in rows)
        assert sorted(row["entry_id"] for row in rows) == list(range(taken.first, taken.last + 1))
        assert {(row["origin"], row["ledger_id"]) for row in rows} == {(taken.ledger.origin, taken.ledger.ledger_id)}
    elif not any(changes) and since is None and until is None:
        raise AssertionError("a file of plain messages is taken")


def test_a_file_is_taken_only_if_the_target_lacks_all_of_it() -> None:
    rows = [_row(entry) for entry in range(10, 20)]
    taken = _taken(rows)
    assert taken is not None
    assert (taken.first, taken.last, taken.rows, taken.partition) == (10, 19, 10, (("publish_date", str(DAY)),))
    assert _taken(rows, gaps={LEDGER: [Gap(LEDGER, 10, 19)]}) is not None
    for gap in (Gap(LEDGER, 11, 30), Gap(LEDGER, 0, 18)):
        assert _taken(rows, gaps={LEDGER: [gap]}) is None
    assert _taken(rows, gaps={}) is None
    changes: list[dict[str, Any]] = [
        {"marker": "SNAPSHOT_REQUEST"},
        {"publish_time": NOW - 101 * SECOND},
        {"publish_time": None},
        {"replicate_to": []},
    ]
    for change in changes:
        assert _taken([*rows[:-1], _row(19, **change)]) is None, "of all of it, also of its last row"


def test_a_file_that_has_its_partition_as_a_column_too_is_taken_as_one_that_has_not() -> None:
    """As Spark writes them."""
    rows = [_row(entry) for entry in range(10, 20)]
    with_it, without_it = _taken(rows, dropped=()), _taken(rows)
    assert with_it is not None
    assert without_it is not None
    assert (with_it.first, with_it.last, with_it.partition) == (10, 19, (("publish_date", str(DAY)),))
    assert with_it.statistics == without_it.statistics


def test_the_statistics_are_those_that_the_target_names_and_its_partition_is_no_column() -> None:
    taken = _taken([_row(3)])
    assert taken is not None
    told = json.loads(taken.statistics)
    assert (told["numRecords"], told["minValues"]["entry_id"], told["nullCount"]["entry_id"]) == (1, 3, 0)
    assert told["minValues"].keys() == {"origin", "ledger_id", "entry_id", "publish_time"}


def test_what_is_left_of_the_gaps_is_all_that_no_file_has() -> None:
    def whole(first: int, last: int) -> Whole:
        return Whole(on_disk(Path("f")), LEDGER, first, last, (), 1, "")

    found = [Gap(LEDGER, 0, 99), Gap(LedgerId("us", 8), 0, 9), Gap(LEDGER, 200, 210, compare=True)]
    assert list(without(found, [whole(90, 99), whole(10, 19), whole(20, 29)])) == [
        Gap(LEDGER, 0, 9), Gap(LEDGER, 30, 89), Gap(LedgerId("us", 8), 0, 9), Gap(LEDGER, 200, 210, compare=True),
    ]  # fmt: skip
    assert list(without(found[:1], [whole(0, 99)])) == []


def test_a_file_with_a_column_that_the_target_has_otherwise_goes_by_rows() -> None:
    table = pa.table({"origin": ["us"], "ledger_id": [7], "entry_id": [0], "publish_time": [from_us(NOW)], "marker": pa.nulls(1, pa.string()),
                      "replicate_to": pa.nulls(1, pa.list_(pa.string())), "amount": pa.array([1], pa.int32()),
                      "at": [from_us(NOW)], "local": [from_us(NOW).replace(tzinfo=None)]})  # fmt: skip
    told = {"num_records": 1, "partition.publish_date": DAY, **{f"{end}.{name}": value for end in ("min", "max") for name, value in
            (("origin", "us"), ("ledger_id", 7), ("entry_id", 0))}, "null_count.origin": 0, "null_count.ledger_id": 0}  # fmt: skip
    instant, local, old = pa.timestamp("us", "UTC"), pa.timestamp("us"), {"use_deprecated_int96_timestamps": True}
    asked: list[tuple[dict[str, pa.DataType], dict[str, bool], bool]] = [
        ({}, {}, True),
        ({"amount": pa.int64()}, {}, False),
        ({"at": local}, {}, False),
        ({"local": instant}, {}, False),
        ({"local": instant}, old, True),  # of Spark as a rule: INT96 is an instant, whatever Arrow says of it
        ({}, old, False),
    ]
    for other, kept, is_taken in asked:
        columns = [pa.field(f.name, other.get(f.name, f.type)) for f in table.schema]
        schema = pa.schema([*columns, pa.field("publish_date", pa.date32())])
        state = DeltaState(1, "table", schema, schema, ("publish_date",), frozenset({"entry_id"}), 10, {})
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(table, f"{folder}/file.parquet", **kept)
            found = _judged(DataFile(on_disk(Path(f"{folder}/file.parquet")), told), state, WANTED, ALL)
        assert (found is not None) is is_taken


# -- copied, from bucket to bucket, without Spark -------------------------------------------------------------------------


def _no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


@pytest.fixture
def logs(s3: S3) -> tuple[Table, Table]:
    """A source with three files of ten messages, and a target without any, each in a bucket of its own."""
    found = []
    for _ in range(2):
        place = table_on(s3)
        port = ObjectStore(place.store.s3.bucket, s3.options())  # type: ignore[attr-defined]  # it is one
        found.append(
            Table(Driver(_no_spark, lambda: this_process(0), find_port=partial(_same, port)), str(place), by_path=True, lock=None)
        )
        create_table(found[-1], TOPIC_LOG)
    source, target = found
    for first in (0, 10, 20):
        rows = [{**_row(entry), "publish_time": from_us(NOW)} for entry in range(first, first + 10)]
        append_rows(source, rows_table(TOPIC_LOG.types, rows))
    return source, target


def _same(port: ObjectStore) -> ObjectStore:
    return port


def _brought(source: Table, target: Table) -> list[Whole]:
    """What the target lacks is taken and committed, as a backfill does."""
    there = few_rows(target, target.latest_version())
    assert there is not None
    found = [Gap(LEDGER, 0, 29)] if not len(there) else []
    files = whole_files(source, source.latest_version(), target, WANTED, found)
    if files:
        written = copied(files, target, plain_state(target, "target"))
        reach(CrashPoint.BACKFILL_COPIED)
        assert commit_written(target, written)
        reach(CrashPoint.BACKFILL_APPENDED)
    return files


def _entries(log: Table) -> list[int]:
    found = few_rows(log, log.latest_version())
    assert found is not None
    return sorted(found["entry_id"].to_pylist())


def test_files_cross_from_bucket_to_bucket_and_nothing_of_them_passes_here(s3: S3, logs: tuple[Table, Table]) -> None:
    source, target = logs
    files = whole_files(source, source.latest_version(), target, WANTED, [Gap(LEDGER, 0, 29)])
    assert [(one.first, one.last) for one in files] == [(0, 9), (10, 19), (20, 29)]
    before = s3.counts()
    written = copied(files, target, plain_state(target, "target"))
    asked = s3.counts() - before
    assert (asked["PUT"], asked["HEAD"]) == (3, 3), "a copy by the store, and what came of it"
    assert commit_written(target, written)
    assert target.count_files() == 3
    assert few_rows(target, 1) == few_rows(source, 3)


def test_files_that_were_looked_at_ahead_are_not_read_again_but_for_a_target_with_other_columns(
    s3: S3, logs: tuple[Table, Table]
) -> None:
    source, target = logs
    ahead = look_ahead(source, 3, WANTED)
    append_rows(source, rows_table(TOPIC_LOG.types, [{**_row(30), "publish_time": from_us(NOW)}]))
    found = all_files(source, 3, target, WANTED)
    before = s3.counts()
    assert (all_files(source, 3, target, WANTED, ahead), s3.counts() - before) == (found, Counter())
    newer = all_files(source, 4, target, WANTED, ahead)
    assert newer is not None
    assert [(one.first, one.last) for one in newer] == [(0, 9), (10, 19), (20, 29), (30, 30)], "and those of a later version are"
    add_columns(target, [StructField("more", StringType())])
    state = own_state(target)
    assert state is not None
    assert [ahead.of(file, state) for file in ahead.files] == [None] * 3
    assert all_files(source, 3, target, WANTED, ahead) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.BACKFILL_FILE_COPIED, CrashPoint.BACKFILL_COPIED, CrashPoint.APPEND_CHECKED, CrashPoint.APPEND_COMMITTED,
        CrashPoint.BACKFILL_APPENDED,
    ],
    ids=lambda point: point.value,
)  # fmt: skip
def test_a_copy_that_stops_here_leaves_nothing_in_the_log_or_all_and_is_begun_again_without_doubling(
    logs: tuple[Table, Table], point: CrashPoint
) -> None:
    source, target = logs
    with dies_at(point, 2 if point is CrashPoint.BACKFILL_FILE_COPIED else 1):
        _brought(source, target)
    is_there = point in (CrashPoint.APPEND_COMMITTED, CrashPoint.BACKFILL_APPENDED)
    assert _entries(target) == (list(range(30)) if is_there else [])
    assert len(_brought(source, target)) == (0 if is_there else 3)
    assert _entries(target) == list(range(30))
    assert target.latest_version() == 1


def test_copies_that_grew_old_are_not_committed_and_are_copied_again(s3: S3, logs: tuple[Table, Table]) -> None:
    source, target = logs
    files = whole_files(source, source.latest_version(), target, WANTED, [Gap(LEDGER, 0, 29)])
    written = copied(files, target, plain_state(target, "target"))
    try:
        s3.go_on(8 * 86_400)
        with clock_off(8 * 86_400), pytest.raises(RetryableError, match="files that were written are not committed"):
            commit_written(target, written)
    finally:
        s3.go_on(0)
    assert (_entries(target), len(_brought(source, target))) == ([], 3)
    assert _entries(target) == list(range(30))
