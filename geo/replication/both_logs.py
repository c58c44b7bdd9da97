"""Comparison of both logs by their rows: what is missing, what is lost, where a link begins. Reads only.

The rows to ask for are decided in gaps and rule; who appends them, and what is recorded, is the link's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.config.choices import Start
from geo.delta.actions import Touched
from geo.delta.frames import bytes_of
from geo.delta.predicate import Among, Predicate
from geo.delta.table import Table
from geo.ids import LedgerId
from geo.log.conditions import after, published_since
from geo.log.ledger_parts import count_where, ledger_begins, ledger_ends, ledger_parts, oldest_us
from geo.log.promises import Promise, due, lost_entries, told_range
from geo.log.topic_log import is_message, ledger_ranges
from geo.replication.foreign_rows import ambiguous, differing, in_partitions
from geo.replication.gaps import Gap
from geo.replication.missing import count_rows, find_missing, within
from geo.replication.rule import Floors, Rule, impossible, messages_wanted
from geo.times import in_us, with_zone


@dataclass(frozen=True, slots=True)
class BothLogs:
    """The log of a topic in a link's source and in its target."""

    source: Table
    target: Table
    rule: Rule
    what: str
    """The link whose logs they are, for the lines of progress."""
    clock: Callable[[], int]
    """Now, by which is decided what has expired and what nobody can have published: held against the target's storage. Raises
    WrongClockError."""

    def missing(
        self, version: int, target_version: int, floors: Floors | None, most: int | None = None
    ) -> Iterator[DataFrame | pa.Table]:
        """Finds what `target` at its version lacks of `source` at `version`, in bounded steps, of so many messages at most. Nobody else may append
        these origins meanwhile. A few are found without Spark.
        """
        wanted = messages_wanted(self.rule, floors, self.clock())
        return find_missing(self.source, version, self.target, target_version, wanted, self.what, most)

    def row_bytes(self) -> float:
        """Bytes that a row of the source takes, as far as its files tell; 1 at least."""
        return max(1.0, bytes_of(self.source) / max(1, self.source.read().count()))

    def count_missing(self, version: int, floors: Floors | None) -> int:
        """Counts the messages that `missing` would give now."""
        if not self.target.exists():
            return count_where(self.source, version, messages_wanted(self.rule, floors, self.clock()))
        return sum(map(count_rows, self.missing(version, self.target.latest_version(), floors)))

    def count_impossible(self, version: int) -> int:
        """Counts the rows of the source at `version` that no producer can have written."""
        return count_where(self.source, version, impossible(self.rule, self.clock()))

    def count_expired(self, version: int, floors: Floors | None) -> int:
        """Counts the messages of the source at `version` that the target lacks because they had expired; it has all others. What it had, and dropped
        when it expired, is counted too.
        """
        horizon_us = self.rule.expired_before_us(self.clock())
        oldest = None if horizon_us is None else oldest_us(self.source, version)
        if horizon_us is None or oldest is None or oldest >= horizon_us:
            return 0
        return replace(self, rule=replace(self.rule, message_ttl_s=None)).count_missing(version, floors)

    def floors(self, start: Start | datetime, version: int) -> dict[str, int] | None:
        """The first entry wanted of each ledger of the source at `version`, for a link that begins there; None: all."""
        if start == "earliest":
            return None
        ends = self._ends(self.source, version)
        later: dict[LedgerId, int] = {}
        if start != "latest":
            later = ledger_begins(self.source, version, self._of_origins(in_us(with_zone(start))))
        return {str(ledger): later.get(ledger, end + 1) for ledger, end in ends.items()}

    def new_floors(self, origins: Collection[str], version: int) -> dict[str, int]:
        """Floors as `floors` of a link that begins at the latest, for these origins, of ledgers of which the target has nothing."""
        there = self._ends(self.target, self.target.latest_version())
        ends = self._ends(self.source, version).items()
        return {str(ledger): end + 1 for ledger, end in ends if ledger.origin in origins and ledger not in there}

    def lost(self, version: int, floors: Floors | None) -> list[str]:
        """Messages that the target has still to get and the source at `version` no longer has, other than by expiry, as `origin:ledger:first-last`.

        Seen by the gap between the end of a ledger here and the first later entry there (L5: it has no holes otherwise). With a TTL it is a loss
        for sure only if the entry before the gap is younger than the TTL. All in the gap are younger still.
        """
        target_version = self.target.latest_version()
        ends = self._ends(self.target, target_version)
        later = ledger_begins(self.source, version, messages_wanted(self.rule, floors, self.clock()) & after(ends))
        due = {ledger: max(ends.get(ledger, -1) + 1, (floors or {}).get(str(ledger), 0)) for ledger in later}
        lost = {ledger: first for ledger, first in sorted(later.items()) if first > due[ledger]}
        horizon_us = self.rule.expired_before_us(self.clock())
        if lost and horizon_us is not None:
            living = self._ends(self.target, target_version, horizon_us)
            lost = {ledger: first for ledger, first in lost.items() if ledger in ends and living.get(ledger) == ends[ledger]}
        return [f"{ledger}:{due[ledger]}-{first - 1}" for ledger, first in lost.items()]

    def unkept(
        self, version: int, floors: Floors | None, promises: Sequence[Promise], after: int | None
    ) -> dict[LedgerId, tuple[int, int]]:
        """Messages that the source's producers recorded as published, and that neither the source at `version` nor the target holds. They are of
        commits above version `after` (None: of any). Of each ledger the first and the last are given. `promises`: read before `version` was.

        What may have expired is not among them, nor what may have done so before, by a shorter TTL. Of a link that never read the log (`after`
        None) what is older than the log's oldest date does not count.
        """
        horizon_us = self.rule.expired_before_us(self.clock())
        wanted = due(promises, self.source.table_id(), after, self.rule.target, horizon_us)
        held = self._ends(self.target, self.target.latest_version()) if wanted and self.target.exists() else {}
        if not lost_entries(wanted, held, floors):
            return {}
        for ledger, last in self._ends(self.source, version).items():
            held[ledger] = max(last, held.get(ledger, -1))
        found = lost_entries(wanted, held, floors)
        if found and after is None:
            found = lost_entries(due(wanted, self.source.table_id(), None, None, oldest_us(self.source, version)), held, floors)
        return found

    def ambiguous(self, version: int, touched: Touched) -> list[str]:
        """Finds what `foreign_rows.ambiguous` does, of the link's origins, in these partitions; None: in the ledgers that have more messages than
        entries.
        """
        if touched is not None:
            return ambiguous(in_partitions(self.source.read(version), touched), self.rule.origins) if touched else []
        parts = ledger_parts(self.source, version).items()
        doubled = [Gap(of, part.first, part.last) for of, part in parts if part.count > part.last - part.first + 1]
        doubled = [gap for gap in doubled if gap.ledger.origin in self.rule.origins]
        return ambiguous(within(self.source.read(version), doubled), self.rule.origins) if doubled else []

    def differing(self, version: int, target_version: int, touched: Touched) -> tuple[list[str], list[str]]:
        """Finds what `foreign_rows.differing` does, of the link's origins."""
        if touched is not None and not touched:
            return [], []
        here, there = (in_partitions(rows, touched) for rows in (self.target.read(target_version), self.source.read(version)))
        return differing(there, here, self.rule.origins)

    def ahead(self, version: int, target_version: int, promises: Sequence[Promise], touched: Touched) -> list[str]:
        """Finds what the target holds in these partitions (None: in any) beyond the ends of ledgers that the source has, as
        `origin:ledger:first-last`. The link would append it once more when the source has it. What its producers once recorded is not among it: it
        was there, and is lost.
        """
        if touched is not None and not touched:
            return []
        ends, origins = self._ends(self.source, version), self.rule.origins
        for promise in promises:
            if promise.ledger in ends:
                ends[promise.ledger] = max(promise.end, ends[promise.ledger])
        rows = in_partitions(self.target.read(target_version), touched).where(F.col("origin").isin(*origins) & is_message())
        held = ledger_ranges(rows).items()
        beyond = {of: (max(first, ends[of] + 1), last) for of, (first, last) in held if of in ends and last > ends[of]}
        return [told_range(*one) for one in sorted(beyond.items())]

    def beside(self, version: int) -> int:
        """Counts the messages of the rule's origins that the target holds in ledgers that the source at `version` does not know."""
        known = self._ends(self.source, version)
        held = ledger_parts(self.target, self.target.latest_version())
        return sum(part.count for of, part in held.items() if of.origin in self.rule.origins and of not in known)

    def gone_from_source(self) -> list[str]:
        """Finds what the target has beyond the source's ledgers, as `origin:ledger:first-last`."""
        there, here = (self._ends(log, log.latest_version()) for log in (self.source, self.target))
        beyond = {ledger: (there.get(ledger, -1) + 1, end) for ledger, end in here.items() if end > there.get(ledger, -1)}
        return [told_range(*one) for one in sorted(beyond.items())]

    def _ends(self, log: Table, version: int, since_us: int | None = None) -> dict[LedgerId, int]:
        """Ledger → last entry in a log at a version, of the origins that cross. With `since_us` among the rows that were published then or later."""
        return ledger_ends(log, version, self._of_origins(since_us))

    def _of_origins(self, since_us: int | None) -> Predicate:
        """Rows of the origins that cross, that were published then or later."""
        return Among("origin", self.rule.origins) & published_since(since_us)
