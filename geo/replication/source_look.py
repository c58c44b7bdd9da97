"""The log of a link's source, for all who replicate what is in it: opened, and its commits looked at. What they mean is decided in
`source_history.py`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence

from geo.config.model import Link
from geo.delta.commits import ERASED, EXPIRED, Commit
from geo.delta.engine import TableSnapshot
from geo.delta.history import LOOK_BACK, CommitName, parted
from geo.delta.table import Table
from geo.delta.tail import REMOTE_PRESENCE_S
from geo.delta.versions import stamp_at
from geo.errors import RetryableError
from geo.journal.cluster import ClusterTables
from geo.log.kept_policies import refuse_forbidden
from geo.log.ledgers import RECORDS
from geo.log.promises import Promise
from geo.log.topic_log import seen_log
from geo.names import Topic
from geo.reasons import Reason
from geo.replication.source_history import CompareLogs, Fault, judge
from geo.schemas.table import POLICIES_PROPERTY

LOOKED_FOR = (*RECORDS, ERASED, EXPIRED)
"""Records that matter when commits are looked at."""


def open_source_log(source: ClusterTables, topic: Topic, link: Link, who: str) -> tuple[Table, TableSnapshot]:
    """The topic's log in the link's source, checked, with what the look at it said.

    Raises SchemaError as `open_log`, RetryableError if the log says that the topic does not go this way; `who` replicates it.
    """
    log_table, seen = seen_log(source, topic)
    refuse_forbidden(seen.properties.get(POLICIES_PROPERTY), link.source, link.target, who, str(log_table), str(topic))
    return log_table, seen


class SourceLook:
    """The log of a source, for whoever stands at a cursor in it and wants messages of these origins. `what` names who looks."""

    def __init__(
        self, source: Table, origins: frozenset[str], what: str, promises: Callable[[], Sequence[Promise]] = lambda: ()
    ) -> None:
        """`promises`: the ends that its producers recorded, as they were some seconds ago at most."""
        self._log, self._origins, self._what, self._promises = source, origins, what, promises
        self._found_at_cursor: tuple[CommitName, Hashable] | None = None
        """The cursor, and the file of its commit as it was when that was read last, at `_found_at`."""
        self._found_at = 0.0
        self._recent: deque[Commit] = deque(maxlen=LOOK_BACK + 1)
        """The commits that were judged last."""

    @property
    def is_local(self) -> bool:
        """Tells whether a look at the commits is no request."""
        return self._log.is_near

    def judged(self, cursor: CommitName) -> Fault | CompareLogs | None:
        """Judges the commits above the cursor, up to the newest. On a local disk, where a power cut may take the newest commits away, the commits
        that its producers recorded are looked for too. Elsewhere only comparisons hold what they recorded against the log. Raises RetryableError if
        the log is not there.
        """
        promises = self._promises() if self.is_local else ()  # before the log
        if (seen := self._log.snapshot()) is None:
            raise RetryableError(f"{self._what}: the source's log {self._log} is not there.", code=Reason.SOURCE_GONE)
        newest = seen.version
        before = list(self._log.commits(max(0, cursor.version - LOOK_BACK), min(cursor.version, newest), only=LOOKED_FOR))
        since = self._log.commits(cursor.version + 1, newest, only=LOOKED_FOR)
        judged = judge(cursor, seen.table_id, newest, before, since, self._origins)
        named = {one.at for one in promises if one.at.table_id == cursor.table_id and one.at.version > cursor.version}
        if judged is not None or not named:
            return judged
        newest = self._log.latest_version()
        for at in sorted(named, key=lambda at: at.version):
            there = self._log.commit_at(at.version) if at.version <= newest else None
            if (other := parted(at, cursor.table_id, newest, there)) is not None:
                return CompareLogs(f"the source {other.how}, as its producers recorded it", unseen=True)
        return None

    def judged_commits(self, cursor: CommitName, commits: Sequence[Commit], last: int) -> Fault | CompareLogs | None:
        """Judges these commits, which are to be all from the cursor to version `last`."""
        first = max(0, cursor.version - LOOK_BACK)
        # Those before it were looked at, if they are in a row up to it, and it is what it was.
        known = [one for one in self._recent if first <= one.version < cursor.version]
        in_row = [one.version for one in known] == list(range(first, cursor.version))
        before = [
            *(known if in_row else ()),
            *self._log.commits(cursor.version if in_row else first, cursor.version, only=LOOKED_FOR),
        ]
        self._recent.extend(one for one in (*before, *commits) if not self._recent or one.version > self._recent[-1].version)
        judged = judge(cursor, cursor.table_id, last, before, commits, self._origins)
        if judged is not None:
            self._recent.clear()
        return judged

    def has_news(self, cursor: CommitName) -> bool:
        """Tells whether there is a commit above the cursor. It takes a look at two names, elsewhere than on a local disk at the second once in
        REMOTE_PRESENCE_S. Raises RetryableError if the cursor's own commit is not what it was, so that a full look finds out why.
        """
        if self._log.has_commit(cursor.version + 1):
            return True
        stamp = stamp_at(self._log, cursor.version) if self.is_local else None
        at_cursor = cursor, stamp
        is_fresh = stamp is not None or (not self.is_local and time.monotonic() - self._found_at < REMOTE_PRESENCE_S)
        if at_cursor == self._found_at_cursor and is_fresh:
            return False
        there = self._log.commit_at(cursor.version)
        if there is None or there.commit_id != cursor.commit_id:
            raise RetryableError(
                f"{self._what}: the source is not what it was at version {cursor.version}; looking at all of it.",
                code=Reason.SOURCE_CHANGED,
            )
        self._found_at_cursor, self._found_at = at_cursor, time.monotonic()
        return False
