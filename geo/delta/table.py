"""A Delta table by path or catalog name: create, check, read, append.

Nothing here knows about clusters, messages, links or producers.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from copy import copy
from datetime import datetime
from functools import cached_property, partial, reduce
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import pyarrow as pa

from geo.crash import CrashPoint, reach
from geo.delta.arrow_rows import columns_in
from geo.delta.change import Change, commit_change, conflict_since, may_change
from geo.delta.columns import Growth, growth, sql_type, why_not, why_not_grown
from geo.delta.commits import KEPT, Commit
from geo.delta.create import learn, make, make_first, refuse_first
from geo.delta.definition import has_local_times
from geo.delta.delta_log import commit_stamp, newest_version
from geo.delta.delta_state import DeltaState, newest_state, require_state
from geo.delta.disk_store import DiskPath, disk_of, path_of
from geo.delta.driver import Driver
from geo.delta.durable import sync_commits, sync_left
from geo.delta.engine import Engine, Seen, UnsupportedError, attempt
from geo.delta.engines.native.engine import NativeEngine
from geo.delta.engines.opened import Opened, opened
from geo.delta.engines.spark.engine import MISSING, SparkEngine
from geo.delta.engines.spark.files import have_types, no_pattern, staged, sweep, write
from geo.delta.engines.spark.task_files import write_by_tasks, write_files_by_tasks
from geo.delta.file_rows import FileRows
from geo.delta.files import SmallFiles
from geo.delta.locks import table_lock
from geo.delta.metadata import commit_columns, commit_properties
from geo.delta.protocol import TYPE_WIDENING, is_mapped
from geo.delta.store import WritePath
from geo.delta.writer import (
    Added,
    Written,
    commit_files,
    fits,
    forget_committed,
    is_for_spark,
    last_committed,
    may_add,
    remove_files,
    state_to_follow,
    write_files,
)
from geo.delta.young import refuse_gone
from geo.disk import full_at
from geo.errors import GeoError, RetryableError, SchemaError, UnknownAnswerError, UnsafeError, UsageError
from geo.faults import is_conflict
from geo.late import F, spark_errors, spark_sql, spark_types
from geo.reasons import Reason
from geo.schemas import TableSchema
from geo.schemas.table import BEFORE_RELEASE, KIND_PROPERTY, VERSION_PROPERTY
from geo.session import own_session
from geo.sql_text import identifier, literal
from geo.text import first_line

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructField, StructType

log = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 10
"""An append conflicts only with a metadata change: a fence at somebody's takeover, a new column. Ten in a row means a fault."""

_MADE_BY_OTHERS = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "TABLE_OR_VIEW_ALREADY_EXISTS")
"""Conditions that are raised where another process makes the table, beside conflicts. Of a log without a commit that is not empty none is."""

_BEING_MADE_S, _LOOK_S = 15.0, 0.25
"""Seconds that that is waited for, where no lock keeps processes apart, and between two looks."""

T = TypeVar("T")

KEPT_RECORD = json.dumps({KEPT: 1})
"""Record of a commit that replaces the rows of a system table."""

_UNLIKE, _CHANGED, _NOT_HERE = "these rows are not as its columns are", "its columns changed", "that is not done without Spark"
"""Why something is left to Spark."""

_FEED = "_change_data/"
"""Where the files of a change feed are."""

_FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


class Table:
    """One Delta table. Creating the object touches nothing."""

    def __init__(self, driver: Driver, name: str, *, by_path: bool, lock: Path | None) -> None:
        self._driver = driver
        self.name = name
        self.by_path = by_path
        self._lock = lock
        self._by_spark = SparkEngine(driver, name, by_path=by_path)
        self._mark = None if lock is None else lock.with_name(f"{lock.name}.synced")

    def __str__(self) -> str:
        return self.name

    @property
    def spark(self) -> SparkSession:
        return self._driver.spark

    @property
    def sql(self) -> str:
        """The table as SQL names it, quoted."""
        return self._by_spark.sql

    @property
    def is_in_catalog(self) -> bool:
        """True if a catalog has its name."""
        return not self.by_path

    # -- who answers -----------------------------------------------------------------------------------------------

    @cached_property
    def _opened(self) -> Opened:
        """The opened table, of one that exists, unless it is by path."""
        return opened(self._driver, self._by_spark)

    def ask(self, question: Callable[[Engine], T]) -> T:
        """The answer of this process, where it knows one, or else Spark's."""
        return self._opened.ask(question)

    def ask_here(self, question: Callable[[NativeEngine], T]) -> T | None:
        """Asks as `ask`. None: Spark is to answer, in a form of its own."""
        if (native := self._opened.native) is None:
            return None
        found = attempt(lambda: question(native))
        return None if isinstance(found, UnsupportedError) else found

    def _by_name(self, question: Callable[[Engine], T]) -> T:
        """Asks as `ask`, of a table that may not exist: a catalog then has no place of it, and Spark says so."""
        try:
            there = self._opened
        except spark_errors.AnalysisException as error:
            if error.getCondition() not in MISSING:
                raise
            return question(self._by_spark)
        return there.ask(question)

    # -- what is there -------------------------------------------------------------------------------------------

    def delta(self) -> DeltaTable:
        return self._by_spark.delta()

    def look(self, *, again: bool = False) -> Seen | None:
        """The table as it is now; None if there is none. Derived from the files of its log alone, without a Spark job, where this process
        reads the log by itself. Of a driver that looks once it is as it was then, but `again`."""
        if (looks := self._driver.looks) is None or again:
            return self._by_name(lambda engine: engine.look())
        mine: Future[Seen | None] = Future()
        first = looks.setdefault(self.name, mine)  # of several threads one looks
        if first is mine:
            try:
                mine.set_result(self._by_name(lambda engine: engine.look()))
            except BaseException as error:
                mine.set_exception(error)
        return cast("Seen | None", first.result())

    def exists(self) -> bool:
        return self.look() is not None

    def _looked(self) -> Seen:
        seen = self.look()
        if seen is None:
            raise RetryableError(f"{self}: there is no table now.")
        return seen

    def table_id(self) -> str:
        return self._looked().table_id

    def properties(self) -> Mapping[str, str]:
        return self._looked().properties

    def size(self) -> int:
        """Bytes of its files at its newest version."""
        return int(self.delta().detail().collect()[0]["sizeInBytes"])

    def latest_version(self) -> int:
        return self._by_name(lambda engine: engine.newest())

    def known_version(self) -> int:
        """A version that is there: where a look is a request the one that this process committed a moment ago, else the newest."""
        known = None if (folder := self.log_folder) is None else last_committed(folder)
        return self.latest_version() if known is None else known.version

    @property
    def location(self) -> str | None:
        """Where the files of a table that exists are; None where its newest commits are not in its `_delta_log`
        (catalog-managed)."""
        return self._by_spark.location

    @property
    def log_folder(self) -> WritePath | None:
        """The `_delta_log`, where that is on a store that this process writes (a local disk). It has all the commits of the table, which exists
        unless it is by path. None elsewhere.
        """
        return self._opened.folder

    @property
    def may_spark_commit(self) -> bool:
        """True if commits of Spark's are safe beside those of this process."""
        return not self.by_path or self._opened.may_spark_commit

    @property
    def writes_here(self) -> bool:
        """True if this process makes and changes it by itself, where it can: Spark's commits are not safe, or Spark is spared."""
        return not self.may_spark_commit or (self.by_path and self._driver.spares_spark)

    def how_to_set(self, key: str, value: str) -> str:
        """Words for what a person does to set a property of it."""
        alter = f"ALTER TABLE {self.sql} SET TBLPROPERTIES ({literal(key)} = {literal(value)})"
        return alter if self.may_spark_commit else f"end all processes of this region first, then {alter}"

    @property
    def is_near(self) -> bool:
        """True if a look at its commits takes microseconds. It exists unless it is by path."""
        return self.log_folder is not None and self.log_folder.store.is_near

    @property
    def is_asked_by_name(self) -> bool:
        """True if `has_commit` is one request of this process's own."""
        return self.by_path and self.log_folder is not None and not self.is_near  # one in a catalog may not exist

    def count_files(self) -> int:
        """Counts the files of its rows now."""
        return self.ask(lambda engine: engine.count_files())

    # -- its commits ---------------------------------------------------------------------------------------------

    def commit_at(self, version: int) -> Commit | None:
        """One commit by its number; None if it is not there: not made yet, or cleaned up."""
        return next(iter(self.commits(version, version)), None)

    def has_commit(self, version: int) -> bool:
        """Tells whether a commit is there, by its name alone."""
        return self.ask(lambda engine: engine.has_commit(version))

    def commit_stamp(self, version: int) -> Hashable:
        """Stamp of the file of a commit, by which it differs from any other that may take its place, without reading it. None where there is no such
        file, or nothing that could tell.
        """
        return None if self.log_folder is None else commit_stamp(self.log_folder, version)

    def commits(self, first: int, last: int, only: Sequence[str] = ()) -> Iterator[Commit]:
        """The commits `first` to `last`, oldest first, those that are there. The log is never listed for it, and few of them are
        held at a time. With `only`, a userMetadata with none of these keys may be left out (None)."""
        if first <= last:
            yield from self.ask(lambda engine: engine.commits(first, last, only, self.has_commit))

    def committed_at(self, version: int) -> datetime | None:
        """When the storage says that a commit came, by the clock of the storage; None if the commit is gone, and where there is
        no such clock: in-commit timestamps are a writer's."""
        return self.ask(lambda engine: engine.committed_at(version))

    # -- its rows --------------------------------------------------------------------------------------------------

    def read(self, version: int | None = None) -> DataFrame:
        """The table's rows, at `version` or at its newest."""
        return self._by_spark.read(version)

    def read_inserts(self, first: int, last: int) -> DataFrame:
        """The rows that the versions `first` to `last` added, by the change feed, with its columns `_change_type`,
        `_commit_version` and `_commit_timestamp`."""
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", first).option("endingVersion", last)
        return self._by_spark.load(reader).where(F.col("_change_type") == "insert")

    def read_added(self, first: int, last: int) -> DataFrame:
        """Reads as `read_inserts`, with the columns of the table alone."""
        return self.read_inserts(first, last).drop(*_FEED_COLUMNS)

    def read_stream(self, options: Mapping[str, str], *, settings: Mapping[str, str] | None = None) -> DataFrame:
        """The rows as they are appended, in a session of their own if there are `settings` of it. A batch takes whole commits, however
        many files they have, so nobody sees a ledger with a hole in it for a moment."""
        spark = self.spark if settings is None else own_session(self.spark, settings)
        reader: DataStreamReader = spark.readStream.format("delta")
        reader = reader.options(**{"maxFilesPerTrigger": str(2**31 - 1), **options})
        return self._by_spark.load(reader)

    # -- what is ours --------------------------------------------------------------------------------------------

    def create(
        self, schema: TableSchema, extra: Iterable[StructField] = (), own: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Create the table if it is missing; `extra` are a typed topic's own columns, `own` properties of this table alone.
        Idempotent, and any number of processes may do so at once.

        Raises RetryableError where something else than a Delta table is in the way.
        """
        # By SQL: Delta's own builder takes no name with a catalog in it, and is a hundred calls into the JVM.
        columns = [
            f"{identifier(c.name)} {c.type}{'' if c.nullable else ' NOT NULL'} COMMENT {literal(c.comment)}"
            for c in schema.columns
        ] + [f"{identifier(field.name)} {sql_type(field.dataType)}" for field in extra]
        partitioned = f" PARTITIONED BY ({', '.join(schema.partitioned_by)})" if schema.partitioned_by else ""

        def definition(properties: Mapping[str, str]) -> str:
            listed = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
            return f"({', '.join(columns)}) USING delta{partitioned} TBLPROPERTIES ({listed})"

        common = schema.all_properties
        deadline, said = time.monotonic() + (_BEING_MADE_S if self._lock is None else 0.0), None
        while True:
            try:
                # A table that a catalog has yet to make has no folder to ask for.
                if self.writes_here and self.log_folder is not None:
                    with self._committing():
                        if make_first(self.log_folder, schema, extra, own):
                            return
                else:
                    self._create(definition(common), definition({**common, **own}), own)
            except spark_errors.PySparkException as error:
                if not (is_conflict(error) or error.getCondition() in _MADE_BY_OTHERS):
                    raise
                said = error
                log.info("%s: somebody else may be making it, looking again: %s", self, first_line(error))
            if self.exists():
                return
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        raise RetryableError(
            f"{self}: was not created, since something that is no Delta table is there. Move it away. If it is a log without a commit, and "
            "still is in a minute, a process died that was making the table: remove it."
        ) from said

    def _create(self, definition: str, whole: str, own: Mapping[str, str]) -> None:
        """`whole`: the definition with the properties that are this table's own."""
        folder = self.log_folder if self.by_path and self._driver.commits_by_itself else None
        spark = self.spark  # the lock names the JVM that commits
        with self._committing():
            if folder is not None and make(folder, definition, own):
                return
            if self.by_path and self.log_folder is not None:
                self.log_folder.store.end_log(str(self.log_folder))
            is_new = folder is not None and newest_version(folder) is None
            spark.sql(f"CREATE TABLE IF NOT EXISTS {self.sql} {whole}")
            if folder is not None and is_new:  # another one may have other columns
                learn(folder, definition, own)

    def find(self, schema: TableSchema) -> StructType | None:
        """The table's columns, once it is sure that it is ours and not newer than this program; None if there is no table.
        Raises as `find_checked`."""
        seen = self.find_checked(schema)
        return None if seen is None else seen.columns

    def find_checked(self, schema: TableSchema) -> Seen | None:
        """The table as it is now, once it is sure that it is ours and not newer than this program; None if there is no table. Columns
        that were added to the schema since tables were made may be lacking (`add_columns`).

        Raises SchemaError naming table, stored and known version, and the way out.
        """
        seen = self.look()
        if seen is None:
            return None
        kind, version = seen.properties.get(KIND_PROPERTY), seen.properties.get(VERSION_PROPERTY, "")
        if kind != schema.kind:
            raise SchemaError(
                f"{self}: is not a {schema.kind} of delta-geo ({KIND_PROPERTY} is {kind!r}). "
                "Nothing was written. Move that table away or choose another root or name."
            )
        if version.isdigit() and int(version) < schema.least_version:
            raise SchemaError(
                f"{self}: has schema version {version}, of a program before the first release; this one reads from {schema.least_version} "
                f"on. {BEFORE_RELEASE.get(int(version), '')} Nothing was written. Choose another root, and publish and replicate into it anew."
            )
        if not version.isdigit() or int(version) > schema.version:
            raise SchemaError(
                f"{self}: has schema version {version!r}, this program knows up to {schema.version}. "
                "Nothing was written. Upgrade delta-geo here first."
            )
        missing = [column.name for column in schema.columns if not column.added and column.name not in seen.names]
        if missing:
            raise SchemaError(
                f"{self}: lacks the columns {', '.join(missing)} of a {schema.kind}. Nothing was written. Who renamed or dropped them puts "
                "them back: RENAME COLUMN, or RESTORE to the version before."
            )
        return seen

    # -- writing -------------------------------------------------------------------------------------------------

    def append(
        self,
        rows: DataFrame,
        user_metadata: str | None = None,
        transaction: tuple[str, int] | None = None,
        refuse: Callable[[], None] = lambda: None,
        fenced: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> None:
        """Append in one commit; a DataFrame without rows makes none. Retries what cannot have landed.

        Where there is a lock and the table is there, Spark writes files before the lock is taken: what a plan reads may be slow or hang,
        and holds up nobody. A column without a type is left out, and is NULL. With `transaction` (application id, number) nothing is
        appended if the table has that number or a higher one of it; Delta's own commit then writes the files once more, under the lock.
        `refuse` raises unless it may be appended. It is asked before each try, where there is a lock while nobody of ours can commit.
        `fenced` adds to the plan what is asked where Spark commits.

        Raises UnsafeError where it is Spark's to do, and Spark's commits are not safe.
        """
        refuse()
        by_spark = self.may_spark_commit
        if by_spark and (self._lock is None or not self.exists()):
            self._save(fenced(rows), user_metadata, transaction, refuse)
            return
        rows = rows.drop(*(field.name for field in rows.schema if isinstance(field.dataType, spark_types.NullType)))
        if (transaction is None or not by_spark) and (written := self.write_files(rows)) is not None:
            reach(CrashPoint.APPEND_WRITTEN)
            self.append_written(written, user_metadata, refuse, fenced, transaction)
            return
        self._leave_rows(rows.schema)
        # Delta's own commit writes them once more: it alone knows numbers that were used.
        with staged(str(self.location)) as place:
            rows.write.parquet(place)
            files = self.spark.read.schema(rows.schema).parquet(no_pattern(place))
            self._save(fenced(files), user_metadata, transaction, refuse)

    def _leave_to_spark(self, why: str) -> None:
        """Leaves to Spark what is not done here. Raises UnsafeError where commits of Spark's are not safe; `why` it is not done here, where the table
        itself does not say.
        """
        if not self.may_spark_commit:
            self._refuse_spark(why)

    def _leave_rows(self, columns: StructType | None) -> None:
        """Rows with these columns are Spark's to append, or files (None), which had the table's when they were written. Raises as `_leave_to_spark`;
        RetryableError where all that is in the way is that columns came meanwhile, or wider types, and who appends has to look again."""
        if self.may_spark_commit:
            return
        if self.why_left_to_spark() is None:
            there = self._looked().columns
            # Of rows whose types are the table's it is a value that is in the way.
            if columns is None or not ((needed := growth(there, columns)) or needed.clashes or have_types(columns, there)):
                raise RetryableError(f"{self}: {_CHANGED} meanwhile. Nothing was written. Try again.", code=Reason.CONFLICT)
        self._refuse_spark(_UNLIKE)

    def _refuse_spark(self, why: str) -> NoReturn:
        why = self.why_left_to_spark() or why
        raise UnsafeError(
            f"{self}: {why}, and on its store commits of Spark's can be lost. Nothing was written. docs/guarantees.md, *What a table asks "
            "of its writers*, says what can be."
        )

    def write_files(self, rows: DataFrame) -> Written | None:
        """Rows as files beside the table, which a commit may add without Spark. None where that is not so."""
        folder, state = self.log_folder, self.state_with(rows.columns)
        if folder is None or state is None or not have_types(rows.schema, self._looked().columns):
            return None
        if (disk := disk_of(folder)) is None:
            return write_by_tasks(rows, folder.parent, state)
        if state.is_mapped:  # of which Spark's files know nothing
            return None
        return write(rows, str(self.location), disk.parent, state)

    def write_files_of(self, rows: FileRows, order: Sequence[str]) -> Written | None:
        """Writes as `write_files` rows that tasks of Spark's read from their files; those of a file in this order."""
        folder, state = self.log_folder, self.state_with(rows.state.schema.names)
        if folder is None or state is None or folder.store.is_near or not set(rows.state.schema) <= set(state.schema):
            return None
        return write_files_by_tasks(self.spark, rows, order, folder.parent, state)

    def write_rows(self, rows: pa.Table) -> Written | None:
        """Writes as `write_files` rows that this process has at hand."""
        folder, state = self.log_folder, self._state_for(lambda state: fits(state, rows))
        if folder is None or state is None:
            return None
        return write_files(folder.parent, state, rows)

    def write_feed(self, rows: DataFrame) -> tuple[Added, ...] | None:
        """Rows of a change, with their `_change_type`, as files of the table's change feed, which a change may name; none where the table
        has no such feed. None where Spark is to do it."""
        folder, state = self.log_folder, self.state_to_follow()
        if folder is None or state is None:
            return None
        if str(self.properties().get("delta.enableChangeDataFeed")).lower() != "true":
            return ()
        if (disk := disk_of(folder)) is None:
            written = write_by_tasks(rows, folder.parent, state, into=_FEED)
        else:
            written = write(rows, str(self.location), disk.parent, state, into=_FEED)
        return None if written is None else written.files

    def append_written(
        self,
        written: Written,
        user_metadata: str | None = None,
        refuse: Callable[[], None] = lambda: None,
        fenced: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        transaction: tuple[str, int] | None = None,
    ) -> None:
        """Appends as `append` files that were written beside the table."""
        if not self.commit_here(written, user_metadata, refuse, transaction):
            try:
                self._leave_rows(None)
                self._save(fenced(self.read_written(written)), user_metadata, transaction, refuse)
            finally:
                self.remove_written(written)

    def _save(
        self, rows: DataFrame, user_metadata: str | None, transaction: tuple[str, int] | None, refuse: Callable[[], None]
    ) -> None:
        """Append by Spark and Delta, whose plan runs inside the commit. Where there is a lock the rows are at hand, but for the first of a
        table."""

        def save() -> None:
            refuse()
            writer = rows.write.format("delta").mode("append")
            if user_metadata is not None:
                writer = writer.option("userMetadata", user_metadata)
            if transaction is not None:
                writer = writer.option("txnAppId", transaction[0]).option("txnVersion", transaction[1])
            self._write(writer)

        self.commit(save)

    def _write(self, writer: DataFrameWriter) -> None:
        writer.save(self.name) if self.by_path else writer.saveAsTable(self.sql)

    def append_rows(
        self,
        rows: pa.Table,
        user_metadata: str | None = None,
        refuse: Callable[[], None] = lambda: None,
        fenced: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> None:
        """Appends as `append` rows that this process has at hand: where it can, without Spark."""
        if not self.append_here(rows, user_metadata, refuse):
            self._leave_rows(columns_in(rows))
            self._save(fenced(self.spark.createDataFrame(rows).coalesce(1)), user_metadata, None, refuse)

    def append_rows_once(self, rows: pa.Table, user_metadata: str, transaction: tuple[str, int]) -> int | None:
        """Append rows in one commit of this process's, unless that number of the transaction's application, or a higher one, was used.
        Returns its version; None: it was used. Where it is Spark's to do, raises UnsupportedError, or UnsafeError if its commits are not
        safe."""
        folder, state = self.log_folder, self._state_for(lambda state: fits(state, rows))
        if folder is None or state is None:
            self._leave_rows(columns_in(rows))
            raise UnsupportedError(_UNLIKE)
        written = write_files(folder.parent, state, rows)
        reach(CrashPoint.APPEND_WRITTEN)
        is_done, version = self._add_here(written, user_metadata, lambda: None, transaction)
        if not is_done:
            self.remove_written(written)
            self._leave_rows(None)
            raise UnsupportedError(_CHANGED)
        return version

    def own_state(self) -> DeltaState | None:
        """The newest version of a table to which this process can append without Spark. Where a look is a request it is the one that this process
        committed a moment ago: a commit that follows on it finds out whether another one came. None of another table.
        """
        folder = self._own_log
        return None if folder is None else last_committed(folder) or newest_state(folder)

    def state_to_follow(self) -> DeltaState | None:
        """State as `own_state`, for who is about to commit: also one that this process read a moment ago (`geo.delta.writer.state_to_follow`)."""
        folder = self._own_log
        return None if folder is None else state_to_follow(folder)

    def state_with(self, columns: Collection[str]) -> DeltaState | None:
        """State as `state_to_follow`, of a version that has these columns."""
        return self._state_for(lambda state: set(columns) <= set(state.schema.names))

    def _state_for(self, is_for: Callable[[DeltaState], bool]) -> DeltaState | None:
        """State as `state_to_follow`, if it is for what is to be written. One that was known is looked for again: columns may have come since."""
        if (state := self.state_to_follow()) is not None and not is_for(state):
            self._forget_committed()
            state = self.state_to_follow()
        return state if state is not None and is_for(state) else None

    @property
    def _own_log(self) -> WritePath | None:
        folder = self.log_folder
        if folder is None or (self.may_spark_commit and not self._driver.commits_by_itself):
            return None  # Spark is asked with which log store it was started
        return folder

    def why_left_to_spark(self) -> str | None:
        """Why a process that appends by itself to tables in such a place leaves this one to Spark; None: it does not."""
        if (folder := self.log_folder) is None:
            return None
        found = attempt(lambda: require_state(folder))
        return str(found) if isinstance(found, UnsupportedError) else None

    def append_here(self, rows: pa.Table, user_metadata: str | None = None, refuse: Callable[[], None] = lambda: None) -> bool:
        """Append in one commit without Spark; False, and nothing was written, where Spark is to do it. `refuse` as
        `commit_here`."""
        folder, state = self.log_folder, self._state_for(lambda state: fits(state, rows))
        if folder is None or state is None or is_for_spark(folder, state):
            return False
        try:
            written = write_files(folder.parent, state, rows)
        except OSError as error:
            if (full := full_at(error, folder.parent)) is not None:
                raise full from None
            if not self.may_spark_commit:
                raise
            return False  # Spark meets it too, and its errors are known
        reach(CrashPoint.APPEND_WRITTEN)
        committed = self.commit_here(written, user_metadata, refuse)
        if not committed:
            self.remove_written(written)
        return committed

    def commit_here(
        self,
        written: Written,
        user_metadata: str | None = None,
        refuse: Callable[[], None] = lambda: None,
        transaction: tuple[str, int] | None = None,
    ) -> bool:
        """Add files that were written, in one commit without Spark; False, and nothing was done, where Spark is to do it. With
        `transaction` they are removed instead if its number, or a higher one, was used.

        `refuse` raises unless they may be added. They are removed then, and where the lock is not to be had. It is asked after the
        version is known on which the commit follows, and, where there is a lock, while nobody of ours can commit.
        """
        return self._add_here(written, user_metadata, refuse, transaction)[0]

    def _add_here(
        self, written: Written, user_metadata: str | None, refuse: Callable[[], None], transaction: tuple[str, int] | None
    ) -> tuple[bool, int | None]:
        """Commits as `commit_here`, with the version that added them, if one did."""
        folder, made = self.log_folder, list[int]()
        assert folder is not None, "they were written into it"

        def commit(state: DeltaState) -> bool | None:
            if not may_add(folder, state, written):
                return None
            refuse()
            reach(CrashPoint.APPEND_CHECKED)
            if transaction is not None:
                if "setTransactions" not in state.checksum:
                    return None
                if (used := state.highest_used(transaction[0])) is not None and used >= transaction[1]:
                    self.remove_written(written)
                    return True
            if written.files:
                if not commit_files(folder, state, written.files, user_metadata, transaction):
                    return False
                made.append(state.version + 1)
            return True

        return self._commit_here(commit, written.files, written.version), made[0] if made else None

    def _commit_here(
        self, commit: Callable[[DeltaState], bool | None], files: Sequence[Added] = (), written_at: int | None = None
    ) -> bool:
        """Commit by `commit`, under the lock, after the newest version, again if another commit came between: `commit` says False then, and
        None where it is not to be. False, and nothing was done, in that case, and where it cannot be. Where it is refused, or the lock is not
        to be had, `files` are removed, which were written at version `written_at` or later."""
        is_made, met = False, Counter[int]()
        try:
            with self._committing():
                try:
                    while (state := self.state_to_follow()) is not None:
                        if files and state.version != written_at:
                            self._refuse_gone(files)
                        if (made := commit(state)) is None:
                            break
                        if made:
                            is_made = True
                            return True  # what fails from here on takes no file of it away
                        self._forget_committed()
                        met[state.version] += 1
                        if met[state.version] > COMMIT_ATTEMPTS:
                            raise RetryableError(
                                f"{self}: no commit follows on version {state.version}. Nothing was written. Try again."
                            )
                        log.info("%s: another commit came between, trying again", self)
                except OSError as error:
                    full = full_at(error, self)
                    if full is not None or not self.may_spark_commit:
                        self._remove(files)
                        raise full or error from None
                    log.info("%s: could not be committed to without Spark: %s", self, first_line(error))
        except UnknownAnswerError:
            self._forget_committed()
            raise  # a commit may name them
        except GeoError:  # it was refused, the lock was not to be had, or a commit that came since cannot be read
            if not is_made:
                self._remove(files)
            raise
        return False

    def _refuse_gone(self, files: Iterable[Added]) -> None:
        if (folder := self.log_folder) is not None:
            refuse_gone(folder.parent, [folder.parent / file.path for file in files])

    def _forget_committed(self) -> None:
        if not self.may_spark_commit and (folder := self.log_folder) is not None:
            forget_committed(folder)

    def read_written(self, written: Written) -> DataFrame:
        """The rows of files that were written and not committed, with all columns of the table: a file need not have each. Raises
        RetryableError where these have other names in files."""
        if is_mapped(self.properties()):
            raise RetryableError(
                f"{self}: rows were written and could not be committed by this program. Nothing was written. Try again."
            )
        return self.read_files((file.path, file.partition) for file in written.files)

    def read_files(self, files: Iterable[tuple[str, Mapping[str, str]]]) -> DataFrame:
        """Reads by Spark the rows of plain files in the folder of a table on a local disk, with all columns of the table. The files are given with
        their values of the partition columns.
        """
        columns, by_partition = self._looked().columns, dict[tuple[tuple[str, str], ...], list[str]]()
        for path, partition in files:
            by_partition.setdefault(tuple(partition.items()), []).append(no_pattern(f"{self.location}/{path}"))
        parts = []
        for values, paths in by_partition.items():
            inside = spark_types.StructType([field for field in columns if field.name not in dict(values)])
            rows = self.spark.read.schema(inside).parquet(*paths)
            told = {name: F.lit(value).cast(columns[name].dataType) for name, value in values}
            parts.append(rows.withColumns(told).select(*map(identifier, columns.names)))
        return reduce(spark_sql.DataFrame.unionByName, parts) if parts else self.spark.createDataFrame([], columns)

    def change_here(self, make: Callable[[DeltaState], Change | None], user_metadata: str | None = None) -> Change | None:
        """Take files out and put others in, in one commit without Spark. None, and nothing was done, where Spark is to do it.

        A change that takes none makes no commit.

        `make` finds and writes the files, given the newest version, before the lock is taken. It is asked again
        if another commit took one of them, or added to what is to go. None of it: Spark is to do it. Raises RetryableError after
        COMMIT_ATTEMPTS of that.
        """
        for _ in range(COMMIT_ATTEMPTS):
            folder, state = self.log_folder, self.own_state()
            if folder is None or state is None:
                return None
            if (why := state.why_not_change) is not None:
                self._leave_to_spark(why)
                return None
            stamp = commit_stamp(folder, state.version)
            if (change := make(state)) is None:
                return None
            if not change.taken:
                return change
            reach(CrashPoint.CHANGE_MADE)
            files = (*change.added, *change.feed)
            try:
                if self._commit_here(partial(_commit_change, folder, state, stamp, change, user_metadata), files, change.version):
                    return change
            except _MetError as met:
                log.info("%s: another commit came between, trying again: %s", self, met)
                self._forget_committed()
                continue
            self._remove(files)
            return None
        raise RetryableError(
            f"{self}: {COMMIT_ATTEMPTS} changes in a row met another writer's; nothing was written. Try again.",
            code=Reason.CONFLICT,
        )

    def remove_written(self, written: Written) -> None:
        """Remove files that no commit will add."""
        self._remove(written.files)

    def _remove(self, files: Iterable[Added]) -> None:
        if (folder := self.log_folder) is not None:
            remove_files(folder.parent, files)

    def sweep(self) -> None:
        """Remove what processes left beside a table on a local disk that died while Spark wrote files for a commit."""
        if (disk := self._opened.disk) is not None:
            sweep(path_of(disk.parent))

    def overwrite(self, rows: DataFrame) -> None:
        """Replace all rows by others made from them, by Spark and Delta, in one commit that says that it changes no data: streams do not see
        it. What is appended meanwhile stays: within the commit Delta reads and replaces the files of one version. Raises as `commit`."""
        # So that appends beside it are no conflict: there are always some, and it would lose against them for ever.
        writer = rows.write.format("delta").mode("overwrite").option("dataChange", "false").option("userMetadata", KEPT_RECORD)
        self.commit(lambda: self._write(writer))

    def saying(self, user_metadata: str) -> Table:
        """This table in a session of its own, in which each commit carries that userMetadata: for changes that take it only from
        there."""
        return self._in_session({"spark.databricks.delta.commitInfo.userMetadata": user_metadata})

    def _in_session(self, settings: Mapping[str, str]) -> Table:
        """This table in a session of its own."""
        own = own_session(self.spark, settings)
        driver = Driver(lambda: own, lambda: self._driver.me, find_port=lambda: self._driver.port)
        return Table(driver, self.name, by_path=self.by_path, lock=self._lock)

    def commit(self, action: Callable[[], T]) -> T:
        """Run one committing action under the table's lock, again if another commit came between.

        A conflict means that nothing of the action landed. What landed is durable when this returns, and when it raises. Raises
        RetryableError after COMMIT_ATTEMPTS conflicts, UnsafeError where commits of Spark's are not safe.
        """
        self._leave_to_spark(_NOT_HERE)
        _ = self.spark  # the lock names the JVM that commits
        for _ in range(COMMIT_ATTEMPTS):
            with self._committing():
                try:
                    return action()
                except spark_errors.PySparkException as error:
                    if not is_conflict(error):
                        raise
                    conflict = error
            log.info("%s: another commit came between, trying again: %s", self, first_line(conflict))
        raise RetryableError(
            f"{self}: {COMMIT_ATTEMPTS} commits in a row met another writer's; nothing was written. Try again.",
            code=Reason.CONFLICT,
        )

    def vacuum(self) -> None:
        """Remove the files that no version within the table's retention needs. It makes no commit, so no lock is held for it."""
        self._in_session({"spark.databricks.delta.vacuum.logging.enabled": "false"}).delta().vacuum()
        self.sweep()

    def remove(self) -> bool:
        """Remove the table, on a local disk at once for whoever looks, and while nobody of ours commits to it. False, and nothing was done,
        where its files are on a storage from which this process removes none. Idempotent."""
        self._forget_committed()
        with self._locked():
            if self.by_path:
                return SmallFiles(self._driver).remove_folder(self.name)
            self.spark.sql(f"DROP TABLE IF EXISTS {self.sql}")
            return True

    def add_columns(self, columns: Sequence[StructField]) -> None:
        """Add those of the columns that the table, which exists, lacks, with what their metadata say of them (`comment`). Make those of its own wider
        whose types are narrower. (Type widening: rows of before are read as the wider type, and readers have to know that.) Idempotent, and any
        number of processes may do so at once.

        Raises SchemaError, with nothing done, if it has one in another case, or cannot have one (`why_not`). So it does for a type that does not go
        with the one that is wanted.
        """
        if self._commits_metadata(partial(_commit_columns, self, columns)):
            return

        def add() -> None:
            needed = _needed(self, self._looked().columns, columns)
            if has_local_times([*needed.added, *needed.widened]):  # which Delta adds to new tables alone
                self._set("delta.feature.timestampNtz", "supported")
            if needed.added:
                self.spark.sql(f"ALTER TABLE {self.sql} ADD COLUMNS ({', '.join(map(_column_sql, needed.added))})")
            if needed.widened and self.properties().get(TYPE_WIDENING) != "true":
                self._set(TYPE_WIDENING, "true")
            for one in needed.widened:
                self.spark.sql(f"ALTER TABLE {self.sql} ALTER COLUMN {identifier(one.name)} TYPE {sql_type(one.dataType)}")

        self.commit(add)

    def refuse_columns(self, schema: TableSchema, extra: Sequence[StructField]) -> None:
        """Raises UsageError for columns of a user's with which the table could not be made."""
        if not extra:
            return
        if found := why_not(extra, schema.types):
            raise UsageError(f"{self}: cannot have these columns, nothing was made:\n" + "\n".join(f"- {one}" for one in found))
        if (self._driver.never_spark or not self.may_spark_commit) and self.log_folder is not None:
            refuse_first(self.log_folder, schema, extra)

    def set_property(self, key: str, value: str) -> None:
        if not self._commits_metadata(lambda folder, state: commit_properties(folder, state, {key: value})):
            self.commit(lambda: self._set(key, value))

    def set_property_once(self, key: str, value: str) -> None:
        """Set a property that the table does not have; another process may be quicker."""

        def commit(folder: WritePath, state: DeltaState) -> bool:
            there = state.checksum["metadata"].get("configuration") or {}
            return key in there or commit_properties(folder, state, {key: value})

        if self._commits_metadata(commit):
            return

        def set_now() -> None:
            if key not in self.properties():
                self._set(key, value)

        self.commit(set_now)

    def _commits_metadata(self, commit: Callable[[WritePath, DeltaState], bool]) -> bool:
        """Change what the table says of itself by a commit without Spark. False, and nothing was done, where that is Spark's to do. Raises
        UnsafeError if Spark's commits are not safe and this program does not know what the table is."""
        if not self.writes_here or (folder := self.log_folder) is None:
            return False
        done = attempt(lambda: self._commit_here(partial(commit, folder)))
        if done is not True:
            self._leave_to_spark(str(done) if isinstance(done, UnsupportedError) else _NOT_HERE)
        return done is True

    def _set(self, key: str, value: str) -> None:
        self.spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ({literal(key)} = {literal(value)})")

    def wait_for_commits(self) -> bool:
        """Wait until no process of ours is inside a commit to this table. False where there is no lock that could tell."""
        if self._lock is None:
            return False
        with self._locked():
            return True

    @contextmanager
    def alone(self) -> Iterator[Table | None]:
        """Nobody else commits to it meanwhile: the table as it is to be used inside. None where there is no lock that could see
        to that. Where Spark is to commit inside it is started before, so that the lock names its JVM."""
        if self._lock is None:
            yield None
            return
        if not self._driver.has_spark and self.exists() and self.own_state() is None:
            _ = self._driver.spark
        with self._locked():
            inside = copy(self)
            inside._lock = None
            yield inside

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Under the lock; at the end what was committed on a local disk is written out, however it ended. What others left that is not
        known to be is written out before: that may take a while, and holds up nobody."""
        if (disk := self._disk_if_there()) is not None:
            sync_left(disk, self._mark)
        with self._locked():
            try:
                yield
            finally:
                if (disk := self._disk_if_there()) is not None:
                    sync_commits(disk, self._mark)

    def _disk_if_there(self) -> DiskPath | None:
        """The log on a local disk; None, too, where there is no table: nothing was committed."""
        try:
            return self._opened.disk
        except spark_errors.AnalysisException as error:
            if error.getCondition() not in MISSING:
                raise
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with table_lock(self._lock, self._driver.committer) if self._lock else nullcontext():
            yield


def _column_sql(column: StructField) -> str:
    comment = f" COMMENT {literal(column.metadata['comment'])}" if "comment" in column.metadata else ""
    return f"{identifier(column.name)} {sql_type(column.dataType)}{comment}"


def _commit_columns(table: Table, columns: Sequence[StructField], folder: WritePath, state: DeltaState) -> bool:
    """Commit that a table has what it lacks of the columns and their types."""
    needed = _needed(table, spark_types.StructType.fromJson(json.loads(state.checksum["metadata"]["schemaString"])), columns)
    return not needed or commit_columns(folder, state, needed)


def _needed(table: Table, there: StructType, columns: Sequence[StructField]) -> Growth:
    """Derives what a table with these columns needs to have others too."""
    needed = growth(there, columns)
    if why := why_not_grown(there, needed, "there"):
        raise SchemaError(f"{table}: {why}. Nothing was written.", code=Reason.COLUMNS)
    return needed


class _MetError(RetryableError):
    """Another commit came with which a change does not go."""


def _commit_change(
    folder: WritePath, before: DeltaState, stamp: Hashable, change: Change, user_metadata: str | None, now: DeltaState
) -> bool | None:
    """Commit a change that was made for the table as it was `before`, whose commit had this stamp. None where Spark is to do it."""
    if not may_change(folder, now, before, change):
        return None
    if commit_stamp(folder, before.version) != stamp:
        raise _MetError(f"version {before.version} is another one, or gone")
    if (why := conflict_since(folder, change, now.version)) is not None:
        raise _MetError(why)
    return commit_change(folder, now, change, user_metadata)
