"""State of the newest version of a Delta table whose files this process reads, from the checksum that Delta leaves beside a commit.

Only tables that this program can append to by itself: None of anything else, which is left to Spark. Of those whose columns have other names in files
(`is_mapped`) it reads no rows.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from geo.delta.commits import commit_file
from geo.delta.delta_log import checksum_at, newest_metadata, newest_seen, newest_version
from geo.delta.derived_checksum import NOTHING, checksum_after
from geo.delta.engine import TableSnapshot, UnsupportedError, attempt, refusing
from geo.delta.protocol import (
    MAPPED_ID,
    MAPPED_NAME,
    has_times,
    is_mapped,
    tracks_rows,
    why_not_append,
    why_not_change,
    why_not_plain,
)
from geo.delta.store import ReadPath
from geo.errors import DamagedError
from geo.text import first_line

_CHECKPOINT_INTERVAL = 10
"""Interval of a table that does not say one."""

_ARROW: Mapping[str, pa.DataType] = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The newest version of a table, as its checksum has it. Partitions are dates."""

    version: int
    table_id: str
    schema: pa.Schema
    """Its columns, in order, with the partition columns."""
    stored: pa.Schema
    """The same as its files and statistics have them: by names of their own, with numbers, where the table maps its columns."""
    partition_by: tuple[str, ...]
    statistics_of: frozenset[str]
    """The columns of which this program gives the log statistics: those that the table names, none if it names none."""
    checkpoint_interval: int
    checksum: Mapping[str, Any]

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.checksum["metadata"].get("configuration") or {}

    @property
    def is_mapped(self) -> bool:
        """True if its columns have other names in its files."""
        return self.stored is not self.schema

    @property
    def why_not_change(self) -> str | None:
        """The reason why this program takes no file out of it, and puts none in the place of others; None: it may."""
        if self.checksum.get("numDeletionVectorsOpt"):
            return "rows of its files were deleted one by one (deletion vectors)"
        return why_not_change(self.checksum["protocol"], self.configuration)

    def stored_name(self, column: str) -> str:
        """Name of a column in its files."""
        return str(self.stored.names[self.schema.names.index(column)])

    @property
    def txn_id(self) -> str:
        """The transaction that its commit says it is."""
        return str(self.checksum["txnId"])

    def highest_used(self, application: str) -> int | None:
        """The highest number of a transaction's application that was committed; None: none was, or that is not told."""
        used = {one["appId"]: int(one["version"]) for one in self.checksum.get("setTransactions") or ()}
        return used.get(application)


def _is_known_to_deltalake(folder: ReadPath) -> bool:
    """Tells whether `deltalake` takes a path for what it is: of one with a `%` it makes another."""
    return "%" not in str(folder)


def seen_in(folder: ReadPath) -> TableSnapshot | None:
    """The table whose `_delta_log` is `folder` as it is now, by the files of its log alone.

    None: there is none. Raises UnsupportedError if its newest commits do not tell its metadata.
    """
    if (newest := newest_version(folder)) is None:
        return None
    if (metadata := newest_metadata(folder, newest)) is None:
        raise UnsupportedError("its metadata is far back in its log")
    return TableSnapshot.of(metadata, newest)


def require_newest(folder: ReadPath) -> int:
    """The newest version. Raises UnsupportedError if there is no commit."""
    if (newest := newest_version(folder)) is None:
        raise UnsupportedError("it has no commit")
    return newest


def txn_id(folder: ReadPath, version: int) -> str | None:
    """The transaction that a commit says it is; None: it says none. Raises FileNotFoundError, ValueError or AttributeError for what is no
    commit."""
    return _txn_in((folder / commit_file(version)).first_line())


def _txn_in(line: str | bytes) -> str | None:
    found: str | None = json.loads(line).get("commitInfo", {}).get("txnId")
    return found


def newest_state(folder: ReadPath, seen: int | None = None) -> DeltaState | None:
    """Reads as `require_state`; None where the table is left to Spark."""
    found = attempt(lambda: require_state(folder, seen))
    return None if isinstance(found, UnsupportedError) else found


def require_state(folder: ReadPath, seen: int | None = None) -> DeltaState:
    """The newest version of the table whose `_delta_log` is `folder`. With `seen`, a version that is there, that one will do where looking for a
    newer one is a request. Raises UnsupportedError where Spark has to read or append."""
    newest = require_newest(folder) if seen is None or folder.store.is_near else seen
    if not _is_known_to_deltalake(folder):
        raise UnsupportedError("its path holds a %")
    if not folder.store.is_near:
        return _remember(folder, _far_state(folder, newest))
    try:
        checksum = checksum_at(folder, newest)
        written_by = txn_id(folder, newest)
    except FileNotFoundError:
        raise UnsupportedError(
            f"its newest commit, version {newest}, has no checksum beside it: another program wrote it"
        ) from None
    except (OSError, ValueError, AttributeError, DamagedError) as error:
        raise UnsupportedError(f"its version {newest} cannot be read: {first_line(error)}") from None
    if not written_by or checksum.get("txnId") != written_by:
        raise UnsupportedError(f"the checksum beside version {newest} is of another commit")
    try:
        return state_of(newest, checksum)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnsupportedError(f"the checksum of version {newest} is not whole: {first_line(error)}") from None


_READ_TABLES = 64
"""So many states are remembered, of the tables that were read last."""

_lock = threading.Lock()
_read: dict[ReadPath, tuple[DeltaState, float]] = {}
"""State of the newest version, by `_delta_log` on a store that is far, that this process has seen there, and when it was read (monotonic). The last
one comes last.
"""


def last_read(folder: ReadPath, most_s: float) -> DeltaState | None:
    """The state of the newest version that this process has seen, on a store where a look is a request. It must have been read at most so long ago.
    Another one may be newer. None: it is not known.
    """
    state, at = _read.get(folder, (None, -math.inf))
    return state if time.monotonic() - at < most_s else None


def forget_read(folder: ReadPath) -> None:
    with _lock:
        _read.pop(folder, None)


def _remember(folder: ReadPath, state: DeltaState) -> DeltaState:
    if state.version >= newest_seen(folder):  # a reader may ask for an older one
        with _lock:
            _read.pop(folder, None)
            _read[folder] = state, time.monotonic()
            while len(_read) > _READ_TABLES:
                del _read[next(iter(_read))]
    return state


_NOT_WHOLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)

_MOST_DERIVED = 100
"""Commits that are read for a checksum."""


def _far_state(folder: ReadPath, newest: int) -> DeltaState:
    """Reads as `require_state`, where a commit and its checksum come one after the other, and whoever puts them may die in between. Raises OSError as
    the store does.
    """
    since: list[list[str]] = []
    for version in range(newest, max(-1, newest - _MOST_DERIVED), -1):
        lines = (folder / commit_file(version)).lines()
        with refusing(*_NOT_WHOLE):
            checksum = checksum_of(folder, version, lines)
            if checksum is None and version == 0:
                checksum = checksum_after(NOTHING, lines)
            if checksum is not None:
                for later in reversed(since):
                    checksum = checksum_after(checksum, later)
                return state_of(newest, checksum)
        since.append(lines)
    raise UnsupportedError(
        f"none of its newest commits, up to version {newest}, has a checksum beside it: another program wrote them"
    )


def checksum_of(folder: ReadPath, version: int, lines: Sequence[str]) -> dict[str, Any] | None:
    """The checksum beside a commit with these lines; None if there is none, or it is of another one."""
    with suppress(FileNotFoundError, ValueError, DamagedError):
        checksum = checksum_at(folder, version)
        return checksum if checksum["txnId"] and checksum["txnId"] == _txn_in(lines[0]) else None
    return None


def state_of(version: int, checksum: Mapping[str, Any]) -> DeltaState:
    """The version that has this checksum. Raises UnsupportedError as `require_state`; ValueError, KeyError, TypeError or AttributeError for one
    that is not whole."""
    metadata, configuration = checksum["metadata"], checksum["metadata"].get("configuration") or {}
    columns, partition_by = json.loads(metadata["schemaString"])["fields"], tuple(metadata["partitionColumns"])
    if (why := why_not_append(checksum["protocol"], configuration) or why_not_plain(columns)) is not None:
        raise UnsupportedError(why)
    if tracks_rows(checksum["protocol"], configuration) and checksum.get("domainMetadata") is None:
        raise UnsupportedError("its checksum does not say which numbers its rows have")
    if has_times(configuration):
        int(checksum["inCommitTimestampOpt"])  # the next is later
    if required := [column["name"] for column in columns if _requires(column["type"])]:
        raise UnsupportedError(f"its column {required[0]} has parts in which a value is required")
    schema = stored = schema_of(columns)
    if is_mapped(configuration):
        stored = stored_schema_of(columns)
    if strange := [name for name in partition_by if schema.field(name).type != pa.date32()]:
        raise UnsupportedError(f"it is partitioned by {', '.join(strange)}, which is no date")
    interval = int(configuration.get("delta.checkpointInterval", _CHECKPOINT_INTERVAL))
    interval = interval if interval > 0 else _CHECKPOINT_INTERVAL  # Delta refuses to set it so, other writers do not
    named = configuration.get("delta.dataSkippingStatsColumns", "")
    flat = {field.name for field in schema if not pa.types.is_struct(field.type)}
    statistics_of = frozenset(name.strip() for name in named.split(",")).intersection(flat)
    return DeltaState(version, metadata["id"], schema, stored, partition_by, statistics_of, interval, checksum)


def schema_of(columns: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Columns, as the log lists them, as Arrow has them. Raises UnsupportedError if one is of another kind."""
    return pa.schema([_field(column, column, mapped=False) for column in columns])


def stored_schema_of(columns: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Schema as `schema_of`, by the names and numbers that mapped columns have in files. Raises KeyError for one that is not mapped."""
    return pa.schema([_field(column, column, mapped=True) for column in columns])


def _requires(kind: Any) -> bool:
    """Tells whether a type has parts in which a value is required: who reads need not know it."""
    if isinstance(kind, str):
        return False
    fields = kind.get("fields", ())
    parts = (
        *(field["type"] for field in fields),
        *(kind[part] for part in ("elementType", "keyType", "valueType") if part in kind),
    )
    may_lack = (*(field["nullable"] for field in fields), kind.get("containsNull", True), kind.get("valueContainsNull", True))
    return not all(may_lack) or any(map(_requires, parts))


def _field(of: Mapping[str, Any], field: Mapping[str, Any], *, mapped: bool) -> pa.Field:
    """A column, or one within the column `of`; if `mapped` as files have it."""
    kind = _type(of, field["type"], mapped=mapped)
    may_lack = field["nullable"] or field is not of
    if not mapped:
        return pa.field(field["name"], kind, nullable=may_lack)
    number = {"PARQUET:field_id": str(field["metadata"][MAPPED_ID])}
    return pa.field(field["metadata"][MAPPED_NAME], kind, nullable=may_lack, metadata=number)


def _type(of: Mapping[str, Any], kind: Any, *, mapped: bool) -> pa.DataType:
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        if (found := pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW.get(kind)) is not None:
            return found
    elif kind["type"] == "struct":
        return pa.struct([_field(of, field, mapped=mapped) for field in kind["fields"]])
    elif kind["type"] == "array":
        return pa.list_(_type(of, kind["elementType"], mapped=mapped))
    elif kind["type"] == "map":
        return pa.map_(*(_type(of, kind[part], mapped=mapped) for part in ("keyType", "valueType")))
    raise UnsupportedError(f"its column {of['name']} is of a type that is not known here ({kind})")
