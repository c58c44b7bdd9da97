"""A user's own Delta table as a source: its rows at the first start, then what each commit inserts. No Spark.

What a commit means is decided in geo.log.sources.table_changes. The rows of a commit are published in one commit, or in one with those of commits
beside it. Those that were there at the first start are published in steps, file by file. What is published says up to which commit, by its id. So an
older copy, a table that was made again and commits that are gone are told.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from geo.config.choices import Start
from geo.delta.commits import Commit
from geo.delta.engine import UnsupportedError
from geo.delta.history import LOOK_BACK, CommitName, Gone, parted
from geo.delta.plain_table import Columns
from geo.delta.tail import FULL_LOOK_S, REMOTE_FULL_LOOK_S
from geo.errors import UsageError
from geo.log.ledgers import SourceEnd
from geo.log.sources.own_table import OwnTable, TableSpan
from geo.log.sources.source import Place, Position
from geo.log.sources.table_changes import ANEW, SourceFile, inserted, repeated, source_file, why_parted
from geo.log.sources.table_rows import NO_COLUMNS, SOURCE
from geo.reasons import Reason, Wrong

log = logging.getLogger(__name__)

BATCH_BYTES = 64 * 1024 * 1024
"""Bytes of files, per batch: Parquet is a fifth of its rows, or less. A commit is never divided."""

FEW_BYTES = 1024 * 1024
"""A batch of files of so many bytes is read by the process that plans it."""

LEAST_SPAN_BYTES = 16 * 1024 * 1024
"""Files of so many bytes together are read by one task, one at least."""

TURN_COMMITS = 500

WHOLE = -1
"""In a place: all of the version is published. Else how many of its files are, of which there are as many as it had at the first start."""


class TableReader:
    """Reads one table. A place is `[number of the next row, version, id of its commit, id of the table, files]`. The last is WHOLE, or how many
    files of the version are published. `start`: with all rows that are there at the first start, or with what comes from then on. `only_inserts`:
    changes and deletes are passed over. May be sent to another process."""

    def __init__(
        self,
        own: OwnTable,
        *,
        start: Start = "earliest",
        batch_bytes: int = BATCH_BYTES,
        only_inserts: bool = False,
    ) -> None:
        self._own, self._table, self._start, self._batch_bytes = own, own.plain, start, batch_bytes
        self._only_inserts = only_inserts
        self._end: int | None = None
        self._known: Columns | None = None
        """The columns of the version up to which batches were planned; None: they have to be looked for."""
        self._listed: tuple[int, list[SourceFile]] | None = None
        """The files of the version with which the first start began."""
        self._recent: deque[Commit] = deque(maxlen=LOOK_BACK)
        self._looked_at: float | None = None
        self._planned: list[TableSpan] = []
        self.blocks = NO_COLUMNS

    # -- places ----------------------------------------------------------------------------------------------------------

    def place_of(self, source: str, end: SourceEnd) -> Place | None:
        """Tells where the table goes on that is published up to `end`; None of another source's."""
        if source != SOURCE or len(end.parts) != 2:
            return None
        try:
            version, commit_id, table_id, files = json.loads(end.parts[1])
            return [int(end.parts[0]) + 1, int(version), commit_id, str(table_id), int(files)]
        except (ValueError, TypeError):
            return None

    def has(self, source: str) -> bool:
        """True for this kind of source, of which a producer has one."""
        return source == SOURCE

    def say(self, source: str, place: Place) -> str:
        """Show a place as table and version."""
        return f"{self._table} from version {place[1] + (place[4] == WHOLE)}"

    def mark_of(self, place: Place) -> str:
        """Version, commit, table and files, as JSON."""
        return json.dumps(place[1:], separators=(",", ":"))

    def begin(self, known: Position) -> Position:
        """Begin at what is known."""
        return known

    def unread(self, position: Position) -> Collection[str]:
        """The table, unless it has a place."""
        return () if SOURCE in position else (SOURCE,)

    def end_here(self) -> None:
        """Read no further than what is there now."""
        self._end = self._own.newest()

    def part_of(self, position: Position) -> float | None:
        """None: how much is left is not known before it is read."""
        return None

    # -- a batch ---------------------------------------------------------------------------------------------------------

    def next(self, start: Position) -> Position:
        """The position up to which the next batch is read. Raises SourceChangedError, with nothing of it planned, for what `table_changes` refuses
        and for commits that are gone. RetryableError if there is no table; UsageError for one that is not read here."""
        self._planned = []
        place = start.get(SOURCE)
        if place is None:
            place = self._first_place()
        elif not self._has_news(place):
            return start
        if place[4] != WHOLE:
            return {**start, SOURCE: self._next_files(place)}
        return {**start, SOURCE: self._next_commits(place)}

    def _first_place(self) -> Place:
        version = self._own.newest()
        commit = self._table.commit_at(version)
        _, table_id, _ = self._own.at(version)
        self._looked_at = time.monotonic()
        return [0, version, None if commit is None else commit.commit_id, table_id, 0 if self._start == "earliest" else WHOLE]

    def _has_news(self, place: Place) -> bool:
        """True if there is more than a place says, in the table that it was."""
        _, version, _, _, files = place
        news = files != WHOLE or ((self._end is None or version < self._end) and self._table.has_commit(version + 1))
        look_s = FULL_LOOK_S if self._table.is_near else REMOTE_FULL_LOOK_S
        if news or self._looked_at is None or time.monotonic() - self._looked_at >= look_s:
            self._look(place)
            return news or version < self._own.newest()
        return False

    def _look(self, place: Place) -> None:
        """Raises SourceChangedError if the table is not the one of the place."""
        _, version, commit_id, table_id, _ = place
        there = self._table.commit_at(version)
        if there is None or there.commit_id != commit_id:  # else it is: what the table is called may stand far back
            named = CommitName(table_id, version, commit_id)
            if (found := parted(named, self._table.table_id() or table_id, self._own.newest(), there)) is not None:
                raise self._own.changed(why_parted(found))
        self._looked_at = time.monotonic()

    def _next_files(self, place: Place) -> Place:
        """The next of the files of the version with which the first start began."""
        row, version, commit_id, table_id, done = place
        if self._listed is None or self._listed[0] != version:
            listed, self._known = self._files_at(version, done)
            listed.sort(key=lambda one: (one.get("modificationTime") or 0, one["path"]))  # as they came, about
            self._listed = version, list(map(source_file, listed))
        files, left = list[SourceFile](), self._batch_bytes
        for file in self._listed[1][done:]:
            if files and left < file.size:
                break
            files.append(file)
            left -= file.size
        assert self._known is not None, "it came with the files"
        row = self._plan(row, [files], self._known)
        done += len(files)
        if done < len(self._listed[1]):
            return [row, version, commit_id, table_id, done]
        self._listed = None
        return [row, version, commit_id, table_id, WHOLE]

    def _files_at(self, version: int, done: int) -> tuple[list[Mapping[str, Any]], Columns]:
        """The files of the version with which the first start began, of which so many are published."""
        found = self._table.at(version)
        if isinstance(found, UnsupportedError) and done and version < self._own.newest():
            raise self._own.changed(
                Wrong(
                    Reason.SOURCE_ROWS_GONE,
                    f"version {version}, of which {done} files are published, cannot be told any more ({found}), and with it which files are left",
                    ANEW,
                )
            )
        files, _, columns = self._own.readable(found)
        if any(one.get("deletionVector") for one in files):
            raise UsageError(
                f"{self._table}: some rows of its files were deleted one by one (deletion vectors), which are not read. Nothing of it was "
                "published. REORG TABLE … APPLY (PURGE) writes these files anew; --delta-start latest leaves out what is there now."
            )
        return files, columns

    def _next_commits(self, place: Place) -> Place:
        row, version, commit_id, table_id, _ = place
        last = self._own.newest() if self._end is None else self._end
        parts, left, columns = list[list[SourceFile]](), self._batch_bytes, self._known
        if not self._recent:
            self._recent.extend(commit for commit, _ in self._table.commits(max(0, version - LOOK_BACK + 1), version))
        if version < last and not self._table.has_commit(version + 1):
            first = self._table.first_commit(version + 1, last)
            self._own.refuse_lost(Gone(version + 1, first - 1))
            version, commit_id, columns = first - 1, None, None
        for commit, actions in self._table.commits(version + 1, min(last, version + TURN_COMMITS)):
            if commit.version > version + 1:
                break  # its log is cut now: the next look says what is gone
            if commit.columns is not None and any(parts):
                break
            found = self._inserted(commit, actions)
            if isinstance(found, Wrong):
                if version != place[1]:
                    break  # what came before it is published first
                raise self._own.changed(found)
            files = list(found)
            size = sum(file.size for file in files)
            if any(parts) and size > left:
                break
            if commit.columns is not None:
                columns = self._own.readable(self._table.columns_after(actions, commit.version))
            elif columns is None and files:
                columns = self._own.readable(self._table.columns_at(commit.version))
            parts.append(files)
            left -= size
            version, commit_id = commit.version, commit.commit_id
            self._recent.append(commit)
        self._known = columns
        if any(parts) and columns is not None:
            row = self._plan(row, parts, columns)
        return [row, version, commit_id, table_id, WHOLE]

    def _inserted(self, commit: Commit, actions: list[Mapping[str, Any]]) -> Sequence[SourceFile] | Wrong:
        def has_files(paths: Collection[str]) -> bool:
            return set(paths) <= {one["path"] for one in self._own.at(commit.version - 1)[0]}

        again = repeated(commit, actions, self._recent)
        if again:
            log.warning("%s: version %d is a commit that landed twice: it brings nothing", self._table, commit.version)
            return ()
        if again is None:
            return Wrong(
                Reason.SOURCE_CHANGED,
                f"version {commit.version} adds files that an earlier one added, and others. It was not published",
                ANEW,
            )
        return inserted(commit, actions, only_inserts=self._only_inserts, has_files=has_files)

    def _plan(self, row: int, parts: Sequence[Sequence[SourceFile]], columns: Columns) -> int:
        """Number the rows of the files, in parts that stay together where they are put in order, and plan who reads them. Returns the number of the row
        that comes next."""
        self.blocks = self._own.blocks(columns)
        held, size = list[tuple[SourceFile, int]](), 0
        for files in parts:
            for file in files:
                held.append((file, row))
                size += file.size
                row += self._own.rows_of(file)
                if size >= LEAST_SPAN_BYTES and not self._own.is_ordered:
                    self._planned.append(TableSpan(tuple(held), columns))
                    held, size = [], 0
            if self._own.is_ordered and held:
                self._planned.append(TableSpan(tuple(held), columns))
                held, size = [], 0
        if held:
            self._planned.append(TableSpan(tuple(held), columns))
        return row

    def spans(self, start: Position, end: Position) -> list[TableSpan]:
        """Return what is read between two positions, of which `next` gave the second last."""
        return self._planned

    def are_few(self, spans: Sequence[TableSpan]) -> bool:
        """True if the process that planned the spans reads them itself."""
        return sum(file.size for span in spans for file, _ in span.files) <= FEW_BYTES

    def close(self) -> None:
        """Nothing is kept open."""

    def read(self, span: TableSpan) -> Iterator[pa.RecordBatch]:
        """Read a span, as `OwnTable.read`."""
        return self._own.read(span)
