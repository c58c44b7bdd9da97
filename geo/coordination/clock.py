"""Judges by the storage's clock whether a host's clock is fit to decide what nobody can take back. Pure: no Spark, clock or I/O.

All times are microseconds since 1970, UTC. A message's publish_time decides on its partition and when it expires, in every
cluster: one that is days off is expired at birth or never. A link leaves out for ever what has expired by its clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from geo.errors import WrongClockError
from geo.times import from_us, shown_time

CLOCK_TOLERANCE_US = 5 * 60 * 1_000_000
"""Clocks that are kept by NTP differ by milliseconds, storages tell times by the second; TTLs are hours and more."""

CLOCKS_APART_US = 2 * CLOCK_TOLERANCE_US
"""So far apart the clocks of two producers may be."""

SIGN_APART_US = 5 * 1_000_000
"""A first sign of life by a host's clock that is further off is given once more, by the storage's. A storage tells whole seconds,
and the shortest owner timeout is 30 s."""


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
class HeldClock:
    """A host's clock that was held against the storage's. It has what the host's clock said before and after a write, and a steady clock after the
    write. It has too when the storage says that the write came. None: the storage does not say."""

    before_us: int
    after_us: int
    steady_us: int
    storage_us: int | None

    def wrong(self) -> Stamp | None:
        """Fault of the host's clock. A write may take long, but it comes between its begin and its end.
        None: no fault that can be told."""
        return why_wrong(self.after_us, self.storage_us, Stamp.of(self.before_us, self.storage_us))

    @property
    def ahead_us(self) -> int:
        """Least time by which the host's clock was ahead of the storage's; negative: behind."""
        if self.storage_us is None:
            return 0
        return max(0, self.before_us - self.storage_us) or min(0, self.after_us - self.storage_us)

    @property
    def apart_us(self) -> int:
        """Least distance of the host's clock from the storage's."""
        return abs(self.ahead_us)

    def now_us(self, steady_us: int) -> int:
        """The storage's time when the steady clock says `steady_us`; where the storage does not say, the host's. Never ahead of
        the storage's."""
        return (self.after_us if self.storage_us is None else self.storage_us) + steady_us - self.steady_us

    @property
    def took_long(self) -> bool:
        """True if the write may have come long before its end, as that of a process that was halted: it says little of now."""
        return self.after_us - self.before_us > CLOCK_TOLERANCE_US

    def is_old(self, clock_us: int, steady_us: int, most_us: int) -> bool:
        """True if the clock is to be compared with the storage's again: after `most_us`, when somebody set the clock, and if the comparison took long."""
        return (
            self.took_long
            or steady_us - self.steady_us >= most_us
            or jumped((self.after_us, self.steady_us), (clock_us, steady_us))
        )


def why_wrong(now_us: int, newest_us: int | None, last: Stamp | None = None) -> Stamp | None:
    """Finds the moment of which a clock that says `now_us` and the storage's clock contradict each other.
    None: they contradict each other of no moment that can be told.

    `newest_us` is when the storage says that its newest known commit came: now cannot be before that. `last` is a write of this
    process: a write may take long, but it cannot come before it was begun.
    """
    if newest_us is not None and now_us < newest_us - CLOCK_TOLERANCE_US:
        return Stamp(now_us, newest_us)
    if last is not None and last.clock_us > last.storage_us + CLOCK_TOLERANCE_US:
        return last
    return None


def refuse(who: str, wrong: Stamp | None, way_out: str = "") -> None:
    """Raises WrongClockError for what `why_wrong` has found. `who` says what is not done, `way_out` what else can be done about it."""
    if wrong is None:
        return
    mine, theirs = from_us(wrong.clock_us), from_us(wrong.storage_us)
    ahead = "ahead of" if wrong.clock_us > wrong.storage_us else "behind"
    raise WrongClockError(
        f"{who} with a clock that is {ahead} the storage's. This host says {shown_time(mine)} "
        f"where the storage says {shown_time(theirs)}. By such a clock messages expire too early or too late, and nobody can undo it. "
        f"Set this host's clock (NTP) and start again.{way_out}"
    )


def jumped(before: tuple[int, int], now: tuple[int, int]) -> bool:
    """True if a clock was set between two readings of (clock, a steady clock), both in microseconds.

    Where the steady clock stands still while a machine sleeps, sleep does that too, rightly. So it is no fault, but a reason to look at the
    storage's clock again.
    """
    return abs((now[0] - before[0]) - (now[1] - before[1])) > CLOCK_TOLERANCE_US
