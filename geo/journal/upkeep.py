"""Keeps a journal small, off the path of those who append: few rows, few files, few commits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import pyarrow as pa

from geo.delta.cut import KEEP_OF_JOURNAL, LogReader, cut_below
from geo.delta.ddl import set_property
from geo.delta.delta_log import read_folder, remove_below
from geo.delta.predicate import ANY_ROW, Predicate, to_sql
from geo.delta.predicate_arrow import kept
from geo.delta.rewrite import replace_rows
from geo.delta.scan import few_rows
from geo.delta.spark_commits import sweep_table, vacuum_table
from geo.journal.journal import Journal
from geo.schemas.table import VERSION_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VACUUM_FILES = 100
"""Looking for files to remove takes a second; fewer than this disturb nobody."""


def count_files(journal: Journal) -> int:
    """Count the files that hold the rows. Without a Spark job where this process reads the log."""
    return journal.table.count_files() if journal.exists() else 0


def clean(journal: Journal, keep: Predicate = ANY_ROW, *, dry_run: bool = False) -> int:
    """Replace all rows by the newest of each subject that fulfil `keep`, in one commit and one file. Returns how many go. Few rows without
    a Spark job, where this process reads its log.

    An append that comes between stays (`replace_rows`).
    """
    if not journal.exists():
        return 0

    def few(rows: pa.Table) -> pa.Table:
        told = rows.select(list(dict.fromkeys((*journal.schema.subject, *journal.schema.order)))).to_pylist()
        return kept(keep, rows.take(pa.array(journal.rule.places(told), pa.int64())))

    def many(rows: DataFrame) -> DataFrame:
        return journal.rule.newest(journal.rule.whole(rows)).where(to_sql(keep))

    if (there := few_rows(journal.table, journal.table.latest_version())) is not None:
        superseded = len(there) - len(few(there))
    else:
        superseded = (rows := journal.table.read()).count() - many(rows).count()
    if not dry_run and (superseded or count_files(journal) > 1):
        journal.make()
        replace_rows(journal.table, many, few)
    return superseded


def keep_where(journal: Journal, where: str) -> None:
    """Keep the rows that fulfil this (SQL), in one file and one commit. What is appended meanwhile stays, and streams do not see
    it."""
    if journal.exists():
        replace_rows(journal.table, lambda rows: journal.rule.whole(rows).where(where))


def replace(journal: Journal, make: Callable[[DataFrame], DataFrame]) -> None:
    """Replace its rows by what `make` makes of the newest one of each subject, in one file and one commit. What is appended meanwhile
    stays. The journal exists."""
    replace_rows(journal.table, lambda rows: make(journal.rule.newest(journal.rule.whole(rows))))


def upgrade(journal: Journal) -> None:
    """Let the table, which exists, have the version of its schema: programs that know only those before refuse it from now on."""
    stored = journal.table.properties().get(VERSION_PROPERTY, "")
    if stored.isdigit() and int(stored) < journal.schema.version:  # a later program's stays, which nobody looked for since
        set_property(journal.table, VERSION_PROPERTY, str(journal.schema.version))


def cut(journal: Journal, readers: Collection[LogReader] = ()) -> int:
    """Let old commits go, which nobody else looks at; returns how many. Where no port is Delta's own clean-up does
    it."""
    folder = journal.table.log_folder if journal.exists() else None
    if folder is None:
        return 0
    found = read_folder(folder)
    return remove_below(folder, found, cut_below(found.newest, found.checkpoints, readers, keep=KEEP_OF_JOURNAL).below)


def vacuum(journal: Journal) -> None:
    """Remove the files that no version within the table's retention needs, on a local disk only if there are many files. And what a process left
    there that died while Spark wrote."""
    if not journal.exists():
        return
    near = journal.table.log_folder if journal.table.is_near else None
    if near is None or sum(name.endswith(".parquet") for name in near.parent.names()) > VACUUM_FILES:
        vacuum_table(journal.table)
    else:
        sweep_table(journal.table)
