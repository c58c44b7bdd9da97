"""The first version of a table of this program: what its log says of it, as Spark would say it without settings of its own. No clock and
no I/O.

Delta's PROTOCOL.md: "Change Metadata", "Protocol Evolution". Of protocol features a table gets those that its properties and columns ask for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from geo.delta.arrow_rows import arrow_type, parts_of
from geo.delta.commits import ENGINE
from geo.delta.derived_checksum import NOTHING
from geo.delta.protocol import with_feature
from geo.errors import UsageError
from geo.late import arrow_types, spark_types
from geo.schemas import TableSchema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField


def first_version(
    schema: TableSchema, extra: Iterable[StructField], own: Mapping[str, str], *, table_id: str, txn_id: str, now_ms: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The actions of the commit that makes a table, and the checksum beside it. `extra` are a typed topic's own columns, `own` properties of
    this table alone. Raises UsageError for a column of a type that a table made without Spark cannot have."""
    columns = [*columns_of(schema), *(spark_types.StructField(one.name, nullable(one.dataType)) for one in extra)]
    properties = schema.all_properties | dict(own)
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": compact(spark_types.StructType(columns).jsonValue()),
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
    """Encodes as Delta writes schemas and columns into its log."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def columns_of(schema: TableSchema) -> list[StructField]:
    """Columns that a table of this schema has, with what each is for."""
    kinds = ((column, arrow_types.from_arrow_type(arrow_type(column.type))) for column in schema.columns)
    return [spark_types.StructField(column.name, kind, column.nullable, {"comment": column.comment}) for column, kind in kinds]


def _protocol(properties: Mapping[str, str], columns: Iterable[StructField]) -> Mapping[str, Any]:
    """The least that the table asks of readers and writers."""
    columns = list(columns)
    if any(isinstance(kind, spark_types.VariantType) for column in columns for kind in _within(column.dataType)):
        raise UsageError("a column of type VARIANT cannot be made here; make the topic where Spark writes its log")
    needed = ["changeDataFeed"] * (properties.get("delta.enableChangeDataFeed") == "true")
    plain: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if needed:
        plain = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["invariants", *needed, "appendOnly"]}
    return with_feature(plain, "timestampNtz") if has_local_times(columns) else plain


def has_local_times(columns: Iterable[StructField]) -> bool:
    """Tells whether one of the columns has times without a zone."""
    return any(isinstance(kind, spark_types.TimestampNTZType) for column in columns for kind in _within(column.dataType))


def nullable(kind: DataType) -> DataType:
    """A type in which no value is required, as SQL makes a column of it: the first rows would say otherwise than later ones."""
    match kind:
        case spark_types.ArrayType():
            return spark_types.ArrayType(nullable(kind.elementType))
        case spark_types.MapType():
            return spark_types.MapType(nullable(kind.keyType), nullable(kind.valueType))
        case spark_types.StructType():
            return spark_types.StructType([spark_types.StructField(field.name, nullable(field.dataType)) for field in kind])
    return kind


def _within(kind: DataType) -> Iterator[DataType]:
    """A type, and those of what it holds."""
    yield kind
    for part in parts_of(kind):
        yield from _within(part)
