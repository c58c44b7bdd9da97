"""One commit of a Delta table: its name, its record, and the kind of change that its actions make. Pure: no Spark, clock or I/O.

A commit is read from its file, `_delta_log/<version>.json`. Where files cannot be read by name a row of DESCRIBE HISTORY stands for it. Then what the
engine says of the commit stands for its actions (`operations.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from geo.delta.actions import Actions, Effect, actions_of, column_names
from geo.delta.operations import actions_by_operation
from geo.errors import RetryableError, SchemaError
from geo.reasons import Reason
from geo.text import first_line
from geo.times import LAST_US, from_us, in_us, shown_time

T = TypeVar("T")

ERASED = "geo.erase"
"""Key of the record that the commit of an erasure carries (`geo erase`)."""

EXPIRED = "geo.expire"
"""Key of the record that the commit of an expiry carries (`geo maintain`)."""

KEPT = "geo.keep"
"""Key of the record that the commit carries by which a system table is kept small: superseded rows went."""


ENGINE = "delta-geo"
"""Name of this program in its commits (`engineInfo`)."""


def commit_file(version: int) -> str:
    """The name of a commit's file in a `_delta_log`."""
    return f"{version:020}.json"


def checksum_file(version: int) -> str:
    """The name of the checksum beside a commit."""
    return f"{version:020}.crc"


class Kind(str, Enum):
    """Kind of a commit of a topic log, as far as whoever reads it in order must know."""

    APPEND = "APPEND"
    """Rows were added and nothing else."""
    NEUTRAL = "NEUTRAL"
    """No row came or went: files were compacted or removed, properties set, columns added."""
    RELISTED = "RELISTED"
    """Files were listed again, as if nothing changed: usually so; but they may hold rows that no reader of commits sees."""
    EXPIRY = "EXPIRY"
    """Our expiry: whole dates whose messages are older than the TTL."""
    ERASURE = "ERASURE"
    """Our erasure: some messages were emptied; ids and number of the rows are as before."""
    RESTORE = "RESTORE"
    REWRITE = "REWRITE"
    """Rows were changed, removed or replaced by anybody else, or columns dropped or renamed."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table.

    `commit_id` names it beyond its number. It is Delta's `txnId`, a UUID drawn per transaction. A copy of the files keeps it, and a history that
    grew again has another one. The SHA-256 of the file where a writer gives none. `operation`, `parameters`, `metrics`: its writer's own words, for
    messages; they decide nothing but where `actions` are None, since they cannot be read.
    """

    version: int
    commit_id: str
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, int]
    user_metadata: str | None
    committed_us: int
    """The time when its writer says that it made it, in microseconds since 1970; 0 where it does not."""
    user: str | None
    actions: Actions | None = None
    lost_columns: tuple[str, ...] = ()
    """Columns that the table had before and has not after it."""

    @property
    def done(self) -> Actions:
        """Sum of its actions on the rows."""
        return self.actions or actions_by_operation(self.operation, self.parameters, self.metrics)

    @property
    def kind(self) -> Kind:
        effect = self.done.effect
        if effect is Effect.REMOVED and self.has_record(EXPIRED):
            return Kind.EXPIRY
        if effect is Effect.CHANGED and self.has_record(ERASED):
            return Kind.ERASURE
        if self.operation == "RESTORE" and (effect is not Effect.NONE or self.lost_columns):
            # The name makes a verdict stricter, never milder: of what only came it says that it had gone before.
            return Kind.RESTORE
        if self.lost_columns:
            return Kind.REWRITE
        if effect is Effect.NONE:
            return Kind.NEUTRAL
        if effect is Effect.ADDED:
            return Kind.APPEND
        return Kind.RELISTED if effect is Effect.RELISTED else Kind.REWRITE

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns after a commit that describes the table; None of any other commit."""
        return self.done.columns

    def since(self, before: Mapping[str, Any] | None) -> Commit:
        """The commit beside the table's metadata before it, None where these are not known: the columns that it took away."""
        if before is None or self.actions is None or self.actions.columns is None:
            return self
        return replace(self, lost_columns=tuple(sorted(column_names(before) - self.actions.columns)))

    @property
    def rows(self) -> int | None:
        """Count of the rows that it added; None where that is not known."""
        return self.done.rows

    @property
    def bytes(self) -> int:
        """Bytes of the files by which it added rows; 0 where that is not known."""
        return self.done.size

    @property
    def what(self) -> str:
        """Words for what was done by whom, for messages."""
        lost = f", which took the columns {', '.join(self.lost_columns)} away" if self.lost_columns else ""
        return f"{self.operation} {self.who}{lost}"

    @property
    def who(self) -> str:
        """The one who made it and when, for messages."""
        made = from_us(min(max(self.committed_us, 0), LAST_US))
        return f"by {self.user or 'someone'} at {shown_time(made)}"

    def repeats(self, earlier: Commit) -> bool:
        """Tells whether it is another one's commit once more: it adds no file that the earlier one did not add, so it adds nothing."""
        if self.commit_id == earlier.commit_id:
            return True
        return not set(self.done.paths).isdisjoint(earlier.done.paths)

    def has_record(self, key: str) -> bool:
        """Tells whether its userMetadata is a record of ours with this key."""
        return f'"{key}"' in (self.user_metadata or "")


def read_record(user_metadata: str | None, key: str, version: int, make: Callable[[Mapping[str, Any]], T]) -> T | None:
    """Makes a value of the record with this key that a commit's userMetadata is, by `make`; None if it is no such record.

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


def of_info(version: int, info: Mapping[str, Any], commit_id: str, actions: Actions | None = None) -> Commit:
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
        actions,
    )


def of_file(version: int, lines: Iterable[str]) -> Commit:
    """A commit from the lines of its file. Raises RetryableError for a file that is not whole: it may be on its way."""
    try:
        return _of_file(version, list(lines))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise RetryableError(
            f"the file of commit {version} of a log is not whole: {first_line(error)}", code=Reason.DAMAGED
        ) from None


def _of_file(version: int, lines: list[str]) -> Commit:
    found = [json.loads(line) for line in lines if line.strip()]
    info: Mapping[str, Any] = next((one["commitInfo"] for one in found if "commitInfo" in one), {})
    return of_info(version, info, str(info.get("txnId") or _digest(lines)), actions_of(found))


def _digest(lines: list[str]) -> str:
    """Names a commit whose writer gave it no transaction id: the whole file does."""
    kept = [line.rstrip("\r\n") for line in lines]
    while kept and not kept[-1]:
        kept.pop()  # what is behind the last line's end is a line to some readers
    return f"sha256:{hashlib.sha256(chr(10).join(kept).encode()).hexdigest()}"


def of_history(row: Mapping[str, Any]) -> Commit:
    """A commit from a row of DESCRIBE HISTORY, as `collected` gives it, of a log that cannot be read by name. There its timestamp names it: such tables
    have in-commit timestamps, which grow with each commit and are part of it."""
    return Commit(
        row["version"],
        f"at:{row['timestamp'].isoformat()}",
        row["operation"],
        _texts(row["operationParameters"]),
        _counts(row["operationMetrics"]),
        row["userMetadata"],
        in_us(row["timestamp"]),
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
