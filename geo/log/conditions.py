"""Conditions on the rows of a topic's log that several rooms ask for. Pure: no Spark, clock or I/O."""

from __future__ import annotations

from collections.abc import Mapping

from geo.delta.predicate import ANY_ROW, AtLeast, Compare, IsNull, Predicate, TimeUs
from geo.ids import LEDGER_ID_LIMIT, LedgerId
from geo.times import LAST_US

IS_MESSAGE = IsNull("marker")
"""Messages, and no markers."""

HAS_ID = Compare("ledger_id", ">", 0) & Compare("ledger_id", "<", LEDGER_ID_LIMIT) & Compare("entry_id", ">=", 0)
"""The row's numbers are those of a MessageId (`geo.ids`). What is no ID no producer has written."""

IS_POSSIBLE = HAS_ID & Compare("publish_time", ">=", TimeUs(0)) & Compare("publish_time", "<=", TimeUs(LAST_US))
"""The same, and the row's time is one of the years 1970 to 9999. A link lets no other pass; somebody may have written it here by hand."""


def after(ends: Mapping[LedgerId, int]) -> Predicate:
    """Rows after the given entries of their ledgers; of other ledgers all."""
    return AtLeast("entry_id", ("origin", "ledger_id"), {str(ledger): end + 1 for ledger, end in ends.items()})


def published_since(time_us: int | None) -> Predicate:
    """Rows that were published at a time, in microseconds since 1970, or later; None: all rows."""
    return ANY_ROW if time_us is None else Compare("publish_time", ">=", TimeUs(time_us))
