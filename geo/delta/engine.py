"""Questions about a Delta table, and who answers them: this process by the table's own files, where it knows what they mean, and else
Spark. An engine that does not know raises UnsupportedError; `attempt` alone catches that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import pyarrow as pa

from geo.delta.commits import Commit
from geo.delta.predicate import ANY_ROW, Predicate
from geo.delta.protocol import CHANGES
from geo.delta.summary import Groups, Summary
from geo.late import spark_types
from geo.sql_text import type_of
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

T = TypeVar("T")


class UnsupportedError(Exception):
    """A question that this engine leaves to another one. The text says why, after the table's name and a colon."""


def attempt(question: Callable[[], T]) -> T | UnsupportedError:
    """The answer, or why there is none."""
    try:
        return question()
    except UnsupportedError as refused:
        return refused


@contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Leaves what cannot be read here to another engine, which meets it too, and has the words for it."""
    try:
        yield
    except errors as error:
        raise UnsupportedError(f"it cannot be read: {first_line(error)}") from error


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table as it was at one look. `table_id` is Delta's: another one after the table was dropped and made again."""

    table_id: str
    version: int
    properties: Mapping[str, str]
    schema: str
    """Its columns as JSON, as Delta has them in its log."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any], version: int) -> TableSnapshot:
        """Snapshot as Delta's metadata of a version have it."""
        return cls(metadata["id"], version, metadata.get("configuration") or {}, metadata["schemaString"])

    @property
    def names(self) -> list[str]:
        """Names of its columns."""
        return [field["name"] for field in json.loads(self.schema)["fields"]]

    @property
    def types(self) -> dict[str, str]:
        """Types of its columns, by name, in SQL's words."""
        return {field["name"]: type_of(field["type"]) for field in json.loads(self.schema)["fields"]}

    @property
    def columns(self) -> StructType:
        """Columns as Spark shows them, not where they are in files."""

        def shown(told: dict[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in told.items() if not key.startswith("delta.")}

        return spark_types.StructType.fromJson(json.loads(self.schema, object_hook=shown))

    @property
    def former_types(self) -> Mapping[str, Sequence[DataType]]:
        """Types that columns had before they were made wider, in their order."""
        return {
            one["name"]: [_type_of(change["fromType"]) for change in changes]
            for one in json.loads(self.schema)["fields"]
            if (changes := one["metadata"].get(CHANGES))
        }


def _type_of(name: str) -> DataType:
    field = {"name": "", "type": name, "nullable": True, "metadata": {}}
    return spark_types.StructField.fromJson(field).dataType


@dataclass(frozen=True, slots=True)
class Scan(Generic[T]):
    """A question about rows, of which `each` makes something: as `geo.delta.scan.scan` is asked."""

    columns: Sequence[str]
    each: Callable[[pa.Table], T]
    where: Predicate = ANY_ROW
    combine: Callable[[Iterable[T]], T] | None = None
    by: Sequence[str] = ()


class Engine:
    """Answers questions about one table. Each raises UnsupportedError when it is asked, not later; an engine says what it knows."""

    # -- its log ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> TableSnapshot | None:
        """The table as it is now; None if there is none."""
        _refuse()

    def newest(self) -> int:
        """The newest version of a table that exists."""
        _refuse()

    def has_commit(self, version: int) -> bool:
        """Tells whether a commit is there, by its name alone."""
        _refuse()

    def commits(self, first: int, last: int, only: Sequence[str], has_commit: Callable[[int], bool]) -> Iterator[Commit]:
        """The commits `first` to `last`, oldest first, those that are there. With `only`, a userMetadata with none of these keys may be
        left out (None). `has_commit` tells names for less than reading them."""
        _refuse()

    def committed_at(self, version: int) -> datetime | None:
        """Tells when the storage says that a commit came; None if the commit is gone, and where there is no such clock."""
        _refuse()

    def count_files(self) -> int:
        """Counts the files of its rows now."""
        _refuse()

    # -- its rows --------------------------------------------------------------------------------------------------

    def count_nulls(self, version: int, column: str) -> int:
        """Counts the rows that have NULL in a column at a version."""
        _refuse()

    def last_rows(self, columns: Sequence[str], order: Sequence[str], count: int, *, where_null: str) -> list[dict[str, Any]]:
        """The last `count` rows by the columns `order`, of which the first is a time, among those with NULL in one column. The last one comes
        first. They have these columns, those of `order` among them, as `geo.delta.arrow_rows.plain_values` has them."""
        _refuse()

    def summarise(self, version: int, summary: Summary) -> Groups:
        """The answer to a question about the rows at a version."""
        _refuse()

    def rows_where(self, version: int, columns: Sequence[str], where: Predicate) -> pa.Table:
        """The rows at a version that fulfil a condition, in no order: these columns."""
        _refuse()

    def scan(self, version: int, asked: Scan[T]) -> list[T]:
        """Applies `each` to every batch of the rows at a version, in no order."""
        _refuse()


def _refuse() -> NoReturn:
    raise UnsupportedError("this engine does not answer that")
