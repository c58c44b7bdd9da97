"""Where a producer begins that goes on for one of the same name in another cluster. Pure: no Spark, clock, random or I/O.

A *place* of a source partition is safe if every record before it is in the log of some cluster, but for what a person passed over
(rejected records, `--kafka-start latest`, `--accept-lost`). Three places are safe, each by itself:

- OWN, where the producer's own record in this cluster ends;
- RECORDED, where the other producer's record in its cluster ends;
- ARRIVED, behind the last of its messages that came here (`safe_end`).

Each is the end of an unbroken run of publishing that began at the first record, or at a place that was safe then. So the furthest
one is safe too, whichever was written later, and it repeats least. Nothing has to be remembered of the choice: made again after a
death or at a later start it is the same or further on, and once the own record has come further it is the own one. So production may
go back and forth: eu to us, and back to eu with what us published meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class By(str, Enum):
    """What a place is known by; of equal places the first counts."""

    OWN = "own"
    RECORDED = "recorded"
    ARRIVED = "arrived"


def furthest(own: Mapping[str, int], recorded: Mapping[str, int], arrived: Mapping[str, int]) -> dict[str, By]:
    """By source partition which of its safe places is the furthest. Each is the number of records, bytes or offsets before it."""
    known = {By.OWN: own, By.RECORDED: recorded, By.ARRIVED: arrived}
    names = sorted({name for places in known.values() for name in places})
    return {name: max((by for by in By if name in known[by]), key=lambda by: known[by][name]) for name in names}


@dataclass(frozen=True, slots=True)
class Part:
    """What a log has of one ledger: its entries, and the greatest source offset that they say."""

    first: int
    last: int
    count: int
    greatest: int


def safe_end(parts: Iterable[Part]) -> int | None:
    """The greatest source offset up to which all that the ledgers of one source partition have is surely here; None: of nothing
    that is sure.

    A link brings whole commits in their order, and where it compares both logs it brings ledgers in the order of their ids, which grow
    with time, and each from its first entry on. So what is here of a source partition has no gap, unless a comparison that fills a
    hole has not come to its end: such a ledger counts for nothing, nor does what is behind it. (A ledger that lacks its beginning
    lost it to its age, or to `start: latest`, which nobody wants.)
    """
    end = None
    for part in sorted(parts, key=lambda part: part.greatest):
        if part.count != part.last - part.first + 1:
            break
        end = part.greatest
    return end
