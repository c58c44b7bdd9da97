"""Counts of a run of a consumer. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Consumed:
    """Counts of a run. `redelivered`: how many of those delivered had been delivered before, in vain. `refused`: acknowledgements of messages that do
    not exist or were delivered before a reset. Records count, too, that changed nothing for another reason than being known. So do rows with ids or
    times that no message has, at each look at them.
    """

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    dead_lettered: int = 0
    refused: int = 0

    @property
    def progress(self) -> int:
        """Grows with each message that was delivered for the first time or acknowledged."""
        return self.delivered - self.redelivered + self.acknowledged

    def __add__(self, other: Consumed) -> Consumed:
        return Consumed(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))
