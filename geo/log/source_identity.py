"""Identifies a row that is being published, so that a replay publishes it once: its source partition and its offset.

Columns only; nothing is read or written here. Within a producer each source partition has an end; rows at or below it
were published. Four kinds of source, one rule:

| source | partition | offset |
|---|---|---|
| JSON lines | the file | line number |
| DataFrame with order columns | the `partition_by` column, or one | the order columns |
| DataFrame with a `publish_id` | the id | constant: all of it in one commit, once |
| any other stream | its checkpoint | the micro-batch's number |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from geo.delta.arrow_rows import rows_frame
from geo.errors import UsageError
from geo.log.ledgers import SourceEnd
from geo.sql_text import identifier, literal

_ORDERABLE = (BooleanType, DateType, DecimalType, IntegralType, StringType, TimestampNTZType, TimestampType)
"""Types whose cast to STRING and back is exact; floating point is not, and nothing else has an order users would expect."""

SOURCE, OFFSET, PUBLISHED = "_geo_source", "_geo_offset", "_geo_published"

FEW_ENDS, SHORT_NAME = 16, 1_000
"""Up to so many ends, of sources with names of up to so many characters, are a literal of the plan. Others are joined, which is a job of its own.
(Spark's JSON parser takes no name of more than 50,000.)"""

NULL_SOURCE = "\u2400"
"""The source partition of the rows whose `partition_by` is NULL. A text of such signs alone gets one more, so none is this one."""

_APART = "apart"
"""The mark of an end of '' or NULL_SOURCE: its rows are the ones with that value alone. Earlier versions put NULL and '' together, in
''; their ends have no mark."""

HASH = "_geo_hash"
"""Column of what a row contains, as one number; 0 where nobody compares it."""


@dataclass(frozen=True)
class RowIdentity:
    """The rule by which the rows of one DataFrame are identified. `source` (STRING) and `offsets` are SQL over its columns.

    `gapless`: below an end nothing may ever be added or changed (order columns). So the rows found there are counted, and with their hash compared
    with what was published. `unique`: offsets are distinct and order the entries. `marks` say more of a source partition's end, and are kept with
    it. `through`: the last offset of a source partition that the batch reads, if offsets may have no row. It then is the end, whatever the last row
    has. `is_scattered`: rows of a source partition may be in every Spark partition, of many. `source_before`: `source` as earlier versions had it,
    where that differs.
    """

    source: str
    offsets: tuple[str, ...]
    types: tuple[DataType, ...]
    unique: bool
    gapless: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)
    through: Mapping[str, int] = field(default_factory=dict)
    is_scattered: bool = False
    source_before: str | None = None
    name: str | None = None
    """The one source partition, where that is known before a row is read."""

    def continuing(self, ends: Mapping[str, SourceEnd]) -> RowIdentity:
        """The identity by which a producer goes on that has these ends. What an earlier version published under '' goes on as it was."""
        before = (len(end.parts) == len(self.types) for name in ("", NULL_SOURCE) if (end := ends.get(name)) is not None)
        if self.source_before is None or not any(before):
            return self
        return replace(self, source=self.source_before, marks={})

    def tag(
        self, rows: DataFrame, columns: StructType, former_types: Mapping[str, Sequence[DataType]] = MappingProxyType({})
    ) -> DataFrame:
        """`rows` with the columns SOURCE (string), OFFSET (struct) and HASH, of the `columns` that get into the log as well. `former_types`: of
        those that were made of a wider type those that they had before, in their order."""
        offset = _struct((f"o{at}", part) for at, part in enumerate(self.offsets))
        tags = {SOURCE: self.source, OFFSET: offset, HASH: "0L"}
        tagged = rows.selectExpr("*", *(f"{sql} AS {name}" for name, sql in tags.items() if name != HASH or not self.gapless))
        if not self.gapless:
            return tagged
        given = [field for field in columns if field.name in tagged.columns]
        return tagged.withColumn(HASH, F.expr(_hash({SOURCE: SOURCE, OFFSET: self.text}, given, former_types)))

    def encode(self, source: str, offset: Sequence[str]) -> str:
        """A source end as it is recorded. It is the JSON list of its parts, each as Spark casts it to a string, and of its mark if there is one."""
        mark = self.marks.get(source)
        parts = [str(self.through[source])] if source in self.through else offset
        return json.dumps([*parts, *([mark] if mark else [])], separators=(",", ":"))

    @cached_property
    def text(self) -> str:
        """OFFSET as the struct of strings that `encode` takes, as SQL."""
        return self.text_of(OFFSET)

    def text_of(self, offset: str) -> str:
        """An offset as that struct, as SQL."""
        return _struct((f"o{at}", f"CAST({offset}.o{at} AS STRING)") for at in range(len(self.types)))

    def _is_below(self, parts: str) -> Column:
        """True if OFFSET is at or below the offset of which these are the parts, an array of strings; not if there is none."""
        end = _struct((f"o{at}", f"CAST({parts}[{at}] AS {kind.simpleString()})") for at, kind in enumerate(self.types))
        return F.expr(f"coalesce({parts} IS NOT NULL AND {OFFSET} <= {end}, false)")

    def mark_published(self, spark: SparkSession, rows: DataFrame, ends: Mapping[str, SourceEnd]) -> DataFrame:
        """`rows` (tagged) with the boolean PUBLISHED: at or below the end of its source partition."""
        if not ends:
            return rows.withColumn(PUBLISHED, F.lit(False))
        if len(ends) <= FEW_ENDS and max(map(len, ends)) <= SHORT_NAME:
            known = literal(json.dumps({name: end.parts for name, end in ends.items()}))
            # What cannot be read must fail: it would be no end, and all that was published would be published again.
            parts = f"from_json({known}, 'map<string,array<string>>', map('mode', 'FAILFAST'))[{SOURCE}]"
            return rows.withColumn(PUBLISHED, self._is_below(parts))
        listed = [{"_geo_end_source": name, "_geo_end": end.parts} for name, end in ends.items()]
        frame = rows_frame(spark, {"_geo_end_source": "STRING", "_geo_end": "ARRAY<STRING>"}, listed)
        joined = rows.join(F.broadcast(frame), F.col(SOURCE) == F.col("_geo_end_source"), "left")
        return joined.withColumn(PUBLISHED, self._is_below("_geo_end")).drop("_geo_end_source", "_geo_end")


def by_order(rows: DataFrame, order_by: Sequence[str], partition_by: str | None) -> RowIdentity:
    """Identity by unique order columns. Raises UsageError for a column that is missing or has no exact order."""
    for name in (*order_by, *([partition_by] if partition_by else [])):
        if name not in rows.columns:
            raise UsageError(f"order column {name!r} is not in the DataFrame; it has {', '.join(rows.columns)}.")
    types = tuple(rows.schema[name].dataType for name in order_by)
    for name, kind in zip(order_by, types, strict=True):
        if not isinstance(kind, _ORDERABLE):
            raise UsageError(
                f"order column {name!r} is {kind.simpleString()}; it must be an integer, decimal, string, date or timestamp, "
                "whose order and text are exact."
            )
        if isinstance(kind, StringType) and kind != StringType():
            raise UsageError(
                f"order column {name!r} is {kind.simpleString()}, where different texts may be one: cast it to STRING."
            )
    columns = tuple(identifier(name) for name in order_by)
    if partition_by is None:
        return RowIdentity("''", columns, types, unique=True, gapless=True)
    text, null = f"CAST({identifier(partition_by)} AS STRING)", literal(NULL_SOURCE)
    apart = f"coalesce(IF({text} RLIKE '^{NULL_SOURCE}+$', concat({text}, {null}), {text}), {null})"
    return RowIdentity(
        apart, columns, types, unique=True, gapless=True, marks=dict.fromkeys(("", NULL_SOURCE), _APART), is_scattered=True,
        source_before=f"coalesce({text}, '')",
    )  # fmt: skip


def by_id(publish_id: str) -> RowIdentity:
    """Identity by a name for all the rows: one commit, once."""
    name = f"id:{publish_id}"
    return RowIdentity(literal(name), ("0",), (IntegerType(),), unique=False, name=name)


def by_batch(batch_id: int) -> RowIdentity:
    """Identity of a stream's micro-batch: its number in the stream's checkpoint."""
    return RowIdentity("'stream'", (f"{batch_id}L",), (LongType(),), unique=False)


def by_columns(
    source: str, offset: str, marks: Mapping[str, str] | None = None, through: Mapping[str, int] | None = None
) -> RowIdentity:
    """Identity that a source of ours gives: a string column and a bigint column."""
    columns = (identifier(offset),)
    return RowIdentity(identifier(source), columns, (LongType(),), unique=True, marks=marks or {}, through=through or {})


def _struct(fields: Iterable[tuple[str, str]]) -> str:
    return f"named_struct({', '.join(f'{literal(name)}, {sql}' for name, sql in fields)})"


def _hash(identity: Mapping[str, str], fields: Sequence[StructField], former_types: Mapping[str, Sequence[DataType]]) -> str:
    """Hash a row to one number, as SQL. A column that is NULL does not count, so a column that a log gets later changes nothing, nor does a wider
    type. What is of a former one hashes as that."""
    values = list(identity.items())
    for one in fields:
        sql = identifier(one.name)
        is_wide = list[str]()
        for narrow in (f"try_cast({sql} AS {kind.simpleString()})" for kind in former_types.get(one.name, ())):
            values.append((one.name, f"IF({' AND '.join([*is_wide, f'{narrow} = {sql}'])}, {narrow}, NULL)"))
            is_wide.append(f"NOT coalesce({narrow} = {sql}, false)")
        own = _hashable(sql, one.dataType)
        values.append((one.name, f"IF({' AND '.join(is_wide)}, {own}, NULL)" if is_wide else own))
    # Each with its name: a hash passes over NULL, so the same value in another column would hash alike.
    return f"xxhash64({', '.join(f'IF(({sql}) IS NOT NULL, {literal(name)}, NULL), {sql}' for name, sql in values)})"


def _hashable(sql: str, kind: DataType, depth: int = 0) -> str:
    """The same value in a type that can be hashed: a map has no order of its own and is refused."""
    one = f"_geo{depth}"
    if not _has_unhashable(kind):
        return sql
    if isinstance(kind, MapType):
        parts = (("key", kind.keyType), ("value", kind.valueType))
        entry = _struct((name, _hashable(f"{one}.{name}", of, depth + 1)) for name, of in parts)
        return f"array_sort(transform(map_entries({sql}), {one} -> {entry}))"
    if isinstance(kind, ArrayType):
        return f"transform({sql}, {one} -> {_hashable(one, kind.elementType, depth + 1)})"
    if isinstance(kind, StructType):
        fields = _struct((f.name, _hashable(f"{sql}.{identifier(f.name)}", f.dataType, depth)) for f in kind)
        return f"IF({sql} IS NOT NULL, {fields}, NULL)"
    return f"CAST({sql} AS STRING)"


def _has_unhashable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_unhashable(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_unhashable(field.dataType) for field in kind)
    return isinstance(kind, (MapType, VariantType))
