"""A topic's log in the target of a link: whether it is still as rows were made for it, and what is appended to it.

Whoever appends messages to a log that others fill does so by `TargetWatch`: a link, a backfill, a rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from geo.config.model import Link
from geo.coordination.ownership import Ownership
from geo.delta.engine import TableSnapshot
from geo.delta.history import CommitName
from geo.delta.local_state import own_state, state_to_follow
from geo.delta.row_files import Written
from geo.delta.table import Table
from geo.errors import GeoError, RetryableError, UnknownAnswerError
from geo.log.topic_log import ID
from geo.names import Topic
from geo.reasons import Reason
from geo.replication.link_start import TargetSeen, lacks, look_at_target
from geo.replication.link_state import LinkRecord
from geo.replication.shape import Shape
from geo.replication.source_look import LOOKED_FOR

ORDER = ("publish_date", *ID)
"""Order of the rows of each file."""


def newest_commit(table: Table, what: str, seen: TableSnapshot | None = None) -> CommitName:
    """The newest commit of a table, which the caller has just `seen`; None: it is looked for. Raises RetryableError, naming `what` wants it,
    if it cannot be read."""
    seen = seen or table.snapshot()
    newest = table.commit_at(seen.version) if seen is not None else None
    if seen is None or newest is None:
        raise RetryableError(f"{what}: the log {table} cannot be read at its newest version.")
    return CommitName.of(seen.table_id, newest)


@dataclass(slots=True)
class TargetWatch:
    """Rows were made for a target as it is at a commit. Since then others may have appended to it; nobody may have put it back.

    A target that is RESTOREd to before a comparison's rows, compared with, and RESTOREd back would get them twice.
    """

    target: Table
    since: CommitName
    shape: Shape
    """All that is appended has it."""
    what: str
    in_doubt: bool = False
    """An append was begun of which nobody knows what became."""

    def append(
        self, ownership: Ownership, rows: DataFrame | Written | pa.Table, record: str, refuse: Callable[[], None] | None = None
    ) -> int:
        """Append in one commit with its record, if and only if the ownership holds; without a row there is none. Rows are sorted by id within the
        files of each date, as files are that were written. Returns how many rows. `refuse` is asked right before the commit; None:
        `refuse_if_put_back` is.

        Raises RetryableError if the target was put back meanwhile, FencedError, and as `Shape.of`.
        """
        refuse = refuse or self.refuse_if_put_back
        with self.appending():
            if isinstance(rows, Written):
                ownership.append(self.target, rows, record, refuse)
                return sum(file.rows for file in rows.files)
            rows = self.shape.of(rows)
            if isinstance(rows, pa.Table):
                if len(rows):
                    ownership.append(self.target, rows.sort_by([(name, "ascending") for name in ORDER]), record, refuse)
                    self._passed_own()
                return len(rows)
            seen = Observation()
            counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
            ownership.append(self.target, counted.sortWithinPartitions(*ORDER), record, refuse)
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

    def _passed_own(self) -> None:
        """Marks the own append as passed: an append, and the only one since, where this process's commit is the next."""
        if not self.target.is_near and (state := own_state(self.target)) is not None and state.version == self.since.version + 1:
            self.since = CommitName(self.since.table_id, state.version, state.txn_id)

    def passed(self, seen: CommitName) -> None:
        """Somebody has looked at all up to `seen`, and found nothing."""
        if seen.version > self.since.version:
            self.since = seen

    def refuse_if_put_back(self) -> None:
        """To be asked right before an append. On a local disk it finds the newest commit by name, a look at a file each. Raises
        RetryableError if a commit since was no append, or a commit that is known is not what it was."""
        since = self.since
        if not self.target.is_near:
            if (state := state_to_follow(self.target)) is not None and (state.version, state.txn_id) == (
                since.version,
                since.commit_id,
            ):
                return  # nothing has come since; that it is what it was the commit finds itself
            version = max(since.version, self.target.latest_version() if state is None else state.version)
        else:
            version = since.version
            while self.target.has_commit(version + 1):
                version += 1
        looked = look_at_target("", since, since.table_id, version, self.target.commits(since.version, version))
        if looked.why is not None:
            raise RetryableError(
                f"{self.what}: {looked.why}; nothing was appended, both logs are to be compared again.",
                code=Reason.TARGET_CHANGED,
            )
        self.passed(looked.newest)


class LinkTarget:
    """The target of one link and topic, while this process owns it. `look` or `watch_from` comes before the first append."""

    def __init__(self, link: Link, topic: Topic, log: Table, ownership: Ownership, shape: Shape) -> None:
        """All that is appended has the shape."""
        self._link, self.topic, self.log, self.ownership, self._shape = link, topic, log, ownership, shape
        self.seen: CommitName | None = None
        """The newest commit that was looked at; None before `look` and `watch_from`."""
        self._watch: TargetWatch | None = None
        self._appended = self._found = 0
        """Commits that this ownership made, and those of them that a look has found there."""

    def __str__(self) -> str:
        return f"{self._link.name} {self.topic}"

    @property
    def in_doubt(self) -> bool:
        """An append was begun of which nobody knows what became."""
        return self._watch is not None and self._watch.in_doubt

    def look(self, since: CommitName) -> TargetSeen:
        """The commits from the one at `since` to the newest, from which it is watched."""
        looked = self._look(since)
        self.watch_from(looked.newest)
        return looked

    def _look(self, since: CommitName) -> TargetSeen:
        seen = self.log.snapshot()
        if seen is None:
            raise RetryableError(f"{self}: the target's log {self.log} is not there.", code=Reason.TARGET_GONE)
        commits = self.log.commits(since.version, seen.version, only=LOOKED_FOR)
        return look_at_target(self._link.name, since, seen.table_id, seen.version, commits)

    def watch_from(self, commit: CommitName) -> None:
        """Watches from this commit on: what is appended later is made for the target as it is there."""
        self.seen, self._watch = commit, TargetWatch(self.log, commit, self._shape, str(self))

    def look_on(self, since: CommitName) -> TargetSeen:
        """Looks at the commits above the one at `since`. Raises RetryableError if anything since `since`, up to where the last look came, took
        messages away, or appended some of our origins by another link. So it does if what was appended by now is not there.
        """
        appended = self._appended
        looked = self._look(since)
        self._found += looked.by_token.get(self.ownership.token, 0)
        if looked.why is None and self._found < appended:
            # An older copy was put back of which all that is there is as it was.
            raise RetryableError(
                f"{self}: the target lacks what was appended to it; comparing both logs.", code=Reason.TARGET_CHANGED
            )
        own = {name for name, record in looked.by_origin.items() if record.token == self.ownership.token}
        if (why := lacks(looked, self._link.name, set(self._link.origins) - own)) is not None:
            raise RetryableError(f"{self}: {why}; comparing both logs.", code=Reason.TARGET_CHANGED)
        assert self._watch is not None, "it came with what was seen"
        self._watch.passed(looked.newest)
        self.seen = looked.newest
        return looked

    def append(self, rows: DataFrame | Written | pa.Table, cursor: CommitName, *, reconciling: bool = False) -> int:
        """One commit with its record; none if there is no row. Returns how many. Raises as `TargetWatch.append`."""
        assert self._watch is not None, "it came with what was seen"
        owner, origins = self.ownership, tuple(sorted(self._link.origins))
        record = LinkRecord(
            self._link.name, origins, str(self.topic), cursor, owner.generation, owner.token, reconciling=reconciling
        )
        count = self._watch.append(owner, rows, record.encode())
        self._appended += count > 0
        return count
