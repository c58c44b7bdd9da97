"""The identity of a message: where, and as what, it was first written. The same in every cluster, for ever. And where it lies in
one log, which no other log knows.

Only the values live here; who hands out ledgers and entries is elsewhere.
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

# No commit has so many rows, and it is exact as a double, with room above it for places that follow the end of a version.
END_INDEX = 2**52

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


class Position(NamedTuple):
    """A place in one topic log: the version a row was committed in, and its place among the rows of that commit. Sorts in the order of
    the log. It means nothing in another log."""

    version: int
    index: int  # type: ignore[assignment]  # of a tuple a method, which nobody needs here

    def __str__(self) -> str:
        return f"{self.version} (all)" if self.index >= END_INDEX else f"{self.version}:{self.index}"

    @classmethod
    def before(cls, version: int) -> Position:
        """Before every row of a version, and after every row of those below it."""
        return cls(version, -1)

    @classmethod
    def end(cls, version: int) -> Position:
        """After every row of a version: for whoever counts by whole versions."""
        return cls(version, END_INDEX)

    @property
    def next_version(self) -> int:
        """The version from which to read on so that nothing after this place is missed."""
        return self.version + 1 if self.index >= END_INDEX else self.version


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
