"""Messages that have not crossed a link: their sum over topics, and how it moves. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages that have not crossed a link. `messages`: an upper bound, and a lower one if it is not `complete`. `seconds`:
    the age of the oldest. None: nobody knows.
    """

    messages: int | None = 0
    seconds: float | None = 0.0
    complete: bool = True

    @property
    def is_nothing(self) -> bool:
        return self.messages == 0 and self.complete

    @property
    def shown(self) -> Backlog:
        """Backlog for people. A lower bound of 0 says nothing."""
        return self if self.complete else Backlog(self.messages or None, self.seconds or None, complete=False)

    def __add__(self, other: Backlog) -> Backlog:
        """Backlog of two topics. What is known of one is a lower bound if nothing is known of the other."""
        known = [one.messages for one in (self, other) if one.messages is not None]
        ages = [one.seconds for one in (self, other) if one.seconds is not None]
        is_complete = self.complete and other.complete and len(known) == 2 and len(ages) == 2
        return Backlog(sum(known) if known else None, max(ages, default=None), is_complete)


UNKNOWN = Backlog(None, None, complete=False)


def smaller(one: Backlog, other: Backlog) -> Backlog:
    """The smaller one; what is not known is not smaller than what is."""

    def size(backlog: Backlog) -> tuple[bool, float, float]:
        many = float("inf")
        return (
            not backlog.complete,
            many if backlog.messages is None else backlog.messages,
            many if backlog.seconds is None else backlog.seconds,
        )

    return min(one, other, key=size)


class Trend(str, Enum):
    """Movement of the lag of a link."""

    REST = "at rest"
    GROWING = "growing"
    FALLING = "falling"
    STEADY = "steady"
    UNKNOWN = "?"


STEADY = 0.05
"""Part of itself by which a lag must change to have moved: a link that follows replicates in batches."""


def trend(now: Backlog, before: Backlog | None) -> Trend:
    if now.is_nothing:
        return Trend.FALLING if before is not None and before.messages else Trend.REST
    if before is None or now.messages is None or before.messages is None:
        return Trend.UNKNOWN
    if abs(now.messages - before.messages) <= STEADY * max(now.messages, before.messages):
        return Trend.STEADY
    return Trend.GROWING if now.messages > before.messages else Trend.FALLING
