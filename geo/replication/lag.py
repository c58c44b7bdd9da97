"""Lag of a link behind its source. Pure: no Spark, clock or I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from geo.config.model import REPLICA_LAG_MAX_S
from geo.delta.commits import Commit, Kind
from geo.log.ledgers import Batch, Span
from geo.replication.rule import Rule
from geo.replication.source_history import brings


@dataclass(frozen=True, slots=True)
class Lag:
    """Part of a source that has not crossed a link. Never negative; nothing if there is nothing to do, whether or not the link runs.

    `versions`: commits of the source above the cursor, those too that hold nothing for the link. `messages` and `bytes` are of those that hold
    something, as their writers counted them. It is an upper bound, since some may have expired, or be routed elsewhere where another link
    replicated them. `seconds`: the age of the oldest of them. None: a commit does not tell, so nobody knows. It is not `complete` if commits above
    the cursor are gone (log cleanup) or do not count their rows. Nor is it if nobody knows whether the target still holds what came before. Then
    all are of what is known, a lower bound, and None where that is 0.
    """

    versions: int | None = 0
    messages: int | None = 0
    bytes: int | None = 0
    seconds: float | None = 0.0
    complete: bool = True

    @property
    def in_sync(self) -> bool:
        return self.complete and self.seconds is not None and self.seconds <= REPLICA_LAG_MAX_S

    @property
    def at_least(self) -> Lag:
        """The same as a lower bound. One of 0 says nothing."""
        return Lag(self.versions or None, self.messages or None, self.bytes or None, self.seconds or None, complete=False)


@dataclass(frozen=True, slots=True)
class Due:
    """Part of a commit of a source that is for a link. `rows` and `bytes` None: it does not say. `at_us`: when it was published, by the clock of its
    producer's host; 0: nobody knows.
    """

    version: int
    rows: int | None
    bytes: int | None
    at_us: int


def due_of(commit: Commit, rule: Rule) -> Due:
    batch = Batch.decode(commit.user_metadata)
    at_us = commit.committed_us if batch is None else batch.publish_time_us
    return Due(commit.version, _rows_due(commit, rule), commit.bytes or None, at_us)


def lag_of(cursor: int, newest: int, commits: Iterable[Due], now_us: int) -> Lag:
    """The lag of a link whose cursor is at version `cursor` of a source whose newest is `newest` (-1: it has replicated nothing yet). `commits` are
    those between, oldest first and as far as they are there; they are read once.
    """
    messages: int | None = 0
    size: int | None = 0
    age_s: float | None = 0.0
    seen = 0
    for due in commits:
        seen += 1
        if due.rows == 0:
            continue
        messages, size = _sum(messages, due.rows), _sum(size, due.bytes)
        if not due.at_us:  # its writer did not say
            age_s = None
        elif age_s is not None:
            age_s = max(age_s, (now_us - due.at_us) / 1e6)
    versions = max(0, newest - cursor)
    lag = Lag(versions, messages, size, age_s)
    return lag if messages is not None and seen >= versions else lag.at_least


def _rows_due(commit: Commit, rule: Rule) -> int | None:
    """Rows of a commit that are due in the target; None: it does not say how many, or somebody changed rows or files by it."""
    if commit.kind in (Kind.RESTORE, Kind.REWRITE, Kind.RELISTED):
        return None
    if not brings(commit, rule.origins, rule.source):
        return 0
    if (batch := Batch.decode(commit.user_metadata)) is not None:
        return sum(span.last - span.first + 1 for span in batch.spans if _is_for(span, rule))
    return commit.rows


def _sum(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more


def _is_for(span: Span, rule: Rule) -> bool:
    return span.key.replicate_to is None or rule.target in span.key.replicate_to
