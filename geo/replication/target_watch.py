"""Sees to it that a target is still the one that rows to append were made for."""

from __future__ import annotations

from geo.delta.history import CommitName
from geo.delta.table import Table
from geo.errors import RetryableError
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

    def __init__(self, target: Table, since: CommitName, what: str) -> None:
        self._target, self._since, self._what = target, since, what

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
