"""What a link finds out from the rows of both logs: what is missing, what is lost, where it begins. Reads only.

Which rows are asked for is decided in gaps and rule; who appends them, and what is recorded, is the link's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from geo.config.model import Start
from geo.ids import LedgerId
from geo.log.ledger_parts import Ranges, few_ranges, only_ledger
from geo.log.topic_log import ID, after_ends
from geo.now import now_us
from geo.replication import missing_rows
from geo.replication.missing import find_missing
from geo.replication.missing_rows import ledger_begins, ledger_ends
from geo.replication.rule import Rule
from geo.replication.rule_rows import READ, crossing
from geo.tables.native import DataFile
from geo.tables.table import Table

Floors = Mapping[str, int]
"""`origin:ledger` → the first entry wanted."""


@dataclass(frozen=True, slots=True)
class BothLogs:
    """The log of a topic in a link's source and in its target."""

    source: Table
    target: Table
    rule: Rule
    what: str
    """The link whose logs they are, for the lines of progress."""

    def missing(
        self, version: int, target_version: int, floors: Floors | None, most: int | None = None
    ) -> Iterator[DataFrame | pa.Table]:
        """What `target` at its version lacks of `source` at `version`, in bounded steps, of so many messages at most. Nobody else
        may bring these origins meanwhile. A few are found without Spark."""
        now = now_us()
        return find_missing(
            self.source,
            version,
            self.target,
            target_version,
            lambda: missing_rows.wanted(self.rule, floors, now),
            lambda rows: crossing(self.rule, floors, rows, now)[0],
            self.what,
            most,
        )

    def row_bytes(self) -> float:
        """How many bytes a row of the source takes, as far as its files tell; 1 at least."""
        return max(1.0, self.source.size() / max(1, self.source.read().count()))

    def count_missing(self, version: int, floors: Floors | None) -> int:
        """How many messages `missing` would bring now."""
        if not self.target.exists():
            return self.source.read(version).where(self._wanted(floors)).count()
        steps = self.missing(version, self.target.latest_version(), floors)
        return sum(map(missing_rows.count_rows, steps))

    def floors(self, begin: Start | datetime, version: int) -> dict[str, int] | None:
        """The first entry wanted of each ledger of the source at `version`, for a link that begins there; None: all."""
        if begin == "earliest":
            return None
        ends = self._ends(self.source, version)
        later: dict[LedgerId, int] = {}
        if begin != "latest":
            later = ledger_begins(self.source.read(version).where(F.col("publish_time") >= begin), self.rule.origins)
        return {str(ledger): later.get(ledger, end + 1) for ledger, end in ends.items()}

    def lost(self, version: int, floors: Floors | None) -> list[str]:
        """Messages that the target has still to get and the source at `version` no longer has, other than by expiry, as
        `origin:ledger:first-last`.

        Seen by the gap between the end of a ledger here and the first later entry there (L5: it has no holes otherwise). With a
        TTL it is a loss for sure only if the entry before the gap is younger than the TTL: all in the gap are younger still.
        """
        target_version = self.target.latest_version()
        ends = self._ends(self.target, target_version)
        later = self._first_due(version, floors, ends)
        due = {ledger: max(ends.get(ledger, -1) + 1, (floors or {}).get(str(ledger), 0)) for ledger in later}
        lost = {ledger: first for ledger, first in sorted(later.items()) if first > due[ledger]}
        horizon_us = self.rule.expired_before_us(now_us())
        if lost and horizon_us is not None:
            young = self.target.read(target_version).where(F.col("publish_time") >= F.timestamp_micros(F.lit(horizon_us)))
            living = ledger_ends(young, self.rule.origins)
            lost = {ledger: first for ledger, first in lost.items() if ledger in ends and living.get(ledger) == ends[ledger]}
        return [f"{ledger}:{due[ledger]}-{first - 1}" for ledger, first in lost.items()]

    def gone_from_source(self) -> list[str]:
        """What the target has beyond the source's ledgers, as `origin:ledger:first-last`."""
        return missing_rows.lost_ranges(*(self._ends(log, log.latest_version()) for log in (self.source, self.target)))

    def _ends(self, log: Table, version: int) -> dict[LedgerId, int]:
        """The last entry of each ledger that the link brings. Without Spark where this process may read the files."""

        def told(file: DataFile) -> Ranges | None:
            if (only := only_ledger(file)) is None:
                return None
            ledger, first, last = only
            return {ledger: (first, last)} if ledger.origin in self.rule.origins else {}

        of_link = pc.field("origin").isin(pa.array(sorted(self.rule.origins), pa.string()))
        found = few_ranges(log, version, ID, lambda rows: rows.filter(of_link), told)
        if found is None:
            return ledger_ends(log.read(version), self.rule.origins)
        return {ledger: last for ledger, (_, last) in found.items()}

    def _first_due(self, version: int, floors: Floors | None, ends: Mapping[LedgerId, int]) -> dict[LedgerId, int]:
        """The first message behind each of the `ends` that the source has at `version` and the link wants. Without Spark where this
        process may read the files."""
        now = now_us()

        def is_due(ledger: LedgerId, entry: int) -> bool:
            return ledger.origin in self.rule.origins and entry > ends.get(ledger, -1)

        def told(file: DataFile) -> Ranges | None:
            only = only_ledger(file)
            return None if only is None or is_due(only[0], only[2]) else {}

        def due(rows: pa.Table) -> pa.Table:
            ids = zip(*(rows[name].to_pylist() for name in ID), strict=True)
            behind = pa.array((is_due(LedgerId(origin, ledger_id), entry) for origin, ledger_id, entry in ids), pa.bool_())
            return crossing(self.rule, floors, rows.filter(pc.and_(behind, rows["marker"].is_null())), now)[0]

        found = few_ranges(self.source, version, READ, due, told)
        if found is None:
            wanted = missing_rows.messages_wanted(self.rule, floors, now)
            return ledger_begins(after_ends(self.source.read(version).where(wanted), ends), self.rule.origins)
        return {ledger: first for ledger, (first, _) in found.items()}

    def _wanted(self, floors: Floors | None) -> Column:
        return missing_rows.messages_wanted(self.rule, floors, now_us())
