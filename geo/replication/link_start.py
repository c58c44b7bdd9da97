"""Decision of a link at its start: go on from its cursor, compare both logs, or fail. Pure: no Spark, clock or I/O.

A link's newest cursor is in its newest commit in the target. The row in `system/links` says where to begin looking for it, and what must be as it was
for the cursor to hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from geo.config.choices import Start
from geo.config.model import Link
from geo.delta.actions import Touched, touched_by
from geo.delta.commits import Commit, Kind
from geo.delta.history import CommitName, Gone, parted, with_gaps
from geo.log.ledgers import is_foreign
from geo.names import Topic
from geo.reasons import Reason
from geo.replication.link_state import LinkRecord, LinkState
from geo.replication.source_history import CompareLogs, Fault
from geo.streams.life import State

LOOK_LIMIT = 20_000
"""Commits of the target above the recorded one that a start looks at; above it compares. A day of a commit each four seconds."""


@dataclass(frozen=True, slots=True)
class TargetSeen:
    """The commits of the target above a cursor in it, looked at.

    `why`: what there is because of which the target may lack what it had; None if nothing. `by_origin`: the newest record of a link that replicated
    each origin. `own`: the newest complete record of the link that looks. `by_token`: how many commits of a link each ownership made, by its token.
    `touched`: the partitions in which somebody else put or changed rows; None: it may be any.
    """

    newest: CommitName
    why: str | None = None
    by_origin: Mapping[str, LinkRecord] = field(default_factory=dict)
    own: LinkRecord | None = None
    by_token: Mapping[str, int] = field(default_factory=dict)
    touched: Touched = frozenset()
    is_other: bool = False
    """True if it is not the log in which the cursor was: an older copy, or another table."""


def look_at_target(link: str, since: CommitName, table_id: str, newest: int, commits: Iterable[Commit]) -> TargetSeen:
    """Look at the target's commits from the one at `since` (which is expected to be the first of `commits`) to `newest`, oldest
    first. They are read once, and none is kept. `link`: whose own commits are looked for; empty: nobody's."""
    here = CommitName(table_id, newest, since.commit_id if newest == since.version else None)
    if (other := parted(since, table_id, newest, None)) is not None:
        return TargetSeen(here, f"the target {other.how}", is_other=True)
    if newest - since.version > LOOK_LIMIT:  # before any of them is read
        return TargetSeen(here, f"the target has {newest - since.version} commits since the link was last recorded")
    commits = iter(commits)
    first = next(commits, None)
    there = first if first is not None and first.version == since.version else None
    if (other := parted(since, table_id, newest, there)) is not None:
        return TargetSeen(here, f"the target {other.how}", is_other=True)
    why: str | None = None
    by_origin: dict[str, LinkRecord] = {}
    own: LinkRecord | None = None
    by_token: Counter[str] = Counter()
    touched: Touched = frozenset()
    for commit in with_gaps(chain([] if first is None else [first], commits), since.version, newest):
        if isinstance(commit, Gone):
            why = why or f"{commit} of the target are gone"
            continue
        here = CommitName.of(table_id, commit)
        if commit.version == since.version:
            continue
        if (what := _done_by_others(commit)) is not None:
            why = why or what
            touched = touched_by(touched, commit.actions)
        if (record := LinkRecord.decode(commit.user_metadata)) is not None:
            by_origin |= dict.fromkeys(record.origins, record)
            own = record if record.link == link and not record.reconciling else own
            by_token[record.token] += 1
    return TargetSeen(here, why, by_origin, own, by_token, touched)


def _done_by_others(commit: Commit) -> str | None:
    """Finds what somebody else did to the rows of the target, if a commit did."""
    if commit.kind in (Kind.RESTORE, Kind.REWRITE):
        return f"the target was changed: {commit.what}"
    if is_foreign(commit):
        return f"version {commit.version} of the target has rows that no writer of delta-geo recorded ({commit.what})"
    return None


def lacks(seen: TargetSeen, link: str, origins: Iterable[str]) -> str | None:
    """Tells why the target may lack, or have got otherwise, what the link holds for replicated; None if it does not."""
    for origin in sorted(origins):
        record = seen.by_origin.get(origin)
        if record is not None and record.link != link:
            return seen.why or f"messages of {origin} came by {record.link} since"
        if record is not None and record.reconciling:
            return seen.why or "a reconcile did not come to its end"
    return seen.why


@dataclass(frozen=True, slots=True)
class LinkStanding:
    """Place of a link: the cursor up to which the target holds everything; None or `why` if that cannot be told. `new`: the origins that the link did
    not replicate so far. `touched` and `is_other` as in `TargetSeen`.
    """

    cursor: CommitName | None
    why: str | None = None
    new: tuple[str, ...] = ()
    touched: Touched = frozenset()
    is_other: bool = False


def standing(recorded: LinkState | None, target: TargetSeen | None, link: str, origins: Iterable[str]) -> LinkStanding:
    """The newest cursor of a link, from its newest row and the target's commits since.

    It counts for an origin only if the newest commit that replicated it was this link's and completed.
    """
    if recorded is None:
        return LinkStanding(None, "it has never run")
    if recorded.cursor is None or recorded.target is None or target is None:
        return LinkStanding(None, "its first comparison did not come to its end")
    cursor = target.own.cursor if target.own is not None else recorded.cursor
    covered = target.own.origins if target.own is not None else recorded.origins
    new = tuple(sorted(set(origins).difference(covered)))
    if (why := lacks(target, link, origins)) is not None:
        return LinkStanding(cursor, why, new, target.touched, target.is_other)
    return LinkStanding(cursor, f"messages of {', '.join(new)} are new to this link" if new else None, new)


def newer_of(cursor: CommitName | None, own: LinkRecord | None, token: str) -> CommitName | None:
    """The cursor that a running link has, or that of its own newest commit, if that came further by the same ownership."""
    if own is None or own.token != token or (cursor is not None and own.cursor.version <= cursor.version):
        return cursor
    return own.cursor


def begins(recorded: LinkState | None) -> bool:
    """Tells whether it has still to be fixed where the link begins (`start: latest`): once, before its first row. A row that fixes nothing is of a
    try that failed.
    """
    return recorded is None or (recorded.cursor is None and recorded.floors is None)


def begins_at(recorded: LinkState | None, link: Link, topic: Topic) -> Start | None:
    """Tells where the link begins, if that has still to be fixed. Acknowledgements cross from the earliest: a link that leaves old messages out
    still needs to know what is done."""
    if not begins(recorded):
        return None
    return "earliest" if topic.is_system else link.start


def new_at_end(stands: LinkStanding, link: Link, topic: Topic) -> tuple[str, ...]:
    """The origins new to a link of which it replicates what is published from now on, as its `start` says of all."""
    return stands.new if link.start == "latest" and not topic.is_system else ()


@dataclass(frozen=True, slots=True)
class GoOn:
    """Read on from the cursor."""

    cursor: CommitName


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Compare both logs and append what is missing; `why` is None if a person asked for it. `check_lost`: first make sure that nothing this link
    had still to read is gone. `source_touched`, `target_touched`: the partitions in which somebody else put or changed rows there, so that what
    they say is compared, too. None: it may be any, as in a source that the link reads for the first time."""

    why: str | None
    check_lost: bool = False
    source_touched: Touched = frozenset()
    target_touched: Touched = frozenset()

    @property
    def touched(self) -> Touched:
        """The partitions in which what both say is compared; None: all. (Of a source that is read for the first time nothing was there.)"""
        return None if self.target_touched is None else self.target_touched | (self.source_touched or frozenset())


@dataclass(frozen=True, slots=True)
class StartFacts:
    """Facts of a start.

    `recorded`: the link's newest row, read since the link was claimed. `stands`: the link's place by it and the target's commits since the one that
    it names. `source`: what the source's commits above that cursor mean (`source_history.judge`). None: they may be read, or there is no cursor.
    `accept_source`: a person says that the source is right as it is (`geo reconcile`). `failed_before`: tries in a row that failed at the same
    place. The second time both logs are compared, which needs none of the commits that cannot be read.
    """

    recorded: LinkState | None
    stands: LinkStanding
    source: Fault | CompareLogs | None
    accept_source: bool = False
    failed_before: int = 0


def start(facts: StartFacts) -> GoOn | Reconcile | Fault:
    """Decides what a start does."""
    recorded, stands, source = facts.recorded, facts.stands, facts.source
    if facts.accept_source:
        return Reconcile(None)
    if isinstance(source, Fault):
        return source
    if isinstance(source, CompareLogs) and source.unseen and recorded is not None and recorded.state is State.FAILED:
        cursor = stands.cursor.version if stands.cursor else 0
        return Fault(
            f"it failed before ({recorded.reason}), and {source.why}",
            cursor,
            cursor,
            code=recorded.reason_code or Reason.SOURCE_CHANGED,
        )
    if stands.why is not None or stands.cursor is None:
        why = stands.why or "it has no cursor"
        if source is None:
            return Reconcile(why, False, None if stands.cursor is None else frozenset(), stands.touched)
        return Reconcile(why, source.unseen, source.touched, stands.touched)
    if source is not None:
        return Reconcile(source.why, source.unseen, source.touched)
    if facts.failed_before >= 2:
        return Reconcile("it failed twice at the same place", check_lost=True)
    return GoOn(stands.cursor)
