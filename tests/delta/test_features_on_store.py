"""Tables on an object store with columns of any type, and that ask more of a writer than plain files. No Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql.types import (
    ArrayType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)

from geo.delta.appending import append_rows, append_written, write_rows
from geo.delta.change import Change
from geo.delta.commits import checksum_file, commit_file
from geo.delta.ddl import add_columns, create_table, refuse_columns, set_property
from geo.delta.delta_state import DeltaState, require_state
from geo.delta.local_commits import change_here
from geo.delta.local_state import why_left_to_spark
from geo.delta.scan import few_added, few_rows, files_at
from geo.delta.spark_commits import commit_by_spark
from geo.delta.table import Table
from geo.delta.writer import commit_actions, forget_committed
from geo.errors import RetryableError, UnsafeError, UsageError
from geo.schemas import TOPIC_LOG
from tests.delta.on_s3 import opened_on
from tests.delta.typed_rows import listed, rows_for
from tests.object_store import ObjectStore as S3

OWN = [
    StructField("n", TimestampNTZType()),
    StructField(
        "st", StructType([StructField("a", IntegerType(), False), StructField("b", ArrayType(TimestampNTZType(), False))])
    ),
    StructField("m", MapType(StringType(), StructType([StructField("x", StringType())]), False)),
]


def _actions(log: Table, version: int, kind: str) -> list[dict[str, Any]]:
    assert log.log_folder is not None
    said = map(json.loads, (log.log_folder / commit_file(version)).lines())
    return [action[kind] for action in said if kind in action]


def _by_deltalake(s3: S3, log: Table) -> pa.Table:
    table = DeltaTable(log.name, storage_options=s3.options())
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def test_columns_of_every_kind_are_made_added_and_read(s3: S3) -> None:
    log = opened_on(s3)
    create_table(log, TOPIC_LOG, OWN[1:2])
    (protocol,) = _actions(log, 0, "protocol")
    assert (protocol["minReaderVersion"], protocol["readerFeatures"]) == (3, ["timestampNtz"])
    first = rows_for(log, 0, 4)
    append_rows(log, first)
    add_columns(log, OWN)
    assert _actions(log, 2, "protocol") == [], "it asks for it already"
    append_rows(log, rows := rows_for(log, 4, 9))
    assert log.snapshot().columns[-2:].fields == [OWN[0], StructField("m", MapType(StringType(), OWN[2].dataType.valueType))]  # type: ignore[attr-defined, index, union-attr]
    names = rows.column_names
    expected = listed(pa.concat_tables([first, rows], promote_options="default"), names)
    for found in (few_rows(log, 3), few_added(log, 1, 3), _by_deltalake(s3, log)):
        assert found is not None
        assert listed(found, names) == expected


def test_columns_are_made_wider_and_rows_of_before_are_read_as_the_wider_type(s3: S3) -> None:
    log = opened_on(s3)
    create_table(log, TOPIC_LOG, [StructField("n", IntegerType()), StructField("d", DateType())])
    append_rows(log, rows_for(log, 0, 4))
    before = (rows_for(log, 0, 4)["n"].to_pylist(), rows_for(log, 0, 4)["d"].to_pylist())
    narrow = rows_for(log, 6, 7)
    written = write_rows(log, narrow)
    assert written is not None
    wider = [StructField("n", LongType()), StructField("d", TimestampNTZType())]
    add_columns(log, wider)
    add_columns(log, wider)
    add_columns(log, [StructField("n", IntegerType())])
    assert log.latest_version() == 2, "once, and never narrower"
    (protocol,), seen = _actions(log, 2, "protocol"), log.snapshot()
    assert {"typeWidening", "timestampNtz"} <= set(protocol["readerFeatures"])
    assert seen is not None
    assert seen.former_types == {"n": [IntegerType()], "d": [DateType()]}
    append_rows(log, rows_for(log, 4, 6))
    rows = few_rows(log, 3)
    assert rows is not None
    rows = rows.sort_by("entry_id")
    with pytest.raises(RetryableError, match="its columns changed meanwhile"):
        append_rows(log, narrow)
    with pytest.raises(RetryableError, match="its columns changed meanwhile"):
        append_written(log, written)
    with pytest.raises(UnsafeError, match="these rows are not as its columns are"):
        append_rows(log, narrow.append_column("other", narrow["n"]))
    assert (rows["n"].to_pylist()[:4], [day and day.date() for day in rows["d"].to_pylist()[:4]]) == before
    assert (rows.schema.field("n").type, rows.schema.field("d").type) == (pa.int64(), pa.timestamp("us"))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([StructField("v", VariantType())], "VARIANT cannot be made here"),
        ([StructField("a b", IntegerType())], "column 'a b' has a space"),
    ],
)
def test_columns_that_a_table_cannot_have_here_are_refused_before_it_is_made(
    s3: S3, columns: list[StructField], why: str
) -> None:
    log = opened_on(s3)
    with pytest.raises(UsageError, match=why):
        refuse_columns(log, TOPIC_LOG, columns)
    refuse_columns(log, TOPIC_LOG, OWN)
    assert not log.exists()


def test_a_protocol_asks_for_more_once_a_column_needs_it(s3: S3) -> None:
    log = opened_on(s3)
    create_table(log, TOPIC_LOG)
    (before,) = _actions(log, 0, "protocol")
    add_columns(log, [OWN[1]])
    (protocol,) = _actions(log, 1, "protocol")
    assert set(protocol["writerFeatures"]) == {*before["writerFeatures"], "timestampNtz"}
    rows = rows_for(log, 0, 4)
    append_rows(log, rows)
    assert listed(_by_deltalake(s3, log), rows.column_names) == listed(rows, rows.column_names)


def _asks(log: Table, features: list[str], properties: dict[str, str], told: dict[str, Any], **changed: Any) -> None:
    """From its next commit on a table asks for features, as Spark would have it."""
    folder = log.log_folder
    assert folder is not None
    state = require_state(folder)
    protocol = state.checksum["protocol"]
    protocol = {**protocol, "writerFeatures": [*protocol["writerFeatures"], *features]}
    metadata = {**state.checksum["metadata"], "configuration": {**state.configuration, **properties}}
    changed |= {"protocol": protocol, "metadata": metadata}
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    assert commit_actions(folder, state, {"operation": "UPGRADE", **told}, actions, None, changed)
    forget_committed(folder)


@pytest.fixture
def log(s3: S3) -> Table:
    log = opened_on(s3)
    create_table(log, TOPIC_LOG)
    append_rows(log, rows_for(log, 0, 2))
    return log


_LATER_MS = 4_000_000_000_000


def test_commits_say_when_they_were_made_each_later_than_the_one_before(s3: S3, log: Table) -> None:
    """Also where a writer's clock is behind that of the one before."""
    _asks(
        log,
        ["inCommitTimestamp"],
        {"delta.enableInCommitTimestamps": "true"},
        {"inCommitTimestamp": _LATER_MS},
        inCommitTimestampOpt=_LATER_MS,
    )
    append_rows(log, rows_for(log, 2, 3))
    folder = log.log_folder
    assert folder is not None
    (folder / checksum_file(3)).delete()  # its writer died before it came to that
    forget_committed(folder)
    set_property(log, "k", "v")
    append_rows(log, rows_for(log, 3, 4))
    infos = [(folder / commit_file(version)).lines()[0] for version in range(2, 6)]
    assert [json.loads(line)["commitInfo"]["inCommitTimestamp"] for line in infos] == [_LATER_MS + at for at in range(4)]
    assert _by_deltalake(s3, log).num_rows == 4


def test_rows_have_numbers_of_their_own_which_a_checkpoint_keeps(s3: S3, log: Table) -> None:
    _asks(log, ["domainMetadata", "rowTracking"], {"delta.checkpointInterval": "5"}, {})
    other = {"domain": "of somebody", "configuration": "{}", "removed": False}
    folder = log.log_folder
    assert folder is not None
    state = require_state(folder)
    assert commit_actions(folder, state, {"operation": "X"}, [{"domainMetadata": other}], None, {"domainMetadata": [other]})
    append_rows(log, rows_for(log, 2, 5))
    (folder / checksum_file(4)).delete()
    forget_committed(folder)
    append_rows(log, rows_for(log, 5, 7))  # with a checkpoint
    for version in range(5):
        (folder / commit_file(version)).delete()
        (folder / checksum_file(version)).delete()
    append_rows(log, rows_for(log, 7, 8))
    assert [(add["baseRowId"], add["defaultRowCommitVersion"]) for add in _actions(log, 6, "add")] == [(5, 6)]
    state = require_state(folder)
    assert [one["domain"] for one in state.checksum["domainMetadata"]] == ["of somebody", "delta.rowTracking"]
    assert _by_deltalake(s3, log).num_rows == 8
    listed_files = {file["path"]: file.get("baseRowId") for file in state.checksum["allFiles"]}
    assert sorted(listed_files.values(), key=str) == [0, 3, 5, None]


@pytest.mark.parametrize(
    ("features", "properties", "why"),
    [
        (["domainMetadata", "rowTracking"], {}, "row tracking"),
        (["columnMapping"], {"delta.columnMapping.mode": "name"}, "column mapping by name"),
        (["deletionVectors"], {}, "deletion vectors"),
    ],
)
def test_what_is_not_known_here_is_refused_by_name_before_anything_is_made(
    log: Table, features: list[str], properties: dict[str, str], why: str
) -> None:
    folder = log.log_folder
    assert folder is not None
    if "columnMapping" in features:
        _maps(log)
    _asks(log, features, properties, {}, **({"numDeletionVectorsOpt": 1} if features == ["deletionVectors"] else {}))
    before = log.latest_version()
    with pytest.raises(UnsafeError, match=why):
        change_here(log, lambda state: pytest.fail("files were looked for"))
    if "columnMapping" in features:
        with pytest.raises(UnsafeError, match="column mapping"):
            add_columns(log, OWN)
    assert log.latest_version() == before
    append_rows(log, rows_for(log, 2, 4))
    assert log.latest_version() == before + 1


def _maps(log: Table) -> None:
    """Each column says what it is called in files, as Spark has it before it maps them."""
    folder = log.log_folder
    assert folder is not None
    state = require_state(folder)
    schema = json.loads(state.checksum["metadata"]["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] |= {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
    metadata = {**state.checksum["metadata"], "schemaString": json.dumps(schema)}
    assert commit_actions(folder, state, {"operation": "X"}, [{"metaData": metadata}], None, {"metadata": metadata})


@pytest.mark.parametrize("feature", ["clustering", "icebergCompatV2", "ofTomorrow"])
def test_of_a_feature_that_is_not_known_nothing_is_written(log: Table, feature: str) -> None:
    folder = log.log_folder
    assert folder is not None
    state = require_state(folder)
    protocol = {**state.checksum["protocol"], "writerFeatures": [feature]}
    assert commit_actions(folder, state, {"operation": "X"}, [{"protocol": protocol}], None, {"protocol": protocol})
    forget_committed(folder)
    assert change_here(log, lambda state: pytest.fail("files were looked for")) is None
    writes: list[Callable[[], object]] = [
        lambda: append_rows(log, pa.table({"origin": ["us"]})),
        lambda: set_property(log, "k", "v"),
        lambda: commit_by_spark(log, lambda: pytest.fail("Spark committed")),
    ]
    for write in writes:
        with pytest.raises(UnsafeError, match=f"it asks writers for {feature}"):
            write()
    assert log.latest_version() == 2
    assert "writers for" in str(why_left_to_spark(log))
    assert not log.may_spark_commit, "which the doctor calls an error"


def test_a_table_that_asks_for_more_while_its_files_are_looked_for_keeps_them(log: Table) -> None:
    def make(state: DeltaState) -> Change:
        _asks(log, ["domainMetadata", "rowTracking"], {}, {})
        return Change(state.version, "DELETE", {}, {}, tuple(files_at(log, state) or ()))

    assert change_here(log, make) is None
    assert (log.latest_version(), log.count_files()) == (2, 1)
