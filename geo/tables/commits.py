"""What one commit of a Delta table says of itself, and what kind of change it is. Pure: no Spark, clock or I/O.

A commit is read from its own record, the `commitInfo` of `_delta_log/<version>.json`, or where that cannot be read by name
from a row of DESCRIBE HISTORY.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from geo.errors import RetryableError, SchemaError
from geo.text import first_line
from geo.times import LAST_US, from_us, in_us, utc

T = TypeVar("T")

ERASED = "geo.erase"
"""Key of the record that the commit of an erasure carries (`geo erase`)."""

EXPIRED = "geo.expire"
"""Key of the record that the commit of an expiry carries (`geo maintain`)."""


class Kind(str, Enum):
    """What a commit did to a topic log, as far as whoever reads it in order must know."""

    APPEND = "APPEND"
    """Rows were added and nothing else."""
    NEUTRAL = "NEUTRAL"
    """No row came or went: files were compacted or removed, properties set, columns added."""
    EXPIRY = "EXPIRY"
    """Our expiry: whole dates whose messages are older than the TTL."""
    ERASURE = "ERASURE"
    """Our erasure: some messages were emptied; ids and number of the rows are as before."""
    RESTORE = "RESTORE"
    REWRITE = "REWRITE"
    """Rows were changed, removed or replaced by anybody else, or the operation is one this program does not know."""


_APPENDS = {"WRITE": "mode", "STREAMING UPDATE": "outputMode"}
"""Operations that append if this parameter says so."""

_ADDS = frozenset({"COPY INTO", "CREATE TABLE AS SELECT"})

_NEUTRAL = frozenset(
    {
        "ADD COLUMNS", "ADD CONSTRAINT", "ANALYZE", "CHANGE COLUMN", "CLUSTER BY", "COMPUTE STATS", "CREATE TABLE", "DROP CONSTRAINT",
        "DROP FEATURE", "ADD FEATURE", "OPTIMIZE", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES",
        "UPGRADE PROTOCOL", "VACUUM END", "VACUUM START",
    }
)  # fmt: skip

_EFFECTS = {
    "UPDATE": ("numUpdatedRows", "numAddedFiles", "numDeletionVectorsAdded"),
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsCopied"),
    "DELETE": ("numDeletedRows", "numRemovedFiles", "numCopiedRows", "numAddedFiles", "numDeletionVectorsAdded"),
}
"""Operations that may have found nothing to do, and the metrics that tell."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table.

    `commit_id` names it beyond its number: Delta's `txnId`, a UUID drawn per transaction, kept by a copy of the files and
    another one in a history that grew again; the SHA-256 of the file where a writer gives none. `rows` and `bytes` are what it
    added, as its writer counted them; 0 where it did not.
    """

    version: int
    commit_id: str
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, int]
    user_metadata: str | None
    committed_us: int
    """When its writer says that it made it, in microseconds since 1970; 0 where it does not."""
    user: str | None

    @property
    def kind(self) -> Kind:
        operation = self.operation
        if operation in _APPENDS:
            mode = self.parameters.get(_APPENDS[operation], "").strip('"').lower()
            return Kind.APPEND if mode == "append" else Kind.REWRITE
        if operation in _ADDS:
            return Kind.APPEND
        if operation == "RESTORE":
            return Kind.RESTORE
        if operation == "DELETE" and self.has_record(EXPIRED) and not self._count("numCopiedRows", "numAddedFiles"):
            return Kind.EXPIRY
        if operation == "UPDATE" and self.has_record(ERASED):
            return Kind.ERASURE
        if operation in _EFFECTS:
            return Kind.REWRITE if not self.metrics or self._count(*_EFFECTS[operation]) else Kind.NEUTRAL
        return Kind.NEUTRAL if operation in _NEUTRAL else Kind.REWRITE

    @property
    def rows(self) -> int:
        return self._count("numOutputRows", "num_added_rows")

    @property
    def bytes(self) -> int:
        return self._count("numOutputBytes")

    @property
    def who(self) -> str:
        """Who made it and when, for messages."""
        made = from_us(min(max(self.committed_us, 0), LAST_US))
        return f"by {self.user or 'someone'} at {made:%Y-%m-%d %H:%M:%S} UTC"

    def has_record(self, key: str) -> bool:
        """Whether its userMetadata is a record of ours with this key."""
        return f'"{key}"' in (self.user_metadata or "")

    def _count(self, *names: str) -> int:
        return sum(self.metrics.get(name, 0) for name in names)


def read_record(user_metadata: str | None, key: str, version: int, make: Callable[[Mapping[str, Any]], T]) -> T | None:
    """What `make` makes of the record with this key that a commit's userMetadata is; None if it is no such record.

    Raises SchemaError for a record of another version, and for one that is not whole.
    """
    if not user_metadata or f'"{key}"' not in user_metadata:
        return None
    try:
        fields = json.loads(user_metadata)
    except ValueError:
        return None
    if not isinstance(fields, dict) or key not in fields:
        return None
    if fields[key] != version:
        raise SchemaError(f"a commit's {key} record has version {fields[key]!r}, this program knows {version}. Upgrade it.")
    try:
        return make(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"a commit's {key} record is not whole: {error}. No version of this program wrote it.") from None


def of_info(version: int, info: Mapping[str, Any], commit_id: str) -> Commit:
    """A commit from the `commitInfo` of its file."""
    millis = info.get("inCommitTimestamp") or info.get("timestamp") or 0
    return Commit(
        version,
        commit_id,
        str(info.get("operation") or "UNKNOWN"),
        _texts(info.get("operationParameters")),
        _counts(info.get("operationMetrics")),
        info.get("userMetadata"),
        int(millis) * 1000,
        info.get("userName"),
    )


def of_file(version: int, lines: Iterable[str]) -> Commit:
    """A commit from the lines of its file; only the first is looked at, where Delta writes its `commitInfo`. Raises RetryableError for
    a file that is not whole: it may be on its way."""
    try:
        return _of_file(version, lines)
    except (ValueError, KeyError, AttributeError) as error:
        raise RetryableError(f"the file of commit {version} of a log is not whole: {first_line(error)}") from None


def _of_file(version: int, lines: Iterable[str]) -> Commit:
    read = []
    for line in lines:
        read.append(line)
        if line.startswith('{"commitInfo"'):
            info = json.loads(line)["commitInfo"]
            if txn_id := info.get("txnId"):
                return of_info(version, info, str(txn_id))
    # A writer without transaction ids, or one that has no commitInfo at all: then the whole file is what names it.
    infos = [json.loads(line)["commitInfo"] for line in read if line.startswith('{"commitInfo"')]
    while read and not read[-1].rstrip("\r\n"):
        read.pop()  # what is behind the last line's end is a line to some readers
    digest = hashlib.sha256("\n".join(line.rstrip("\r\n") for line in read).encode()).hexdigest()
    return of_info(version, infos[0] if infos else {}, f"sha256:{digest}")


def of_history(row: Mapping[str, Any]) -> Commit:
    """A commit from a row of DESCRIBE HISTORY, of a log that cannot be read by name. There its timestamp names it: such tables
    have in-commit timestamps, which grow with each commit and are part of it."""
    came = utc(row["timestamp"])
    return Commit(
        row["version"],
        f"at:{came.isoformat()}",
        row["operation"],
        _texts(row["operationParameters"]),
        _counts(row["operationMetrics"]),
        row["userMetadata"],
        in_us(came),
        row["userName"],
    )


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {key: str(value) for key, value in (values or {}).items() if value is not None}


def _counts(values: Mapping[str, Any] | None) -> dict[str, int]:
    counts = {}
    for key, value in (values or {}).items():
        if isinstance(value, int) or (isinstance(value, str) and value.lstrip("-").isdigit()):
            counts[key] = int(value)
    return counts
