"""A topic's log in the target of a link: what the link appends to it, and whether it is still as the link has left it."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.config.model import Link
from geo.coordination.ownership import Ownership
from geo.delta.history import CommitName
from geo.delta.table import Table
from geo.errors import GeoError, RetryableError, UnknownAnswerError
from geo.names import Topic
from geo.replication.link_start import TargetSeen, lacks, look_at_target
from geo.replication.link_state import LinkRecord
from geo.replication.missing_rows import in_target_shape
from geo.replication.ordered_append import append_in_order
from geo.replication.source_look import LOOKED_FOR
from geo.replication.target_watch import TargetWatch


class LinkTarget:
    """The target of one link and topic, while this process owns it. `begin` comes first; before the first append `columns` are
    set and `watch_from` is called."""

    def __init__(self, link: Link, topic: Topic) -> None:
        self._link, self.topic = link, topic
        self.log: Table
        self.ownership: Ownership
        self.columns: Collection[str] = ()
        """The target's columns; all that is appended gets exactly these."""
        self.seen: CommitName | None = None
        """The newest commit that was looked at and found well."""
        self.replicated = 0
        """Messages that this run appended."""
        self.in_doubt = False
        """An append was begun of which nobody knows what became."""
        self._watch: TargetWatch | None = None
        self._appended = self._found = 0
        """Commits that this ownership made, and those of them that a look has found there."""

    def __str__(self) -> str:
        return f"{self._link.name} {self.topic}"

    def begin(self, log: Table, ownership: Ownership) -> None:
        """Under another ownership nothing holds of what was known."""
        self.log, self.ownership = log, ownership
        self.seen, self.in_doubt, self._watch, self._appended, self._found = None, False, None, 0, 0

    def look(self, since: CommitName) -> TargetSeen:
        """The commits from the one at `since` to the newest."""
        seen = self.log.look()
        if seen is None:
            raise RetryableError(f"{self}: the target's log {self.log} is not there.")
        commits = self.log.commits(since.version, seen.version, only=LOOKED_FOR)
        return look_at_target(self._link.name, since, seen.table_id, seen.version, commits)

    def watch_from(self, commit: CommitName) -> None:
        """What is appended from now on is made for the target as it is at this commit."""
        self._watch = TargetWatch(self.log, commit, str(self))

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
        """One commit with its record; none if there is no row. Returns how many. Raises RetryableError if the target was put back
        meanwhile, or the source has got columns."""
        assert self._watch is not None, "prepare made it"
        rows = in_target_shape(rows, self.columns)
        owner, origins = self.ownership, tuple(sorted(self._link.origins))
        record = LinkRecord(
            self._link.name, origins, str(self.topic), cursor, owner.generation, owner.token, reconciling=reconciling
        )
        self.in_doubt = True
        try:
            count = append_in_order(owner, self.log, rows, record.encode(), self._watch.refuse_if_put_back)
        except UnknownAnswerError:
            raise  # it may have landed, or may still
        except GeoError:  # it was refused, or met another commit each time: nothing landed
            self.in_doubt = False
            raise
        self.in_doubt = False
        self.replicated += count
        self._appended += count > 0
        return count
