"""Conversion of rows of a link's source into rows of its target. It goes by the columns of both logs, and by what a person accepted of those that
differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, LongType, StructField, StructType

from geo.config.choices import Updates
from geo.delta.arrow_rows import columns_in
from geo.delta.columns import Clash, Growth, goes_with, growth, is_same, sql_type
from geo.delta.ddl import add_columns, set_property
from geo.delta.definition import nullable
from geo.delta.delta_state import schema_of
from geo.delta.engine import attempt
from geo.delta.table import Table
from geo.errors import RetryableError, SchemaError
from geo.log.topic_log import ID
from geo.reasons import Reason, Wrong
from geo.sql_text import identifier
from geo.text import show

ACCEPTED_PROPERTY = "geo.types.accepted."
"""Property of a topic's log, with the name of a source behind it, as JSON. Columns whose values come from there as the log's own type, as a person
accepted, with the type that they had there then. Two sources do not write one. An older program does not know it, and its links are FAILED at such
a column.
"""

_TOO_LARGE = 2**63 - 1
"""The one BIGINT that Spark casts to FLOAT or DOUBLE and back to itself though there is none of it: 2**63 becomes this, too."""


class Shape:
    """Rows of a source as a target with these `columns` has them. A column that they lack is NULL; a value of a narrower type is the same one of
    the wider type. One of a type that was `accepted` comes if it is exactly one of the target's type."""

    def __init__(self, target: Table, columns: StructType, who: str, accepted: Sequence[Clash] = ()) -> None:
        self._target, self.columns, self._who, self._accepted = target, columns, who, accepted

    @cached_property
    def _kinds(self) -> Mapping[str, pa.DataType]:
        """The columns as Arrow has them, but for those of types that it does not have."""
        plain = (StructField(one.name, nullable(one.dataType)).jsonValue() for one in self.columns)
        found = (attempt(partial(schema_of, [one])) for one in plain)
        return {one.names[0]: one.types[0] for one in found if isinstance(one, pa.Schema)}

    def of(self, rows: DataFrame | pa.Table) -> DataFrame | pa.Table:
        """The rows. An Arrow table need not have each column.

        Raises RetryableError if the source has got columns, or other types, since both logs were compared: none is left out in silence.
        SchemaError for a value that is not exactly one of the accepted type.
        """
        if isinstance(rows, pa.Table):
            if all(field.type == self._kinds.get(field.name) for field in rows.schema):
                return rows
            given = columns_in(rows)
        else:
            given = rows.schema
        needed = self._needed(given)
        if needed or needed.clashes:
            new = [needed.told] * bool(needed) + [clash.told("in the source", "in the target") for clash in needed.clashes]
            raise RetryableError(
                f"the source has got other columns meanwhile: {', '.join(new)}. Nothing was written; the next start looks at them.",
                code=Reason.COLUMNS,
            )
        if isinstance(rows, pa.Table):
            if not self._accepted:
                return pa.table({name: rows[name].cast(self._kinds.get(name, rows[name].type)) for name in rows.column_names})
            rows = self._target.spark.createDataFrame(rows)  # whose casts are Spark's, as those of many rows
            given = rows.schema
        if given.names == self.columns.names and all(
            is_same(one.dataType, wanted.dataType) for one, wanted in zip(given, self.columns, strict=True)
        ):
            return rows
        self._refuse_inexact(rows)
        return rows.select(*(self._column(given, wanted) for wanted in self.columns))

    def _needed(self, given: StructType) -> Growth:
        found = growth(self.columns, given)
        return Growth(found.added, found.widened, tuple(one for one in found.clashes if not _is_among(one, self._accepted)))

    def _column(self, given: StructType, wanted: StructField) -> Column:
        clash = next((one for one in self._accepted if one.there.name == wanted.name), None)
        name = wanted.name if clash is None else clash.given.name
        if name not in given.names:
            return F.lit(None).alias(wanted.name)
        sql = identifier(name)
        if not is_same(given[name].dataType, wanted.dataType):
            sql = f"CAST({sql} AS {sql_type(wanted.dataType)})"
        return F.expr(sql).alias(wanted.name)

    def _refuse_inexact(self, rows: DataFrame) -> None:
        for clash in self._accepted:
            if clash.given.name not in rows.columns or goes_with(clash.given.dataType, clash.there.dataType):
                continue
            found = rows.where(inexact(clash)).select(*ID).take(1)
            if found:
                message = ":".join(map(str, found[0]))
                raise SchemaError(
                    Wrong(
                        Reason.OTHER,
                        f"{self._who}: the value of column {show(clash.given.name)} of message {message} is {clash.given.dataType.simpleString()} "
                        f"and not exactly any {clash.there.dataType.simpleString()}, as the target has it. Nothing of its commit was written",
                        "Erase the value in the source (`geo erase`), or delete the topic in the target (`geo topics delete`): the link makes it "
                        "again with the source's type",
                    )
                )


def inexact(clash: Clash) -> str:
    """SQL that tells whether a row's value is not the same as the other type."""
    given, kinds = identifier(clash.given.name), (clash.given.dataType, clash.there.dataType)
    there = f"try_cast({given} AS {sql_type(kinds[1])})"
    back = f"try_cast({there} AS {sql_type(kinds[0])})"
    same = [f"{back} = {given}", f"CAST({back} AS STRING) = CAST({given} AS STRING)"]  # -0.0 equals 0.0
    if any(isinstance(kind, (FloatType, DoubleType)) for kind in kinds):
        same += [f"{sql} <> {_TOO_LARGE}" for sql, kind in zip((given, there), kinds, strict=True) if isinstance(kind, LongType)]
    return f"{given} IS NOT NULL AND NOT coalesce({' AND '.join(same)}, false)"


def _is_among(clash: Clash, accepted: Sequence[Clash]) -> bool:
    return any(
        (one.given.name, one.there.name) == (clash.given.name, clash.there.name)
        and is_same(one.given.dataType, clash.given.dataType)
        for one in accepted
    )


def shape_for(
    target: Table,
    there: StructType,
    wanted: Sequence[StructField],
    who: str,
    source: str,
    *,
    updates: Updates = "allow",
    accept: bool = False,
) -> Shape:
    """Derives how rows of a source with these `wanted` columns of its own become rows of the target. The target had the columns `there` and has those
    that it lacked afterwards. With `accept` a person takes differences of type and case from now on, which the target's log keeps.

    Raises SchemaError, with nothing written, for a difference that nobody accepted, or can accept, or any with `updates` deny.
    """
    needed, accepted = growth(there, wanted), list[Clash]()
    if needed.clashes:
        before = json.loads(target.properties().get(ACCEPTED_PROPERTY + source, "{}"))
        taken = [one for one in needed.clashes if accept or before.get(one.given.name) == sql_type(one.given.dataType)]
        accepted = [one for one in taken if one.may_be_accepted]
        if left := [one for one in needed.clashes if one not in accepted]:
            raise SchemaError(_clashing(left, who, source, target))
    if needed and updates == "deny":
        raise SchemaError(
            Wrong(
                Reason.COLUMNS_DENIED,
                f"{who}: {source} has other columns than {target}: {needed.told}. The link says schema_updates: deny. Nothing was written, and "
                "what was brought before stays",
                "`geo topics set --add-columns` gives them to the target, then `geo links restart` lets it go on",
            )
        )
    if accept and accepted:
        now = {one.given.name: sql_type(one.given.dataType) for one in accepted}
        set_property(target, ACCEPTED_PROPERTY + source, json.dumps({**before, **now}, sort_keys=True))
    if needed:
        add_columns(target, [*needed.added, *needed.widened])
        seen = target.snapshot(again=True)
        assert seen is not None, "it was there"
        there = seen.columns
    return Shape(target, there, who, accepted)


def _clashing(clashes: Sequence[Clash], who: str, source: str, target: Table) -> Wrong:
    told = "; ".join(one.told(f"in {source}", f"in {target}") for one in clashes)
    told = f"{who}: {told}. Only new columns replicate, and types that Delta makes wider. Nothing was written, and what was brought before stays"
    apart = [show(one.given.name) for one in clashes if not one.may_be_accepted]
    if apart:
        told += f". `--accept-type` takes numbers, times or BOOLEAN among themselves and as STRING, and so not the types of {', '.join(apart)}"
        return Wrong(Reason.COLUMNS_APART, told, Reason.COLUMNS_APART.do or "")
    return Wrong(
        Reason.COLUMNS,
        told,
        "To let values come as the target's type, where they are exactly that: `geo links resolve --accept-type`. Else publish under another "
        "name, or delete the topic where it is wrong (`geo topics delete`) and let the link make it again",
    )
