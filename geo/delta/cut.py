"""Cut of a log: how far its commits may go. Pure: no Spark, clock or I/O.

Every look at a table on a local disk lists all of its commits. So a log keeps some hundreds of them, and those that somebody still goes on from.
What is in the table stays in the checkpoint at which it is cut.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

KEEP, KEEP_S = 200, 120.0
"""Newest commits that a topic's log keeps, and those of so many seconds, if they are more: consumers follow within seconds. Measured: a link's
streaming batch at 1,100 commits takes 1.9 times as long as at 100 (a turn 1.1 times). A log is cut when it has twice KEEP."""

KEEP_OF_JOURNAL = 100
"""Commits of a system table that are kept: only the newest are looked at, by who follows it closely; it has a checkpoint each hundred."""

HOLDS_S = 30 * 3600.0
"""A link whose place is a day old finds it, and six hours more: a nightly run may begin later than yesterday's."""

HOLDS_COMMITS = 20_000
"""And so many at most, in which a start would find its cursor: a neighbour that is away must not slow this cluster's
publishers."""


@dataclass(frozen=True, slots=True)
class LogReader:
    """Somebody who goes on from a commit of the log."""

    name: str
    version: int | None
    """It needs this commit and all above it. None: not known."""
    age_s: float = 0.0
    """Since it was last heard of."""
    holds_s: float | None = None
    """So long after that its place is kept. None: it is kept while its commit is not older than HOLDS_S, nor further back than
    HOLDS_COMMITS; who finds it gone compares both logs."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The place where a log is cut: the commits below `below` go, which is the version of a checkpoint; 0: nothing goes. `held_by`: the reader
    without whom it could be cut further up."""

    below: int
    held_by: LogReader | None = None


def cut_below(
    latest: int, checkpoints: Collection[int], readers: Collection[LogReader], *, keep: int = KEEP, a_day_old: int = -1
) -> Cut:
    """Tells where to cut a log whose newest commit is `latest`.

    `a_day_old` is its newest commit that is older than HOLDS_S, -1 if none is.
    """

    def checkpoint(limit: int) -> int:
        return max((version for version in checkpoints if version <= limit), default=0)

    unheld = Cut(checkpoint(latest - keep))
    oldest = max(a_day_old, latest - HOLDS_COMMITS)

    def needs(reader: LogReader) -> int | None:
        version = oldest if reader.version is None else reader.version
        kept = version >= oldest if reader.holds_s is None else reader.age_s <= reader.holds_s
        return version if kept else None

    needed = [(version, reader) for reader in readers if (version := needs(reader)) is not None]
    if not needed:
        return unheld
    first, holder = min(needed, key=lambda found: found[0])
    below = checkpoint(min(latest - keep, first))
    return Cut(below, holder) if below < unheld.below else unheld
