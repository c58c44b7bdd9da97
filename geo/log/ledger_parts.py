"""What a log has of each ledger at a version: its first entry, its last, and how many. Read only."""

from __future__ import annotations

from datetime import datetime

from geo.delta.predicate import Predicate
from geo.delta.scan import summarise
from geo.delta.summary import Summary
from geo.delta.table import Table
from geo.ids import LedgerId
from geo.log.conditions import IS_MESSAGE, published_since
from geo.log.ledgers import LedgerPart
from geo.times import in_us

_KEY = ("origin", "ledger_id")


def ledger_parts(log: Table, version: int, since: datetime | None = None) -> dict[LedgerId, LedgerPart]:
    """The ledgers of a log at a version; with `since`, a time with its zone, only messages that were published then or later."""
    asked = Summary(_KEY, ("entry_id",), ("entry_id",), ("replicate_to",), IS_MESSAGE & published_since(in_us(since)))
    found = {}
    for key, group in summarise(log, version, asked).items():
        (first,), (last,), (aims,) = group.least, group.greatest, group.same
        found[LedgerId(*key)] = LedgerPart(first, last, group.count, None if aims is None else tuple(aims))
    return found


def ledger_ends(log: Table, version: int, where: Predicate) -> dict[LedgerId, int]:
    """Ledger → last entry, of the rows of a log at a version that fulfil the condition, markers among them."""
    return _one_entry(log, version, Summary(_KEY, greatest=("entry_id",), where=where))


def ledger_begins(log: Table, version: int, where: Predicate) -> dict[LedgerId, int]:
    """As `ledger_ends`, ledger → first entry."""
    return _one_entry(log, version, Summary(_KEY, least=("entry_id",), where=where))


def _one_entry(log: Table, version: int, end: Summary) -> dict[LedgerId, int]:
    found = {
        LedgerId(*key): (*group.least, *group.greatest) for key, group in summarise(log, version, end).items() if None not in key
    }
    return {ledger: entry for ledger, (entry,) in found.items() if entry is not None}


def count_where(log: Table, version: int, where: Predicate) -> int:
    """How many rows of a log at a version fulfil the condition."""
    return sum(group.count for group in summarise(log, version, Summary(("origin",), where=where)).values())
