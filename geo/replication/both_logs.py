"""What a link finds out from the rows of both logs: what is missing, what is lost, where it begins. Reads only.

Which rows are asked for is decided in gaps and rule; who appends them, and what is recorded, is the link's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from geo.config.model import Start
from geo.ids import LedgerId
from geo.log.topic_log import after_ends
from geo.now import now_us
from geo.replication import missing_rows
from geo.replication.missing import find_missing
from geo.replication.missing_rows import ledger_begins, ledger_ends
from geo.replication.rule import Rule
from geo.replication.rule_rows import crossing
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
        rows = self.source.read(version)
        ends = ledger_ends(rows, self.rule.origins)
        later: dict[LedgerId, int] = {}
        if begin != "latest":
            later = ledger_begins(rows.where(F.col("publish_time") >= begin), self.rule.origins)
        return {str(ledger): later.get(ledger, end + 1) for ledger, end in ends.items()}

    def lost(self, version: int, floors: Floors | None) -> list[str]:
        """Messages that the target has still to get and the source at `version` no longer has, other than by expiry, as
        `origin:ledger:first-last`.

        Seen by the gap between the end of a ledger here and the first later entry there (L5: it has no holes otherwise). With a
        TTL it is a loss for sure only if the entry before the gap is younger than the TTL: all in the gap are younger still.
        """
        target = self.target.read()
        ends = ledger_ends(target, self.rule.origins)
        later = ledger_begins(after_ends(self.source.read(version).where(self._wanted(floors)), ends), self.rule.origins)
        due = {ledger: max(ends.get(ledger, -1) + 1, (floors or {}).get(str(ledger), 0)) for ledger in later}
        lost = {ledger: first for ledger, first in sorted(later.items()) if first > due[ledger]}
        horizon_us = self.rule.expired_before_us(now_us())
        if lost and horizon_us is not None:
            young = target.where(F.col("publish_time") >= F.timestamp_micros(F.lit(horizon_us)))
            living = ledger_ends(young, self.rule.origins)
            lost = {ledger: first for ledger, first in lost.items() if ledger in ends and living.get(ledger) == ends[ledger]}
        return [f"{ledger}:{due[ledger]}-{first - 1}" for ledger, first in lost.items()]

    def gone_from_source(self) -> list[str]:
        """What the target has beyond the source's ledgers, as `origin:ledger:first-last`."""
        return missing_rows.lost_ranges(*(ledger_ends(log.read(), self.rule.origins) for log in (self.source, self.target)))

    def _wanted(self, floors: Floors | None) -> Column:
        return missing_rows.messages_wanted(self.rule, floors, now_us())
