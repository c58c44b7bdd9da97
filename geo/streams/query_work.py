"""A streaming query, a loop over batches, or a consumer that is begun again after a fault, as a piece of work."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from geo.errors import RetryableError
from geo.faults import FAULTS
from geo.names import Topic
from geo.reasons import Reason
from geo.streams import timetable
from geo.streams.lease import Lease, Owned
from geo.streams.life import State, Why
from geo.streams.share import ALL, Share
from geo.streams.work import Failed, Found

_WAIT_S = 0.2


class Running(Protocol):
    """Run that a work follows: a query, a loop, or a consumer's run. It has begun when it is made."""

    @property
    def is_active(self) -> bool: ...

    @property
    def error(self) -> BaseException | None: ...

    @property
    def ended_well(self) -> bool: ...

    def wait(self, timeout_s: float | None = None) -> bool: ...

    def stop(self) -> None: ...


class OpenedQuery(Owned, Protocol):
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
        """True if both go on as they should: neither has failed, nor ended before its time."""
        active = [part.is_active for part in self._parts]
        return any(active) and self.error is None if self._once else all(active)

    @property
    def error(self) -> BaseException | None:
        """Error that ended one of them."""
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


T = TypeVar("T", bound=OpenedQuery)


class QueryWork(Generic[T]):
    """One query, as often as it is begun. `begin` owns what it needs and starts it, told whether to take that over from an owner that lives. Asked
    for until it was owned once, for timetable.TAKES_OVER_S at most. It is told, too, how to ask whether the work is stopped."""

    def __init__(self, begin: Callable[[bool, Callable[[], bool]], T], topic: Topic, *, once: bool, take_over: bool) -> None:
        self._begin, self.topic, self._once = begin, topic, once
        self.lease = Lease[T](take_over=take_over, within_s=timetable.TAKES_OVER_S)

    def own(self, stopped: Callable[[], bool]) -> None:
        opened = self._begin(self.lease.start_claim(), stopped)
        self.note(opened)
        self.lease.hold(opened)
        if not self.lease.is_held:
            opened.running.stop()

    @property
    def progress_marker(self) -> Hashable:
        """Marker as `Work.progress_marker`; None: it does not say."""
        return None

    def note(self, opened: T) -> None:
        """This takes the place of what was held last, if anything was: the last moment to note what that one did."""

    def start(self, owned: T, stopped: Callable[[], bool]) -> None:
        while self._once and not stopped() and not owned.running.wait(_WAIT_S):
            pass
        if self._once and not stopped():
            self.follow()

    def follow(self) -> Callable[[], None] | None:
        """Returns what is due now; nothing for most. Raises what ended its query."""
        assert self.lease.held is not None
        running = self.lease.held.running
        if running.is_active:
            return None
        if (error := running.error) is not None:
            raise error
        if not (self._once and running.ended_well):
            raise RetryableError(f"{self}: somebody else stopped its query.")
        return None

    def replacement(self) -> None:
        """Its query, loop or consumer knows no news of which it could be told that it does nothing."""

    def end(self) -> bool:
        if (opened := self.lease.held) is None:
            return True
        opened.running.stop()
        if (error := opened.running.error) is not None:
            raise error
        return opened.running.ended_well

    def give_up(self, owned: T, state: State, why: Why) -> None:
        owned.close(clean=False)


W = TypeVar("W", bound="QueryWork[Any]")


class QueryWorks(Generic[W]):
    """A group of such works: each claims itself when it is begun, and records by itself what it has done.

    Failed ones are tried again `again_s` after they were first seen to have failed. By then a person may have seen to it, and what may not go on
    fails again. `share`: which of them this process runs.
    """

    def __init__(self, share: Share = ALL, again_s: float | None = None) -> None:
        self._share, self._again_s = share, timetable.FAILED_AGAIN_S if again_s is None else again_s
        self._failed_at: dict[Hashable, float] = {}

    def _found(self, known: Mapping[Hashable, tuple[W, State]], fresh: Sequence[tuple[Hashable, W]] = ()) -> Found[W]:
        """Sorts works that are there and rest for no other reason. They are this process's, or known and so no longer, or so again."""
        now = time.monotonic()
        self._failed_at = {key: self._failed_at.get(key, now) for key, (_, state) in known.items() if state is State.FAILED}
        due = [key for key, at in self._failed_at.items() if now - at >= self._again_s]
        for key in due:
            del self._failed_at[key]
        elsewhere = {key: self._share.elsewhere(work.topic) for key, (work, _) in known.items()}
        rest = {key for key, (_, state) in known.items() if state is State.PAUSED}
        mine = [(key, work) for key, work in fresh if self._share.elsewhere(work.topic) is None]
        left_out = {
            key: Why(why, Reason.PLACED_ELSEWHERE) for key, why in elsewhere.items() if why is not None and key not in rest
        }
        wanted = [key for key in known if key in rest and elsewhere[key] is None]
        for work in [*(work for _, work in mine), *(known[key][0] for key in wanted)]:
            work.lease.restart(take_over=self._share.takes_over(work.topic))
        return Found(mine, left_out, wanted=wanted, resolved=[key for key in due if key not in left_out])

    def claim(self, works: Sequence[W]) -> Failed[W]:
        return []

    def record_states(self, works: Sequence[tuple[W, State]], code: Reason | None = None) -> Failed[W]:
        return []

    def release(self, works: Sequence[W]) -> Failed[W]:
        """Give back what works that ended well own."""
        failed: list[tuple[W, BaseException]] = []
        for work in works:
            try:
                if (opened := work.lease.give_back()) is not None:
                    opened.close(clean=True)
            except FAULTS as error:
                failed.append((work, error))
        return failed
