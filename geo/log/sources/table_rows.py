"""Turns a row of a user's own table into a message: its key, its columns, its number. Tables of Arrow in, blocks of Arrow out."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from geo.delta.plain_table import has_one_text
from geo.schemas import TOPIC_LOG
from geo.schemas.topic_log import MESSAGE_INPUT

SOURCE = "delta:table"
"""The one source partition. Not the table's place or id: another table in its place is to be told, not taken for a new one."""

TABLE, ROW = "_geo_table", "_geo_row"
"""Columns of a row's place: SOURCE, and its number, which grows."""

_ARROW = {"STRING": pa.string(), "BINARY": pa.binary(), "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string())}
_ALWAYS = {name: _ARROW[TOPIC_LOG.types[name]] for name in ("key", "payload", "properties")}
"""Columns of a message that each row has, be they NULL."""

_PLACE = ((TABLE, pa.string()), (ROW, pa.int64()))

NO_COLUMNS = pa.schema([*_PLACE, *_ALWAYS.items()])
"""Columns of a table of which none of its own is known yet."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """`key`: the column whose text is the key of a message; None: the table's own column of that name, if it has one. `order_by`: columns in whose order
    rows are put."""

    key: str | None
    order_by: tuple[str, ...]

    def why_not(self, columns: pa.Schema) -> str | None:
        """Tells why a table with these columns cannot be taken so; None: it can."""
        kinds = {field.name: field.type for field in columns}
        for name in (*self.order_by, *([self.key] if self.key else [])):
            if (kind := kinds.get(name)) is None:
                return f"it has no column {name}; it has {', '.join(kinds)}."
            if not has_one_text(kind) and (name == self.key or not pa.types.is_timestamp(kind)):  # of a time the order is exact
                return f"{name} is a {kind}, of which {'the text' if name == self.key else 'the order'} is not exact. Choose another column."
        if self.key not in (None, "key") and "key" in kinds:
            return f"it has a column `key` of its own, which would be lost where {self.key} is the key. Leave --key out, or rename it."
        return None

    def blocks(self, columns: pa.Schema) -> pa.Schema:
        """The columns of blocks, of rows with these columns."""
        own = {field.name: field.type for field in columns}
        kinds = {**_ALWAYS, **own, **({"key": pa.string()} if self.key is not None else {})}
        message = [(name, kinds[name]) for name in MESSAGE_INPUT if name in kinds]
        return pa.schema([*_PLACE, *message, *((name, kind) for name, kind in kinds.items() if name not in MESSAGE_INPUT)])

    def block(self, rows: pa.Table, first: int) -> pa.RecordBatch:
        """Rows as a block, with their numbers, `first` and those that follow."""
        made = {TABLE: pa.repeat(pa.scalar(SOURCE), len(rows)), ROW: pa.array(range(first, first + len(rows)), pa.int64())}
        if self.key is not None:
            made["key"] = rows[self.key].combine_chunks().cast(pa.string())
        schema = self.blocks(rows.schema)
        for field in schema:
            if field.name not in made:
                is_there = field.name in rows.column_names
                made[field.name] = rows[field.name].combine_chunks() if is_there else pa.nulls(len(rows), field.type)
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)

    def in_order(self, rows: pa.Table) -> pa.Table:
        """The rows in the order of `order_by`, NULL last."""
        return rows.sort_by([(name, "ascending") for name in self.order_by])
