"""A topic's log in the target of a link: what the link appends to it, and whether it is still as the link has left it."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.config.model import Link
from geo.coordination.ownership import Ownership
from geo.delta.history import CommitName
from geo.delta.table import Table
from geo.errors import RetryableError
from geo.names import Topic
from geo.replication.link_start import TargetSeen, lacks, look_at_target
from geo.replication.link_state import LinkRecord
from geo.replication.source_look import LOOKED_FOR
from geo.replication.target_watch import TargetWatch


class LinkTarget:
    """The target of one link and topic, while this process owns it. `watch_from` comes before the first append."""

    def __init__(self, link: Link, topic: Topic, log: Table, ownership: Ownership, columns: Collection[str]) -> None:
        """`columns` are the target's: all that is appended gets exactly these."""
        self._link, self.topic, self.log, self.ownership, self._columns = link, topic, log, ownership, columns
        self.seen: CommitName | None = None
        """The newest commit that was looked at and found well; None before `watch_from`."""
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
        """The commits from the one at `since` to the newest."""
        seen = self.log.look()
        if seen is None:
            raise RetryableError(f"{self}: the target's log {self.log} is not there.")
        commits = self.log.commits(since.version, seen.version, only=LOOKED_FOR)
        return look_at_target(self._link.name, since, seen.table_id, seen.version, commits)

    def watch_from(self, commit: CommitName) -> None:
        """What is appended from now on is made for the target as it is at this commit, which was looked at."""
        self.seen = commit
        self._watch = TargetWatch(self.log, commit, self._columns, str(self))

    def look_on(self, since: CommitName) -> TargetSeen:
        """The commits above the one at `since`. Raises RetryableError if anything since `since`, up to where the last look came,
        took messages away or brought some of our origins by another link, and if what was appended by now is not there."""
        appended = self._appended
        looked = self.look(since)
        self._found += looked.by_token.get(self.ownership.token, 0)
        if looked.why is None and self._found < appended:
            # An older copy was put back of which all that is there is as it was.
            raise RetryableError(f"{self}: the target lacks what was appended to it; comparing both logs.")
        own = {name for name, record in looked.brought.items() if record.token == self.ownership.token}
        if (why := lacks(looked, self._link.name, set(self._link.origins) - own)) is not None:
            raise RetryableError(f"{self}: {why}; comparing both logs.")
        assert self._watch is not None, "it came with what was seen"
        self._watch.passed(looked.newest)
        self.seen = looked.newest
        return looked

    def append(self, rows: DataFrame | pa.Table, cursor: CommitName, *, reconciling: bool = False) -> int:
        """One commit with its record; none if there is no row. Returns how many. Raises as `TargetWatch.append`."""
        assert self._watch is not None, "it came with what was seen"
        owner, origins = self.ownership, tuple(sorted(self._link.origins))
        record = LinkRecord(
            self._link.name, origins, str(self.topic), cursor, owner.generation, owner.token, reconciling=reconciling
        )
        count = self._watch.append(owner, rows, record.encode())
        self._appended += count > 0
        return count
