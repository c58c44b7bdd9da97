"""The system tables as journals: rows are appended, and of one subject the last row by the schema's `order` counts.

Nothing is overwritten, so writers never wait for each other. Off their path somebody keeps a journal small (`clean`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from geo.delta.arrow_rows import collected, rows_table
from geo.delta.cut import KEEP_OF_JOURNAL, LogReader, cut_below
from geo.delta.definition import columns_of
from geo.delta.delta_log import read_folder, remove_below
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.held_files import told_at
from geo.delta.mirror import is_young, may_be_old, rows_now
from geo.delta.predicate import ANY_ROW, All, Among, Begins, Predicate, to_sql
from geo.delta.predicate_arrow import kept
from geo.delta.rewrite import replace_rows
from geo.delta.scan import few_rows, small_rows
from geo.delta.table import Table
from geo.delta.tail import REMOTE_PRESENCE_S, Tail, passes_journal
from geo.journal.rows import Row, as_row, from_row
from geo.late import F
from geo.schemas import TableSchema
from geo.schemas.table import VERSION_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_R = TypeVar("_R")

VACUUM_FILES = 100
"""Looking for files to remove takes a second; fewer than this disturb nobody."""


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
        self._schema, self._own, self._admit = schema, own, admit
        self._there = self._is_whole = False
        self._missed_at = self._asked_at = -math.inf
        """When it was looked for last and not found (monotonic), and when for its first commit alone."""
        self._seen: tuple[int, float] | None = None
        """The version at which it was found, and when."""

    def __str__(self) -> str:
        return str(self.table)

    def exists(self) -> bool:
        """Whether it has come into being. Raises SchemaError if it is not ours or newer than this program, and as `admit`."""
        if self._there:
            return True
        if (now := told_at()) - self._missed_at < REMOTE_PRESENCE_S:
            if is_young(self.table, self._asked_at):
                return False
            if not self.table.has_commit(0):
                self._asked_at = now
                return False
        if (seen := self.table.find_checked(self._schema)) is not None:
            self._admit(seen.properties)
            self._there, self._seen = True, (seen.version, now)
            self._is_whole = set(self._schema.names) <= set(seen.names)
        elif self.table.is_asked_by_name:
            self._missed_at = self._asked_at = now
        return self._there

    def rows(self) -> DataFrame | None:
        """All rows ever appended, columns as the schema; None if there are none."""
        return self._whole(self.table.read()) if self.exists() else None

    def _whole(self, rows: DataFrame) -> DataFrame:
        """Rows with the columns that the table lacks."""
        lacking = {c.name: F.lit(None).cast(c.type) for c in self._schema.columns if c.added and c.name not in rows.columns}
        return rows.withColumns(lacking) if lacking else rows

    def _make(self) -> None:
        """Make the table if it is missing, and add the columns that it lacks."""
        if not self.exists():
            self.table.create(self._schema, own=self._own())
        elif not self._is_whole:
            self.table.add_columns(columns_of(self._schema))
        self._is_whole = True

    def newest_rows(self) -> DataFrame | None:
        """The newest row of each subject, for Spark; None if there are none."""
        rows = self.rows()
        return None if rows is None else self._newest_of(rows)

    def newest(self, begins: tuple[str, str] | None = None, **equal: str | Collection[str] | Collection[bytes]) -> list[Row]:
        """The newest row of each subject, among the rows whose columns `equal` these texts, or one of several, and of which the column
        that `begins` names begins with its text; times in UTC. Without a Spark job where this process reads its log."""
        one_of = [Among(name, frozenset({texts} if isinstance(texts, str) else texts)) for name, texts in equal.items()]
        if not all(one.values for one in one_of):
            return []
        return self.newest_where(All((*one_of, *([] if begins is None else [Begins(*begins)]))))

    def newest_where(self, where: Predicate) -> list[Row]:
        """As `newest`, among the rows that fulfil a condition."""
        began = time.monotonic()
        if not self.exists():
            return []
        names = self._schema.names
        if (small := self._small(names, where, began)) is None:
            return self._collect(self._newest_of(self._whole(self.table.read()).where(to_sql(where))))
        return [small[at] for at in self._last_of(small)]

    def there(self) -> list[Row]:
        """All rows that are there, those too that others have replaced, where this process reads them; elsewhere as `newest`."""
        began = time.monotonic()
        if not self.exists():
            return []
        small = self._small(self._schema.names, ANY_ROW, began)
        return self.newest() if small is None else small

    def _last_of(self, rows: Sequence[Row]) -> list[int]:
        """Which of some rows are the last ones of their subjects."""
        last: dict[tuple[Any, ...], int] = {}
        for at, one in enumerate(rows):
            subject = tuple(_hashable(one[name]) for name in self._schema.subject)
            if subject not in last or self._schema.order_of(one) >= self._schema.order_of(rows[last[subject]]):
                last[subject] = at
        return list(last.values())

    def _small(self, columns: tuple[str, ...], where: Predicate, began: float) -> list[Row] | None:
        """The rows that fulfil `where`, where this process reads them; None elsewhere, and where they are many. It was found by the
        caller, who `began` then (monotonic): of what it saw just there the newest version is not looked for again."""
        mirrored = rows_now(self.table, columns, where, self._just_seen(began))
        return small_rows(self.table, columns, where) if mirrored is None else mirrored

    def _just_seen(self, began: float) -> tuple[int, float] | None:
        is_now = self._seen is not None and (self._seen[1] >= began or is_young(self.table, self._seen[1]))
        return self._seen if is_now else None

    def came_at(self) -> datetime | None:
        """When the storage says that its newest commit came. None: it is not there, or there is no such clock."""
        began = time.monotonic()
        if not self.exists():
            return None
        seen = self._just_seen(began)
        return self.table.committed_at(self.table.latest_version() if seen is None else seen[0])

    def read(
        self, kind: type[_R], begins: tuple[str, str] | None = None, **equal: str | Collection[str] | Collection[bytes]
    ) -> list[_R]:
        """As `newest`, as values of a dataclass (`geo.journal.rows`)."""
        return [from_row(kind, row) for row in self.newest(begins, **equal)]

    def one(self, kind: type[_R], **equal: str) -> _R | None:
        """As `read`, of one subject; None: there is no row of it."""
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

    def _newest_of(self, rows: DataFrame) -> DataFrame:
        """Of the rows of each subject the last. Columns as `rows`."""
        last = F.max_by(F.struct(*self._schema.names), F.struct(*self._schema.order))
        return rows.groupBy(*self._schema.subject).agg(last.alias("row")).select("row.*")

    def _collect(self, rows: DataFrame) -> list[Row]:
        return collected(rows.select(*self._schema.names))

    def append(self, rows: Sequence[object], by: Callable[[Table, pa.Table], None] = Table.append_rows) -> None:
        """Append rows, given by column name or as values of a dataclass, in one commit; without any nothing is done. `by`: what appends
        rows to a table, as `Ownership.append` does."""
        if rows:
            self._make()
            by(self.table, self._table_of(rows))

    def _table_of(self, rows: Sequence[object]) -> pa.Table:
        return rows_table(self._schema.types, [one if isinstance(one, Mapping) else as_row(one) for one in rows])

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
        self._make()
        if self.table.writes_here:
            done = attempt(lambda: self.table.append_rows_once(self._table_of(rows), token, transaction))
            if not isinstance(done, UnsupportedError):
                return done
        frame = self.table.spark.createDataFrame(self._table_of(rows)).coalesce(1)
        self.table.append(frame, user_metadata=token, transaction=transaction)
        newest = self.table.latest_version()
        commits = self.table.commits(max(0, newest - 12), newest)
        return next((commit.version for commit in commits if commit.user_metadata == token), None)

    @contextmanager
    def alone(self) -> Iterator[Journal]:
        """Nobody else appends meanwhile: the journal as it is to be used inside, for rows that follow from those that are there.
        Not so (`is_alone`) where there is no lock that could see to that; there `append_once` does it."""
        with self.table.alone() as table:
            yield self if table is None else Journal(table, self._schema, own=self._own, admit=self._admit, is_alone=True)

    def stand(self) -> tuple[int, Hashable] | None:
        """Its newest version, and what tells that commit's file from one in its place. None where it is not there, or on no store that this
        process writes."""
        if not self.exists() or self.table.log_folder is None:
            return None
        version = self.table.latest_version()
        stamp = self.table.commit_stamp(version)
        return None if stamp is None else (version, stamp)

    def stands_at(self, stand: tuple[int, Hashable], *, long_ago: bool = True) -> bool:
        """Whether nothing has come into it since it stood there: a look at two names, unless it was `long_ago` at one where that is a request."""
        version, stamp = stand
        if self.table.has_commit(version + 1):
            return False
        return not (long_ago or self.table.is_near) or self.table.commit_stamp(version) == stamp

    def files(self) -> int:
        """How many files its rows are in. Without a Spark job where this process reads its log."""
        return self.table.count_files() if self.exists() else 0

    def clean(self, keep: Predicate = ANY_ROW, *, dry_run: bool = False) -> int:
        """Replace all rows by the newest of each subject that fulfil `keep`, in one commit and one file. Returns how many go. Few rows without
        a Spark job, where this process reads its log.

        An append that comes between stays (`replace_rows`).
        """
        if not self.exists():
            return 0

        def few(rows: pa.Table) -> pa.Table:
            told = rows.select(list(dict.fromkeys((*self._schema.subject, *self._schema.order)))).to_pylist()
            return kept(keep, rows.take(pa.array(self._last_of(told), pa.int64())))

        def many(rows: DataFrame) -> DataFrame:
            return self._newest_of(self._whole(rows)).where(to_sql(keep))

        if (there := few_rows(self.table, self.table.latest_version())) is not None:
            superseded = len(there) - len(few(there))
        else:
            superseded = (rows := self.table.read()).count() - many(rows).count()
        if not dry_run and (superseded or self.files() > 1):
            self._make()
            replace_rows(self.table, many, few)
        return superseded

    def keep(self, where: str) -> None:
        """Keep the rows that fulfil this (SQL), in one file and one commit. What is appended meanwhile stays, and streams do not see
        it."""
        if self.exists():
            replace_rows(self.table, lambda rows: self._whole(rows).where(where))

    def append_rows(self, rows: DataFrame) -> None:
        """As `append`, of rows that Spark has."""
        self._make()
        self.table.append(rows)

    def replace(self, make: Callable[[DataFrame], DataFrame]) -> None:
        """Replace its rows by what `make` makes of the newest one of each subject, in one file and one commit. What is appended meanwhile
        stays. The journal exists."""
        replace_rows(self.table, lambda rows: make(self._newest_of(self._whole(rows))))

    def upgrade(self) -> None:
        """Let the table, which exists, have the version of its schema: programs that know only those before refuse it from now on."""
        stored = self.table.properties().get(VERSION_PROPERTY, "")
        if stored.isdigit() and int(stored) < self._schema.version:  # a later program's stays, which nobody looked for since
            self.table.set_property(VERSION_PROPERTY, str(self._schema.version))

    def stream(self, settings: Mapping[str, str]) -> DataFrame:
        """The rows as they are appended, in a session of its own with these settings; the table is made if it is missing."""
        self._make()
        return self.table.read_stream({}, settings=settings)

    def tail(self) -> Tail:
        """What comes into it from now on, also while it is kept small. Raises RetryableError if it is not there."""
        return Tail.at_newest(self.table, passes_journal)

    def fence_by(self, fence: Callable[[Table], None]) -> None:
        """From here on nothing that an earlier owner has in flight comes into it, by a function that fences a table, as
        `Ownership.fence` does. It is made if it is missing."""
        self._make()
        fence(self.table)

    def cut(self, readers: Collection[LogReader] = ()) -> int:
        """Let old commits go, which nobody else looks at; returns how many. Where no port is Delta's own clean-up does
        it."""
        folder = self.table.log_folder if self.exists() else None
        if folder is None:
            return 0
        found = read_folder(folder)
        return remove_below(folder, found, cut_below(found.newest, found.checkpoints, readers, keep=KEEP_OF_JOURNAL).below)

    def vacuum(self) -> None:
        """Remove the files that no version within the table's retention needs, on a local disk only if there are many files; and what a
        process left there that died while Spark wrote."""
        if not self.exists():
            return
        near = self.table.log_folder if self.table.is_near else None
        if near is None or sum(name.endswith(".parquet") for name in near.parent.names()) > VACUUM_FILES:
            self.table.vacuum()
        else:
            self.table.sweep()


class Watched(Generic[_R]):
    """What somebody reads in a journal, read again only when something has come into it."""

    def __init__(self, journal: Journal, read: Callable[[], _R]) -> None:
        self._journal, self._read = journal, read
        self._known: tuple[tuple[int, Hashable] | None, _R] | None = None
        self.looked_at = self._stamped_at = -math.inf
        """When what it tells was so (monotonic): a look that failed is none."""

    def now(self) -> _R:
        if self._known is not None and is_young(self._journal.table, self.looked_at):
            return self._known[1]
        now = told_at()
        long_ago = now - self._stamped_at >= REMOTE_PRESENCE_S
        if self._known is not None and self._known[0] is not None and self._journal.stands_at(self._known[0], long_ago=long_ago):
            self.looked_at, self._stamped_at = now, now if long_ago else self._stamped_at
            return self._known[1]
        with may_be_old(0.0):  # rows that are older than the stand would stay as long as that does
            stand = self._journal.stand()
            found = self._read()  # what comes in between is read twice
        self._known, self.looked_at, self._stamped_at = (stand, found), now, now
        return found


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
