"""The files whose rows a version of a Delta table has, by its log: a checkpoint and the commits behind it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from geo.delta.commits import commit_file
from geo.delta.data_file import DataFile
from geo.delta.delta_log import SIDECARS, checkpoint_files, newest_version, read_folder, sidecar_name
from geo.delta.delta_state import checksum_of
from geo.delta.engine import UnsupportedError, refusing
from geo.delta.protocol import why_not_read, why_not_widened
from geo.delta.store import ReadPath, parquet_checked, read_each
from geo.errors import DamagedError

Fields: TypeAlias = Mapping[str, Any]
"""Fields of an action."""

_OF_A_FILE = ("path", "partitionValues", "size", "stats", "deletionVector", "modificationTime")
"""Fields that a checkpoint is asked for of a file."""

_NOT_WHOLE = (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, DamagedError)

_AS_THEY_ARE = {"byte": int, "short": int, "integer": int, "long": int, "string": str}
"""Types of columns whose values statistics have as rows do."""


def active_files(folder: ReadPath, version: int | None = None) -> tuple[list[Fields], Mapping[str, Fields]]:
    """The files of a version, or of the newest, as `add` actions have them, and the columns by name, as the log lists them.

    Raises FileNotFoundError if the log is cut meanwhile; UnsupportedError if it does not tell, is damaged, or takes more of a reader
    than plain files.
    """
    files, protocol, metadata = contents(folder, version)
    with refusing(*_NOT_WHOLE):
        if any(fields.get("deletionVector") for fields in files):
            raise UnsupportedError("not all rows of its files count")
        return files, _columns(protocol, metadata)


def contents(folder: ReadPath, version: int | None = None) -> tuple[list[Fields], Fields, Fields]:
    """The files of a version, or of the newest, its protocol and its metadata. Raises as `active_files`, but for what its columns take and
    for rows of files that do not count."""
    if not folder.store.is_near and (listed := _by_checksum(folder, version)) is not None:
        return listed
    found = read_folder(folder)
    last = found.newest if version is None else version
    checkpoint = max((one for one in found.checkpoints if one <= last), default=-1)
    later = [one for one in found.commits if checkpoint < one <= last]
    parts = checkpoint_files(found.files.get(checkpoint, ()))
    if last < 0 or later != list(range(checkpoint + 1, last + 1)) or (checkpoint >= 0 and not parts):
        raise UnsupportedError("what leads to that version is not all there")
    there: dict[Hashable, Fields] = {}
    latest: dict[str, Fields] = {}
    with refusing(*_NOT_WHOLE):
        for name, fields in _actions(folder, parts, later):
            if name == "add":
                there[_key(fields)] = fields
            elif name == "remove":
                there.pop(_key(fields), None)
            elif name in ("protocol", "metaData"):
                latest[name] = fields
        return list(there.values()), latest["protocol"], latest["metaData"]


def _key(file: Fields) -> Hashable:
    """A file, and which of its rows were deleted: in one commit it may go, and come with fewer rows."""
    deleted = file.get("deletionVector") or {}
    return file["path"], deleted.get("pathOrInlineDv"), deleted.get("offset")


def _by_checksum(folder: ReadPath, version: int | None) -> tuple[list[Fields], Fields, Fields] | None:
    """Reads as `contents`, from the checksum of the version, where that lists them: three requests. None where it does not."""
    with suppress(FileNotFoundError, DamagedError, *_NOT_WHOLE):
        if (last := newest_version(folder) if version is None else version) is None:
            return None
        checksum = checksum_of(folder, last, (folder / commit_file(last)).lines())
        files = None if checksum is None else checksum.get("allFiles")
        if checksum is None or files is None:
            return None
        return files, checksum["protocol"], checksum["metadata"]
    return None


def _columns(protocol: Fields, metadata: Fields) -> Mapping[str, Fields]:
    """The columns of a table by name. Raises UnsupportedError where its files are not read here."""
    columns = json.loads(metadata["schemaString"])["fields"]
    refused = (why for one in columns if (why := why_not_widened(one)) is not None)
    if (why := why_not_read(protocol, dict(metadata.get("configuration") or {})) or next(refused, None)) is not None:
        raise UnsupportedError(why)
    return {one["name"]: one for one in columns}


def described(folder: ReadPath, files: Iterable[Fields], columns: Mapping[str, Fields]) -> list[DataFile]:
    """Files with what the log says of them. Values of columns are of their types. Those of other ones than whole numbers, texts, dates and times
    with a zone are left out, and so is what columns within columns have. Raises UnsupportedError for what is not whole."""
    with refusing(*_NOT_WHOLE):
        kinds = {name: one["type"] for name, one in columns.items() if isinstance(one["type"], str)}
        table = folder.parent
        return [DataFile(table / unquote(one["path"]), _told(one, kinds)) for one in files]


def _actions(folder: ReadPath, parts: Iterable[str], later: Iterable[int]) -> Iterator[tuple[str, Fields]]:
    """The actions that the parts of a checkpoint list, and the files beside it that they name, and those of the commits behind it."""
    left = list(parts)
    while left:
        part = left.pop()
        if part.endswith(".json"):
            for line in filter(None, (folder / part).lines()):
                for name, fields in json.loads(line).items():
                    left += [f"{SIDECARS}/{sidecar_name(fields)}"] if name == "sidecar" else []
                    yield name, fields
            continue
        read = parquet_checked(folder / part)
        if "sidecar" in read.schema_arrow.names:
            sidecars = read.read(["sidecar"])["sidecar"].drop_null().to_pylist()
            left += [f"{SIDECARS}/{sidecar_name(one)}" for one in sidecars]
        names = [name for name in ("protocol", "metaData", "add") if name in read.schema_arrow.names]
        of_a_file = (
            [f"add.{field.name}" for field in read.schema_arrow.field("add").type if field.name in _OF_A_FILE]
            if "add" in names
            else []
        )
        table = read.read([one for name in names for one in (of_a_file if name == "add" else [name])])
        for name in names:
            yield from ((name, fields) for fields in table[name].drop_null().to_pylist())
    for lines in read_each(folder.store, later, lambda version: (folder / commit_file(version)).lines()):
        if lines is None:
            raise FileNotFoundError(f"a commit of {folder}")
        for line in lines:
            if not line.startswith('{"commitInfo"'):
                yield from json.loads(line).items()


def _told(add: Fields, kinds: Mapping[str, str]) -> dict[str, Any]:
    said = json.loads(add["stats"]) if add.get("stats") else {}
    told = {"num_records": said.get("numRecords"), "size_bytes": add["size"]}
    for name, value in dict(add["partitionValues"]).items():
        if name in kinds:
            told[f"partition.{name}"] = _of_partition(value, kinds[name])
    for end in ("min", "max"):
        for name, value in said.get(f"{end}Values", {}).items():
            kind = kinds.get(name, "")
            if isinstance(value, _AS_THEY_ARE.get(kind, ())):
                told[f"{end}.{name}"] = value
            elif (time := _time(value, kind)) is not None:
                told[f"{end}.{name}"] = time
    for name, value in said.get("nullCount", {}).items():
        if isinstance(value, int):
            told[f"null_count.{name}"] = value
    return told


def _of_partition(value: str | None, kind: str) -> Any:
    """Converts a partition's value as rows have it. Raises UnsupportedError for a type of which that is not known here."""
    if value is None or kind == "string":
        return value
    if kind == "date":
        return date.fromisoformat(value)
    raise UnsupportedError(f"it is partitioned by a column of type {kind}")


def _time(value: Any, kind: str) -> date | datetime | None:
    """A date or a time with a zone; None if it is none, or beyond Python's."""
    with suppress(ValueError, TypeError, AttributeError):
        if kind == "date":
            return date.fromisoformat(value)
        if kind == "timestamp" and (time := datetime.fromisoformat(value.replace("Z", "+00:00"))).tzinfo is not None:
            return time
    return None
