"""Lag of a link's topic at any time that both logs still tell of. Pure: no Spark, clock or I/O.

It is what `geo links status` would have said then. The end of the source is in its commits. The place of the link is in the target's commits, which
carry its cursors, and in its rows. The time of a commit is what its writer says (`Commit.committed_us`): the clock of the host of a producer, of a
link. One that is more than CLOCK_TOLERANCE_US off its storage's writes nothing, so of two regions two times are compared that may be that far
apart. As a rule milliseconds. Within a log time does not go back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from geo.delta.commits import Commit
from geo.delta.history import CommitName
from geo.replication.lag import Due, Lag, due_of, lag_of
from geo.replication.link_start import begins
from geo.replication.link_state import LinkRecord, LinkState
from geo.replication.rule import Rule


@dataclass(frozen=True, slots=True)
class Read:
    """The commits of a table that were read, oldest first, none left out up to its newest, and those of them that are there."""

    table_id: str
    commits: Sequence[Commit]

    @property
    def times(self) -> list[int]:
        """The time when each came, at the latest of those before it."""
        return list(accumulate((one.committed_us for one in self.commits), max))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A row of `system/links`, and when it was written, by its writer's clock."""

    at_us: int
    state: LinkState


@dataclass(frozen=True, slots=True)
class Sample:
    """State of the link at one time. `cursor`: its place; None: it had replicated nothing, or read another table. `newest`: the
    end of its source.
    """

    at_us: int
    cursor: int | None
    newest: int
    lag: Lag

    @property
    def is_zero(self) -> bool:
        """Tells whether the target lacked nothing, for sure."""
        return self.lag.complete and self.lag.messages == 0


@dataclass(frozen=True, slots=True)
class _CursorSince:
    """Cursor of a link from `at_us` until the next of these. `begins_at_end`: nothing of what was there was due."""

    at_us: int
    cursor: int
    begins_at_end: bool


class LagHistory:
    """The lag of one topic of a link, at any time from `since_us` on; None: nothing tells of any time."""

    def __init__(
        self, link: str, rule: Rule, source: Read, target: Read | None, rows: Sequence[Recorded], *, starts_at_end: bool = False
    ) -> None:
        """`target` None: there is no such table. `rows`: those of the link that are still there, in their order; none between
        two of them is gone. `starts_at_end`: the link replicates what comes after its start.
        """
        self._dues = [due_of(one, rule) for one in source.commits]
        self._came = source.times
        self._versions = [one.version for one in source.commits]
        own = [] if target is None else _own(link, target)
        self._cursors = _cursors(own, source.table_id, target, rows, starts_at_end=starts_at_end)
        self.compared_us = max((at_us for _, at_us, record in own if record.reconciling), default=None)
        """The time when the newest step of a comparison came; None: there is none."""
        self._next_due = _next_due(self._dues)
        told = next((at_us for at_us in self._came if at_us), None)
        self.since_us = max(told, self._cursors[0].at_us) if self._cursors and told is not None else None

    def at(self, time_us: int) -> Sample | None:
        """State of the link at that time; None before `since_us`: nothing tells. What is not `complete` was cleaned up since,
        and may have been more.
        """
        if self.since_us is None or time_us < self.since_us:
            return None
        place = self._cursors[bisect_right(self._cursors, time_us, key=lambda one: one.at_us) - 1]
        end = bisect_right(self._came, time_us)
        newest = self._versions[end - 1]
        between = self._dues[bisect_right(self._versions, place.cursor) : end]
        lag = lag_of(place.cursor, newest, between, time_us)
        return Sample(
            time_us, None if place.cursor < 0 else place.cursor, newest, Lag(lag.versions) if place.begins_at_end else lag
        )

    def samples(self, now_us: int, count: int, apart_us: int) -> list[Sample]:
        """So many, oldest first, the last one of now; fewer where it does not reach back so far."""
        times = (now_us - number * apart_us for number in reversed(range(count)))
        return [one for time_us in times if (one := self.at(time_us)) is not None]

    def moved_at(self, now_us: int) -> int | None:
        """Tells when the link came to where it stands; None: before `since_us`."""
        known = [one for one in self._cursors if one.at_us <= now_us]
        for earlier, later in zip(reversed(known[:-1]), reversed(known[1:]), strict=True):
            if earlier.cursor != later.cursor:
                return later.at_us
        return None

    def stands_since(self, now_us: int) -> int | None:
        """Time since when, or since before, the link has been at its place; None: nothing tells where that is."""
        moved_us = self.moved_at(now_us)
        return (
            moved_us if moved_us is not None or not self._cursors or self._cursors[0].at_us > now_us else self._cursors[0].at_us
        )

    def behind_since(self, now_us: int) -> int | None:
        """Since when the target has lacked something: it lacked nothing before. None: it does not now, or nothing tells since when."""
        for place in reversed([one for one in self._cursors if one.at_us <= now_us]):
            at = bisect_right(self._versions, place.cursor)
            before = self._versions[at - 1] if at else self._versions[0] - 1 if self._versions else place.cursor
            if before != place.cursor:
                return None  # commits behind it are gone, or were not read
            due = self._next_due[at] if at < len(self._next_due) else None
            if due is None or self._came[due] > now_us:
                return None
            if self._came[due] > place.at_us:
                return self._came[due]
        return None


def _next_due(dues: Sequence[Due]) -> list[int | None]:
    """For each place the first from there on at which something is due."""
    found: list[int | None] = []
    following: int | None = None
    for at in reversed(range(len(dues))):
        following = following if dues[at].rows == 0 else at
        found.append(following)
    return found[::-1]


def _cursors(
    own: Sequence[tuple[int, int, LinkRecord]],
    source_id: str,
    target: Read | None,
    rows: Sequence[Recorded],
    *,
    starts_at_end: bool,
) -> list[_CursorSince]:
    """Places of the link, in the order of time, by its rows and its own commits in its target, as far as they tell."""
    first = None if target is None or not target.commits else target.commits[0].version
    # What happened: a row was written, or a commit brought a cursor. A row counts for the commits above the one that it names.
    events: list[tuple[int, int, Recorded | tuple[int, CommitName]]] = [
        (at_us, 1, row) for at_us, row in zip(accumulate((one.at_us for one in rows), max), rows, strict=True)
    ]
    events += [(at_us, 0, (version, record.cursor)) for version, at_us, record in own if not record.reconciling]
    found: list[_CursorSince] = []
    row: LinkState | None = None
    newest_own: tuple[int, CommitName] | None = None
    for at_us, _, event in sorted(events, key=lambda one: one[:2]):
        if isinstance(event, Recorded):
            row = event.state
        else:
            newest_own = event
        if row is None:
            continue  # rows that are gone may have said more than these commits
        cursor: CommitName | None = None
        if row.target is not None and row.cursor is not None:
            cursor, is_here = row.cursor, target is not None and row.target.table_id == target.table_id
            if is_here and newest_own is not None and newest_own[0] > row.target.version:
                cursor = newest_own[1]
            elif is_here and first is not None and first > row.target.version + 1:
                found.clear()  # a commit that is gone may have brought it further
                continue
        at = -1 if cursor is None or cursor.table_id != source_id else cursor.version
        found.append(_CursorSince(at_us, at, starts_at_end and begins(row)))
    return found


def _own(link: str, target: Read) -> list[tuple[int, int, LinkRecord]]:
    """Version, time and record of the link's own commits."""
    found = []
    for commit, at_us in zip(target.commits, target.times, strict=True):
        record = LinkRecord.decode(commit.user_metadata)
        if record is not None and record.link == link:
            found.append((commit.version, at_us, record))
    return found


def runs_of(link: str, target: Read, rows: Sequence[Recorded]) -> list[tuple[int, int]]:
    """Claims by which a link was run, each with a time at which it replicated or recorded something, in the order of time."""
    of_commits = [(record.generation, at_us) for _, at_us, record in _own(link, target)]
    return sorted([*of_commits, *((one.state.generation, one.at_us) for one in rows)], key=lambda one: one[1])
