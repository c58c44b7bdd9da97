"""Writes a checkpoint of a table on a store where a look is a request: from the checkpoint before it and the commits since. That takes a handful of
requests where a library that opens the table again makes some fifty-five.

It is a classic one, in one file. What it does not know of a table it refuses (UnsupportedError): `deltalake` writes the checkpoint then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geo.delta.commits import commit_file
from geo.delta.delta_log import POINTER, checkpoint_files, newest_checkpoint, read_folder
from geo.delta.engine import UnsupportedError, refusing
from geo.delta.store import ReadPath, WritePath, parquet, read_each
from geo.delta.young import RETENTION, retention_us
from geo.errors import DamagedError
from geo.now import now_us
from geo.schemas.table import duration_s

_MOST_FILES = 20_000
"""Files above which the library takes less of this process."""

_TEXTS, _NAMES = pa.map_(pa.string(), pa.string()), pa.list_(pa.string())
_VECTOR = {
    "storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32(), "sizeInBytes": pa.int32(), "cardinality": pa.int64(),
}  # fmt: skip
_NUMBERED = {"deletionVector": pa.struct(_VECTOR), "baseRowId": pa.int64(), "defaultRowCommitVersion": pa.int64()}
_ACTIONS = {
    "protocol": {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(), "readerFeatures": _NAMES, "writerFeatures": _NAMES},
    "metaData": {
        "id": pa.string(), "name": pa.string(), "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _TEXTS}), "schemaString": pa.string(), "partitionColumns": _NAMES,
        "configuration": _TEXTS, "createdTime": pa.int64(),
    },
    "txn": {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()},
    "domainMetadata": {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()},
    "add": {
        "path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_(),
        "stats": pa.string(), "tags": _TEXTS, **_NUMBERED, "clusteringProvider": pa.string(),
    },
    "remove": {
        "path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_(), "extendedFileMetadata": pa.bool_(),
        "partitionValues": _TEXTS, "size": pa.int64(), **_NUMBERED,
    },
}  # fmt: skip
"""Columns of a checkpoint, as Delta's PROTOCOL.md lists them ("Checkpoint Schema")."""

_SCHEMA = pa.schema({name: pa.struct(fields) for name, fields in _ACTIONS.items()})

_LEFT_OUT = {"commitInfo", "cdc"}
"""Actions that no checkpoint has."""
_DROPPED = {
    "add": {"stats_parsed", "partitionValues_parsed"},
    "remove": {"stats", "tags", "stats_parsed", "partitionValues_parsed"},
}
"""Fields that are told a second time, or need not be."""

_KEYS = {"txn": "appId", "add": "path", "remove": "path", "domainMetadata": "domain"}
"""Fields that tell actions of a kind apart; of any other there is one."""

_ASKED_OTHERWISE = {
    "delta.checkpointPolicy": "classic",
    "delta.checkpoint.writeStatsAsJson": "true",
    "delta.checkpoint.writeStatsAsStruct": "false",
}
"""Properties that say how a checkpoint is to be, with the values that mean this one."""

_NOT_WHOLE = (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, DamagedError)


def write_checkpoint(folder: WritePath, version: int, checksum: Mapping[str, Any]) -> None:
    """Write the checkpoint of a version, which has this checksum, and then that it is the newest one.

    Nothing of it is put unless what leads to the version, read again, comes to what the checksum says. Raises UnsupportedError where it is left to
    `deltalake`, and as the store does: then readers go by the checkpoint before.
    """
    protocol, configuration = checksum["protocol"], checksum["metadata"].get("configuration") or {}
    if "v2Checkpoint" in (protocol.get("writerFeatures") or ()):
        raise UnsupportedError("its checkpoints may be of v2")
    if strange := [key for key, value in _ASKED_OTHERWISE.items() if configuration.get(key, value).lower() != value]:
        raise UnsupportedError(f"it asks for other checkpoints ({', '.join(strange)})")
    if RETENTION in configuration and duration_s(configuration[RETENTION]) is None:
        raise UnsupportedError(f"{RETENTION} is said in words that are not known here")
    if checksum["numFiles"] > _MOST_FILES:
        raise UnsupportedError("it has many files")
    with refusing(*_NOT_WHOLE):
        there = _reconciled(chain(*_actions(folder, version)))
        _refuse_other(there, checksum)
        content, count = _content(there, now_us() // 1000 - retention_us(configuration) // 1000)
    folder.store.put(str(folder / f"{version:020}.checkpoint.parquet"), content)
    if newest_checkpoint(folder)[0] < version:
        told = {"version": version, "size": count, "sizeInBytes": len(content), "numOfAddFiles": len(there["add"])}
        folder.store.put(str(folder / POINTER), json.dumps(told, separators=(",", ":")).encode())


def _actions(folder: ReadPath, version: int) -> Iterable[Iterable[tuple[str, dict[str, Any]]]]:
    """Actions that lead to a version: those of the checkpoint before it, then those of each commit."""
    found = read_folder(folder)
    before = max((one for one in found.checkpoints if one < version), default=-1)
    later = [one for one in found.commits if before < one <= version]
    if later != list(range(before + 1, version + 1)):
        raise UnsupportedError("what leads to that version is not all there")
    if before >= 0:
        parts = checkpoint_files(found.files[before])
        if len(parts) != 1 or not parts[0].endswith(".parquet"):
            raise UnsupportedError("the checkpoint before is of another kind")
        file = parquet(folder / parts[0])
        if unknown := set(file.schema_arrow.names) - set(_ACTIONS):
            raise UnsupportedError(f"the checkpoint before has what is not known here ({', '.join(sorted(unknown))})")
        if file.metadata.num_rows > 2 * _MOST_FILES:
            raise UnsupportedError("it has many files")
        yield ((name, fields) for row in file.read().to_pylist() for name, fields in row.items() if fields is not None)
    for lines in read_each(folder.store, later, lambda one: (folder / commit_file(one)).lines()):
        if lines is None:
            raise UnsupportedError("its log was cut meanwhile")
        yield (one for line in filter(None, lines) for one in json.loads(line).items())


def _reconciled(actions: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The actions that count in the end, by kind and by what tells them apart."""
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in _ACTIONS}
    for name, fields in actions:
        if name in _LEFT_OUT:
            continue
        if name not in found or not set(fields) <= set(_ACTIONS[name]) | _DROPPED.get(name, set()):
            raise UnsupportedError(f"its log has what is not known here ({name})")
        if fields.get("deletionVector") is not None:
            raise UnsupportedError("rows of its files were deleted one by one")
        if name == "add" and fields.get("stats") is None and fields.get("stats_parsed") is not None:
            raise UnsupportedError("its checkpoint has statistics in another form alone")
        key = fields[_KEYS[name]] if name in _KEYS else ""
        if name in ("add", "remove"):
            found["remove" if name == "add" else "add"].pop(key, None)
        found[name][key] = fields
    return found


def _refuse_other(there: Mapping[str, Mapping[str, Mapping[str, Any]]], checksum: Mapping[str, Any]) -> None:
    """Raises UnsupportedError unless the actions come to what the checksum says."""
    files, (metadata,), (protocol,) = there["add"].values(), there["metaData"].values(), there["protocol"].values()
    told, used, domains = checksum["metadata"], checksum.get("setTransactions"), checksum.get("domainMetadata")
    lasting = {name: one["configuration"] for name, one in there["domainMetadata"].items() if not one["removed"]}
    is_it = (
        len(files) == checksum["numFiles"]
        and sum(file["size"] for file in files) == checksum["tableSizeBytes"]
        and all(metadata[name] == told[name] for name in ("id", "schemaString", "partitionColumns"))
        and dict(metadata["configuration"] or {}) == dict(told.get("configuration") or {})
        and all(_listed(protocol.get(name)) == _listed(checksum["protocol"].get(name)) for name in _ACTIONS["protocol"])
        and (domains is None or {one["domain"]: one["configuration"] for one in domains if not one.get("removed")} == lasting)
        and (
            used is None
            or {one["appId"]: one["version"] for one in used} == {a: one["version"] for a, one in there["txn"].items()}
        )
    )
    if not is_it:
        raise UnsupportedError("what leads to that version is not what its checksum says")


def _listed(value: Any) -> Any:
    return sorted(value) if isinstance(value, Sequence) else value


def _content(there: Mapping[str, Mapping[str, Mapping[str, Any]]], removed_since_ms: int) -> tuple[bytes, int]:
    """The file, and how many actions it has: without what was removed before, which nobody reads any more."""
    rows = [
        {field.name: _as_arrow(fields, field.type)}
        for field in _SCHEMA
        for fields in there[field.name].values()
        if not (field.name == "remove" and (fields.get("deletionTimestamp") or 0) < removed_since_ms)
        and not (field.name == "domainMetadata" and fields["removed"])
    ]
    into = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), into, write_page_checksum=True)
    return bytes(into.getvalue()), len(rows)


def _as_arrow(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON, or of a checkpoint, as Arrow takes it. Nothing of a checkpoint changes data."""
    if pa.types.is_struct(kind) and value is not None:
        return {part.name: part.name != "dataChange" and _as_arrow(value.get(part.name), part.type) for part in kind.fields}
    return list(value.items()) if isinstance(value, Mapping) else value
