"""Whether a clock is fit to stamp messages with, derived from that of the storage. Pure: no Spark, clock or I/O.

All times are microseconds since 1970, UTC. A message's publish_time decides on its partition and when it expires, in every
cluster: one that is days off is expired at birth or never.
"""

from __future__ import annotations

from dataclasses import dataclass

from geo.errors import WrongClockError
from geo.times import from_us

CLOCK_TOLERANCE_US = 5 * 60 * 1_000_000
"""Clocks that are kept by NTP differ by milliseconds, storages tell times by the second; TTLs are hours and more."""

CLOCKS_APART_US = 2 * CLOCK_TOLERANCE_US
"""So far apart the clocks of two producers may be."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """One moment by two clocks: what this process's said just before it wrote, and when the storage says that the write came."""

    clock_us: int
    storage_us: int

    @classmethod
    def of(cls, clock_us: int, storage_us: int | None) -> Stamp | None:
        """None where the storage cannot say."""
        return None if storage_us is None else cls(clock_us, storage_us)


@dataclass(frozen=True, slots=True)
class Wrong:
    """This process's clock is not the storage's: they said this of one moment."""

    clock_us: int
    storage_us: int

    @property
    def ahead(self) -> bool:
        return self.clock_us > self.storage_us


def why_wrong(now_us: int, newest_us: int | None, last: Stamp | None = None) -> Wrong | None:
    """What is wrong with a clock that says `now_us`; None: nothing that can be told.

    `newest_us` is when the storage says that its newest known commit came: now cannot be before that. `last` is a write of this
    process: a write may take long, but it cannot come before it was begun.
    """
    if newest_us is not None and now_us < newest_us - CLOCK_TOLERANCE_US:
        return Wrong(now_us, newest_us)
    if last is not None and last.clock_us > last.storage_us + CLOCK_TOLERANCE_US:
        return Wrong(last.clock_us, last.storage_us)
    return None


def refuse_wrong(who: str, now_us: int, newest_us: int | None, last: Stamp | None = None, way_out: str = "") -> None:
    """Raises WrongClockError if `why_wrong` finds something, saying of whom and what to do."""
    wrong = why_wrong(now_us, newest_us, last)
    if wrong is None:
        return
    mine, theirs = from_us(wrong.clock_us), from_us(wrong.storage_us)
    raise WrongClockError(
        f"{who} with a clock that is {'ahead of' if wrong.ahead else 'behind'} the storage's. This host says {mine:%Y-%m-%d %H:%M:%S} UTC "
        f"where the storage says {theirs:%Y-%m-%d %H:%M:%S}: messages would expire too {'late' if wrong.ahead else 'early'}, everywhere. "
        f"Set this host's clock (NTP) and start again.{way_out}"
    )


def jumped(before: tuple[int, int], now: tuple[int, int]) -> bool:
    """Whether a clock was set between two looks at (clock, a monotonic clock), both in microseconds.

    A machine that slept does that too, rightly: so it is no fault, but a reason to look at the storage's clock again.
    """
    return abs((now[0] - before[0]) - (now[1] - before[1])) > CLOCK_TOLERANCE_US
