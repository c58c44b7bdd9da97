"""A Delta table as a source: which rows come, in which order, from where it goes on, and what stops it."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from geo.config import load
from geo.delta.disk_store import on_disk
from geo.delta.plain_table import PlainTable
from geo.errors import SourceChangedError, UsageError
from geo.journal.cluster import without_spark
from geo.log.ledgers import SourceEnd
from geo.log.publish_stream import SourceStream
from geo.log.publisher import Publisher
from geo.log.sources import table
from geo.log.sources.own_table import OwnTable
from geo.log.sources.source import Position, Source
from geo.log.sources.table import WHOLE, TableReader
from geo.log.sources.table_place import table_at
from geo.log.sources.table_rows import ROW, SOURCE, TABLE
from geo.reasons import Reason
from geo.testing import config_text
from tests.delta.on_s3 import cluster_on
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3
from tests.world import TOPIC


class Mine:
    """A table of a user's at a path, written by delta-rs, and who follows it as often as it is started anew."""

    def __init__(self, path: Path) -> None:
        self.path, self.position = path, Position()

    def add(self, *numbers: int, more: Mapping[str, list[Any]] = MappingProxyType({}), **options: Any) -> None:
        """Rows of these ids in one commit, with `more` columns. `options`: of `write_deltalake`."""
        rows = {
            "id": pa.array(numbers, pa.int64()),
            "at": pa.array([{"x": [n], "m": {"k": n}} for n in numbers]),
            **{name: pa.array(values) for name, values in more.items()},
        }
        write_deltalake(str(self.path), pa.table(rows), **{"mode": "append", "schema_mode": "merge", **options})

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def own(self, **options: Any) -> OwnTable:
        return OwnTable(PlainTable(on_disk(self.path) / "_delta_log"), **options)

    def reader(self, **options: Any) -> TableReader:
        of_table = {name: options.pop(name) for name in ("key", "order_by", "accept_lost") if name in options}
        return TableReader(self.own(**of_table), **options)

    def batch(self, **options: Any) -> list[dict[str, Any]]:
        """The rows of the next batch of who starts anew: it knows what an end says, or a note."""
        reader = self.reader(**options)
        end = reader.next(self.position)
        rows = [row for span in reader.spans(self.position, end) for block in reader.read(span) for row in block.to_pylist()]
        assert [row[ROW] for row in rows] == sorted({row[ROW] for row in rows})
        if rows:
            assert rows[0][ROW] >= self.position.get(SOURCE, [0])[0]
            assert rows[-1][ROW] < end[SOURCE][0]
        (place,) = end.values()
        said = SourceEnd(json.dumps([str(place[0] - 1), reader.mark_of(place)]), 0)
        assert reader.place_of(SOURCE, said) == place
        self.position = end
        return rows

    def ids(self, **options: Any) -> list[int]:
        return [row["id"] for row in self.batch(**options)]

    def stops(self, code: Reason, told: str, **options: Any) -> None:
        """As long as it is as it is, and it goes no further."""
        before = dict(self.position)
        for _ in range(2):
            with pytest.raises(SourceChangedError, match=told) as stopped:
                self.batch(**options)
            assert stopped.value.code is code
        assert self.position == before


@pytest.fixture
def mine(tmp_path: Path) -> Mine:
    table = Mine(tmp_path / "my table")
    table.add(1, 2)
    return table


def test_first_come_the_rows_that_are_there_file_by_file_then_what_each_commit_adds(mine: Mine) -> None:
    mine.add(3, 4)
    first = mine.ids(batch_bytes=1)
    mine.add(5)
    assert sorted([*first, *mine.ids(batch_bytes=1)]) == [1, 2, 3, 4], "of the version with which it began"
    mine.add(6)
    assert mine.ids(batch_bytes=1) == [5]
    assert mine.ids() == [6]
    assert mine.ids() == []
    mine.add(7)
    mine.add(8, 9)
    rows = mine.batch()
    assert [row["id"] for row in rows] == [7, 8, 9], "small commits come together"
    assert rows[1]["at"] == {"x": [8], "m": {"k": 8}}
    assert rows[1]["payload"] is None


def test_who_begins_with_the_latest_gets_what_comes_from_then_on(mine: Mine) -> None:
    assert mine.ids(start="latest") == []
    mine.add(3)
    assert mine.ids(start="latest") == [3]


def test_a_run_that_ends_goes_on_behind_commits_without_rows(mine: Mine, tmp_path: Path) -> None:
    (tmp_path / "geo.yaml").write_text(config_text(["eu"], []))
    config = load(tmp_path / "geo.yaml")

    def run() -> bool:
        publisher = Publisher(without_spark(config.cluster("eu")), config, TOPIC, "p")
        reader = mine.reader(start="latest")
        source = Source(TABLE, ROW, mine.own().columns_now(), ("table", "row"), lambda _: reader, has_gaps=True)
        return SourceStream(publisher, source, "available-now").await_termination(60)

    assert run()
    mine.delta.alter.set_table_properties({"mine.property": "1"}, raise_if_not_exists=False)
    assert run()
    mine.delta.alter.set_table_properties({"mine.property": "2"}, raise_if_not_exists=False)
    mine.delta.delete("id = 1")
    with pytest.raises(SourceChangedError, match="version 3, a DELETE"):
        run()


def test_files_that_are_written_anew_are_no_rows_and_columns_that_come_are_null_before(mine: Mine) -> None:
    mine.add(3)
    assert sorted(mine.ids()) == [1, 2, 3]
    mine.add(4)
    mine.delta.optimize.compact()
    mine.add(5, more={"price": [2.5]})
    assert mine.ids() == [4], "before the columns change"
    (row,) = mine.batch()
    assert (row["id"], row["price"]) == (5, 2.5)
    mine.add(6)
    assert [row["price"] for row in mine.batch()] == [None]
    mine.delta.optimize.compact()
    assert mine.ids() == []


def test_a_commit_that_landed_twice_brings_its_rows_once_also_to_who_begins_anew_between(mine: Mine) -> None:
    mine.add(3)
    assert len(mine.ids()) == 3
    log = mine.path / "_delta_log"
    shutil.copy(log / f"{1:020}.json", log / f"{2:020}.json")
    assert mine.ids() == []
    mine.add(4)
    assert mine.ids() == [4]


def test_partitions_a_key_and_an_order_within_a_commit(tmp_path: Path) -> None:
    mine = Mine(tmp_path / "t")
    mine.add(1, 2, 3, 4, more={"day": ["b", "a", "b", "a"], "n": [1, 2, 1, 2]}, partition_by=["day", "n"])
    assert [(row["key"], row["day"], row["n"]) for row in mine.batch(key="id", order_by=["id"])] == [
        ("1", "b", 1), ("2", "a", 2), ("3", "b", 1), ("4", "a", 2),
    ]  # fmt: skip
    mine.add(9, 5, more={"day": ["a", "a"], "n": [1, 1]})
    mine.add(7, 6, more={"day": ["b", "a"], "n": [1, 1]})
    assert mine.ids(order_by=["id"]) == [5, 9, 6, 7]
    for name, told in (("nope", "has no column nope; it has id, at, day, n"), ("at", "at is a struct")):
        with pytest.raises(UsageError, match=told):
            mine.own(key=name).columns_now()


def test_a_delete_stops_behind_all_that_came_before_it_and_only_inserts_go_on(mine: Mine) -> None:
    assert mine.ids() == [1, 2]
    mine.add(3)
    mine.delta.delete("id = 1")
    mine.add(4)
    assert mine.ids() == [3]
    mine.stops(Reason.SOURCE_CHANGED, "version 2, a DELETE by .*changed or deleted rows.*--only-inserts")
    assert mine.ids(only_inserts=True) == [4]


def test_a_table_that_was_overwritten_restored_put_back_or_made_anew_is_told(mine: Mine) -> None:
    mine.add(3)
    kept = shutil.copytree(mine.path, mine.path.with_name("kept"))
    mine.add(4)
    assert len(mine.ids()) == 4
    mine.add(5, mode="overwrite", schema_mode=None)
    mine.stops(Reason.SOURCE_CHANGED, "version 3, a WRITE", only_inserts=True)
    shutil.rmtree(mine.path)
    shutil.copytree(kept, mine.path)
    mine.stops(Reason.SOURCE_RESTORED, "ends at version 1, it was at 2: an older copy was put back")
    mine.add(6)
    mine.add(7)
    mine.stops(Reason.SOURCE_RESTORED, "another commit at version 2")
    shutil.rmtree(mine.path)
    mine.add(1)
    mine.stops(Reason.SOURCE_RECREATED, "dropped and created again.*another --producer")


def test_a_restore_stops_it(mine: Mine) -> None:
    mine.add(3)
    assert len(mine.ids()) == 3
    mine.delta.restore(0)
    mine.stops(Reason.SOURCE_RESTORED, "version 2, a RESTORE")


def test_commits_and_files_that_are_gone_before_they_were_read_are_told_and_accepted_by_name(
    mine: Mine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(mine.ids()) == 2
    for number in range(3, 6):
        mine.add(number)
    mine.delta.create_checkpoint()
    log = mine.path / "_delta_log"
    for version in (0, 1, 2):
        (log / f"{version:020}.json").unlink()
    monkeypatch.setattr(table, "TURN_COMMITS", 1)  # more are gone than are looked at together
    mine.stops(Reason.SOURCE_ROWS_GONE, "commits 1-2 are gone before they were read.*--accept-lost")
    assert mine.ids(accept_lost=True) == [5]
    monkeypatch.undo()
    mine.add(6)
    mine.add(7)
    next(file for file in mine.path.glob("*.parquet") if 6 in parquet.read_table(file)["id"].to_pylist()).unlink()
    mine.stops(Reason.SOURCE_ROWS_GONE, "is gone before it was read .VACUUM")
    assert mine.ids(accept_lost=True) == [7]


def test_columns_are_told_behind_a_log_that_was_cut_off_at_a_later_version(mine: Mine) -> None:
    assert len(mine.ids()) == 2
    before = dict(mine.position)
    for number in (3, 4, 5):
        mine.add(number)
    mine.delta.create_checkpoint()
    log = mine.path / "_delta_log"
    (log / f"{0:020}.json").unlink()
    assert mine.ids() == [3, 4, 5], "nothing was lost"
    mine.position = before
    (log / f"{1:020}.json").unlink()
    assert mine.ids(accept_lost=True) == [4, 5]
    mine.add(6, more={"price": [1.5]})
    mine.position = before
    assert mine.ids(accept_lost=True) == [4, 5], "of before the commit that has other columns"
    (row,) = mine.batch()
    assert (row["id"], row["price"]) == (6, 1.5)
    mine.delta.create_checkpoint()
    for left in (f"{3:020}.checkpoint.parquet", f"{2:020}.json"):
        (log / left).unlink()
    mine.position = before
    (row,) = mine.batch(accept_lost=True)
    assert (row["id"], row["price"]) == (5, None), "of the version from which on it is told"
    mine.position = before
    commit = log / f"{4:020}.json"
    commit.write_text(commit.read_text().replace('"WRITE"', '"RESTORE"'))
    with pytest.raises(UsageError, match="what leads to that version is not all there"):
        mine.batch(accept_lost=True)


def test_a_table_in_another_bucket_is_reached_as_the_cluster_and_one_elsewhere_is_refused_by_name(
    s3: S3, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    cluster = cluster_on(s3, f"other-{bucket}")
    with pytest.raises(UsageError, match="there is no Delta table at"):
        table_at(f"s3a://{bucket}/mine", cluster)
    for first in (0, 5):
        rows = pa.table({"id": pa.array(range(first, first + 5), pa.int64()), "day": ["d"] * 5})
        write_deltalake(f"s3://{bucket}/mine", rows, mode="append", partition_by=["day"], storage_options=s3.options())
    reader = pickle.loads(pickle.dumps(TableReader(OwnTable(table_at(f"s3a://{bucket}/mine", cluster)))))  # noqa: S301  # as for tasks
    end = reader.next({})
    found = [row["id"] for span in reader.spans({}, end) for block in reader.read(span) for row in block.to_pylist()]
    assert sorted(found) == list(range(10))
    assert reader.next(end) == end
    with pytest.raises(UsageError, match="hdfs://host/mine is neither on a local disk nor on S3"):
        table_at("hdfs://host/mine", cluster)


def test_columns_that_have_other_names_in_files_are_read_by_their_own(tmp_path: Path) -> None:
    def column(name: str, kind: Any) -> dict[str, Any]:
        said = {"delta.columnMapping.id": ord(name[0]), "delta.columnMapping.physicalName": f"col-{name}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": said}

    parts = column(
        "parts", {"type": "array", "containsNull": True, "elementType": {"type": "struct", "fields": [column("x", "long")]}}
    )
    columns = [column("id", "long"), parts, column("day", "string")]
    metadata = {
        "id": "t", "format": {"provider": "parquet"}, "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": ["day"], "configuration": {"delta.columnMapping.mode": "name"},
    }  # fmt: skip
    rows = {"col-id": pa.array([1, 2], pa.int64()), "col-parts": [[{"col-x": 3}], None]}
    add = {"path": "f.parquet", "partitionValues": {"col-day": "a"}, "dataChange": True, "modificationTime": 0}
    (tmp_path / "_delta_log").mkdir()
    parquet.write_table(pa.table(rows), tmp_path / "f.parquet")
    actions = [
        {"commitInfo": {"operation": "WRITE", "txnId": "one"}},
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": metadata},
        {"add": {**add, "size": (tmp_path / "f.parquet").stat().st_size}},
    ]
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    assert [(row["id"], row["parts"], row["day"]) for row in Mine(tmp_path).batch()] == [(1, [{"x": 3}], "a"), (2, None, "a")]


def test_files_of_a_clone_are_read_where_its_log_says_and_refused_by_name_where_they_are_out_of_reach(mine: Mine) -> None:
    def clone(said: str) -> Mine:
        log = mine.path.with_name("clone") / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        actions = [json.loads(line) for line in (mine.path / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["path"] = said + action["add"]["path"]
        (log / f"{0:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        return Mine(log.parent)

    place = quote(str(mine.path))
    assert "%20" in place
    for said in (place, f"file:{place}", f"file://{place}"):
        assert clone(f"{said}/").ids() == [1, 2]
    for options in ({}, {"accept_lost": True}):
        with pytest.raises(UsageError, match=r"its file s3a://bucket/mine/.*SHALLOW CLONE"):
            clone("s3a://bucket/mine/").batch(**options)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_commits_and_starts_gives_each_row_once(tmp_path: Path, seed: int) -> None:
    chance, mine, rows, came = random.Random(seed), Mine(tmp_path), 0, list[int]()
    options: dict[str, Any] = {
        "batch_bytes": chance.choice([1, 2_000, 10**9]),
        "order_by": chance.choice([(), ("id",)]),
        "only_inserts": True,
    }
    gone_before = set[int]()
    for step in range(chance.randint(10, 30)):
        what = "add" if not step else chance.choice(["add", "add", "read", "read", "compact", "delete", "checkpoint", "twice"])
        if what == "add":
            numbers = range(rows, rows := rows + chance.randint(1, 4))
            more: dict[str, list[Any]] = {
                "day": [chance.choice("ab") for _ in numbers],
                **({"price": [1.0] * len(numbers)} if chance.random() < 0.3 else {}),
            }
            mine.add(*numbers, more=more, partition_by=["day"])
        elif what == "read":
            came += mine.ids(**options)
        elif what == "delete":
            number = chance.choice(mine.delta.to_pyarrow_table()["id"].to_pylist() or [-1])
            gone_before |= set() if came or mine.position else {number}
            mine.delta.delete(f"id = {number}")
        elif what == "twice" and mine.position:
            commit = mine.path / "_delta_log" / f"{mine.delta.version():020}.json"
            if '"add"' in commit.read_text() and '"remove"' not in commit.read_text():
                shutil.copy(commit, commit.with_name(f"{mine.delta.version() + 1:020}.json"))
        else:
            mine.delta.optimize.compact() if what == "compact" else mine.delta.create_checkpoint()
    while mine.position.get(SOURCE, [0, -1, "", "", 0])[1::3] != [mine.delta.version(), WHOLE]:
        came += mine.ids(**options)
    assert sorted(came) == sorted(set(range(rows)) - gone_before)


def test_what_is_not_read_here_is_refused_by_name(mine: Mine) -> None:
    commit = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["mine"], "writerFeatures": ["mine"]}}
    (mine.path / "_delta_log" / f"{1:020}.json").write_text(json.dumps(commit) + "\n")
    with pytest.raises(UsageError, match=r"asks readers for mine.*Nothing of it was published"):
        mine.batch()
