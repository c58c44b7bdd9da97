"""The first version of a table of this program: what its log says of it, as Spark would say it without settings of its own. No clock and
no I/O.

Delta's PROTOCOL.md: "Change Metadata", "Protocol Evolution". Of protocol features a table gets those that its properties and columns ask for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampNTZType, VariantType

from geo.delta.arrow_rows import arrow_type
from geo.delta.commits import ENGINE
from geo.delta.derived_checksum import NOTHING
from geo.errors import UsageError
from schemas import TableSchema


def first_version(
    schema: TableSchema, extra: Iterable[StructField], own: Mapping[str, str], *, table_id: str, txn_id: str, now_ms: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The actions of the commit that makes a table, and the checksum beside it. `extra` are a typed topic's own columns, `own` properties of
    this table alone. Raises UsageError for a column of a type that a table made without Spark cannot have."""
    columns = [*columns_of(schema), *(StructField(one.name, one.dataType) for one in extra)]
    properties = schema.all_properties | dict(own)
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": compact(StructType(columns).jsonValue()),
        "partitionColumns": list(schema.partitioned_by),
        "configuration": properties,
        "createdTime": now_ms,
    }
    info = {
        "timestamp": now_ms,
        "operation": "CREATE TABLE",
        "operationParameters": {
            "partitionBy": json.dumps(list(schema.partitioned_by)),
            "clusterBy": "[]",
            "description": None,
            "isManaged": "false",
            "properties": json.dumps(properties),
        },
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {},
        "engineInfo": ENGINE,
        "txnId": txn_id,
    }
    protocol = _protocol(properties, columns)
    checksum = {
        **NOTHING,
        "txnId": txn_id,
        "metadata": metadata,
        "protocol": protocol,
    }
    return [{"commitInfo": info}, {"metaData": metadata}, {"protocol": protocol}], checksum


def compact(value: Any) -> str:
    """As Delta writes schemas and columns into its log."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def columns_of(schema: TableSchema) -> list[StructField]:
    """As a table of this schema has them, with what each is for."""
    kinds = ((column, from_arrow_type(arrow_type(column.type))) for column in schema.columns)
    return [StructField(column.name, kind, column.nullable, {"comment": column.comment}) for column, kind in kinds]


def _protocol(properties: Mapping[str, str], columns: Iterable[StructField]) -> dict[str, Any]:
    """The least that the table asks of readers and writers."""
    kinds = {type(kind) for column in columns for kind in _within(column.dataType)}
    if VariantType in kinds:
        raise UsageError("a column of type VARIANT cannot be made here; make the topic where Spark writes its log")
    needed = ["changeDataFeed"] * (properties.get("delta.enableChangeDataFeed") == "true")
    local = TimestampNTZType in kinds
    if not needed and not local:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    features = {"writerFeatures": ["invariants", *needed, "appendOnly", *(["timestampNtz"] * local)]}
    if local:
        return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"], **features}
    return {"minReaderVersion": 1, "minWriterVersion": 7, **features}


def _within(kind: DataType) -> Iterator[DataType]:
    """A type, and those of what it holds."""
    yield kind
    parts: list[DataType] = []
    if isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        parts = [field.dataType for field in kind.fields]
    for part in parts:
        yield from _within(part)
