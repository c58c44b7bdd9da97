"""Makes a table as Spark made one of the same definition before in this process, without Spark. A tenth of a second and more becomes a few
milliseconds.

What a first version has to say of a table, its protocol among it, is Delta's business and follows from settings of its own
(`spark.databricks.delta.properties.defaults.*`). So the first one is Spark's, and those after it say the same, also if somebody changes such a
setting while the process runs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from geo.crash import CrashPoint, reach
from geo.delta.commits import commit_file
from geo.delta.definition import first_version
from geo.delta.delta_state import newest_state, state_of
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.put_commit import put_checksum, put_commit
from geo.delta.store import ReadPath, WritePath
from geo.errors import DamagedError, UsageError
from geo.now import now_us
from geo.schemas import TableSchema

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


@dataclass(frozen=True, slots=True)
class FirstVersion:
    """The first version of a table without rows: the actions of its commit, and the checksum beside it."""

    actions: tuple[dict[str, Any], ...]
    checksum: dict[str, Any]


_first_versions: dict[str, FirstVersion] = {}
"""First versions of tables that Spark made in this process, by their definitions."""

_MOST = 100
"""Definitions that are remembered, some kilobytes each: typed topics have columns of their own."""


def learn(folder: ReadPath, definition: str, own: Collection[str] = ()) -> None:
    """Remember a table that Spark has just made, whose `_delta_log` is `folder`, if it is such as this process appends to by itself.
    `own`: its properties that are not part of the definition."""
    state = newest_state(folder)
    if state is None or state.version != 0:
        return
    with suppress(OSError, ValueError, DamagedError):
        actions = tuple(json.loads(line) for line in (folder / commit_file(0)).lines())
        if sorted(kind for action in actions for kind in action) == ["commitInfo", "metaData", "protocol"]:
            if len(_first_versions) >= _MOST:
                _first_versions.clear()
            plain = tuple({kind: _without(fields, own) for kind, fields in action.items()} for action in actions)
            checksum = dict(state.checksum)
            _first_versions[definition] = FirstVersion(plain, checksum | {"metadata": _without(checksum["metadata"], own)})


def _without(fields: dict[str, Any], own: Collection[str]) -> dict[str, Any]:
    """An action without properties of its table."""
    if "configuration" not in fields:
        return fields
    return fields | {"configuration": {key: value for key, value in fields["configuration"].items() if key not in own}}


def make_first(folder: WritePath, schema: TableSchema, extra: Iterable[StructField], own: Mapping[str, str]) -> bool:
    """Make a table whose `_delta_log` is `folder`. False, and nothing was done, if anything is there. Raises OSError, UnknownAnswerError, and as
    `refuse_first` and `first_version`."""
    actions, checksum = _first(folder, schema, extra, own)
    if not folder.store.begin_log(str(folder)) or not put_commit(folder, 0, actions):
        return False
    reach(CrashPoint.TABLE_COMMITTED)
    put_checksum(folder, 0, checksum)
    return True


def refuse_first(folder: ReadPath, schema: TableSchema, extra: Iterable[StructField]) -> None:
    """Raises UsageError for columns with which `make_first` makes no table."""
    _first(folder, schema, extra, {})


def _first(
    folder: ReadPath, schema: TableSchema, extra: Iterable[StructField], own: Mapping[str, str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    extra = list(extra)
    table_id, txn_id = str(uuid.uuid4()), str(uuid.uuid4())
    actions, checksum = first_version(schema, extra, own, table_id=table_id, txn_id=txn_id, now_ms=now_us() // 1000)
    if isinstance(refused := attempt(lambda: state_of(0, checksum)), UnsupportedError):
        raise UsageError(
            f"{folder.parent}: {refused}, so it cannot be written where this program writes by itself. Nothing was made."
        )
    return actions, checksum


def make(folder: WritePath, definition: str, own: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Make a table whose `_delta_log` is `folder`, as Spark has made one of that definition, with properties of its `own` beside.
    False, and no table was made, where it has made none, anything is there, or it cannot be made here.

    Whoever calls holds the table's lock.
    """
    first = _first_versions.get(definition)
    if first is None:
        return False
    table_id, transaction, now_ms = str(uuid.uuid4()), str(uuid.uuid4()), now_us() // 1000
    configuration = first.checksum["metadata"].get("configuration", {}) | own
    of_info = {"txnId": transaction, "timestamp": now_ms}
    of_table = {"id": table_id, "createdTime": now_ms, "configuration": configuration}
    changed: dict[str, dict[str, Any]] = {"commitInfo": of_info, "metaData": of_table}
    actions = [{kind: fields | changed.get(kind, {}) for kind, fields in action.items()} for action in first.actions]
    checksum = first.checksum | {"txnId": transaction, "metadata": first.checksum["metadata"] | of_table}
    try:
        if not folder.store.begin_log(str(folder)) or not put_commit(folder, 0, actions):
            return False
    except OSError:  # Spark meets it too, and its errors are known
        return False
    reach(CrashPoint.TABLE_COMMITTED)
    put_checksum(folder, 0, checksum)
    return True
