"""Kinds of commits that deltalake (delta-rs) makes. polars has none of its own: its `write_delta` and `sink_delta` call `write_deltalake`
and `DeltaTable.merge` of deltalake."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    Schema,
    TableFeatures,
    Transaction,
    convert_to_deltalake,
    write_deltalake,
)
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction

from tests.foreign.by_spark import aged
from tests.foreign.place import LATER, OF_OLD_DATE, OLD, SOME, Kind, Place, arrow, message, messages, published_at


def _transaction(place: Place) -> None:
    write_deltalake(
        place.path,
        arrow(place.new()),
        mode="append",
        commit_properties=CommitProperties(
            app_transactions=[Transaction("somebody", 1)], custom_metadata={"userMetadata": "by hand"}
        ),
    )


def _merge(*clauses: str) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        rows = pa.concat_tables(
            [arrow([message(place.here, 7, key="merged"), message(place.there, 8, key="merged")]), arrow(place.new())]
        )
        condition = "t.origin = s.origin AND t.ledger_id = s.ledger_id AND t.entry_id = s.entry_id"
        merger = place.delta_rs().merge(rows, condition, "s", "t")
        if "insert" in clauses:
            merger = merger.when_not_matched_insert_all()
        if "update" in clauses:
            merger = merger.when_matched_update({"key": "s.key"})
        if "delete" in clauses:
            merger = merger.when_matched_delete()
        merger.execute()

    return make


def _delete_and_restore(place: Place) -> None:
    version = place.version()
    place.delta_rs().delete(OF_OLD_DATE)
    place.delta_rs().restore(version)


def _write_transaction(place: Place) -> None:
    """A file that was written by another library, committed as a whole."""
    date = str(published_at(OLD[0]).date())
    name = f"publish_date={date}/somebody-{uuid.uuid4()}.parquet"
    pq.write_table(arrow(place.new()).drop(["publish_date"]), Path(place.path) / name)
    size = (Path(place.path) / name).stat().st_size
    add = AddAction(
        path=name, size=size, partition_values={"publish_date": date}, modification_time=0, data_change=True, stats="{}"
    )
    table = place.delta_rs()
    table.create_write_transaction([add], mode="append", schema=table.schema(), partition_by=["publish_date"])


def _fsck(place: Place) -> None:
    """One of the files is lost, and the log is repaired."""
    table = place.delta_rs()
    file = Path(place.path) / sorted(name for name in table.get_add_actions(flatten=True)["path"].to_pylist())[-1]
    file.unlink()
    table.repair()


def _cleaned_up(place: Place) -> None:
    aged(place)
    place.delta_rs().create_checkpoint()
    place.delta_rs().cleanup_metadata()


def _converted(place: Place) -> None:
    shutil.rmtree(place.log)
    convert_to_deltalake(
        place.path, partition_by=Schema([Field("publish_date", PrimitiveType("date"))]), partition_strategy="hive"
    )


def _kind(name: str, make: Callable[[Place], object], before: Callable[[Place], object] | None = None) -> Kind:
    return Kind(name, "delta-rs", make, before)


def _on(name: str, call: Callable[[DeltaTable], object], before: Callable[[DeltaTable], object] | None = None) -> Kind:
    return _kind(name, lambda place: call(place.delta_rs()), None if before is None else lambda place: before(place.delta_rs()))


def _feature(feature: TableFeatures) -> Callable[[DeltaTable], object]:
    return lambda table: table.alter.add_feature(feature, allow_protocol_versions_increase=True)


_SEATS = Field("seats", PrimitiveType("integer"))

KINDS = [
    _kind("append of new messages", lambda place: write_deltalake(place.path, arrow(place.new()), mode="append")),
    _kind("append of messages that are there", lambda place: write_deltalake(place.path, arrow(place.old()), mode="append")),
    _kind("append of messages that are coming", lambda place: write_deltalake(place.path, arrow(messages(place.there, LATER)), mode="append")),
    _kind("append with a transaction and userMetadata", _transaction),
    _kind("append that adds a column", lambda place: write_deltalake(
        place.path, arrow(place.new()).append_column("seats", pa.array([2] * 5)), mode="append", schema_mode="merge")),
    _kind("append by create_write_transaction", _write_transaction),
    _kind("overwrite with fewer messages", lambda place: write_deltalake(place.path, arrow(place.old()), mode="overwrite")),
    _kind("overwrite of a date (predicate)", lambda place: write_deltalake(
        place.path, arrow([message(place.here, 2)]), mode="overwrite", predicate=OF_OLD_DATE)),
    _on("delete of a date (metadata only)", lambda table: table.delete(OF_OLD_DATE)),
    _on("delete of messages", lambda table: table.delete(SOME)),
    _on("delete of nothing", lambda table: table.delete("entry_id = 777")),
    _on("delete of everything", lambda table: table.delete()),
    _on("update", lambda table: table.update({"key": "'changed'"}, predicate=SOME)),
    _on("update of nothing", lambda table: table.update({"key": "'changed'"}, predicate="entry_id = 777")),
    _kind("merge that inserts", _merge("insert")),
    _kind("merge that updates", _merge("update")),
    _kind("merge that deletes", _merge("delete")),
    _kind("merge that updates and inserts", _merge("update", "insert")),
    _on("optimize (compact)", lambda table: table.optimize.compact()),
    _on("optimize (z-order)", lambda table: table.optimize.z_order(["entry_id"])),
    _on("vacuum", lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False)),
    _on("compact and vacuum of what it replaced", lambda table: (
        table.optimize.compact(), table.vacuum(0, dry_run=False, enforce_retention_duration=False))),
    _kind("restore that removes only", lambda place: place.delta_rs().restore(place.version() - 1)),
    _kind("restore that adds only, after a delete", _delete_and_restore),
    _on("add_columns", lambda table: table.alter.add_columns(_SEATS)),
    _on("set_table_properties", lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 31 days"})),
    _on("set_table_properties that is not known", lambda table: table.alter.set_table_properties({"note": "x"}, raise_if_not_exists=False)),
    _on("add_constraint", lambda table: table.alter.add_constraint({"positive": "entry_id >= 0"})),
    _on("drop_constraint", lambda table: table.alter.drop_constraint("positive"), lambda table: table.alter.add_constraint({"positive": "entry_id >= 0"})),
    _on("add_feature AppendOnly", _feature(TableFeatures.AppendOnly)),
    _on("add_feature DeletionVectors", _feature(TableFeatures.DeletionVectors)),
    _on("add_feature RowTracking", _feature(TableFeatures.RowTracking)),
    _on("add_feature ColumnMapping", _feature(TableFeatures.ColumnMapping)),
    _on("add_feature V2Checkpoint", _feature(TableFeatures.V2Checkpoint)),
    _on("add_feature DomainMetadata", _feature(TableFeatures.DomainMetadata)),
    _on("add_feature TimestampWithoutTimezone", _feature(TableFeatures.TimestampWithoutTimezone)),
    _on("set_column_metadata", lambda table: table.alter.set_column_metadata("key", {"comment": "the key"})),
    _on("drop_column_not_null", lambda table: table.alter.drop_column_not_null("publish_time")),
    _on("set_table_name", lambda table: table.alter.set_table_name("clicks")),
    _on("set_table_description", lambda table: table.alter.set_table_description("somebody was here")),
    _on("checkpoint", lambda table: table.create_checkpoint()),
    _kind("log clean-up", _cleaned_up),
    _kind("log compaction (compact_logs)", lambda place: place.delta_rs().compact_logs(0, place.version())),
    _kind("repair after a file was lost (fsck)", _fsck),
    _kind("convert_to_deltalake of the folder", _converted),
]  # fmt: skip
