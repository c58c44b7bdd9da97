"""Commits of a log that add rows otherwise than in the order in which links replicate them. What a snapshot says does not count for them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from geo.delta.commits import Commit
from geo.delta.history import CommitName
from geo.log.ledgers import BACKFILL_KEY, LINK_KEY, REBUILD_KEY
from geo.replication.link_state import LinkRecord, backfilled

OUT_OF_ORDER = (LINK_KEY, BACKFILL_KEY, REBUILD_KEY)
"""Keys of the records of commits that may be out of order."""


def out_of_order(commit: Commit) -> str | None:
    """Names what the commit is of, if it added rows otherwise than in order: a comparison of both logs, a backfill, a rebuild."""
    record = LinkRecord.decode(commit.user_metadata)
    if record is not None and record.reconciling:
        return f"comparison of {record.link}"
    if backfilled(commit.user_metadata) is not None:
        return "backfill"
    return "rebuild" if commit.has_record(REBUILD_KEY) else None


def replicated_out_of_order(record: LinkRecord, before: CommitName, passed: Sequence[Commit]) -> str | None:
    """Tells why what a link replicated with this record may be out of order here. It was so in its source, or nobody can know any more. `before`:
    up to which commit of that table it had replicated everything. `passed`: the commits of the source from there to the record's cursor, as far as
    they are there.
    """
    if record.cursor.version < before.version:
        return f"{record.link}: its source was put back"
    if passed and passed[0].version == before.version:
        if passed[0].commit_id != before.commit_id:
            return f"{record.link}: its source was put back, and has grown since"
        passed = passed[1:]
    if len(passed) < record.cursor.version - before.version:
        return f"{record.link}: some of what it replicated is gone from its source"
    return next((f"{record.link} replicated a {what}" for each in passed if (what := out_of_order(each)) is not None), None)
