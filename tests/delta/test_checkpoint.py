"""Checkpoints that this process writes on an object store: what leads to a version and its checkpoint alone say the same."""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from geo.delta import checkpoint
from geo.delta.appending import append_rows, append_rows_once
from geo.delta.checkpoint import write_checkpoint
from geo.delta.commits import checksum_file, commit_file
from geo.delta.ddl import add_columns, create_table, set_property
from geo.delta.delta_log import POINTER, newest_checkpoint, read_folder, remove_below
from geo.delta.delta_state import require_state
from geo.delta.disk_store import on_disk
from geo.delta.engine import UnsupportedError
from geo.delta.engines.native.active_files import active_files
from geo.delta.local_state import own_state
from geo.delta.object_store import ObjectStore
from geo.delta.rewrite import replace_rows
from geo.delta.scan import few_rows
from geo.delta.store import WritePath, parquet
from geo.delta.table import Table
from geo.delta.young import retention_us
from geo.now import now_us
from geo.schemas import LINKS, TOPIC_LOG
from tests.delta.on_s3 import opened_on
from tests.delta.test_features_on_store import OWN
from tests.delta.typed_rows import rows_for
from tests.object_store import ObjectStore as S3

_DUE = 6


@pytest.fixture
def log(s3: S3) -> Table:
    """With columns that came later, properties, numbers of transactions and files that were replaced; the next commit, version _DUE, is to
    write a checkpoint."""
    log = opened_on(s3)
    create_table(log, TOPIC_LOG)
    append_rows(log, rows_for(log, 0, 3))
    add_columns(log, OWN)
    append_rows_once(log, rows_for(log, 3, 5), "token", ("app", 7))
    replace_rows(log, lambda rows: rows, lambda rows: rows)
    set_property(log, "delta.checkpointInterval", str(_DUE))
    return log


def _folder(log: Table) -> WritePath:
    assert log.log_folder is not None
    return log.log_folder


def _told(s3: S3, log: Table) -> list[Any]:
    """What `deltalake` and this program read of a table, as others open it."""
    there, fresh = DeltaTable(log.name, storage_options=s3.options()), opened_on(s3, _folder(log).parent)
    state, files = require_state(_folder(fresh)), active_files(_folder(fresh))
    actions = pa.table(there.get_add_actions(flatten=True))
    rows = pa.table(QueryBuilder().register("t", there).execute("SELECT * FROM t ORDER BY entry_id").read_all())
    seen, own = fresh.snapshot(), few_rows(fresh, there.version())
    assert seen is not None
    assert own is not None
    return [
        there.version(), actions.select(sorted(actions.column_names)).sort_by("path").to_pylist(), str(there.protocol()),
        there.metadata().configuration, there.transaction_version("app"), rows.to_pylist(), own.sort_by("entry_id").to_pylist(),
        sorted(one["path"] for one in files[0]), files[1], seen, {k: v for k, v in state.checksum.items() if k != "allFiles"},
    ]  # fmt: skip


def _without(log: Table, *names: str) -> None:
    for name in names:
        (_folder(log) / name).delete()


@pytest.mark.parametrize("before", ["none", *(pytest.param(one, marks=pytest.mark.slow) for one in ("deltalake", "own"))])
def test_a_table_is_the_same_once_its_log_was_cut_below_it(s3: S3, log: Table, before: str) -> None:
    folder = _folder(log)
    if before == "deltalake":
        DeltaTable(log.name, storage_options=s3.options()).create_checkpoint()
    elif before == "own":
        write_checkpoint(folder, 5, require_state(folder).checksum)
    append_rows(log, rows_for(log, 5, 8))
    checkpoints = [name for name in folder.names() if "checkpoint.parquet" in name]
    assert (newest_checkpoint(folder)[0], len(checkpoints)) == (_DUE, 1 if before == "none" else 2)
    append_rows(log, rows_for(log, 8, 9))
    by_checkpoint = _told(s3, log)
    _without(log, *checkpoints, POINTER)
    by_commits = _told(s3, log)
    assert by_checkpoint == by_commits
    write_checkpoint(folder, 7, require_state(folder).checksum)
    assert remove_below(folder, read_folder(folder), 7) == 7
    assert _told(s3, log) == by_commits
    append_rows(log, rows_for(log, 9, 10))
    assert len(_told(s3, log)[5]) == 10


@pytest.mark.parametrize("beside", ["nothing", "one file", "v2", "the other part"])
def test_of_parts_of_a_checkpoint_of_which_one_is_missing_nothing_is_read(log: Table, beside: str) -> None:
    """Another engine died while it put them, or is still at it."""
    folder = _folder(log)
    _without(log, checksum_file(5))  # else files are read from there
    files = sorted(one["path"] for one in active_files(folder)[0])
    write_checkpoint(folder, 5, own_state(log).checksum)  # type: ignore[union-attr]  # it has one
    one, whole = folder / f"{5:020}.checkpoint.parquet", folder.store.get(str(folder / f"{5:020}.checkpoint.parquet"))
    rows = pq.read_table(pa.BufferReader(whole))
    others = [row["add"] is None for row in rows.to_pylist()]
    for part, some in ((1, others), (2, [not other for other in others])):
        if part == 1 or beside == "the other part":
            pq.write_table(rows.filter(some), (content := pa.BufferOutputStream()))
            folder.store.put(str(folder / f"{5:020}.checkpoint.{part:010}.{2:010}.parquet"), content.getvalue().to_pybytes())
    if beside == "v2":
        folder.store.put(str(folder / f"{5:020}.checkpoint.{uuid.uuid4()}.parquet"), whole)
    if beside != "one file":
        one.delete()
    assert read_folder(folder).checkpoints == (() if beside == "nothing" else (5,))
    assert sorted(file["path"] for file in active_files(folder)[0]) == files
    if beside != "nothing":
        _without(log, *(commit_file(version) for version in range(5)))
        assert sorted(file["path"] for file in active_files(folder)[0]) == files, "by the checkpoint alone"


def test_it_has_what_was_removed_as_long_as_somebody_may_read_it(log: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, state = _folder(log), require_state(_folder(log))
    removed = [json.loads(line)["remove"] for line in (folder / commit_file(4)).lines() if line.startswith('{"remove"')]
    assert removed
    for part, there in ((0.9, removed), (1.1, [])):
        now = now_us() + int(part * retention_us(state.configuration))
        monkeypatch.setattr(checkpoint, "now_us", lambda now=now: now)
        write_checkpoint(folder, 5, state.checksum)
        kept = parquet(folder / f"{5:020}.checkpoint.parquet").read(["remove"])["remove"].drop_null().to_pylist()
        assert sorted(one["path"] for one in kept) == sorted(one["path"] for one in there)
        monkeypatch.undo()


def test_a_commit_that_is_due_one_asks_for_little_more(s3: S3, log: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geo.delta.held_files.FRESH_S", 60.0)  # of a machine that is busy too
    before = s3.counts()
    append_rows(log, rows_for(log, 5, 6))
    of_due = s3.counts() - before
    append_rows(log, rows_for(log, 6, 7))
    assert newest_checkpoint(_folder(log))[0] == _DUE
    assert (of_due - (s3.counts() - before - of_due)).total() <= 4, "the list, the pointer, and two puts"


@pytest.mark.parametrize("lost", [pytest.param("answer", marks=pytest.mark.slow), "pointer", "checkpoint"])
def test_whoever_dies_or_hears_nothing_leaves_a_table_that_is_read(s3: S3, log: Table, lost: str) -> None:
    append_rows(log, rows_for(log, 5, 6))
    if lost == "answer":
        s3.next_of("PUT", "lost", 2)
        write_checkpoint(_folder(log), _DUE, require_state(_folder(log)).checksum)
    append_rows(log, rows_for(log, 6, 7))
    whole = _told(s3, log)
    _without(log, *({"answer": [], "pointer": [POINTER], "checkpoint": [POINTER, f"{_DUE:020}.checkpoint.parquet"]}[lost]))
    assert _told(s3, log) == whole


def test_what_its_checksum_does_not_say_is_in_no_checkpoint(log: Table) -> None:
    folder, state = _folder(log), require_state(_folder(log))
    wrongs: tuple[dict[str, Any], ...] = (
        {"numFiles": state.checksum["numFiles"] + 1},
        {"tableSizeBytes": 1},
        {"setTransactions": []},
        {"metadata": {**state.checksum["metadata"], "id": "another"}},
        {"metadata": {**state.checksum["metadata"], "configuration": {}}},
        {"protocol": {**state.checksum["protocol"], "writerFeatures": ["appendOnly"]}},
    )
    for wrong in wrongs:
        with pytest.raises(UnsupportedError, match="not what its checksum says"):
            write_checkpoint(folder, 5, {**state.checksum, **wrong})
    (folder / commit_file(3)).delete()
    with pytest.raises(UnsupportedError, match="not all there"):
        write_checkpoint(folder, 5, state.checksum)
    assert [name for name in folder.names() if "checkpoint" in name] == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"delta.checkpoint.writeStatsAsStruct": "true"}, "asks for other checkpoints"),
        ({"delta.checkpoint.writeStatsAsJson": "false"}, "asks for other checkpoints"),
        ({"delta.deletedFileRetentionDuration": "interval 1 week 2 days"}, "words that are not known here"),
    ],
)
def test_where_another_one_is_asked_for_the_library_writes_it(
    log: Table, asked: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    set_property(log, *next(iter(asked.items())))  # the commit that is due one
    folder = _folder(log)
    caplog.set_level(logging.INFO)
    with pytest.raises(UnsupportedError, match=why):
        write_checkpoint(folder, _DUE, require_state(folder).checksum)
    assert newest_checkpoint(folder)[0] == _DUE


def test_a_pointer_never_goes_back(s3: S3, log: Table) -> None:
    folder, state = _folder(log), require_state(_folder(log))
    append_rows(log, rows_for(log, 5, 6))
    write_checkpoint(folder, state.version, state.checksum)
    assert (newest_checkpoint(folder)[0], read_folder(folder).checkpoints) == (_DUE, (5, _DUE))


def test_a_system_table_of_ours_has_one(s3: S3) -> None:
    table = opened_on(s3)
    create_table(table, LINKS)
    folder = _folder(table)
    write_checkpoint(folder, 0, require_state(folder).checksum)
    assert remove_below(folder, read_folder(folder), 0) == 0
    (folder / commit_file(0)).delete()
    (folder / checksum_file(0)).delete()
    there = DeltaTable(table.name, storage_options=s3.options())
    assert (there.version(), there.metadata().configuration) == (0, dict(LINKS.all_properties))


def _files(log: Table) -> list[str]:
    store = _folder(log).store
    assert isinstance(store, ObjectStore)
    return store.below(log.name)


@pytest.mark.spark
def test_spark_reads_it_and_one_of_sparks_is_gone_on_from(spark: SparkSession, s3: S3, log: Table, tmp_path: Path) -> None:
    set_property(log, "delta.checkpointInterval", "1")
    folder, place = _folder(log), tmp_path / "log"
    assert remove_below(folder, read_folder(folder), _DUE) == _DUE
    for name in _files(log):
        if not name.endswith(".crc"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes((folder.parent / name).get())
    there, seen = spark.read.format("delta").load(str(place)), log.snapshot()
    assert seen is not None
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()
    assert (there.schema, dict(detail["properties"]), detail["id"]) == (seen.columns, dict(seen.properties), seen.table_id)
    assert (sorted(row[0] for row in there.select("entry_id").collect()), detail["numFiles"]) == (
        list(range(5)),
        log.count_files(),
    )
    for number in (7, 8):  # the first of which was used
        one = there.where("entry_id = 0").write.format("delta").mode("append").option("txnAppId", "app")
        one.option("txnVersion", str(number)).save(str(place))
    assert newest_checkpoint(on_disk(place / "_delta_log"))[0] == _DUE + 1
    other = opened_on(s3)
    for path in place.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            _folder(other).store.put(f"{other.name}/{path.relative_to(place).as_posix()}", path.read_bytes())
    set_property(other, "k", "v")
    state = require_state(_folder(other))
    write_checkpoint(_folder(other), state.version, state.checksum)
    by_checkpoint = _told(s3, other)
    _without(other, f"{state.version:020}.checkpoint.parquet", POINTER)
    assert _told(s3, other) == by_checkpoint
    assert sorted(row["entry_id"] for row in by_checkpoint[5]) == [0, *range(5)]
