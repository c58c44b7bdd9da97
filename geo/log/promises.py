"""The ends of ledgers that producers recorded, held against what logs hold: where all logs hold less, messages are lost. Pure: no Spark, clock or
I/O.

A producer records an end only once it saw the commit in its log. So a recorded end may lag behind the log and is never ahead of what was committed.
Whoever reads the recorded ends BEFORE the log takes no producer at work for a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geo.delta.history import CommitName
from geo.ids import LedgerId
from geo.names import MARKERS_PRODUCER
from geo.times import in_us

LOST = "geo:lost:"
"""Begins the `source` of a row in `system/ledgers` that keeps the end of a ledger. That one was given up because the log held less of it. The row
of the ledger that took its place would hide that end.
"""


@dataclass(frozen=True, slots=True)
class Promise:
    """Entry `end` of a ledger was in the log at its commit `at`. `time_us`: its publish time, microseconds since 1970."""

    ledger: LedgerId
    end: int
    at: CommitName
    time_us: int
    replicate_to: tuple[str, ...] | None = None


def promise_of(origin: str, row: Any) -> Promise | None:
    """The promise of a row of `system/ledgers`, newest of its subject, in the cluster `origin`.

    None: an empty ledger, or one of markers (which no comparison appends). Or it was given up in a log that became another one, as its own look at
    the commits says.
    """
    is_lost = row["source"].startswith(LOST)
    if row["end"] < 0 or (row["closed"] is not None and not is_lost) or row["producer"] == MARKERS_PRODUCER:
        return None
    to = row["replicate_to"]
    return Promise(
        LedgerId(origin, row["ledger_id"]),
        row["end"],
        CommitName(row["table_id"], row["table_version"], row["table_commit"]),
        in_us(row["publish_time"]),
        None if to is None else tuple(to),
    )


def due(
    promises: Iterable[Promise], table_id: str, after: int | None, target: str | None, horizon_us: int | None
) -> list[Promise]:
    """The promises that a log, with this id, has to keep: of a commit above version `after` (None: of any), towards `target` (None: towards
    anybody). Not expired are those published at `horizon_us` or later (None: nothing expires)."""
    return [
        promise
        for promise in promises
        if promise.at.table_id == table_id
        and (after is None or promise.at.version > after)
        and (target is None or promise.replicate_to is None or target in promise.replicate_to)
        and (horizon_us is None or promise.time_us >= horizon_us)
    ]


def lost_entries(
    promises: Iterable[Promise], held: Mapping[LedgerId, int], floors: Mapping[str, int] | None = None
) -> dict[LedgerId, tuple[int, int]]:
    """Return, by ledger, the first and last entry that was promised and that nobody holds. `held`: ledger → last entry in any of the logs. `floors`:
    of a link's row, `origin:ledger` → the first entry wanted, and what a person accepted as lost."""
    found: dict[LedgerId, tuple[int, int]] = {}
    for promise in promises:
        wanted = max((floors or {}).get(str(promise.ledger), 0), accepted_end(promise, floors) + 1)
        first = max(held.get(promise.ledger, -1) + 1, wanted)
        if first <= promise.end:
            found[promise.ledger] = first, max(promise.end, found.get(promise.ledger, (0, -1))[1])
    return dict(sorted(found.items()))


def told_range(ledger: LedgerId, entries: tuple[int, int]) -> str:
    """Show a range of entries as people and errors say it."""
    return f"{ledger}:{entries[0]}-{entries[1]}"


def as_accepted(lost: Mapping[LedgerId, tuple[int, int]]) -> dict[str, int]:
    """Encode what a person accepted as lost, as a link's row keeps it among its floors."""
    return {f"{LOST}{ledger}": last for ledger, (_, last) in lost.items()}


def accepted_end(promise: Promise, floors: Mapping[str, int] | None) -> int:
    """Up to which entry of the promised ledger a person accepted it as lost; -1: of none."""
    return (floors or {}).get(f"{LOST}{promise.ledger}", -1)


def unaccepted(promises: Iterable[Promise], floors: Mapping[str, int] | None) -> list[Promise]:
    """The promises, but for those of which a person accepted all as lost."""
    return [promise for promise in promises if accepted_end(promise, floors) < promise.end]


def passed(promise: Promise, links: Iterable[tuple[CommitName | None, Mapping[str, int] | None]]) -> bool:
    """True if every link out of the cluster, one at least, has passed the promised commit. Then it replicated the entries, or has it from a person
    that they are lost (`geo reconcile`). `links`: cursors and floors of their rows.
    """
    listed = list(links)
    return bool(listed) and all(
        (cursor is not None and cursor.table_id == promise.at.table_id and cursor.version >= promise.at.version)
        or accepted_end(promise, floors) >= promise.end
        for cursor, floors in listed
    )
