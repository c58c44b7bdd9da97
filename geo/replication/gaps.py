"""Entries that a target lacks, derived from one line per ledger of both logs, and the steps in which they are replicated. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from geo.ids import LedgerId

STEP_ROWS = 1_000_000
"""Entries in a step of a reconcile: some seconds' work, and one commit."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The entries that a log has of one ledger. It has the least, the greatest, how many, their sum and the sum of their squares (None where that
    is too large). Equal extents are equal sets of entries, but for what only somebody who wants to deceive would write."""

    first: int
    last: int
    count: int
    total: int | None
    squares: int | None

    @property
    def is_whole(self) -> bool:
        """True if it has every entry from the first to the last, once."""
        first, last = self.first, self.last

        def up_to(n: int) -> int:
            return n * (n + 1) * (2 * n + 1) // 6

        total, squares = (first + last) * (last - first + 1) // 2, up_to(last) - up_to(first - 1)
        return (self.count, self.total, self.squares) == (last - first + 1, total, squares)


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries `first` to `last` of a ledger. `compare`: the target has some of them; which ones is to be told by id. `repeated`: the
    source may hold an entry more than once."""

    ledger: LedgerId
    first: int
    last: int
    compare: bool = False
    repeated: bool = False

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def gaps(source: Mapping[LedgerId, Extent], target: Mapping[LedgerId, Extent]) -> list[Gap]:
    """Finds what the target may lack of the source. Where both agree, or the target's part is whole, no id has to be compared."""
    found = []
    for ledger, wanted in sorted(source.items()):
        there, repeated = target.get(ledger), not wanted.is_whole
        if there is None:
            found.append(Gap(ledger, wanted.first, wanted.last, repeated=repeated))
        elif there == wanted and wanted.squares is not None:
            continue
        elif there.is_whole:
            if wanted.first < there.first:
                found.append(Gap(ledger, wanted.first, min(wanted.last, there.first - 1), repeated=repeated))
            if wanted.last > there.last:
                found.append(Gap(ledger, max(wanted.first, there.last + 1), wanted.last, repeated=repeated))
        else:
            found.append(Gap(ledger, wanted.first, wanted.last, compare=True, repeated=repeated))
    return found


def steps(found: Iterable[Gap], limit: int) -> Iterator[list[Gap]]:
    """The gaps in order, in steps of at most `limit` entries each; a gap that is too large is cut."""
    step: list[Gap] = []
    left = limit
    for gap in found:
        first = gap.first
        while first <= gap.last:
            last = min(gap.last, first + left - 1)
            step.append(replace(gap, first=first, last=last))
            left -= last - first + 1
            first = last + 1
            if not left:
                yield step
                step, left = [], limit
    if step:
        yield step
