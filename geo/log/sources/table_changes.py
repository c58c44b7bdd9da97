"""Decides what a commit of a user's own table means for who publishes what is inserted into it. Pure: no Spark, clock or I/O.

Nothing that may be a row is skipped. What cannot be published as a row that came is refused, with what to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geo.delta.actions import Effect
from geo.delta.commits import Commit, Kind
from geo.delta.history import Parted
from geo.reasons import Reason, Wrong

Actions = Sequence[Mapping[str, Any]]
"""Actions of one commit, each as its log has it: {"add": {…}}."""

_INSERTS_NOTHING = frozenset({"DELETE", "UPDATE"})
"""Operations of SQL that insert no row, whatever files they write."""

_INSERTED = "numTargetRowsInserted"
"""Metric of a MERGE for the rows that it inserted."""

PASS_OVER = (
    "To pass over changes and deletes, and publish what is inserted, give --only-inserts (`only_inserts: true` in the configuration); to publish the "
    "table as it is now from its first row on, give another --producer"
)
ANEW = "To publish the table as it is now from its first row on, give another --producer"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of which rows are to be published. It is as the log names it, with the values of its partition, its bytes, and how many rows it has.
    None: the log does not say. `is_feed`: it is of the change feed, of which the inserted rows count."""

    path: str
    partition: Mapping[str, str | None]
    size: int
    rows: int | None
    is_feed: bool = False


def source_file(fields: Mapping[str, Any], *, is_feed: bool = False) -> SourceFile:
    """The file of an `add` or `cdc` action. Raises KeyError, ValueError or TypeError for what is no such action."""
    said = json.loads(fields["stats"]) if fields.get("stats") else {}
    return SourceFile(
        fields["path"], dict(fields.get("partitionValues") or {}), int(fields["size"]), said.get("numRecords"), is_feed
    )


def inserted(
    commit: Commit, actions: Actions, *, only_inserts: bool, has_files: Callable[[Collection[str]], bool]
) -> tuple[SourceFile, ...] | Wrong:
    """The files by which a commit adds rows, or why that cannot be told. `only_inserts`: deletes and changes are passed over. `has_files`: whether
    the table had all of these files before it.
    """
    added, removed, feed = (_of(actions, name) for name in ("add", "remove", "cdc"))
    kind = commit.kind
    if kind is Kind.NEUTRAL:
        return ()
    if kind is Kind.RELISTED:
        # A feature may list its files once more, with what it knows of them; but they are no others.
        if has_files({one["path"] for one in added}):
            return ()
        return _refused(commit, "lists files as if nothing had changed that were not there", ANEW)
    if kind is Kind.RESTORE:
        return _refused(commit, "put an older state back", ANEW, Reason.SOURCE_RESTORED)
    if commit.lost_columns:
        return _refused(commit, f"took the columns {', '.join(commit.lost_columns)} away", ANEW)
    if kind is Kind.APPEND:
        added = [one for one in added if one["dataChange"]]  # others hold, as one file, rows that were there
        if any(one.get("deletionVector") for one in added):
            return _refused(commit, "added files of which not all rows count", ANEW)
        return tuple(map(source_file, added))
    if not only_inserts:
        what = "deleted rows" if commit.done.effect is Effect.REMOVED else "changed or deleted rows"
        return _refused(commit, what, PASS_OVER)
    if feed:
        return tuple(source_file(one, is_feed=True) for one in feed)
    gone = {one["path"] for one in removed}
    brings_none = {one["path"] for one in added} <= gone  # of the same files fewer rows count now, or they went
    says_none = commit.operation in _INSERTS_NOTHING or (commit.operation == "MERGE" and commit.metrics.get(_INSERTED) == 0)
    if brings_none or (says_none and removed):
        return ()
    return _refused(
        commit,
        "replaced files, and nothing tells which of its rows are new",
        f"With the change feed on (delta.enableChangeDataFeed = true) later ones tell. {ANEW}",
    )


def why_parted(parted: Parted) -> Wrong:
    """Describe a table whose history is another one than the one that was read."""
    code = Reason.SOURCE_RECREATED if parted.is_remade else Reason.SOURCE_RESTORED
    return Wrong(code, f"it {parted.how}. Nothing of it was published", f"If it is the right table now: {_lower(ANEW)}")


def repeated(commit: Commit, actions: Actions, recent: Iterable[Commit]) -> bool | None:
    """True if a commit is one of the recent ones once more, as of a writer who did not learn that it had landed. It adds nothing then. A file that
    was there may be listed again because others of its rows count now: only files that are new tell.

    None: some of its files are theirs.
    """
    new = {one["path"] for one in _of(actions, "add") if one["dataChange"] and not one.get("deletionVector")}
    new = set() if commit.kind is Kind.RESTORE else new - {one["path"] for one in _of(actions, "remove")}
    for one in recent:
        if commit.commit_id == one.commit_id:
            return True
        if not new.isdisjoint(one.done.paths):
            return True if set(commit.done.paths) <= set(one.done.paths) else None
    return False


def _of(actions: Actions, name: str) -> list[Mapping[str, Any]]:
    return [action[name] for action in actions if name in action]


def _refused(commit: Commit, what: str, do: str, code: Reason = Reason.SOURCE_CHANGED) -> Wrong:
    return Wrong(
        code, f"version {commit.version}, a {commit.operation} {commit.who}, {what}. Nothing of that version was published", do
    )


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
