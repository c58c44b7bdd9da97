"""The files of a topic's log by publish_date, as the log's `add` actions have it, never by their paths. And putting those of a date into fewer
ones."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import functions as F

from geo.delta.appending import write_frame
from geo.delta.change import Change, DataFileOf
from geo.delta.delta_state import DeltaState
from geo.delta.frames import read_files
from geo.delta.local_commits import change_here, remove_written
from geo.delta.local_state import own_state
from geo.delta.scan import files_at
from geo.delta.spark_commits import commit_by_spark, with_user_metadata
from geo.delta.table import Table
from geo.errors import DamagedError, UnsafeError
from geo.log.topic_log import ID
from geo.now import utc_now

_DATE = "publish_date"

_RECENT_DAYS = 63
"""Spark is asked for these dates first: a log has most of its files there."""

MOST_BYTES = 1024**3
"""Largest file that a compaction makes: as Delta's own."""


@dataclass(frozen=True, slots=True)
class DateFiles:
    """Files that a topic log has of one publish_date."""

    day: date
    rows: int
    files: int
    bytes: int


def date_files(table: Table) -> dict[date, DateFiles] | None:
    """Files of each date, derived from the log alone; None where Spark is to count them."""
    state = own_state(table)
    files = None if state is None else files_at(table, state)
    if files is None:
        return None
    by_day: dict[date, list[DataFileOf]] = {}
    for file in files:
        by_day.setdefault(date.fromisoformat(file.partition[_DATE]), []).append(file)
    return {day: DateFiles(day, sum(f.rows for f in of), len(of), sum(f.size for f in of)) for day, of in sorted(by_day.items())}


def counted_by_spark(table: Table) -> dict[date, int]:
    """Counts the files of each date. Spark takes the files of a range of dates from the log; ranges are halved until each is a
    date. Raises UnsafeError where it does not tell them apart.
    """
    rows = table.read()

    def count(first: date, last: date) -> int:
        return len(rows.where(f"{_DATE} BETWEEN DATE'{first}' AND DATE'{last}'").inputFiles())

    def refuse(first: date, last: date, files: int, parts: Sequence[int]) -> None:
        if sum(parts) != files:
            raise UnsafeError(
                f"{table}: Spark does not tell which files are of which {_DATE}: it says {files} of {first} to {last}, and {' + '.join(map(str, parts))} "
                "of its parts. Nothing of the topic was expired or compacted. Stop its writers, and start again; if it stays so, report it."
            )

    def counted(first: date, last: date, files: int) -> Iterable[tuple[date, int]]:
        if files == 0:
            return
        if first == last:
            yield first, files
            return
        middle = first + timedelta(days=(last - first).days // 2)
        before, after = count(first, middle), count(middle + timedelta(days=1), last)
        refuse(first, last, files, [before, after])
        yield from counted(first, middle, before)
        yield from counted(middle + timedelta(days=1), last, after)

    today = utc_now().date()
    recent, after = today - timedelta(days=_RECENT_DAYS), today + timedelta(days=2)
    parts = [(date.min, recent), (recent + timedelta(days=1), after), (after + timedelta(days=1), date.max)]
    counts = [count(*part) for part in parts]
    refuse(date.min, date.max, len(rows.inputFiles()), counts)
    return dict(one for part, files in zip(parts, counts, strict=True) for one in counted(*part, files))


def footers(table: Table, days: Collection[date]) -> dict[date, DateFiles]:
    """Rows, files and bytes of these dates, derived from the files' footers, each of which is opened."""
    if not days:
        return {}
    rows = table.read().where(F.col(_DATE).isin(list(days)))
    by_file = rows.groupBy(_DATE, F.col("_metadata.file_path"), F.col("_metadata.file_size").alias("size"))
    counted = by_file.agg(F.count("*").alias("rows")).groupBy(_DATE)
    totals = counted.agg(F.sum("rows").alias("rows"), F.count("*").alias("files"), F.sum("size").alias("bytes"))
    return {r[_DATE]: DateFiles(r[_DATE], r["rows"], r["files"], r["bytes"]) for r in totals.collect()}


def among(days: Collection[date]) -> str:
    """Rows of these dates, as SQL."""
    return f"{_DATE} IN ({', '.join(f'DATE{str(day)!r}' for day in days)})"


def remove_dates(table: Table, days: Sequence[date], record: str) -> None:
    """Remove whole dates in one commit with a record: files are dropped, none is rewritten."""

    def removal(state: DeltaState) -> Change | None:
        files, gone = files_at(table, state), frozenset(map(str, days))
        if files is None:
            return None
        taken = tuple(file for file in files if file.partition[_DATE] in gone)
        counted = {"numDeletedRows": sum(file.rows for file in taken)}
        return Change(state.version, "DELETE", {"predicate": json.dumps([among(days)])}, counted, taken, closed=gone)

    if change_here(table, removal, record) is None:
        recorded = with_user_metadata(table, record)
        commit_by_spark(recorded, lambda: recorded.delta().delete(among(days)))


def compact_date(table: Table, day: date) -> None:
    """Put the rows of a date, in the order of their ids, into as few files as may be. Raises DamagedError if they are not as many as the log
    says."""

    def compaction(state: DeltaState) -> Change | None:
        taken = tuple(file for file in files_at(table, state) or () if file.partition[_DATE] == str(day))
        if not taken:
            return None
        rows = read_files(table, ((file.path, file.partition) for file in taken))
        count = -(-sum(file.size for file in taken) // MOST_BYTES)
        in_parts = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, *ID)
        written = write_frame(table, in_parts.sortWithinPartitions(*ID))
        if written is None:
            return None
        there, found = sum(file.rows for file in taken), sum(file.rows for file in written.files)
        if there != found:
            remove_written(table, written)
            raise DamagedError(
                f"{table}: the files of {day} have {found} rows, the log says {there}. Nothing was written. Compare the regions: geo verify"
            )
        told = {"predicate": json.dumps([among([day])]), "zOrderBy": "[]", "auto": "false"}
        return Change(state.version, "OPTIMIZE", told, {}, taken, written, changes_rows=False)

    if change_here(table, compaction) is None:
        commit_by_spark(table, lambda: table.delta().optimize().where(among([day])).executeCompaction())
