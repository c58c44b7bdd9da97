"""A table is made, checked, given columns and properties, and removed."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from geo.delta.columns import Growth, growth, sql_type, why_not, why_not_grown
from geo.delta.committing import committing, locked
from geo.delta.create import learn, make, make_first, refuse_first
from geo.delta.definition import has_local_times
from geo.delta.delta_log import newest_version
from geo.delta.delta_state import DeltaState
from geo.delta.engine import TableSnapshot, UnsupportedError, attempt
from geo.delta.files import SmallFiles
from geo.delta.local_commits import commit_here
from geo.delta.local_state import forget_state
from geo.delta.metadata import commit_columns, commit_properties
from geo.delta.protocol import TYPE_WIDENING
from geo.delta.spark_commits import NOT_HERE, commit_by_spark, leave_to_spark
from geo.delta.store import WritePath
from geo.errors import RetryableError, SchemaError, UsageError
from geo.faults import is_conflict
from geo.late import spark_errors, spark_types
from geo.reasons import Reason
from geo.schemas import TableSchema
from geo.schemas.table import BEFORE_RELEASE, KIND_PROPERTY, VERSION_PROPERTY
from geo.sql_text import identifier, literal
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

    from geo.delta.table import Table

log = logging.getLogger(__name__)

_MADE_BY_OTHERS = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "TABLE_OR_VIEW_ALREADY_EXISTS")
"""Conditions that are raised where another process makes the table, beside conflicts. Of a log without a commit that is not empty none is."""

_BEING_MADE_S, _LOOK_S = 15.0, 0.25
"""Seconds that that is waited for, where no lock keeps processes apart, and between two looks."""


def writes_here(table: Table) -> bool:
    """True if this process makes and changes it by itself, where it can: Spark's commits are not safe, or Spark is spared."""
    return not table.may_spark_commit or (table.by_path and table.driver.spares_spark)


def how_to_set(table: Table, key: str, value: str) -> str:
    """Words for what a person does to set a property of it."""
    alter = f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({literal(key)} = {literal(value)})"
    return alter if table.may_spark_commit else f"end all processes of this region first, then {alter}"


def create_table(
    table: Table, schema: TableSchema, extra: Iterable[StructField] = (), own: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Create the table if it is missing; `extra` are a typed topic's own columns, `own` properties of this table alone.
    Idempotent, and any number of processes may do so at once.

    Raises RetryableError where something else than a Delta table is in the way.
    """
    with nullcontext() if table.catalog_name is None else table.catalog_name.given(table.name):
        _create(table, schema, extra, own)


def _create(table: Table, schema: TableSchema, extra: Iterable[StructField], own: Mapping[str, str]) -> None:
    # By SQL: Delta's own builder takes no name with a catalog in it, and is a hundred calls into the JVM.
    columns = [
        f"{identifier(c.name)} {c.type}{'' if c.nullable else ' NOT NULL'} COMMENT {literal(c.comment)}" for c in schema.columns
    ] + [f"{identifier(field.name)} {sql_type(field.dataType)}" for field in extra]
    partitioned = f" PARTITIONED BY ({', '.join(schema.partitioned_by)})" if schema.partitioned_by else ""

    def definition(properties: Mapping[str, str]) -> str:
        listed = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
        return f"({', '.join(columns)}) USING delta{partitioned} TBLPROPERTIES ({listed})"

    common = schema.all_properties
    deadline, said = time.monotonic() + (_BEING_MADE_S if table.lock is None else 0.0), None
    while True:
        try:
            # A table that a catalog has yet to make has no folder to ask for.
            if writes_here(table) and table.log_folder is not None:
                with committing(table):
                    if make_first(table.log_folder, schema, extra, own):
                        return
            else:
                _create_by_spark(table, definition(common), definition({**common, **own}), own)
        except spark_errors.PySparkException as error:
            if not (is_conflict(error) or error.getCondition() in _MADE_BY_OTHERS):
                raise
            said = error
            log.info("%s: somebody else may be making it, looking again: %s", table, first_line(error))
        if table.exists():
            return
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_S)
    raise RetryableError(
        f"{table}: was not created, since something that is no Delta table is there. Move it away. If it is a log without a commit, and "
        "still is in a minute, a process died that was making the table: remove it."
    ) from said


def _create_by_spark(table: Table, definition: str, whole: str, own: Mapping[str, str]) -> None:
    """`whole`: the definition with the properties that are this table's own."""
    folder = table.log_folder if table.by_path and table.driver.commits_by_itself else None
    spark = table.spark  # the lock names the JVM that commits
    with committing(table):
        if folder is not None and make(folder, definition, own):
            return
        if table.by_path and table.log_folder is not None:
            table.log_folder.store.end_log(str(table.log_folder))
        is_new = folder is not None and newest_version(folder) is None
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table.sql} {whole}")
        if folder is not None and is_new:  # another one may have other columns
            learn(folder, definition, own)


def find_columns(table: Table, schema: TableSchema) -> StructType | None:
    """The table's columns, once it is sure that it is ours and not newer than this program; None if there is no table.
    Raises as `find_checked`."""
    seen = find_checked(table, schema)
    return None if seen is None else seen.columns


def find_checked(table: Table, schema: TableSchema) -> TableSnapshot | None:
    """The table as it is now, once it is sure that it is ours and not newer than this program. None if there is no table. Columns that were added
    to the schema since tables were made may be lacking (`add_columns`).

    Raises SchemaError naming table, stored and known version, and the way out.
    """
    seen = table.snapshot()
    if seen is None:
        return None
    kind, version = seen.properties.get(KIND_PROPERTY), seen.properties.get(VERSION_PROPERTY, "")
    if kind != schema.kind:
        raise SchemaError(
            f"{table}: is not a {schema.kind} of delta-geo ({KIND_PROPERTY} is {kind!r}). "
            "Nothing was written. Move that table away or choose another root or name."
        )
    if version.isdigit() and int(version) < schema.least_version:
        raise SchemaError(
            f"{table}: has schema version {version}, of a program before the first release; this one reads from {schema.least_version} "
            f"on. {BEFORE_RELEASE.get(int(version), '')} Nothing was written. Choose another root, and publish and replicate into it anew."
        )
    if not version.isdigit() or int(version) > schema.version:
        raise SchemaError(
            f"{table}: has schema version {version!r}, this program knows up to {schema.version}. "
            "Nothing was written. Upgrade delta-geo here first."
        )
    missing = [column.name for column in schema.columns if not column.added and column.name not in seen.names]
    if missing:
        raise SchemaError(
            f"{table}: lacks the columns {', '.join(missing)} of a {schema.kind}. Nothing was written. Who renamed or dropped them puts "
            "them back: RENAME COLUMN, or RESTORE to the version before."
        )
    return seen


def remove_table(table: Table) -> bool:
    """Remove the table, on a local disk at once for whoever looks, and while nobody of ours commits to it. False, and nothing was done,
    where its files are on a storage from which this process removes none. Idempotent."""
    forget_state(table)
    with locked(table):
        if table.by_path:
            done = SmallFiles(table.driver).remove_folder(table.name)
        else:
            table.spark.sql(f"DROP TABLE IF EXISTS {table.sql}")
            done = True
    if table.catalog_name is not None:
        table.catalog_name.drop()
    return done


def add_columns(table: Table, columns: Sequence[StructField]) -> None:
    """Add those of the columns that the table, which exists, lacks, with what their metadata say of them (`comment`). Make those of its own wider
    whose types are narrower. (Type widening: rows of before are read as the wider type, and readers have to know that.)

    Idempotent, and any number of processes may do so at once.

    Raises SchemaError, with nothing done, if it has one in another case, or cannot have one (`why_not`). So it does for a type that does not go
    with the one that is wanted.
    """
    if _commits_metadata(table, partial(_commit_columns, table, columns)):
        return

    def add() -> None:
        needed = _needed(table, table.require_snapshot().columns, columns)
        if has_local_times([*needed.added, *needed.widened]):  # which Delta adds to new tables alone
            _set(table, "delta.feature.timestampNtz", "supported")
        if needed.added:
            table.spark.sql(f"ALTER TABLE {table.sql} ADD COLUMNS ({', '.join(map(_column_sql, needed.added))})")
        if needed.widened and table.properties().get(TYPE_WIDENING) != "true":
            _set(table, TYPE_WIDENING, "true")
        for one in needed.widened:
            table.spark.sql(f"ALTER TABLE {table.sql} ALTER COLUMN {identifier(one.name)} TYPE {sql_type(one.dataType)}")

    commit_by_spark(table, add)


def refuse_columns(table: Table, schema: TableSchema, extra: Sequence[StructField]) -> None:
    """Raises UsageError for columns of a user's with which the table could not be made."""
    if not extra:
        return
    if found := why_not(extra, schema.types):
        raise UsageError(f"{table}: cannot have these columns, nothing was made:\n" + "\n".join(f"- {one}" for one in found))
    if (table.driver.never_spark or not table.may_spark_commit) and table.log_folder is not None:
        refuse_first(table.log_folder, schema, extra)


def set_property(table: Table, key: str, value: str) -> None:
    if not _commits_metadata(table, lambda folder, state: commit_properties(folder, state, {key: value})):
        commit_by_spark(table, lambda: _set(table, key, value))


def set_property_once(table: Table, key: str, value: str) -> None:
    """Set a property that the table does not have; another process may be quicker."""

    def commit(folder: WritePath, state: DeltaState) -> bool:
        there = state.checksum["metadata"].get("configuration") or {}
        return key in there or commit_properties(folder, state, {key: value})

    if _commits_metadata(table, commit):
        return

    def set_now() -> None:
        if key not in table.properties():
            _set(table, key, value)

    commit_by_spark(table, set_now)


def _commits_metadata(table: Table, commit: Callable[[WritePath, DeltaState], bool]) -> bool:
    """Change what the table says of itself by a commit without Spark. False, and nothing was done, where that is Spark's to do. Raises
    UnsafeError if Spark's commits are not safe and this program does not know what the table is."""
    if not writes_here(table) or (folder := table.log_folder) is None:
        return False
    done = attempt(lambda: commit_here(table, partial(commit, folder)))
    if done is not True:
        leave_to_spark(table, str(done) if isinstance(done, UnsupportedError) else NOT_HERE)
    return done is True


def _set(table: Table, key: str, value: str) -> None:
    table.spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({literal(key)} = {literal(value)})")


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
