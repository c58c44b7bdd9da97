"""Tells whether files that were written beside a table are young enough to be committed. A clean-up removes what no commit names once the table's
retention is over, also what a process wrote that was halted before its commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from geo.delta.store import Head, WritePath, read_each
from geo.errors import RetryableError
from geo.now import now_us
from geo.schemas.table import duration_s

RETENTION = "delta.deletedFileRetentionDuration"

ASKED_US = 600 * 1_000_000
"""Age by this host's clock up to which the store is not asked: clocks that differ more are refused, and no clean-up is so quick."""

_DEFAULT_US, _UNKNOWN_US = 604_800 * 1_000_000, 86_400 * 1_000_000
"""Retention of a table that says nothing, and of one that says it in other words."""


def retention_us(configuration: Mapping[str, str]) -> int:
    """Time that files stay that no commit names."""
    if (text := configuration.get(RETENTION)) is None:
        return _DEFAULT_US
    seconds = duration_s(text)
    return _UNKNOWN_US if seconds is None else seconds * 1_000_000


def refuse_old(table: WritePath, configuration: Mapping[str, str], files: Sequence[WritePath], written_us: int) -> None:
    """Raises RetryableError unless all files are there and younger than a quarter of the retention, by the store's time. The first was
    written at `written_us`, as a host's clock says: while that is a moment ago nothing is asked."""
    if abs(now_us() - written_us) <= ASKED_US:
        return
    oldest_us = min(head.modified_us for head in refuse_gone(table, files))
    age_us = _store_now_us(table) - oldest_us
    if age_us >= retention_us(configuration) / 4:
        raise _refused(table, f"they are {age_us / 3.6e9:,.1f} hours old, and may be removed soon")


def refuse_gone(table: WritePath, files: Sequence[WritePath]) -> list[Head]:
    """Asks the store about each file. Raises RetryableError unless all are there. It is asked where somebody else has committed since they were
    written. This host may have been halted with its clocks, and a clean-up have come between.
    """
    heads = list(read_each(table.store, files, lambda file: file.head()))
    for file, head in zip(files, heads, strict=True):
        if head is None:
            raise _refused(table, f"{file} is gone")
    return [head for head in heads if head is not None]


def _refused(table: WritePath, why: str) -> RetryableError:
    return RetryableError(
        f"{table}: files that were written are not committed: {why}. This process was halted, or took too long. Nothing was "
        "written. Try again."
    )


def _store_now_us(table: WritePath) -> int:
    """Tells when the store says that it is now, by a file that is removed again; VACUUM removes one that a kill leaves."""
    place = table / f"now-{uuid.uuid4()}"
    try:
        table.store.put(str(place), b"now")
        if (found := place.head()) is None:
            raise FileNotFoundError(str(place))
        return found.modified_us
    finally:
        place.delete()
