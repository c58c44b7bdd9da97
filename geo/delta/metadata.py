"""Commits that change what a table says of itself, without Spark: its properties, and columns behind those that it has.

Such a commit takes the next version away, as each does: whoever read an earlier one and appends then finds it taken, and looks again. That
is what a fence is (geo.coordination.ownership).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from geo.delta.columns import refuse_twins
from geo.delta.definition import compact, has_local_times, nullable
from geo.delta.delta_state import DeltaState, state_of
from geo.delta.engine import UnsupportedError
from geo.delta.protocol import with_local_times
from geo.delta.store import WritePath
from geo.delta.writer import commit_actions
from geo.late import spark_types

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


def commit_properties(folder: WritePath, state: DeltaState, properties: Mapping[str, str]) -> bool:
    """Commit as the version after `state` that the table has these properties beside the others. False and errors as `put_commit`."""
    before = state.checksum["metadata"]
    after = {**before, "configuration": {**(before.get("configuration") or {}), **properties}}
    return _commit(folder, state, {"metadata": after}, "SET TBLPROPERTIES", {"properties": json.dumps(properties)})


def commit_columns(folder: WritePath, state: DeltaState, columns: Sequence[StructField]) -> bool:
    """Commit as the version after `state` that the table has these columns behind its others; rows of before have NULL there. False and errors
    as `put_commit` and `refuse_twins`; UnsupportedError for a column of a type that this program does not append."""
    refuse_twins(folder.parent, [*state.schema.names, *(one.name for one in columns)])
    if state.is_mapped:
        raise UnsupportedError("its columns have other names in the files (column mapping), and none is added to such here")
    columns = [spark_types.StructField(one.name, nullable(one.dataType), True, one.metadata) for one in columns]
    before = state.checksum["metadata"]
    schema, added = json.loads(before["schemaString"]), [column.jsonValue() for column in columns]
    after = {"metadata": {**before, "schemaString": compact({**schema, "fields": [*schema["fields"], *added]})}}
    protocol = state.checksum["protocol"]
    if has_local_times(columns) and "timestampNtz" not in (protocol.get("readerFeatures") or ()):
        after["protocol"] = with_local_times(protocol)
    return _commit(folder, state, after, "ADD COLUMNS", {"columns": compact([{"column": one} for one in added])})


def _commit(
    folder: WritePath, state: DeltaState, after: Mapping[str, Any], operation: str, parameters: Mapping[str, str]
) -> bool:
    """`after`: what the checksum says anew."""
    state_of(state.version + 1, {**state.checksum, **after})  # whoever appends next has to know what it is
    told = {"operation": operation, "operationParameters": parameters, "isBlindAppend": True, "operationMetrics": {}}
    actions = [{kind: after[name]} for name, kind in (("metadata", "metaData"), ("protocol", "protocol")) if name in after]
    return commit_actions(folder, state, told, actions, None, after)
