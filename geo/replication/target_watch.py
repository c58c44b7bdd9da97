"""Appends to the log of a target rows that were made for it as it is at a commit: of a link, a backfill and a rebuild."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from geo.coordination.ownership import Ownership
from geo.delta.history import CommitName
from geo.delta.table import Table
from geo.errors import GeoError, RetryableError, UnknownAnswerError
from geo.log.topic_log import ID
from geo.replication.link_start import look_at_target


def newest_commit(table: Table, what: str) -> CommitName:
    """The newest commit of a table. Raises RetryableError, naming `what` wants it, if it cannot be read."""
    seen = table.look()
    newest = table.commit_at(seen.version) if seen is not None else None
    if seen is None or newest is None:
        raise RetryableError(f"{what}: the log {table} cannot be read at its newest version.")
    return CommitName.of(seen.table_id, newest)


class TargetWatch:
    """Rows were made for a target as it is at a commit. Since then others may have appended to it; nobody may have put it back.

    A target that is RESTOREd to before a comparison's rows, compared with, and RESTOREd back would get them twice.
    """

    def __init__(self, target: Table, since: CommitName, columns: Collection[str], what: str) -> None:
        """`columns` are the target's: all that is appended gets exactly these."""
        self._target, self._since, self._columns, self._what = target, since, columns, what
        self.in_doubt = False
        """An append was begun of which nobody knows what became."""

    def append(
        self, ownership: Ownership, rows: DataFrame | pa.Table, record: str, refuse: Callable[[], None] | None = None
    ) -> int:
        """One commit with its record, sorted by id within the files of each date, if and only if the ownership holds; without a row there
        is none. Returns how many rows. `refuse` is asked right before the commit; None: `refuse_if_put_back` is.

        Raises RetryableError if the target was put back meanwhile, or the source has got columns; FencedError.
        """
        rows, order, refuse = self._shaped(rows), ("publish_date", *ID), refuse or self.refuse_if_put_back
        with self.appending():
            if isinstance(rows, pa.Table):
                if len(rows):
                    ownership.append(self._target, rows.sort_by([(name, "ascending") for name in order]), record, refuse)
                return len(rows)
            seen = Observation()
            counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
            ownership.append(self._target, counted.sortWithinPartitions(*order), record, refuse)
            return int(seen.get["rows"])

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Meanwhile, and after a fault that does not tell, an append is in doubt."""
        self.in_doubt = True
        try:
            yield
        except UnknownAnswerError:
            raise  # it may have landed, or may still
        except GeoError:  # it was refused, or met another commit each time: nothing landed
            self.in_doubt = False
            raise
        self.in_doubt = False

    def _shaped(self, rows: DataFrame | pa.Table) -> DataFrame | pa.Table:
        """The rows with the target's columns alone. One that a DataFrame does not have yet is NULL; an Arrow table needs not have each.

        Raises RetryableError if the source has got columns since the target's were compared with it: none is left out in silence.
        """
        given = rows.column_names if isinstance(rows, pa.Table) else rows.columns
        if new := [name for name in given if name not in self._columns]:
            raise RetryableError(
                f"the source has got new columns meanwhile: {', '.join(new)}. Nothing was written; the next start adds them."
            )
        if isinstance(rows, pa.Table) or given == list(self._columns):
            return rows
        return rows.select(*(F.col(c) if c in given else F.lit(None).alias(c) for c in self._columns))

    def passed(self, seen: CommitName) -> None:
        """Somebody has looked at all up to `seen`, and found nothing."""
        if seen.version > self._since.version:
            self._since = seen

    def refuse_if_put_back(self) -> None:
        """To be asked right before an append. On a local disk it finds the newest commit by name, a look at a file each. Raises
        RetryableError if a commit since was no append, or a commit that is known is not what it was."""
        since = self._since
        if not self._target.is_near:
            version = max(since.version, self._target.latest_version())
        else:
            version = since.version
            while self._target.has_commit(version + 1):
                version += 1
        looked = look_at_target("", since, since.table_id, version, self._target.commits(since.version, version))
        if looked.why is not None:
            raise RetryableError(f"{self._what}: {looked.why}; nothing was appended, both logs are to be compared again.")
        self.passed(looked.newest)
