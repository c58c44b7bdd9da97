"""Commits that change what a table says of itself, without Spark: its properties, columns behind those that it has, and wider types of these.

Such a commit takes the next version away, as each does: whoever read an earlier one and appends then finds it taken, and looks again. That
is what a fence is (geo.coordination.ownership).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from geo.delta.columns import Growth
from geo.delta.definition import compact, has_local_times, nullable
from geo.delta.delta_state import DeltaState, state_of
from geo.delta.engine import UnsupportedError
from geo.delta.protocol import CHANGES, TYPE_WIDENING, with_feature
from geo.delta.store import WritePath
from geo.delta.writer import commit_actions
from geo.late import spark_types


def commit_properties(folder: WritePath, state: DeltaState, properties: Mapping[str, str]) -> bool:
    """Commit as the version after `state` that the table has these properties beside the others. False and errors as `put_commit`."""
    before = state.checksum["metadata"]
    after = {**before, "configuration": {**(before.get("configuration") or {}), **properties}}
    return _commit(folder, state, {"metadata": after}, "SET TBLPROPERTIES", {"properties": json.dumps(properties)})


def commit_columns(folder: WritePath, state: DeltaState, needed: Growth) -> bool:
    """Commit, as the version after `state`, columns behind those of the table, and wider types of those that it has, and may have (`why_not_grown`).
    In new columns rows of before have NULL. False and errors as `put_commit`; UnsupportedError for a type that this program does not append.
    """
    if state.is_mapped:
        raise UnsupportedError("its columns have other names in the files (column mapping), and none is added to such here")
    before, protocol = state.checksum["metadata"], state.checksum["protocol"]
    schema, wider = json.loads(before["schemaString"]), {one.name: one.dataType.jsonValue() for one in needed.widened}
    for column in schema["fields"]:
        if (kind := wider.get(column["name"])) is not None:
            told = column["metadata"]
            told[CHANGES] = [*told.get(CHANGES, ()), {"fromType": column["type"], "toType": kind}]
            column["type"] = kind
    columns = [spark_types.StructField(one.name, nullable(one.dataType), True, one.metadata) for one in needed.added]
    added = [column.jsonValue() for column in columns]
    metadata = {**before, "schemaString": compact({**schema, "fields": [*schema["fields"], *added]})}
    if wider:
        metadata["configuration"] = {**(before.get("configuration") or {}), TYPE_WIDENING: "true"}
        protocol = with_feature(protocol, "typeWidening")
    if has_local_times([*columns, *needed.widened]):
        protocol = with_feature(protocol, "timestampNtz")
    after = {"metadata": metadata, **({} if protocol is state.checksum["protocol"] else {"protocol": protocol})}
    if not wider:
        return _commit(folder, state, after, "ADD COLUMNS", {"columns": compact([{"column": one} for one in added])})
    changed = [{"column": {"name": name, "type": kind}} for name, kind in wider.items()]
    return _commit(folder, state, after, "CHANGE COLUMNS", {"columns": compact([*changed, *({"column": one} for one in added)])})


def _commit(
    folder: WritePath, state: DeltaState, after: Mapping[str, Any], operation: str, parameters: Mapping[str, str]
) -> bool:
    """`after`: what the checksum says now."""
    state_of(state.version + 1, {**state.checksum, **after})  # whoever appends next has to know what it is
    told = {"operation": operation, "operationParameters": parameters, "isBlindAppend": True, "operationMetrics": {}}
    actions = [{kind: after[name]} for name, kind in (("metadata", "metaData"), ("protocol", "protocol")) if name in after]
    return commit_actions(folder, state, told, actions, None, after)
