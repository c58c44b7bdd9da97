"""The log of one topic, as its controller is given it, in order: marker rows of new commits, and what makes snapshots invalid.

A log of which commits are gone, or that is another table, is followed from its newest version on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import functions as F

from geo.delta.commits import Commit, Kind
from geo.delta.history import CommitName, parted
from geo.delta.scan import added_where
from geo.delta.table import Table
from geo.delta.tail import Tail, Turn
from geo.errors import RetryableError
from geo.faults import FAULTS
from geo.ids import Position
from geo.log.ledgers import LINK_KEY
from geo.names import Topic
from geo.replication.link_state import LinkRecord
from geo.subscription.pip33.controller import concerns
from geo.subscription.pip33.controller_rows import (
    Invalidated,
    MarkerRow,
    Row,
)
from geo.subscription.pip33.marker_journal import LookedUpTo
from geo.subscription.pip33.markers import MAX_BYTES
from geo.subscription.pip33.reordering import OUT_OF_ORDER, out_of_order, replicated_out_of_order
from geo.subscription.pip33.surroundings import Surroundings, TopicWays
from geo.text import first_line

log = logging.getLogger(__name__)

TURNS = 4
"""Turns of a topic in a round, of `tail.TURN_COMMITS` commits each: a busy one does not hold up the others."""

LINKS_LOOK = 1_000
"""So many commits are looked at for the links' cursors when a log begins to be followed."""

_ID = ("origin", "ledger_id", "entry_id")
_READ = (*_ID, "marker", "payload")


class LogFeed:
    """The log of a topic from where it was looked at last.

    `looked_at`: where the tail before this one came to. None: nothing is known, and the newest version counts; one snapshot is taken that may
    not be needed.

    Raises RetryableError if there is no log here.
    """

    def __init__(
        self, topic: Topic, table: Table, ways: TopicWays, surroundings: Surroundings, looked_at: LookedUpTo | None
    ) -> None:
        self.topic, self.log, self._ways = topic, table, ways
        self._cluster, self._peers = surroundings.cluster, surroundings.peers
        newest = Tail.at_newest(table).at
        at = looked_at or LookedUpTo(newest, newest.version)
        self.tail, self.moved = Tail(table, at.commit), at.moved
        """`moved`: the newest version that added a message, as far as is known."""
        self._cursors: dict[str, CommitName] = {}
        """Commit of its source up to which each link has replicated everything."""
        self.arrived: dict[str, float] = {}
        """Time, by origin, when the newest commit of a link that replicates it was seen, by a clock that only goes on."""
        self._read_links(min(at.commit.version, newest.version))

    @property
    def read_to(self) -> int:
        """The version up to which it is read."""
        return self.tail.at.version

    @property
    def at(self) -> LookedUpTo:
        return LookedUpTo(self.tail.at, self.moved)

    def has_news(self) -> bool:
        """True if a log on a local disk has a commit that was not looked at."""
        return self.log.is_near and self.log.has_commit(self.read_to + 1)

    def _read_links(self, begin: int) -> None:
        for commit in self.log.commits(max(0, begin - LINKS_LOOK), begin, only=(LINK_KEY,)):
            record = LinkRecord.decode(commit.user_metadata)
            if record is not None:
                self.arrived |= dict.fromkeys(self._ways.may_come.intersection(record.origins), time.monotonic())
                if not record.reconciling:
                    self._cursors[record.link] = record.cursor

    def read(self) -> Iterator[Row]:
        """Marker rows of new commits, and voids, in the order of the log. Takes them from its tail. Raises RetryableError, before the first
        row, where its place is lost."""
        for nth in range(TURNS):
            try:
                turn = self.tail.next()
            except RetryableError:
                if nth:
                    return  # said in the next round
                raise
            if turn is None:
                return
            for commit in turn.commits:
                yield from self._of_commit(commit, turn.last.version)
            self.tail.take(turn)

    def restart(self, error: RetryableError) -> tuple[list[Row], bool]:
        """Continue at the newest version, since the place is lost. Returns rows by which all snapshots are invalid, and whether the log has
        another history, so that nothing that is known of its versions counts."""
        before, self.tail = self.tail.at, Tail.at_newest(self.log)
        at, self.moved = self.tail.at, self.read_to
        log.warning("%s in %s: its snapshots are void: %s", self.topic, self._cluster, error)
        is_other = parted(before, at.table_id, at.version, self.log.commit_at(before.version)) is not None
        return invalidated(str(error), at.table_id if is_other else None), is_other

    def _of_commit(self, commit: Commit, read_to: int) -> Iterator[Row]:
        if commit.kind is not Kind.APPEND:
            return
        record = LinkRecord.decode(commit.user_metadata)
        if record is not None:
            self._note_arrived(commit, record)
        if (what := out_of_order(commit) or (None if record is None else self._out_of_order_in(record))) is not None:
            yield from invalidated(what)
        markers, others = self._markers(commit)
        if others:
            self.moved = commit.version
        for index, row in enumerate(markers.sort_by([(name, "ascending") for name in _ID]).to_pylist()):
            if not concerns(row["marker"], row["origin"], self._cluster):
                continue
            # Longer ones are refused as they are.
            payload = None if row["payload"] is None else bytes(row["payload"])[: MAX_BYTES + 1]
            position = Position(commit.version, index)
            yield MarkerRow(0, row["marker"], payload, row["origin"], position, read_to, self.tail.at.table_id, self.moved)

    def _note_arrived(self, commit: Commit, record: LinkRecord) -> None:
        """Note those whose messages came, of whom neither the policies say so nor was it seen."""
        unknown = self._ways.may_come.intersection(record.origins) - {*self._ways.now().back, *self.arrived}
        if not unknown:
            return
        found = added_where(self.log, commit.version, "origin", ("origin",))
        rows = self.tail.rows(Turn([commit])).select("origin").distinct().toArrow() if found is None else found[0]
        self.arrived |= dict.fromkeys(unknown.intersection(rows["origin"].to_pylist()), time.monotonic())

    def _out_of_order_in(self, record: LinkRecord) -> str | None:
        """Names whose commit a link has replicated with one of this record that was out of order in its source: it is so here too."""
        before = self._cursors.get(record.link)
        self._cursors[record.link] = record.cursor
        source = self._peers.get(record.link.partition("->")[0])
        if before is None or source is None or before.table_id != record.cursor.table_id:
            return f"{record.link}: what it had brought before is not known"
        try:
            passed = source.commits(self.topic, before.version, max(before.version, record.cursor.version), OUT_OF_ORDER)
        except FAULTS as error:
            return f"{record.link}: what it brought cannot be looked at: {first_line(error)}"
        return replicated_out_of_order(record, before, passed)

    def _markers(self, commit: Commit) -> tuple[pa.Table, bool]:
        """The marker rows that a commit added, and whether it added others."""
        found = added_where(self.log, commit.version, "marker", _READ)
        if found is not None:
            return found
        rows = self.tail.rows(Turn([commit]))
        markers = rows.where(F.col("marker").isNotNull()).select(*_READ).toArrow()
        return markers, commit.rows != len(markers) or not commit.rows  # it may not have counted them


def invalidated(what: str, table: str | None = None) -> list[Row]:
    """Rows came otherwise than in order: begun and ended. Of another table one row says all, which is kept (geo.subscription.pip33.marker_journal)."""
    begins = [Invalidated(0, what, begins=True)] if table is None else []
    return [*begins, Invalidated(0, what, begins=False, table=table)]
