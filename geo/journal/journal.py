"""The system tables as journals: rows are appended, and of one subject the last row by the schema's `order` counts.

Nothing is overwritten, so writers never wait for each other. Off their path somebody keeps a journal small (geo.journal.upkeep).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from geo.delta.appending import append_frame, append_rows, append_rows_once
from geo.delta.arrow_rows import collected, rows_table
from geo.delta.committing import alone
from geo.delta.ddl import add_columns, create_table, find_checked, writes_here
from geo.delta.definition import columns_of
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.frames import read_stream
from geo.delta.held_files import told_at
from geo.delta.mirror import is_young, rows_now
from geo.delta.predicate import ANY_ROW, All, Among, Begins, Predicate, to_sql
from geo.delta.scan import small_rows
from geo.delta.table import Table
from geo.delta.tail import REMOTE_PRESENCE_S, Tail, passes_journal
from geo.delta.versions import committed_at, is_asked_by_name
from geo.journal.newest_rule import NewestRule
from geo.journal.rows import Row, as_row, from_row
from geo.schemas import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_R = TypeVar("_R")


class Journal:
    """One system table of a cluster. It comes into being with the first row appended."""

    def __init__(
        self,
        table: Table,
        schema: TableSchema,
        *,
        own: Callable[[], Mapping[str, str]] = dict,
        admit: Callable[[Mapping[str, str]], None] = lambda properties: None,
        is_alone: bool = False,
    ) -> None:
        """`own`: properties that it has beside those of its schema once it comes into being. `admit` raises if it is not to be
        used, by its properties. `is_alone`: nobody else appends (`alone`)."""
        self.table, self.is_alone = table, is_alone
        self.schema, self._own, self._admit = schema, own, admit
        self.rule = NewestRule(schema)
        self._there = self._is_whole = False
        self._missed_at = self._asked_at = -math.inf
        """The time when it was looked for last and not found (monotonic), and when for its first commit alone."""
        self._seen: tuple[int, float] | None = None
        """The version at which it was found, and when."""

    def __str__(self) -> str:
        return str(self.table)

    def exists(self) -> bool:
        """True once the table has come into being. Raises SchemaError if it is not ours or newer than this program, and as `admit`."""
        if self._there:
            return True
        if (now := told_at()) - self._missed_at < REMOTE_PRESENCE_S:
            if is_young(self.table, self._asked_at):
                return False
            if not self.table.has_commit(0):
                self._asked_at = now
                return False
        if (seen := find_checked(self.table, self.schema)) is not None:
            self._admit(seen.properties)
            self._there, self._seen = True, (seen.version, now)
            self._is_whole = set(self.schema.names) <= set(seen.names)
        elif is_asked_by_name(self.table):
            self._missed_at = self._asked_at = now
        return self._there

    def rows(self) -> DataFrame | None:
        """All rows ever appended, columns as the schema; None if there are none."""
        return self.rule.whole(self.table.read()) if self.exists() else None

    def make(self) -> None:
        """Make the table if it is missing, and add the columns that it lacks."""
        if not self.exists():
            create_table(self.table, self.schema, own=self._own())
        elif not self._is_whole:
            add_columns(self.table, columns_of(self.schema))
        self._is_whole = True

    def newest_rows(self) -> DataFrame | None:
        """The newest row of each subject, for Spark; None if there are none."""
        rows = self.rows()
        return None if rows is None else self.rule.newest(rows)

    def newest(self, begins: tuple[str, str] | None = None, **equal: str | Collection[str] | Collection[bytes]) -> list[Row]:
        """The newest row of each subject, among the rows whose columns `equal` these texts, or one of several. With `begins` only rows of which the
        column that it names begins with its text. Times in UTC. Without a Spark job where this process reads its log.
        """
        one_of = [Among(name, frozenset({texts} if isinstance(texts, str) else texts)) for name, texts in equal.items()]
        if not all(one.values for one in one_of):
            return []
        return self.newest_where(All((*one_of, *([] if begins is None else [Begins(*begins)]))))

    def newest_where(self, where: Predicate) -> list[Row]:
        """Read as `newest` does, among the rows that fulfil a condition."""
        began = time.monotonic()
        if not self.exists():
            return []
        names = self.schema.names
        if (small := self._small(names, where, began)) is None:
            return self._collect(self.rule.newest(self.rule.whole(self.table.read()).where(to_sql(where))))
        return [small[at] for at in self.rule.places(small)]

    def there(self) -> list[Row]:
        """All rows that are there, those too that others have replaced, where this process reads them; elsewhere as `newest`."""
        began = time.monotonic()
        if not self.exists():
            return []
        small = self._small(self.schema.names, ANY_ROW, began)
        return self.newest() if small is None else small

    def _small(self, columns: tuple[str, ...], where: Predicate, began: float) -> list[Row] | None:
        """The rows that fulfil `where`, where this process reads them; None elsewhere, and where they are many. It was found by the
        caller, who `began` then (monotonic): of what it saw just there the newest version is not looked for again."""
        mirrored = rows_now(self.table, columns, where, self._just_seen(began))
        return small_rows(self.table, columns, where) if mirrored is None else mirrored

    def _just_seen(self, began: float) -> tuple[int, float] | None:
        is_now = self._seen is not None and (self._seen[1] >= began or is_young(self.table, self._seen[1]))
        return self._seen if is_now else None

    def came_at(self) -> datetime | None:
        """Tells when the storage says that its newest commit came. None: it is not there, or there is no such clock."""
        began = time.monotonic()
        if not self.exists():
            return None
        seen = self._just_seen(began)
        return committed_at(self.table, self.table.latest_version() if seen is None else seen[0])

    def read(
        self, kind: type[_R], begins: tuple[str, str] | None = None, **equal: str | Collection[str] | Collection[bytes]
    ) -> list[_R]:
        """Read as `newest` does, as values of a dataclass (`geo.journal.rows`)."""
        return [from_row(kind, row) for row in self.newest(begins, **equal)]

    def one(self, kind: type[_R], **equal: str) -> _R | None:
        """Read as `read` does, of one subject.

        None: there is no row of it.
        """
        return next(iter(self.read(kind, None, **equal)), None)

    def values(self, column: str, numbers: Collection[int]) -> set[int]:
        """Those of the numbers that any row ever appended has in this column. Without a Spark job where this process reads its log."""
        began = time.monotonic()
        if not self.exists():
            return set()
        where = Among(column, frozenset(numbers))
        if (small := self._small((column,), where, began)) is not None:
            return {row[column] for row in small}
        there = self.table.read().select(column).where(to_sql(where)).distinct()
        return {row[column] for row in there.collect()}

    def _collect(self, rows: DataFrame) -> list[Row]:
        return collected(rows.select(*self.schema.names))

    def append(self, rows: Sequence[object], by: Callable[[Table, pa.Table], None] = append_rows) -> None:
        """Append rows, given by column name or as values of a dataclass, in one commit; without any nothing is done. `by`: what appends
        rows to a table, as `Ownership.append` does."""
        if rows:
            self.make()
            by(self.table, self._table_of(rows))

    def _table_of(self, rows: Sequence[object]) -> pa.Table:
        return rows_table(self.schema.types, [one if isinstance(one, Mapping) else as_row(one) for one in rows])

    def append_next(self, row: Mapping[str, Any]) -> int:
        """Append a row with the number after all that are there as its `sequence`, which is returned. Where there is no lock two at the same
        moment get one number."""
        with self.alone() as journal:
            number: int = max((one["sequence"] for one in journal.newest()), default=0) + 1
            journal.append([{**row, "sequence": number}])
        return number

    def append_once(self, rows: Sequence[object], transaction: tuple[str, int], token: str) -> int | None:
        """Append rows unless this Delta transaction (application id, number), or a higher number of it, was used before.

        Returns the version in which they were appended, derived from `token`, which this call alone uses, in the newest commits.
        None can also mean that a dozen commits came in the moment between; nobody else has the number then either.
        """
        self.make()
        if writes_here(self.table):
            done = attempt(lambda: append_rows_once(self.table, self._table_of(rows), token, transaction))
            if not isinstance(done, UnsupportedError):
                return done
        frame = self.table.spark.createDataFrame(self._table_of(rows)).coalesce(1)
        append_frame(self.table, frame, user_metadata=token, transaction=transaction)
        newest = self.table.latest_version()
        commits = self.table.commits(max(0, newest - 12), newest)
        return next((commit.version for commit in commits if commit.user_metadata == token), None)

    @contextmanager
    def alone(self) -> Iterator[Journal]:
        """Nobody else appends meanwhile: the journal as it is to be used inside, for rows that follow from those that are there.
        Not so (`is_alone`) where there is no lock that could see to that; there `append_once` does it."""
        with alone(self.table) as table:
            yield self if table is None else Journal(table, self.schema, own=self._own, admit=self._admit, is_alone=True)

    def append_rows(self, rows: DataFrame) -> None:
        """Append rows that Spark has, as `append` does."""
        self.make()
        append_frame(self.table, rows)

    def stream(self, settings: Mapping[str, str]) -> DataFrame:
        """The rows as they are appended, in a session of its own with these settings; the table is made if it is missing."""
        self.make()
        return read_stream(self.table, {}, settings=settings)

    def tail(self) -> Tail:
        """Follow what comes into the journal from now on, also while it is kept small. Raises RetryableError if it is not there."""
        return Tail.at_newest(self.table, passes_journal)

    def fence_by(self, fence: Callable[[Table], None]) -> None:
        """From here on nothing that an earlier owner has in flight comes into it, by a function that fences a table, as
        `Ownership.fence` does. It is made if it is missing."""
        self.make()
        fence(self.table)
