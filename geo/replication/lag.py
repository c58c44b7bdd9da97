"""How far a link is behind its source. Pure: no Spark, clock or I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from geo.config.model import REPLICA_LAG_MAX_S
from geo.log.ledgers import Batch, Span
from geo.replication.rule import Rule
from geo.replication.source_history import brings
from geo.tables.commits import Commit, Kind


@dataclass(frozen=True, slots=True)
class Lag:
    """What of a source has not crossed a link. Never negative; nothing if there is nothing to do, whether or not the link runs.

    `versions`: commits of the source above the cursor, those too that bring nothing. `messages` and `bytes` are of those that
    bring something, as their writers counted them: an upper bound, since some may have expired, or be routed elsewhere where
    another link brought them. `seconds`: the age of the oldest of them. If it is not `complete`, commits above the cursor are
    gone (log cleanup) or do not count their rows, and all three are of what is left: a lower bound.
    """

    versions: int = 0
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    complete: bool = True

    @property
    def in_sync(self) -> bool:
        return self.complete and self.seconds <= REPLICA_LAG_MAX_S


def lag_of(cursor: int, newest: int, commits: Iterable[Commit], rule: Rule, now_us: int) -> Lag:
    """The lag of a link that stands at version `cursor` of a source whose newest is `newest` (-1: it has brought nothing yet).
    `commits` are those between, oldest first and as far as they are there; they are read once."""
    messages = size = seen = 0
    oldest_us: int | None = None
    is_counted = True
    for commit in commits:
        seen += 1
        is_counted &= commit.kind is not Kind.RELISTED
        if not brings(commit, rule.origins, rule.source):
            continue
        batch = Batch.decode(commit.user_metadata)
        rows = commit.rows if batch is None else sum(span.last - span.first + 1 for span in batch.spans if _is_for(span, rule))
        if rows == 0:
            continue
        is_counted &= rows is not None
        messages, size = messages + (rows or 0), size + commit.bytes
        if oldest_us is None:
            oldest_us = (commit.committed_us or None) if batch is None else batch.publish_time_us
    age_us = 0 if oldest_us is None else max(0, now_us - oldest_us)
    versions = max(0, newest - cursor)
    return Lag(versions, messages, size, age_us / 1e6, complete=is_counted and seen >= versions)


def _is_for(span: Span, rule: Rule) -> bool:
    return span.key.replicate_to is None or rule.target in span.key.replicate_to
