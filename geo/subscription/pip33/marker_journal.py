"""`system/markers`: rows that the controllers of a cluster's topics handle; written by the one tail of the cluster, read as a stream.

Numbers (`seq`) ascend over the whole table. They are microseconds since 1970, or one more than the last where a clock stands still or goes back. So
they ascend also where old rows are gone.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import functions as F

from geo.coordination.ownership import Ownership
from geo.coordination.runners import Runner, producer_runner
from geo.delta.cut import LogReader
from geo.delta.history import CommitName
from geo.ids import Position
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables
from geo.journal.rows import as_row, from_row, in_columns
from geo.names import MARKERS_PRODUCER, Topic
from geo.now import now_us
from geo.schemas import MARKERS
from geo.streams.checkpoint import goes_on_from
from geo.subscription.pip33.controller import STATE_VERSION
from geo.subscription.pip33.controller_rows import (
    FinishedUpTo,
    Invalidated,
    MarkerRow,
    Resnapshot,
    Row,
    Subscribed,
    Tick,
    Unsubscribed,
)
from geo.times import from_us


def markers_producer(tables: ClusterTables, topic: Topic) -> Runner:
    """Runner of who writes the markers of a topic. Whoever owns the controllers takes it, and who deletes the topic."""
    return producer_runner(tables, topic, MARKERS_PRODUCER)


_KINDS: Mapping[str, type] = {
    "MARKER": MarkerRow,
    "TICK": Tick,
    "PROGRESS": FinishedUpTo,
    "SUBSCRIBED": Subscribed,
    "UNSUBSCRIBED": Unsubscribed,
    "VOID": Invalidated,
    "AGAIN": Resnapshot,
}


@dataclass(frozen=True, slots=True)
class LookedUpTo:
    """Knowledge of a topic's log when a row was written. It was looked at up to this commit, and this is the newest version that added a message."""

    commit: CommitName = field(metadata=in_columns("table_id", "read_to", "commit_id"))
    moved: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A row for a topic's controller, and how far its log was looked at by then."""

    topic: str
    row: Row
    at: LookedUpTo


def encode(row: Row) -> str:
    """A row as the table has it; its number stands beside it."""
    kind = next(name for name, one in _KINDS.items() if type(row) is one)
    fields = asdict(row)
    del fields["seq"]
    if isinstance(row, MarkerRow):
        fields["payload"] = None if row.payload is None else base64.b64encode(row.payload).decode("ascii")
    return json.dumps({"row": kind, **fields}, separators=(",", ":"))


def decode(seq: int, fact: str) -> Row:
    """The inverse of `encode`."""
    fields: dict[str, Any] = {"seq": seq, **json.loads(fact)}
    kind = _KINDS[fields.pop("row")]
    if kind is MarkerRow:
        fields["position"] = Position(*fields["position"])
        if fields["payload"] is not None:
            fields["payload"] = base64.b64decode(fields["payload"])
    row: Row = Tick.read(fields) if kind is Tick else kind(**fields)
    return row


KEPT_S = 2 * 3600
"""Seconds after which old rows are dropped. A state that was lost is built from what is left: it lacks older snapshots then, and finds new ones.

Rows are old by their numbers, and by the time they were written. After a clock that jumped ahead and was set right numbers go on one by one, from
where it had been.
"""

_OF_ANOTHER_TABLE = "get_json_object(fact, '$.row') = 'VOID' AND get_json_object(fact, '$.table') IS NOT NULL"
"""Condition for rows that say that a log is another one from now on: one each time. They are kept. Without them a state that is built again would
take what others still say of the first one for something of this one.
"""

TRIM_S, TRIM_FILES = 600.0, 600
"""Seconds between two drops of old rows; and files at which they are dropped at once, as in runs that end soon."""


def controllers_place(tables: ClusterTables) -> str:
    """The checkpoint of the stream over the table, which exists: another table has another one, and so have states of another version."""
    return tables.checkpoint("markers", tables.journal(MARKERS).table.table_id(), f"states-{STATE_VERSION}")


class MarkerJournal:
    """The table of one cluster, for its tail. It is made if it is missing."""

    def __init__(self, tables: ClusterTables, ownership: Ownership) -> None:
        self._tables, self._ownership, self._journal = tables, ownership, tables.journal(MARKERS)
        self._journal.fence_by(ownership.fence)
        newest = self._journal.newest()
        self.looked_at = {row["topic"]: from_row(LookedUpTo, row) for row in newest}
        """Looks by topic, by its newest row."""
        self._last = max((row["seq"] for row in newest), default=0)
        self._trimmed_at = -math.inf if upkeep.count_files(self._journal) >= TRIM_FILES else time.monotonic()

    def next_seq(self) -> int:
        """The number of the next row."""
        self._last = max(self._last + 1, now_us())
        return self._last

    def append(self, rows: Iterable[Heard]) -> None:
        """In one commit, if it is still owned."""
        written_at, rows = from_us(now_us()), list(rows)
        self._journal.append(
            [
                {**as_row(one.at), "topic": one.topic, "seq": one.row.seq, "fact": encode(one.row), "written_at": written_at}
                for one in rows
            ],
            self._ownership.append,
        )
        self.looked_at.update({one.topic: one.at for one in rows})

    def _old_to(self) -> int:
        """The number of the last row that is old, by its number or by when it was written. All before it go with it: a state that is built again from
        what is left begins later, and misses nothing in the middle.
        """
        kept_us, rows = KEPT_S * 1_000_000, self._journal.rows()
        old = (
            None
            if rows is None
            else rows.where(f"written_at <= timestamp_micros({now_us() - kept_us})").agg(F.max("seq")).first()
        )
        return max(self._last - kept_us, (old and old[0]) or 0)

    def trim_if_due(self) -> None:
        """Drop old rows, but for each topic's newest and what is always to be known. A stream over the table does not see it."""
        if time.monotonic() - self._trimmed_at >= TRIM_S:
            self._trimmed_at = time.monotonic()
            newest = ", ".join(str(row["seq"]) for row in self._journal.newest())
            if newest:
                upkeep.keep_where(self._journal, f"seq > {self._old_to()} OR seq IN ({newest}) OR ({_OF_ANOTHER_TABLE})")
                place = goes_on_from(self._tables.spark, controllers_place(self._tables))
                upkeep.cut(self._journal, [LogReader("the controllers", *place, holds_s=KEPT_S)] if place is not None else [])
                upkeep.vacuum(self._journal)
