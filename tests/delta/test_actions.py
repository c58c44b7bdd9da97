"""The effect of a commit by its actions: a table of cases, and one commit of each kind as engines write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geo.delta.actions import Actions, Effect, actions_of
from geo.delta.commits import ERASED, EXPIRED, Kind, of_info

NONE, ADDED, REMOVED, CHANGED, RELISTED = Effect.NONE, Effect.ADDED, Effect.REMOVED, Effect.CHANGED, Effect.RELISTED


def _file(name: str, rows: int | None = 1, *, path: str = "f", change: bool = True, deleted: int = 0) -> dict[str, Any]:
    fields: dict[str, Any] = {"path": path, "size": 10, "dataChange": change}
    if rows is not None:
        fields["stats"] = json.dumps({"numRecords": rows, "minValues": {}})
    if deleted:
        fields["deletionVector"] = {"storageType": "u", "cardinality": deleted}
    return {name: fields}


def _metadata(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    return {"metaData": {"id": "t", "schemaString": json.dumps({"type": "struct", "fields": fields})}}


INFO: dict[str, Any] = {"commitInfo": {"operation": "WHATEVER"}}
TXN: dict[str, Any] = {"txn": {"appId": "a", "version": 1}}
DOMAIN: dict[str, Any] = {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}", "removed": False}}
PROTOCOL: dict[str, Any] = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}
CDC: dict[str, Any] = {"cdc": {"path": "c", "size": 5, "dataChange": False}}


@pytest.mark.parametrize(
    ("actions", "effect"),
    [
        ([], NONE),
        ([INFO, TXN, DOMAIN, PROTOCOL, _metadata("a")], NONE),
        ([INFO, _file("add")], ADDED),
        ([_file("add"), INFO], ADDED),
        ([_file("add", None)], ADDED),
        ([_metadata("a"), _file("add")], ADDED),
        ([_file("add", 5, deleted=2)], ADDED),
        ([_file("remove")], REMOVED),
        ([_file("remove", None), _file("remove", path="g")], REMOVED),
        ([_file("add"), _file("remove", path="g")], CHANGED),
        ([_file("add", 5, deleted=2), _file("remove", 5)], CHANGED),
        ([_file("add"), CDC], ADDED),
        ([_file("remove"), CDC], CHANGED),
        ([CDC], CHANGED),
        ([{"brandNew": {}}], CHANGED),
        # Files that were replaced without a change of data: believed unless their counts contradict it.
        ([_file("add", 3, change=False), _file("remove", 1, change=False), _file("remove", 2, change=False)], NONE),
        ([_file("add", 3, change=False), _file("remove", 5, change=False, deleted=2)], NONE),
        ([_file("add", None, change=False), _file("remove", 5, change=False)], NONE),
        ([_file("add", 3, change=False), _file("remove", None, change=False)], NONE),
        ([_file("add", 2, change=False), _file("remove", 3, change=False)], CHANGED),
        ([_file("add", 4, change=False), _file("remove", 3, change=False)], CHANGED),
        ([_file("remove", 3, change=False)], CHANGED),
        ([_file("remove", None, change=False)], CHANGED),
        ([_file("remove", 3, change=False, deleted=3)], NONE),
        # Files of deletion vectors, which go with their feature: what they took went when they came.
        ([_file("remove", None, path="deletion_vector_0b1c9a3e-6f0e-4b36-9d62-5c3f9a0f7a11.bin", change=False)], NONE),
        ([_file("remove", None, path="a/deletion_vector_0b1c9a3e-6f0e-4b36-9d62-5c3f9a0f7a11.bin", change=False)], NONE),
        ([_file("remove", None, path="deletion_vector_0b1c9a3e-6f0e-4b36-9d62-5c3f9a0f7a11.bin")], REMOVED),
        ([_file("remove", None, path="deletion_vector_of-mine.parquet", change=False)], CHANGED),
        # Row tracking and statistics list files again; an append that denies its change of data looks the same.
        ([_file("add", change=False)], RELISTED),
        ([_file("add", change=False), DOMAIN], RELISTED),
        ([_file("add"), _file("add", path="g", change=False)], RELISTED),
    ],
)  # fmt: skip
def test_actions_say_what_a_commit_did_whoever_wrote_it(actions: list[dict[str, Any]], effect: Effect) -> None:
    found = actions_of(actions)
    assert found.effect is effect
    assert bool(found.why) is (effect is CHANGED)


def test_rows_and_bytes_are_counted_from_the_files_that_came() -> None:
    found = actions_of([_file("add", 5, deleted=2), _file("add", 4, path="g"), _file("add", 9, path="h", change=False)])
    assert (found.rows, found.size, found.paths) == (7, 20, ("f", "g"))
    assert actions_of([_file("add", 5), _file("add", None)]).rows is None, "one file does not count its rows"
    assert actions_of([INFO]) == Actions(NONE)


def _on(day: str, name: str = "add", *, change: bool = True) -> dict[str, Any]:
    fields = _file(name, path=day, change=change)[name]
    return {name: {**fields, "partitionValues": {"publish_date": day}}}


def test_rows_may_have_come_into_the_partitions_of_files_that_came_or_were_listed_alone() -> None:
    def days(*actions: dict[str, Any]) -> set[str | None]:
        return {value for partition in actions_of(actions).partitions for _, value in partition}

    assert days(_on("1"), _on("2", change=False)) == {"1", "2"}
    assert days(_on("1", change=False)) == {"1"}, "an append that denies its rows"
    assert days(_on("1", change=False), _on("1", "remove", change=False)) == set(), "files that took the place of others"


@pytest.mark.parametrize("action", [{"add": {"path": "x"}}, {"add": None}, {"remove": {}}, {"metaData": {}}])
def test_what_is_no_action_of_the_protocol_is_not_judged(action: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        actions_of([action])


@pytest.mark.parametrize(
    ("actions", "operation", "record", "kind"),
    [
        ([_file("add")], "MERGE", None, Kind.APPEND),
        ([_file("add")], "WRITE", json.dumps({EXPIRED: 1}), Kind.APPEND),
        ([_file("add")], "RESTORE", None, Kind.RESTORE),
        ([_file("remove")], "RESTORE", None, Kind.RESTORE),
        ([_file("remove")], "RESTORE", json.dumps({EXPIRED: 1}), Kind.EXPIRY),
        ([INFO], "RESTORE", None, Kind.NEUTRAL),
        ([_file("remove")], "WHATEVER", json.dumps({EXPIRED: 1}), Kind.EXPIRY),
        ([_file("remove")], "DELETE", None, Kind.REWRITE),
        ([_file("remove"), _file("add", path="g")], "DELETE", json.dumps({EXPIRED: 1}), Kind.REWRITE),
        ([_file("remove"), _file("add", path="g")], "WHATEVER", json.dumps({ERASED: 1}), Kind.ERASURE),
        ([_file("remove")], "UPDATE", json.dumps({ERASED: 1}), Kind.REWRITE),
        ([_file("add", change=False)], "ROW TRACKING BACKFILL", None, Kind.RELISTED),
        ([DOMAIN], "SOMETHING OF TOMORROW", None, Kind.NEUTRAL),
        ([{"brandNew": {}}], "WRITE", None, Kind.REWRITE),
    ],
)  # fmt: skip
def test_only_a_record_of_ours_makes_a_removal_or_a_change_of_rows_one_of_ours(
    actions: list[dict[str, Any]], operation: str, record: str | None, kind: Kind
) -> None:
    info = {"operation": operation, "operationMetrics": {"numOutputRows": 1}, "userMetadata": record}
    assert of_info(3, info, "id", actions_of(actions)).kind is kind


def test_columns_that_a_commit_takes_away_are_found_beside_the_metadata_before_it() -> None:
    inner = {"type": "struct", "fields": [{"name": "b", "type": "long", "nullable": True, "metadata": {}}]}
    schema = {"type": "struct", "fields": [{"name": "a", "type": {"type": "array", "elementType": inner}, "metadata": {}}]}
    before = {"schemaString": json.dumps(schema)}
    commit = of_info(3, {"operation": "CHANGE COLUMNS"}, "id", actions_of([_metadata("a", "c")]))
    assert commit.kind is Kind.NEUTRAL
    assert commit.since(None).kind is Kind.NEUTRAL
    assert commit.since(_metadata("a")["metaData"]).lost_columns == ()
    lost = commit.since(before)
    assert (lost.lost_columns, lost.kind) == (("a.elementType.b",), Kind.REWRITE)
    assert "took the columns a.elementType.b away" in lost.what
    assert of_info(3, {"operation": "RESTORE"}, "id", actions_of([_metadata("c")])).since(before).kind is Kind.RESTORE


def test_a_commit_repeats_another_one_of_which_it_adds_a_file() -> None:
    first = of_info(3, {}, "one", actions_of([_file("add"), _file("add", path="g")]))
    again = of_info(4, {}, "two", actions_of([_file("add", path="g")]))
    other = of_info(5, {}, "three", actions_of([_file("add", path="h")]))
    assert again.repeats(first)
    assert not other.repeats(first)
    assert not of_info(6, {}, "four", actions_of([INFO])).repeats(first)
    assert of_info(7, {}, "one").repeats(first), "the same commit by its id"
