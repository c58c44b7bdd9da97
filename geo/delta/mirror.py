"""The rows of a small table on a store where a look is a request, kept in memory. They are read once, and then what commits add, as long as these
only append. All of a process share them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from geo.delta.commits import Kind
from geo.delta.delta_log import newest_seen
from geo.delta.held_files import told_at
from geo.delta.predicate import Predicate
from geo.delta.put_commit import last_put_at
from geo.delta.scan import collected_where, few_added, few_rows
from geo.delta.store import WritePath
from geo.delta.table import Table
from geo.delta.tail import REMOTE_FULL_LOOK_S, REMOTE_PRESENCE_S

MOST_BYTES, MOST_TABLES = 4 * 1024 * 1024, 64
"""In memory, of each table, and so many tables: what is larger is read each time."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The rows of a version, which has this commit, and times (monotonic). They say when it was read last, and when it was asked last whether it is
    still there. Beside them the time of the last question whether there is a newer one.
    """

    version: int
    commit_id: str | None
    rows: pa.Table
    read_at: float
    asked_at: float
    looked_at: float


LOOKED_S = 1.0
"""Seconds within which a look of a caller need not be made again."""

_lock = threading.Lock()
_known: dict[WritePath, _Known] = {}
"""Rows by `_delta_log`; the one that was read last comes last."""
_since: ContextVar[float] = ContextVar("since", default=math.inf)
"""Time (monotonic) after which a look counts without another one."""


@contextmanager
def may_be_old(most_s: float) -> Iterator[None]:
    """Lets small tables be up to `most_s` seconds old, counted from now, or older if whoever calls this allows that. It holds for
    what this thread asks for in here, of a store where a look is a request: for who asks again and again. 0: they are as they are
    now, whatever the caller allows. What this process has written is seen.
    """
    before = _since.set(min(time.monotonic() - most_s, _since.get()) if most_s else math.inf)
    try:
        yield
    finally:
        _since.reset(before)


def is_young(table: Table, looked_at: float) -> bool:
    """Tells whether what was found by a look at that time (monotonic) may be told without another one."""
    if looked_at <= _since.get() or (folder := table.log_folder) is None or folder.store.is_near:
        return False
    return looked_at > last_put_at(folder)


def rows_now(
    table: Table, columns: Sequence[str], where: Predicate, seen: tuple[int, float] | None = None
) -> list[dict[str, Any]] | None:
    """The rows that a table, which exists, has now and that fulfil `where`, with these columns, NULL where it has no such: times in UTC.
    `seen`: the newest version, and when the caller has looked for it (monotonic), which is not done again then.

    None: they are many, or not to be read here. (An older copy that was put in the table's place, and in which its newest commit has another
    one's number, is found within REMOTE_FULL_LOOK_S.)
    """
    folder = table.log_folder
    if folder is None or folder.store.is_near:
        return None
    with _lock:
        known = _known.get(folder)
    found = _moved_on(table, known, seen) or _read(table, seen)
    if found is None:
        return None
    with _lock:
        there = _known.pop(folder, None)
        if there is not None and there.looked_at > found.looked_at:  # another thread has read it since
            _known[folder] = there
        elif found.rows.nbytes <= MOST_BYTES:
            _known[folder] = found
        while len(_known) > MOST_TABLES:
            del _known[next(iter(_known))]
    return collected_where(found.rows, columns, where)


def _read(table: Table, seen: tuple[int, float] | None) -> _Known | None:
    now, looked_at = time.monotonic(), told_at()
    version, looked_at = (table.latest_version(), looked_at) if seen is None else seen
    rows = few_rows(table, version)
    commit = None if rows is None else table.commit_at(version)
    return None if rows is None else _Known(version, None if commit is None else commit.commit_id, rows, now, now, looked_at)


def _has_news(table: Table, known: _Known) -> bool:
    """Tells whether a commit has come since; of one that this process has seen, or made, it need not be asked by name."""
    folder = table.log_folder
    return (folder is not None and newest_seen(folder) > known.version) or table.has_commit(known.version + 1)


def _moved_on(table: Table, known: _Known | None, seen: tuple[int, float] | None) -> _Known | None:
    """Adds to what is known what commits have added since; None: all is to be read."""
    now, looked_at = time.monotonic(), told_at()
    if known is None:
        return None
    is_fresh = now - known.read_at < REMOTE_FULL_LOOK_S
    if is_fresh and is_young(table, known.looked_at):
        return known
    if is_fresh and seen is not None and known.looked_at > seen[1]:  # another thread has looked since
        return known
    if is_fresh and seen is not None and seen[0] == known.version:
        return replace(known, asked_at=seen[1], looked_at=seen[1])
    if is_fresh and seen is None and not _has_news(table, known):
        if now - known.asked_at < REMOTE_PRESENCE_S:
            return replace(known, looked_at=looked_at)
        return replace(known, asked_at=now, looked_at=looked_at) if table.has_commit(known.version) else None
    newest, looked_at = (table.latest_version(), looked_at) if seen is None else seen
    at_and_newer = list(table.commits(known.version, newest))
    if not at_and_newer or (at_and_newer[0].version, at_and_newer[0].commit_id) != (known.version, known.commit_id):
        return None
    commits = at_and_newer[1:]
    if not commits and newest == known.version and known.commit_id is not None:
        return replace(known, read_at=now, asked_at=now, looked_at=looked_at)
    if not commits or len(commits) != newest - known.version or any(commit.kind is not Kind.APPEND for commit in commits):
        return None
    added = few_added(table, known.version + 1, newest)
    if added is None or added.schema != known.rows.schema:
        return None
    return _Known(newest, commits[-1].commit_id, pa.concat_tables([known.rows, added]), known.read_at, now, looked_at)
