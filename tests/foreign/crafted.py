"""Commits that other writers make, or that come of a fault: written by hand, action by action."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
from deltalake import write_deltalake

from tests.foreign.place import Kind, Place, arrow, batches, messages

_Action = dict[str, object]


def _info(operation: str = "WRITE", **more: object) -> _Action:
    parameters = {"mode": "Append", "partitionBy": '["publish_date"]'} if operation == "WRITE" else {}
    now = int(time.time() * 1000)
    return {
        "commitInfo": {
            "timestamp": now,
            "operation": operation,
            "operationParameters": parameters,
            "engineInfo": "somebody",
            **more,
        }
    }


def _added(
    place: Place, rows: list[dict[str, object]], name: str = "publish_date={date}/somebody-{uuid}.parquet", **more: object
) -> _Action:
    """A file of these rows, which are of one date, and the action that adds it."""
    date = str(rows[0]["publish_date"])
    path = name.format(date=date, uuid=uuid.uuid4())
    file = Path(place.path) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow(rows).drop(["publish_date"]), file)
    add = {"path": quote(path), "partitionValues": {"publish_date": date}, "size": file.stat().st_size,
           "modificationTime": int(time.time() * 1000), "dataChange": True, **more}  # fmt: skip
    return {"add": add}


def _first_add(place: Place) -> Mapping[str, object]:
    """The oldest file that holds messages of this region."""
    for version in range(place.version() + 1):
        if (place.log / f"{version:020}.json").exists():
            for action in place.actions(version):
                if "add" in action:
                    found: Mapping[str, object] = action["add"]
                    return found
    raise AssertionError("a log without files")


def _removed(add: Mapping[str, object]) -> _Action:
    return {
        "remove": {"path": add["path"], "deletionTimestamp": int(time.time() * 1000), "dataChange": True,
                   "extendedFileMetadata": True, "partitionValues": add["partitionValues"], "size": add["size"]}
    }  # fmt: skip


def _twice(place: Place) -> None:
    write_deltalake(place.path, arrow(place.new()), mode="append")
    place.put(place.actions(place.version()))


def _twice_with_one_between(place: Place) -> None:
    write_deltalake(place.path, arrow(place.new()), mode="append")
    actions = place.actions(place.version())
    place.put([_info("SOMETHING")])
    place.put(actions)


def _removed_under_another_name(name: str) -> Callable[[Place], None]:
    return lambda place: place.put([_info(name), _removed(_first_add(place))])


def _rewritten(place: Place) -> None:
    """A file of a batch replaced by one with the same rows, as a change of data."""
    add = _first_add(place)
    rows = messages(place.here, range(5))
    place.put([_info("REWRITE"), _removed(add), _added(place, rows)])


def _again(place: Place) -> None:
    """The record of a producer's commit, with the same rows, in a file of its own."""
    rows, record = next(iter(batches(place.here, range(10, 15))))
    assert len(rows) == 5
    place.put(
        [_info(userMetadata=record, operationMetrics={"numOutputRows": "5"}), _added(place, messages(place.here, range(10, 15)))]
    )


def _again_beside_new(place: Place) -> None:
    """One file that was added before, and one that was not."""
    place.put([_info(), {"add": {**_first_add(place)}}, _added(place, place.new())])


def _thinned(place: Place, *, counted: bool) -> None:
    """A file replaced by one with fewer messages, as if nothing changed."""
    removed, lists = _removed(_first_add(place)), _added(place, messages(place.here, range(3)), dataChange=False)
    removed["remove"] = {**removed["remove"], "dataChange": False}  # type: ignore[dict-item]
    for action, rows in (("remove", 5), ("add", 3)) if counted else ():
        of = removed if action == "remove" else lists
        of[action] = {**of[action], "stats": json.dumps({"numRecords": rows})}  # type: ignore[dict-item]
    place.put([_info("OPTIMIZE"), removed, lists])


def _domain(place: Place) -> None:
    place.put([_info("SOMETHING"), {"domainMetadata": {"domain": "somebody.else", "configuration": "{}", "removed": False}}])


def _unknown_feature(place: Place) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["futureFeature"],
        "writerFeatures": ["futureFeature"],
    }
    place.put([_info("UPGRADE PROTOCOL"), {"protocol": protocol}])


def _kind(name: str, make: Callable[[Place], object], before: Callable[[Place], object] | None = None) -> Kind:
    return Kind(name, "crafted", make, before)


KINDS = [
    _kind("append twice (delta-rs after a lost answer)", _twice),
    _kind("append twice, with a commit between", _twice_with_one_between),
    _kind("an old file added again, without commitInfo", lambda place: place.put([{"add": {**_first_add(place)}}])),
    _kind("an old file added again, beside a new one", _again_beside_new),
    _kind("append that says it changes no data", lambda place: place.put([_info(), _added(place, place.new(), dataChange=False)])),
    _kind("compaction that loses messages", lambda place: _thinned(place, counted=True)),
    _kind("compaction that loses messages and counts none", lambda place: _thinned(place, counted=False)),
    _kind("append without commitInfo", lambda place: place.put([_added(place, place.new())])),
    _kind("append of messages that are there, without commitInfo", lambda place: place.put([_added(place, messages(place.here, range(10, 15)))])),
    _kind("append without operationMetrics", lambda place: place.put([_info(), _added(place, place.new())])),
    _kind("append with commitInfo last", lambda place: place.put([_added(place, place.new()), {"txn": {"appId": "x", "version": 1}}, _info()])),
    _kind("append of two dates under an unknown operation", lambda place: place.put(
        [_info("LOAD"), _added(place, place.new()), _added(place, place.new(range(5, 10)))])),
    _kind("append beside the folders of dates", lambda place: place.put([_info(), _added(place, place.new(), "somebody-{uuid}.parquet")])),
    _kind("append of a file whose name has a space", lambda place: place.put([_info(), _added(place, place.new(), "publish_date={date}/some body-{uuid}.parquet")])),
    _kind("append with a userMetadata of somebody", lambda place: place.put([_info(userMetadata='{"geo.somebody": 1}'), _added(place, place.new())])),
    _kind("append with a copy of our record", _again),
    _kind("removal that calls itself an append", _removed_under_another_name("WRITE")),
    _kind("removal that calls itself OPTIMIZE", _removed_under_another_name("OPTIMIZE")),
    _kind("removal without commitInfo", lambda place: place.put([_removed(_first_add(place))])),
    _kind("append that calls itself VACUUM END", lambda place: place.put([_info("VACUUM END"), _added(place, place.new())])),
    _kind("file rewritten with the same messages", _rewritten),
    _kind("commit with nothing but an unknown operation", lambda place: place.put([_info("SOMETHING")])),
    _kind("commit with a txn alone", lambda place: place.put([{"txn": {"appId": "x", "version": 7}}])),
    _kind("commit with an unknown action", lambda place: place.put([_info("SOMETHING"), {"future": {"a": 1}}])),
    _kind("domain metadata", _domain, lambda place: place.sql("ALTER TABLE {log} SET TBLPROPERTIES ('delta.feature.domainMetadata' = 'supported')")),
    _kind("protocol with a feature that nobody knows", _unknown_feature),
]  # fmt: skip
