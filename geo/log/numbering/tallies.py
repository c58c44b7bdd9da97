"""Tallies of a batch: how many rows of each ledger it has, which are new, bad or published already. And what its rows have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from geo.log.admission import ERROR
from geo.log.ledgers import Batch, LedgerKey
from geo.log.numbering.order import ordered
from geo.log.source_identity import PUBLISHED, SOURCE
from geo.times import from_us

IS_NEW = f"{ERROR} IS NULL AND NOT {PUBLISHED}"
"""SQL that tells whether a row is to be written."""

LEDGER_KEY = f"{SOURCE}, replicate_to IS NULL, replicate_to"
"""Arguments of a hash in SQL that tell the ledgers of rows apart. A hash passes over NULL, so it does not tell it from an empty array by itself."""

REPEATED = "GEO_REPEATED_ORDER"
"""In an error: two rows have the same offset."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Rows of a batch with the same ledger key, and the same answers to whether they are bad and whether they are published.

    `last` is the greatest offset of all rows of their source that give the second answer as they do. `hash` is the XOR of their
    hashes.
    """

    key: LedgerKey
    bad: bool
    is_published: bool
    rows: int
    last: tuple[str, ...]
    hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Rows of one part of a batch with the same ledger key and the same answers, as `Tally`. `first` and `last` are their least and their greatest
    offset, `last_text` is the latter as text. Some lie in one Spark partition, or were read by this process, in the order of their offsets. Of these
    `code` is their ledger key as a number; the new ones among them are held in `file`, in memory if that is ''.
    """

    key: LedgerKey
    bad: bool
    is_published: bool
    rows: int
    hash: int
    first: tuple[Any, ...]
    last: tuple[Any, ...]
    last_text: tuple[str, ...]
    file: str = ""
    partition: int = 0
    code: int = 0

    @property
    def is_new(self) -> bool:
        """They are to be written."""
        return not self.bad and not self.is_published


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not published. `offset` is its place in its source, as text."""

    source: str
    offset: tuple[str, ...]
    reason: str
    key: str | None


@dataclass(frozen=True, slots=True)
class Common:
    """The place where and by whom rows are written, and the log's columns."""

    cluster: str
    producer: str
    columns: StructType

    def of(self, batch: Batch) -> dict[str, Any]:
        """Return what all rows of a batch have in common, by column."""
        time = from_us(batch.publish_time_us)
        return {"origin": self.cluster, "producer": self.producer, "publish_time": time, "publish_date": time.date()}


def merged(parts: Iterable[Alike]) -> list[Tally]:
    """Merge the tallies of all parts."""
    counts: dict[tuple[LedgerKey, bool, bool], tuple[int, int]] = {}
    last: dict[tuple[str, bool], tuple[tuple[Any, ...], tuple[str, ...]]] = {}
    for part in parts:
        kind = (part.key, part.bad, part.is_published)
        rows, found = counts.get(kind, (0, 0))
        counts[kind] = rows + part.rows, found ^ part.hash
        side, offset = (part.key.source, part.is_published), ordered(part.last)
        if side not in last or offset > last[side][0]:
            last[side] = offset, part.last_text
    return [
        Tally(key, bad, is_published, rows, last[key.source, is_published][1], found)
        for (key, bad, is_published), (rows, found) in counts.items()
    ]
