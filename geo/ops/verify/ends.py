"""Compares logs by the ends and counts of their ledgers. Pure; no content is known here.

An auditor shares no code with what it audits: see `verify.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from geo.config.model import Link
from geo.ids import LedgerId
from geo.log.ledgers import LedgerPart
from geo.ops.verify.report import EXAMPLES, Category, Difference

Parts = Mapping[LedgerId, LedgerPart]
"""The ledgers of a log, without what has expired."""

_OF_A_LINK = (Category.MISSING, Category.UNEXPECTED, Category.IN_FLIGHT)


def check_log(
    cluster: str,
    parts: Parts,
    carried: Collection[str],
    floors: Mapping[str, int],
    lost: Mapping[LedgerId, tuple[int, int]] = MappingProxyType({}),
    *,
    expires: bool,
) -> tuple[Difference, ...]:
    """Holes and duplicates of one log, in ledgers of its own and of the origins that are `carried` to it. In a ledger with both they may cancel
    each other out. An example is a ledger.

    `floors`: the first entry wanted, by ledger. One of which the log has entries below it began twice, so of its count nothing can be said. `lost`:
    the first and last entry of ledgers that were recorded as published and that no log has; such an example is a range. `expires`: below its first
    entry a ledger may have lost what expired.
    """
    lacking: dict[LedgerId, int] = {}
    for ledger, part in sorted(parts.items()):
        if ledger.origin == cluster or (ledger.origin in carried and _is_for(cluster, part)):
            floor = floors.get(str(ledger), 0)
            if part.first >= floor:
                lacking[ledger] = part.last - (part.first if expires else floor) + 1 - part.count
    holes = {f"{ledger}:{first}-{last}": last - first + 1 for ledger, (first, last) in lost.items()}
    holes |= {str(ledger): count for ledger, count in lacking.items()}
    return _findings({Category.DUPLICATES: {str(ledger): -count for ledger, count in lacking.items()}, Category.HOLES: holes})


def check_link(
    link: Link, source: Parts, origins: Collection[Parts], early: Parts, late: Parts, floors: Mapping[str, int], *, vouched: bool
) -> tuple[int, tuple[Difference, ...]]:
    """Counts the messages that both logs can have, and those that are in flight, missing and unexpected in the target.

    `source` was pinned after `early`, so what that has beyond it no link can have replicated. And before `late`, so what that lacks was not
    published meanwhile. `origins`: the logs of the link's origins, pinned with the source. `floors`: the first entry wanted, by ledger. `vouched`:
    the link had recorded that all of `source` was in the target. So what lacks at the end is missing, and not in flight.
    """
    both, counts = 0, {category: dict[str, int]() for category in _OF_A_LINK}
    for ledger, part in sorted(source.items()):
        if ledger.origin not in link.origins or not _is_for(link.target, part):
            continue
        begin = max(part.first, floors.get(str(ledger), 0))
        if (there := late.get(ledger)) is not None:
            counts[Category.MISSING][str(ledger)] = max(0, min(there.first, part.last + 1) - begin)
            both += max(0, min(there.last, part.last) - max(there.first, begin) + 1)
        lacking = part.last - max(begin - 1, -1 if there is None else there.last)
        category = Category.MISSING if vouched else Category.IN_FLIGHT
        counts[category][str(ledger)] = counts[category].get(str(ledger), 0) + max(0, lacking)
    for ledger, part in sorted(early.items()):
        if ledger.origin in link.origins:
            ends = [log[ledger].last for log in (source, *origins) if ledger in log]
            counts[Category.UNEXPECTED][str(ledger)] = part.last - max(ends) if ends else part.count
    return both, _findings(counts)


def overdue_in(link: Link, source: Parts, young: Parts, target: Parts, floors: Mapping[str, int]) -> int:
    """Counts the messages in flight that were published before a time: those that are not in `young`, which is what of `source`
    was published since. In a ledger publish times never decrease.
    """
    count = 0
    for ledger, part in source.items():
        if ledger.origin in link.origins and _is_for(link.target, part):
            old = part.last if ledger not in young else young[ledger].first - 1
            begin = max(part.first, floors.get(str(ledger), 0))
            count += max(0, old - max(begin - 1, -1 if ledger not in target else target[ledger].last))
    return count


def _is_for(cluster: str, part: LedgerPart) -> bool:
    return part.replicate_to is None or cluster in part.replicate_to


def _findings(counts: Mapping[Category, Mapping[str, int]]) -> tuple[Difference, ...]:
    """A finding for each category of which some ledger counts above 0."""
    found = []
    for category, of_category in counts.items():
        above = {ledger: count for ledger, count in of_category.items() if count > 0}
        if above:
            found.append(Difference(category, sum(above.values()), tuple(above)[:EXAMPLES]))
    return tuple(found)
