"""The one who owns a runner, and whether he lives: one answer, which all who ask share. Pure: no Spark, clock or I/O.

Of a process on this host the system says it. Of any other its signs of life do, held against the storage's clock. They are its own sign, and each
claim and release that it made, since who claims lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from geo.coordination.claims import Liveness, Owner
from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.coordination.liveness import silent_s
from geo.reasons import Reason
from geo.times import in_us, shown_time


@dataclass(frozen=True, slots=True)
class SeenHere:
    """Answer of this host's system about one of its processes. `mine`: it is this process, which may have given a runner up and live.
    `halted`: its processes that are stopped, the Python one or its JVM."""

    lives: bool
    mine: bool = False
    halted: tuple[int, ...] = ()


def liveness(seen: SeenHere | None, silence_s: float, timeout_s: float) -> Liveness:
    """Judges the owner of a runner that has not released it.

    `seen` None: the process is not of this host, the system hides it, or nobody knows which process it is. Only then its silence counts."""
    if seen is None:
        return Liveness.LIVES if silence_s <= timeout_s else Liveness.SILENT
    if not seen.lives:
        return Liveness.LEFT if seen.mine else Liveness.DEAD
    return Liveness.HALTED if seen.halted else Liveness.LIVES


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that owns a runner, or owned it last, by its newest `claim` or release. `name`: as people are told. `last_us`: when it
    ended by itself, else when it was heard of last, by the storage's clock; None: no sign of it counts. `silent_s`: for how long it gave none.
    `halted`: ids of what is to be continued."""

    claim: Owner
    name: str
    liveness: Liveness
    last_us: int | None
    silent_s: float
    halted: tuple[int, ...] = ()

    @property
    def is_dead(self) -> bool:
        """True if the process runs nothing now, and others may take over. Else it lives, or may."""
        return not self.liveness.is_alive

    @property
    def code(self) -> Reason | None:
        """The reason why nothing is done; None: it lives, or may."""
        match self.liveness:
            case Liveness.LIVES:
                return None
            case Liveness.HALTED | Liveness.SILENT:
                return Reason.OWNER_SILENT
            case _:
                return Reason.NO_OWNER

    @property
    def why(self) -> str:
        """The same as a sentence; "" for one that lives, or may."""
        match self.liveness:
            case Liveness.LIVES:
                return ""
            case Liveness.HALTED:
                return f"{self.name} is halted (SIGSTOP): it does nothing, and nobody else does it"
            case Liveness.ENDED:
                return f"{self.name} ended at {shown_time(self.claim.since)}"
            case Liveness.SILENT if self.last_us is None:
                return f"{self.name} gave no sign of life, but one that is ahead of the storage's clock"
            case Liveness.SILENT:
                return f"{self.name} gave no sign of life for {self.silent_s:,.0f} s"
            case _:
                return f"{self.name} runs it no longer"

    @property
    def go_on(self) -> str:
        """Command that lets a halted process go on."""
        return f"kill -CONT {' '.join(map(str, self.halted))}"

    @property
    def shown(self) -> str:
        """The one who runs it, or why nobody does."""
        return self.why or f"{self.name} runs it, since {shown_time(self.claim.since)}"


def holder(claim: Owner, name: str, seen: SeenHere | None, signs_us: Iterable[int], now_us: int, timeout_s: float) -> Holder:
    """Judges the newest claim or release of a runner. It goes by what this host sees of the process, and by the signs beside that claim.
    All times are microseconds by the storage's clock, in which it is `now_us`."""
    if not claim.is_owned:
        ended_us = in_us(claim.since)
        return Holder(claim, name, Liveness.ENDED, ended_us, silent_s(now_us, [ended_us]))
    signs = [sign for sign in (in_us(claim.since), *signs_us) if sign <= now_us + CLOCK_TOLERANCE_US]
    silence_s = silent_s(now_us, signs)
    lives, last_us = liveness(seen, silence_s, timeout_s), min(now_us, max(signs)) if signs else None
    return Holder(claim, name, lives, last_us, silence_s, seen.halted if seen is not None and lives is Liveness.HALTED else ())
