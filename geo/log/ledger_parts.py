"""Extents of the ledgers in a log at a version: first entry, last entry, and number of entries; and the oldest date of the log. Read only."""

from __future__ import annotations

from datetime import datetime, timedelta

from geo.delta.predicate import ANY_ROW, Predicate
from geo.delta.scan import summarise
from geo.delta.summary import Summary
from geo.delta.table import Table
from geo.ids import LedgerId
from geo.log.conditions import IS_MESSAGE, published_since
from geo.log.ledgers import LedgerPart
from geo.times import EPOCH, in_us

_KEY = ("origin", "ledger_id")


def ledger_parts(
    log: Table, version: int, since: datetime | None = None, where: Predicate = ANY_ROW
) -> dict[LedgerId, LedgerPart]:
    """The ledgers of a log at a version, by the messages that fulfil the condition. With `since`, a time with its zone, only those that were
    published then or later."""
    asked = Summary(_KEY, ("entry_id",), ("entry_id",), ("replicate_to",), IS_MESSAGE & published_since(in_us(since)) & where)
    found = {}
    for key, group in summarise(log, version, asked).items():
        (first,), (last,), (aims,) = group.least, group.greatest, group.same
        found[LedgerId(*key)] = LedgerPart(first, last, group.count, None if aims is None else tuple(aims))
    return found


def ledger_ends(log: Table, version: int, where: Predicate) -> dict[LedgerId, int]:
    """Ledger → last entry, of the rows of a log at a version that fulfil the condition, markers among them."""
    found = summarise(log, version, Summary(_KEY, greatest=("entry_id",), where=where)).items()
    return {LedgerId(*key): group.greatest[0] for key, group in found if None not in (*key, *group.greatest)}


def ledger_begins(log: Table, version: int, where: Predicate) -> dict[LedgerId, int]:
    """Return ledger → first entry, as `ledger_ends` does of the last."""
    found = summarise(log, version, Summary(_KEY, least=("entry_id",), where=where)).items()
    return {LedgerId(*key): group.least[0] for key, group in found if None not in (*key, *group.least)}


def count_where(log: Table, version: int, where: Predicate) -> int:
    """Count the rows of a log at a version that fulfil the condition."""
    return sum(group.count for group in summarise(log, version, Summary(("origin",), where=where)).values())


def oldest_us(log: Table, version: int) -> int | None:
    """Begin of the oldest date of which a log has rows at a version, in microseconds since 1970.

    None: it has none.
    """
    dates = [day for (day,) in summarise(log, version, Summary(("publish_date",))) if day is not None]
    return (min(dates) - EPOCH.date()) // timedelta(microseconds=1) if dates else None
