"""A streaming query, a loop over batches, or a consumer that is begun again after a fault, as a piece of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from geo.errors import RetryableError
from geo.faults import FAULTS
from geo.streams import timetable
from geo.streams.lease import Lease, Owned
from geo.streams.life import State

_WAIT_S = 0.2


class Running(Protocol):
    """What a work follows: a query, a loop, or a consumer's run. It has begun when it is made."""

    @property
    def is_active(self) -> bool: ...

    @property
    def error(self) -> BaseException | None: ...

    @property
    def ended_well(self) -> bool: ...

    def wait(self, timeout_s: float | None = None) -> bool: ...

    def stop(self) -> None: ...


class Opened(Owned, Protocol):
    """A query that was begun, and what this process owns for it."""

    @property
    def running(self) -> Running: ...

    def close(self, *, clean: bool) -> None:
        """Give back what is owned, once the query has ended; unless that was `clean`, the next start finds out what became of
        it."""


class Both:
    """Two that are followed as one: what ends one of them ends both. `once`: each ends when it has done what there is."""

    def __init__(self, first: Running, second: Running, *, once: bool) -> None:
        self._parts, self._once = (first, second), once

    @property
    def is_active(self) -> bool:
        """Whether both go on as they should: neither has failed, nor ended before its time."""
        active = [part.is_active for part in self._parts]
        return any(active) and self.error is None if self._once else all(active)

    @property
    def error(self) -> BaseException | None:
        """What ended one of them."""
        return next((error for part in self._parts if (error := part.error) is not None), None)

    @property
    def ended_well(self) -> bool:
        return all(part.ended_well for part in self._parts)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is active no longer, or the time is over, for each of them; True if it is not."""
        for part in self._parts:
            if self.is_active:
                part.wait(timeout_s)
        return not self.is_active

    def stop(self) -> None:
        for part in self._parts:
            part.stop()


T = TypeVar("T", bound=Opened)


class QueryWork(Generic[T]):
    """One query, as often as it is begun. `begin` owns what it needs and starts it, told whether to take that over from an owner
    that lives: asked for until it was owned once, for timetable.TAKES_OVER_S at most."""

    def __init__(self, begin: Callable[[bool], T], *, once: bool, take_over: bool) -> None:
        self._begin, self._once = begin, once
        self.lease = Lease[T](take_over=take_over, within_s=timetable.TAKES_OVER_S)

    def own(self) -> None:
        opened = self._begin(self.lease.claims())
        self.note(opened)
        self.lease.hold(opened)
        if not self.lease.is_held:
            opened.running.stop()

    def note(self, opened: T) -> None:
        """This takes the place of what was held last, if anything was: the last moment to note what that one did."""

    def bring_up(self, owned: T, stopped: Callable[[], bool]) -> None:
        while self._once and not stopped() and not owned.running.wait(_WAIT_S):
            pass
        if self._once and not stopped():
            self.follow()

    def follow(self) -> Callable[[], None] | None:
        """What is due now; nothing for most. Raises what ended its query."""
        assert self.lease.held is not None
        running = self.lease.held.running
        if running.is_active:
            return None
        if (error := running.error) is not None:
            raise error
        if not (self._once and running.ended_well):
            raise RetryableError(f"{self}: somebody else stopped its query.")
        return None

    def instead(self) -> None:
        """Its query, loop or consumer knows no news of which it could be told that it does nothing."""

    def end(self) -> bool:
        if (opened := self.lease.held) is None:
            return True
        opened.running.stop()
        if (error := opened.running.error) is not None:
            raise error
        return opened.running.ended_well

    def give_up(self, owned: T, state: State, reason: str) -> None:
        owned.close(clean=False)


W = TypeVar("W", bound="QueryWork[Any]")


class QueryWorks(Generic[W]):
    """What groups of such works have in common: each claims itself when it is begun, and records by itself what it has done."""

    def claim(self, works: Sequence[W]) -> list[tuple[W, BaseException]]:
        return []

    def record_states(self, works: Sequence[tuple[W, State]]) -> list[tuple[W, BaseException]]:
        return []

    def release(self, works: Sequence[W]) -> list[tuple[W, BaseException]]:
        """Give back what works that ended well own."""
        failed: list[tuple[W, BaseException]] = []
        for work in works:
            try:
                if (opened := work.lease.give_back()) is not None:
                    opened.close(clean=True)
            except FAULTS as error:
                failed.append((work, error))
        return failed
