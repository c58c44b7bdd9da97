"""What the newest version of a Delta table whose files this process reads is made of, from the checksum that Delta leaves beside a commit.

Only tables that this program can read and append to by itself, file by file: None of anything else, which is left to Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from geo.errors import DamagedError
from geo.tables.delta_log import newest_version
from geo.tables.places import Place, is_known_to_deltalake
from geo.tables.sums import read_checked

_FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed", "checkConstraints"})
"""Features of a writer that ask nothing of an append, as long as the table has no constraint. With the change feed on, added
files are the feed."""

_LEAST_WRITERS = range(1, 5)
"""Versions of the protocol that name no features: what they bring beside those, columns and settings tell."""

_CHECKPOINT_INTERVAL = 10
"""Of a table that does not say."""

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
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The newest version of a table, as its checksum has it. Partitions are dates."""

    version: int
    table_id: str
    schema: pa.Schema
    """Its columns, in order, with the partition columns."""
    partition_by: tuple[str, ...]
    statistics_of: frozenset[str]
    """The columns of which this program gives the log statistics: those that the table names, none if it names none."""
    checkpoint_interval: int
    checksum: Mapping[str, Any]


def newest_state(folder: Place) -> DeltaState | None:
    """The newest version of the table whose `_delta_log` is `folder`; None where that takes more than is known here, or cannot be
    told."""
    newest = newest_version(folder)
    if newest is None or not is_known_to_deltalake(folder):
        return None
    try:
        checksum = json.loads(read_checked(folder / f"{newest:020}.crc"))
        with (folder / f"{newest:020}.json").open(encoding="utf-8") as lines:
            written_by = json.loads(lines.readline()).get("commitInfo", {}).get("txnId")
        metadata, protocol = checksum["metadata"], checksum["protocol"]
        if not written_by or checksum.get("txnId") != written_by or not _is_known(protocol, metadata.get("configuration") or {}):
            return None
        schema, partition_by = _schema(json.loads(metadata["schemaString"])["fields"]), tuple(metadata["partitionColumns"])
        if schema is None or any(schema.field(name).type != pa.date32() for name in partition_by):
            return None
        interval = int(metadata["configuration"].get("delta.checkpointInterval", _CHECKPOINT_INTERVAL))
        named = metadata["configuration"].get("delta.dataSkippingStatsColumns", "")
        statistics_of = frozenset(name.strip() for name in named.split(",")).intersection(schema.names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DamagedError):
        return None
    return DeltaState(newest, metadata["id"], schema, partition_by, statistics_of, interval, checksum)


def _is_known(protocol: Mapping[str, Any], configuration: Mapping[str, str]) -> bool:
    features = protocol.get("writerFeatures")
    known = protocol["minWriterVersion"] in _LEAST_WRITERS if features is None else _FEATURES.issuperset(features)
    constrained = any(key.startswith("delta.constraints.") for key in configuration)
    return protocol["minReaderVersion"] == 1 and known and not constrained


def _schema(columns: Sequence[Mapping[str, Any]]) -> pa.Schema | None:
    """The columns as Arrow has them; None if one is of another kind, or is filled or checked by a rule."""
    fields = []
    for column in columns:
        kind = _type(column["type"])
        if kind is None or not {"comment"}.issuperset(column["metadata"]):
            return None
        fields.append(pa.field(column["name"], kind, nullable=column["nullable"]))
    return pa.schema(fields)


def _type(kind: Any) -> pa.DataType | None:
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW.get(kind)
    if kind["type"] == "array" and (item := _type(kind["elementType"])) is not None:
        return pa.list_(item)
    if kind["type"] == "map":
        key, value = _type(kind["keyType"]), _type(kind["valueType"])
        return pa.map_(key, value) if key is not None and value is not None else None
    return None
