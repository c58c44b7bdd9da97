"""The identity of a message: where, and as what, it was first written. The same in every cluster, for ever.

Only the value lives here; who hands out ledgers and entries is elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from geo.errors import UsageError
from geo.names import check_cluster
from geo.text import show

# Ledger ids travel as JSON numbers, which most readers hold as a double: 2**53 is where that stops being exact.
LEDGER_ID_LIMIT = 2**53
# Entry ids are a BIGINT column.
ENTRY_ID_LIMIT = 2**63

# ASCII digits without a leading zero: an id has one spelling only.
_NUMBER = "(0|[1-9][0-9]{0,18})"
_TEXT = re.compile(rf"([^:]+):{_NUMBER}:{_NUMBER}")


class LedgerId(NamedTuple):
    """One writer's unbroken sequence of messages: where it was first written, and its number there. `origin:ledger_id`."""

    origin: str
    ledger_id: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.ledger_id}"

    @classmethod
    def parse(cls, text: str) -> LedgerId:
        """The inverse of `str`."""
        origin, _, ledger_id = text.partition(":")
        return cls(origin, int(ledger_id))


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """`origin:ledger_id:entry_id`. Sorts by origin, ledger, entry; within a ledger that is the order of publishing.

    0 < ledger_id < 2**53, 0 <= entry_id < 2**63. Raises InvalidNameError for the origin, UsageError for the numbers.
    """

    origin: str
    ledger_id: int
    entry_id: int

    def __post_init__(self) -> None:
        check_cluster(self.origin)
        _check_number("ledger_id", self.ledger_id, 1, LEDGER_ID_LIMIT)
        _check_number("entry_id", self.entry_id, 0, ENTRY_ID_LIMIT)

    def __str__(self) -> str:
        return f"{self.origin}:{self.ledger_id}:{self.entry_id}"

    @property
    def ledger(self) -> LedgerId:
        return LedgerId(self.origin, self.ledger_id)

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """The inverse of `str`; no other spelling is taken."""
        found = _TEXT.fullmatch(text)
        if not found:
            raise UsageError(f"message id {show(text)} is not of the form origin:ledger:entry, such as eu:7:42")
        return cls(found[1], int(found[2]), int(found[3]))


def _check_number(what: str, number: int, least: int, limit: int) -> None:
    # type() and not isinstance: True is an int to Python, and would compare equal to ledger 1.
    if type(number) is not int or not least <= number < limit:
        raise UsageError(f"{what} {show(number)} is not a whole number from {least} to {limit - 1}")
