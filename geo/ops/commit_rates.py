"""Reads the newest commits of a log, for whoever shows how fast it grows. The rates are derived by `topic_stats.rates`."""

from __future__ import annotations

from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.delta.commits import Commit
from geo.delta.table import Table
from geo.delta.versions import committed_at
from geo.log.ledgers import RECORDS
from geo.ops.topic_stats import LATELY_S, rates
from geo.times import in_us

MOST_COMMITS, MOST_FAR = 4_000, 64
"""So many of a log are read: for an hour one a second, and a little more; and where each may be a request some. Of a log that grows faster the time is
shorter over which its rate is told."""

_FIRST_PAGE, _LARGEST_PAGE = 16, 512
"""Commits are read backwards, a page at a time. Of a log at rest on a store few requests are made, and of a busy one few pages are read."""


def newest_commits(log: Table, newest: int, since_us: int) -> tuple[list[Commit], bool]:
    """The commits of a log that came since a time by their writers' clocks, oldest first, and a few of before. And whether those are all. There are
    MOST_COMMITS of them at most (MOST_FAR where each may be a request).
    """
    found: list[Commit] = []
    size, last, most = _FIRST_PAGE, newest, MOST_COMMITS if log.is_near else MOST_FAR
    while last >= 0 and len(found) < most:
        first = max(0, last - min(size, most - len(found)) + 1)
        page = list(log.commits(first, last, only=RECORDS))
        found = page + found
        if len(page) < last - first + 1:
            return found, False  # the others were cleaned up
        if page[0].committed_us <= since_us:
            return found, True
        last, size = first - 1, min(2 * size, _LARGEST_PAGE)
    return found, last < 0


def rests(came_us: int, now_us: int) -> bool:
    """Tells whether nothing has come lately into a log whose newest commit came then. Both times are by its storage's clock,
    whatever its writer's said.
    """
    return now_us - came_us > LATELY_S * 1e6 + CLOCK_TOLERANCE_US


def published_lately(log: Table, newest: int, now_us: int) -> float | None:
    """Messages a second that were published in its cluster, by the commits of the last LATELY_S; None: nobody knows."""
    came = committed_at(log, newest)
    if came is not None and rests(in_us(came), now_us):
        return 0.0
    commits, reaches_back = newest_commits(log, newest, now_us - int(LATELY_S * 1e6))
    found = rates(commits, now_us, LATELY_S, reaches_back=reaches_back)
    return None if found is None else found.published
