"""The routing rule once more, and a row's digest, as columns: an auditor shares no code with what it audits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from geo.delta.columns import may_be_equal
from geo.ids import LEDGER_ID_LIMIT
from geo.late import F
from geo.late import spark_types as T
from geo.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ID = ("origin", "ledger_id", "entry_id")

CROSSING_MARKERS = ("SNAPSHOT_REQUEST", "SNAPSHOT_RESPONSE", "SUBSCRIPTION_UPDATE")
"""Markers meant for other clusters. They cross by stream and never by reconcile, so a lack of one is no fault."""


AHEAD_US = 86_400 * 1_000_000
"""A row that was published later than so long after now was published by nobody."""


def differing(logs: Iterable[T.StructType]) -> dict[str, Sequence[T.DataType]]:
    """The types of columns that have another one in another log, by their names in small letters. A value of one may be one of
    another: a wider type that has not come everywhere, or one that a person accepted. Case tells no columns apart.
    """
    found: dict[str, dict[str, T.DataType]] = {}
    for column in (column for log in logs for column in log):
        found.setdefault(column.name.lower(), {})[column.dataType.simpleString()] = column.dataType
    return {name: [of[text] for text in sorted(of)] for name, of in found.items() if len(of) > 1 and may_be_equal(of.values())}


def facts(rows: DataFrame, expired_before_us: int | None, now_us: int, kinds: Mapping[str, Sequence[T.DataType]]) -> DataFrame:
    """A log's rows, with what has to be known of each, at `now_us`. `kinds`: as `differing`.

    Columns: the id, digest BINARY, and of the row alone is_message, may_cross (marker rules), has_expired and is_impossible BOOLEAN, replicate_to
    ARRAY<STRING>, publish_time TIMESTAMP. No BOOLEAN is NULL.
    """
    has_expired = F.lit(False)
    if expired_before_us is not None:
        horizon = F.timestamp_micros(F.lit(expired_before_us).cast("long"))
        has_expired = true(F.col("publish_time") < horizon)
    ledger, entry, time = F.col("ledger_id"), F.col("entry_id"), F.unix_micros("publish_time")
    has_id = true((ledger > 0) & (ledger < LEDGER_ID_LIMIT) & (entry >= 0))
    in_time = F.col("publish_time").isNull() | ((time >= 0) & (time <= now_us + AHEAD_US))
    return rows.select(
        *ID,
        _digest(rows.schema, kinds).alias("digest"),
        F.col("marker").isNull().alias("is_message"),
        (F.col("marker").isNull() | true(F.col("marker").isin(*CROSSING_MARKERS))).alias("may_cross"),
        has_expired.alias("has_expired"),
        (~has_id | ~in_time).alias("is_impossible"),
        "replicate_to",
        "publish_time",
    )


def addressed(replicate_to: Column, target: str) -> Column:
    """NULL is every cluster, an empty list none."""
    return replicate_to.isNull() | true(F.array_contains(replicate_to, target))


def from_floor(floors: Mapping[str, int]) -> Column:
    """Condition that an entry is at or above its ledger's floor. A ledger without one begins at 0."""
    if not floors:
        return F.lit(True)
    # JSON, so that the plan holds one constant and not one expression for each of thousands of ledgers.
    floor = F.from_json(F.lit(json.dumps(dict(floors))), "map<string, bigint>")
    ledger = F.concat_ws(":", "origin", F.col("ledger_id").cast("string"))
    return F.col("entry_id") >= F.coalesce(F.try_element_at(floor, ledger), F.lit(0))


def _digest(schema: T.StructType, kinds: Mapping[str, Sequence[T.DataType]]) -> Column:
    """SHA-256 over all columns of a row by name, so that their order in the table does not matter. One whose types differ is there as each of
    them: values are equal if they are as all of them.

    A column that a log does not have is NULL: what a link would have to fill it with.
    """
    columns = []
    for column in sorted(schema, key=lambda column: (column.name.lower(), column.name)):
        name, own, sql = column.name.lower(), column.dataType, identifier(column.name)
        for at, kind in enumerate(kinds.get(name, (own,))):
            value = F.col(sql) if kind == own else F.expr(f"try_cast({sql} AS {kind.simpleString()})")
            columns.append(_canonical(value, kind).alias(f"{name}/{at}"))
    return F.unhex(F.sha2(F.to_json(F.struct(*columns)), 256))


def _canonical(value: Column, kind: T.DataType) -> Column:
    """A value as JSON tells it exactly: equal JSON is an equal value, and NULL is left out. Maps have no order."""
    if isinstance(kind, T.StructType):
        fields = sorted(kind, key=lambda field: field.name)
        parts = (_canonical(value.getField(field.name), field.dataType).alias(field.name) for field in fields)
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda item: _canonical(item, kind.elementType))
    if isinstance(kind, T.MapType):
        # As text, because an entry whose value is a map could not be sorted.
        entries = F.transform(
            F.map_entries(value),
            lambda e: F.to_json(
                F.struct(
                    _canonical(e.getField("key"), kind.keyType).alias("key"),
                    _canonical(e.getField("value"), kind.valueType).alias("value"),
                )
            ),
        )
        return F.array_sort(entries)
    if isinstance(kind, (T.StringType, T.BinaryType)):
        # Not the text itself: JSON would replace what is not UTF-8, and a payload would be carried in base64.
        return F.sha2(value.cast("binary"), 256)
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(value)  # a cast to STRING depends on the session's time zone, and is ambiguous in autumn
    return F.to_json(value) if isinstance(kind, T.VariantType) else value.cast("string")


def true(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))
