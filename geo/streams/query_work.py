"""A streaming query, a loop over batches, or a consumer that is begun again after a fault, as a piece of work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from geo.errors import RetryableError
from geo.faults import FAULTS
from geo.streams import timetable
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


class Opened(Protocol):
    """A query that was begun, and what this process owns for it."""

    @property
    def running(self) -> Running: ...

    def close(self, *, clean: bool) -> None:
        """Give back what is owned, once the query has ended; unless that was `clean`, the next start finds out what became of
        it."""

    def abandon(self) -> None:
        """As `close(clean=False)`, and waits for nobody."""

    def refuse_if_replaced(self) -> None:
        """Raises FencedError if somebody took over what was owned."""


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
        self._begin, self._once, self._take_over = begin, once, take_over
        self._made_at = time.monotonic()
        self.opened: T | None = None
        self.has_begun = False
        """It was owned once."""
        self._is_left = False
        """Nobody waits for it any more: what it begins from now on is given back at once."""
        self._previous: T | None = None
        """What was owned until a fault: if somebody took that over, it does not come back."""

    @property
    def is_owned(self) -> bool:
        return self.opened is not None

    def begin_anew(self, *, take_over: bool) -> None:
        """As `SharedWork.begin_anew` says (geo.streams.share)."""
        self._previous = None
        if take_over:
            self._take_over, self._made_at = True, math.inf  # until it is owned once

    def bring_up(self, stopped: Callable[[], bool]) -> None:
        self._is_left = False
        if self._previous is not None:
            self._previous.refuse_if_replaced()
        self._previous = None
        opened = self.opened = self._begin(self._take_over and time.monotonic() - self._made_at < timetable.TAKES_OVER_S)
        self._take_over, self.has_begun = False, True
        if self._is_left:
            self.abandon()
            opened.running.stop()
            raise RetryableError(f"{self}: it was left behind while it began.")
        while self._once and not stopped() and not opened.running.wait(_WAIT_S):
            pass
        if self._once and not stopped():
            self.follow()

    def follow(self) -> Callable[[], None] | None:
        """What is due now; nothing for most. Raises what ended its query."""
        assert self.opened is not None
        running = self.opened.running
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
        if self.opened is None:
            return True
        self.opened.running.stop()
        if (error := self.opened.running.error) is not None:
            raise error
        return self.opened.running.ended_well

    def give_up(self, state: State, reason: str, error: BaseException) -> None:
        self._previous = opened = self.take_off()
        if opened is not None:
            opened.close(clean=False)

    def leave(self) -> None:
        """It ended well. Raises what is found to be wrong when it is given back."""
        if (opened := self.take_off()) is not None:
            opened.close(clean=True)

    def abandon(self) -> None:
        self._is_left = True
        if (opened := self.take_off()) is not None:
            opened.abandon()

    def take_off(self) -> T | None:
        """What is open now, which is its caller's to close: the last moment to note what it has done."""
        opened, self.opened = self.opened, None
        return opened


W = TypeVar("W", bound="QueryWork[Any]")


def leave(works: Sequence[W]) -> list[tuple[W, BaseException]]:
    """Give back what works that ended well own. Returns those that turned out not to have, and why."""
    failed: list[tuple[W, BaseException]] = []
    for work in works:
        try:
            work.leave()
        except FAULTS as error:
            failed.append((work, error))
    return failed
