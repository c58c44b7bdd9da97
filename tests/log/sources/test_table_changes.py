"""What the commits of a user's table mean for who publishes what is inserted into it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geo.delta.commits import Commit, of_file
from geo.log.sources.table_changes import SourceFile, inserted, repeated
from geo.reasons import Reason, Wrong


def _add(path: str, rows: int = 2, *, changes: bool = True, **more: Any) -> dict[str, Any]:
    stats = json.dumps({"numRecords": rows})
    return {"add": {"path": path, "partitionValues": {}, "size": 10, "dataChange": changes, "stats": stats, **more}}


def _remove(path: str, rows: int = 2, *, changes: bool = True) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": changes, "stats": json.dumps({"numRecords": rows})}}


_FEED = {"cdc": {"path": "_change_data/f", "partitionValues": {}, "size": 5, "dataChange": False}}
_VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "cardinality": 1}


def _of(*actions: dict[str, Any], operation: str = "WRITE", version: int = 7, **info: Any) -> tuple[Commit, list[dict[str, Any]]]:
    told = [{"commitInfo": {"operation": operation, "txnId": f"t{version}", **info}}, *actions]
    return of_file(version, map(json.dumps, told)), told


def _brings(*actions: dict[str, Any], only_inserts: bool = False, there: str = "", **info: Any) -> list[str] | Reason:
    """The paths of the files that a commit brings, or why it is refused; `there`: the files of the table before it, each a letter."""
    commit, told = _of(*actions, **info)
    found = inserted(commit, told, only_inserts=only_inserts, has_files=lambda paths: set(paths) <= set(there))
    return found.code if isinstance(found, Wrong) else [file.path for file in found]


def test_what_is_added_is_published_and_what_leaves_rows_as_they_are_is_passed() -> None:
    assert _brings(_add("a"), _add("b")) == ["a", "b"]
    assert _brings(_remove("a", changes=False), _add("b", changes=False), operation="OPTIMIZE") == []
    compacted = (_remove("a", 1, changes=False), _remove("b", 1, changes=False), _add("ab", changes=False))
    assert _brings(_add("c"), *compacted) == ["c"], "what came beside files that were put together"
    assert _brings(operation="VACUUM END") == []
    assert _brings({"txn": {"appId": "x", "version": 1}}) == []
    assert _brings(_add("a", changes=False), there="ab", operation="COMPUTE STATS") == [], "the same file, listed with more"
    assert _brings(_add("c", changes=False), there="ab") is Reason.SOURCE_CHANGED, (
        "a file that was not there, as if nothing changed"
    )


@pytest.mark.parametrize(
    ("operation", "actions"),
    [
        ("DELETE", (_remove("a"),)),
        ("DELETE", (_remove("a"), _add("b", 1))),
        ("DELETE", (_remove("a"), _add("a", deletionVector=_VECTOR))),
        ("UPDATE", (_remove("a"), _add("b"))),
        ("MERGE", (_remove("a"), _add("b"), _FEED)),
        ("WRITE", (_remove("a"), _add("b"))),
        ("MINE", (_add("b"), {"newAction": {}})),
    ],
)
def test_changes_and_deletes_are_refused_by_name(operation: str, actions: tuple[dict[str, Any], ...]) -> None:
    commit, told = _of(*actions, operation=operation)
    found = inserted(commit, told, only_inserts=False, has_files=lambda paths: True)
    assert isinstance(found, Wrong)
    assert found.code is Reason.SOURCE_CHANGED
    assert f"version 7, a {operation}" in found.what
    assert "--only-inserts" in found.do


def test_with_only_inserts_the_change_feed_tells_what_came_and_without_it_only_what_cannot_have_inserted_is_passed() -> None:
    assert _brings(_remove("a"), _add("b"), _FEED, only_inserts=True, operation="MERGE") == ["_change_data/f"]
    assert _brings(_remove("a"), only_inserts=True, operation="DELETE") == []
    assert _brings(_remove("a"), _add("a", deletionVector=_VECTOR), only_inserts=True, operation="other words") == []
    assert _brings(_remove("a"), _add("b", 1), only_inserts=True, operation="DELETE") == []
    assert _brings(_remove("a"), _add("b"), only_inserts=True, operation="UPDATE") == []
    none = {"numTargetRowsInserted": "0"}
    assert _brings(_remove("a"), _add("b"), only_inserts=True, operation="MERGE", operationMetrics=none) == []
    for operation, metrics in (("MERGE", {"numTargetRowsInserted": "1"}), ("MERGE", {}), ("WRITE", {}), ("MINE", {})):
        found = _brings(_remove("a"), _add("b"), only_inserts=True, operation=operation, operationMetrics=metrics)
        assert found is Reason.SOURCE_CHANGED, operation


def test_a_restore_and_columns_that_went_stop_it_whatever_is_passed_over() -> None:
    restored = _brings(_remove("a"), _add("b"), only_inserts=True, operation="RESTORE", operationParameters={"version": "3"})
    assert restored is Reason.SOURCE_RESTORED
    schemas = [
        json.dumps({"type": "struct", "fields": [{"name": name, "type": "long"} for name in names]}) for names in ("xy", "x")
    ]
    commit, told = _of({"metaData": {"schemaString": schemas[1]}}, _add("b"), operation="WRITE")
    found = inserted(commit.since({"schemaString": schemas[0]}), told, only_inserts=True, has_files=lambda paths: True)
    assert isinstance(found, Wrong)
    assert "took the columns y away" in found.what


def test_a_file_is_as_the_log_says() -> None:
    commit, told = _of(_add("a b%20c", 3, partitionValues={"day": None}), _add("n", stats=None))
    assert inserted(commit, told, only_inserts=False, has_files=lambda paths: True) == (
        SourceFile("a b%20c", {"day": None}, 10, 3),
        SourceFile("n", {}, 10, None),
    )


def test_a_commit_that_landed_twice_brings_nothing_and_one_that_adds_more_beside_that_is_not_passed() -> None:
    (first, _), again, more, other = (_of(*map(_add, paths), version=v) for v, paths in enumerate(("ab", "ab", "abc", "d")))
    assert repeated(*again, [first]) is True
    assert repeated(*more, [first]) is None
    assert repeated(*other, [first]) is False


def test_a_file_of_which_other_rows_count_than_before_is_no_commit_that_landed_twice() -> None:
    first, (delete, told), new = _of(_add("a"))[0], _of(_remove("a"), _add("a", deletionVector=_VECTOR), version=8), _add("b")
    assert repeated(delete, told, [first]) is False
    assert repeated(delete, told, [first, delete]) is True, "the same commit, whatever it does"
    assert repeated(*_of(_add("a"), operation="RESTORE", version=9), [first, delete]) is False
    merge, told = _of(*told[1:], new, _FEED, operation="MERGE", version=10)
    assert repeated(merge, told, [first]) is False, "what it inserted is new"
    assert repeated(*_of(*told[1:], operation="MERGE", version=11), [first, merge]) is True
    assert repeated(*_of(_add("a", deletionVector=_VECTOR), version=12), [first]) is False
