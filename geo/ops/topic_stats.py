"""Statistics of a topic in one cluster, for `geo topics stats`. They say how fast its log grows, how large it is, who writes and who reads it.
Pure: no Spark, clock or I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geo.delta.commits import Commit, Kind
from geo.log.ledgers import Batch
from geo.names import MARKERS_PRODUCER

LATELY_S = 60
"""Seconds within which a message counts as happening now."""

WINDOWS_S = {"1m": LATELY_S, "1h": 3600}
"""Over how long rates are told, by what they are called: what happens now, and what is usual."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a log a second, over the last `over_s` seconds. All messages, those of them that were published here and not replicated, and bytes
    of files. None: commits do not say.
    """

    over_s: float
    messages: float | None
    published: float | None
    bytes: float | None


def rates(commits: Sequence[Commit], now_us: int, window_s: float, *, reaches_back: bool) -> Rates | None:
    """Derives rates from the newest commits of a log, oldest first: what counts is when they were made, by their writers'
    clocks. Not `reaches_back`: older ones of this window were not read, or are gone, so the rates are those since the oldest
    that is there. None: there is no time over which anything is known.
    """
    since_us = now_us - int(window_s * 1e6)
    if not reaches_back and commits and commits[0].committed_us > since_us:
        since_us = commits[0].committed_us
        commits = commits[1:]  # its rows came in the time before it
    over_s = (now_us - since_us) / 1e6
    if over_s <= 0 or (not reaches_back and not commits):
        return None
    within = [one for one in commits if one.committed_us > since_us and one.kind is Kind.APPEND]
    batches = [(one, Batch.decode(one.user_metadata)) for one in within]
    batches = [(one, batch) for one, batch in batches if batch is None or batch.producer != MARKERS_PRODUCER]
    rows = [one.rows if batch is None else batch.rows for one, batch in batches]
    published = sum(batch.rows for _, batch in batches if batch is not None)
    return Rates(over_s, _per_s(rows, over_s), published / over_s, _per_s([one.bytes or None for one, _ in batches], over_s))


def _per_s(counts: Sequence[int | None], over_s: float) -> float | None:
    return None if None in counts else sum(count for count in counts if count is not None) / over_s


@dataclass(frozen=True, slots=True)
class Produced:
    """Messages that a producer has published into a topic here, expired ones too. `ledgers`: those to which it goes on,
    `closed` those to which it does not. `last_us`: when it last published; None: nothing yet, as far as is recorded. `runs`: it
    gives signs of life.
    """

    producer: str
    messages: int
    ledgers: int
    closed: int
    last_us: int | None
    runs: bool


@dataclass(frozen=True, slots=True)
class OfLedger:
    """A row of `system/ledgers`, as far as it matters here."""

    producer: str
    ledger_id: int
    end: int
    is_closed: bool
    time_us: int


def produced(rows: Sequence[OfLedger], commits: Sequence[Commit], running: frozenset[str]) -> list[Produced]:
    """Sums by name what a producer's rows recorded, which is some time ago, and what its newest commits say since. (A row is
    the newest of its source partition: of one that began again in another ledger the older one is not counted.)
    """
    ends = {(one.producer, one.ledger_id): one.end for one in rows}
    last: dict[str, int] = {}
    for row in rows:
        if row.end >= 0:
            last[row.producer] = max(last.get(row.producer, 0), row.time_us)
    for commit in commits:
        if (batch := Batch.decode(commit.user_metadata) if commit.kind is Kind.APPEND else None) is not None:
            last[batch.producer] = max(last.get(batch.producer, 0), batch.publish_time_us)
            for span in batch.spans:
                key = batch.producer, span.ledger_id
                ends[key] = max(ends.get(key, -1), span.last)
    closed = {(one.producer, one.ledger_id) for one in rows if one.is_closed}
    found = []
    for name in sorted({producer for producer, _ in ends}):
        of_it = {key: end for key, end in ends.items() if key[0] == name}
        over = len(closed & of_it.keys())
        found.append(
            Produced(name, sum(end + 1 for end in of_it.values()), len(of_it) - over, over, last.get(name), name in running)
        )
    return found
