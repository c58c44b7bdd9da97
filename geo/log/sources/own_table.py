"""A user's own Delta table as it is read to be published. It has versions, columns and rows, and an error for what is not read here or is gone."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from geo.delta.engine import UnsupportedError
from geo.delta.history import Gone
from geo.delta.plain_table import Columns, PlainTable
from geo.errors import RetryableError, SourceChangedError, UsageError
from geo.log.sources.table_changes import ANEW, SourceFile
from geo.log.sources.table_rows import RowForm
from geo.reasons import Reason, Wrong

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableSpan:
    """Files of a table in order, each with the number of its first row. Where rows are put in order, those of a span are, together."""

    files: tuple[tuple[SourceFile, int], ...]
    columns: Columns


class OwnTable:
    """One table. `key`: the column whose text is the key of a message. `order_by`: columns in whose order rows of a commit are put.
    `accept_lost`: what is gone is passed over. May be sent to another process."""

    def __init__(
        self, table: PlainTable, *, key: str | None = None, order_by: Sequence[str] = (), accept_lost: bool = False
    ) -> None:
        self.plain, self._form, self._accept_lost = table, RowForm(key, tuple(order_by)), accept_lost

    def __str__(self) -> str:
        return str(self.plain)

    @property
    def is_ordered(self) -> bool:
        """True if rows of a commit are put in order, so that they are read together."""
        return bool(self._form.order_by)

    def read(self, span: TableSpan) -> Iterator[pa.RecordBatch]:
        """The rows, of a span, in order, as `blocks`. Raises SourceChangedError for a file that is gone, UsageError for one that is not read here."""
        if not self._form.order_by:
            for file, row in span.files:
                for rows in self._rows(file, span.columns):
                    yield self._form.block(rows, row)
                    row += len(rows)
            return
        parts = [rows for file, _ in span.files for rows in self._rows(file, span.columns)]
        if parts:
            row = span.files[0][1]
            for batch in self._form.in_order(pa.concat_tables(parts)).to_batches(max_chunksize=2_000):
                yield self._form.block(pa.Table.from_batches([batch]), row)
                row += len(batch)

    def _rows(self, file: SourceFile, columns: Columns) -> Iterator[pa.Table]:
        count = 0
        try:
            for rows in self.plain.rows(file.path, file.size, file.partition, columns, inserts=file.is_feed):
                count += len(rows)
                if file.rows is not None and count > file.rows:
                    raise UsageError(
                        f"{self}: {file.path} has more rows than the {file.rows} of which its log tells. Nothing of it was published."
                    )
                yield rows
        except FileNotFoundError:
            if not self._accept_lost:
                raise self._file_gone(file) from None
            log.warning("%s: the file %s is gone and was accepted as lost", self, file.path)

    def columns_now(self) -> pa.Schema:
        """Return the `blocks` of the newest version. Raises RetryableError if there is no table. UsageError for one that is not read here, and for
        a key or an order that is none of its columns."""
        return self.blocks(self.readable(self.plain.columns_at(self.newest())))

    def blocks(self, columns: Columns) -> pa.Schema:
        """The columns of what `read` yields of files with these columns. Raises UsageError for a key or an order that is none of them."""
        if (why := self._form.why_not(columns.schema)) is not None:
            raise UsageError(f"{self}: {why}")
        return self._form.blocks(columns.schema)

    def at(self, version: int) -> tuple[list[Mapping[str, Any]], str, Columns]:
        """Read a version as `PlainTable.at` does. Raises UsageError where it is not read here."""
        found: tuple[list[Mapping[str, Any]], str, Columns] = self.readable(self.plain.at(version))
        return found

    def readable(self, found: Any) -> Any:
        """Return what was found. Raises UsageError where the table is not read here."""
        if isinstance(found, UnsupportedError):
            raise UsageError(
                f"{self}: {found}; such a table is not read. Nothing of it was published. docs/own-table.md says what can be done."
            )
        return found

    def newest(self) -> int:
        """The newest version. Raises RetryableError if there is no table."""
        if (newest := self.plain.newest()) is None:
            raise RetryableError(f"{self}: there is no Delta table now.", code=Reason.SOURCE_GONE)
        return newest

    def _file_gone(self, file: SourceFile) -> SourceChangedError:
        return self.changed(
            Wrong(
                Reason.SOURCE_ROWS_GONE,
                f"the file {file.path} is gone before it was read (VACUUM?). Nothing of its batch was published",
                f"Bring it back from a copy. To go on without its rows run `geo publish … --accept-lost` once. {ANEW}",
            )
        )

    def changed(self, wrong: Wrong) -> SourceChangedError:
        """The error of what is wrong with the table, which names it."""
        return SourceChangedError(Wrong(wrong.code, f"{self}: {wrong.what}", wrong.do))

    def rows_of(self, file: SourceFile) -> int:
        """The number of a file's rows; 0 of one that is gone and accepted as lost. Raises SourceChangedError for another that is gone."""
        if file.rows is not None:
            return file.rows
        try:
            return self.plain.count(file.path, file.size)
        except FileNotFoundError:
            if self._accept_lost:
                return 0
            raise self._file_gone(file) from None

    def refuse_lost(self, gone: Gone) -> None:
        """Commits that were not read yet are gone. Raises SourceChangedError unless that was accepted."""
        if not self._accept_lost:
            raise self.changed(
                Wrong(
                    Reason.SOURCE_ROWS_GONE,
                    f"{gone} are gone before they were read (its log was cleaned up), and with them is known what they inserted. Nothing was skipped",
                    f"To go on behind them run `geo publish … --accept-lost` once. {ANEW}",
                )
            )
        log.warning("%s: %s are gone and were accepted as lost", self, gone)
