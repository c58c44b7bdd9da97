"""Works that the supervisor runs, and the groups in which they share a source."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from geo.names import Topic
from geo.reasons import Reason
from geo.streams.lease import Lease
from geo.streams.life import State, Why
from geo.text import counted

if TYPE_CHECKING:
    from typing_extensions import Self


class Work(Protocol):
    """One thing that runs. Its methods are called by one thread at a time, but for `replacement`."""

    @property
    def lease(self) -> Lease[Any]:
        """Lease of the work. Given up, abandoned and asked for by who runs it."""

    @property
    def topic(self) -> Topic:
        """The place where brokers share a cluster, the one that has this topic does it."""

    @property
    def progress_marker(self) -> Hashable:
        """Marker of its progress; another value once it came further. None: that is not known yet."""

    def own(self, stopped: Callable[[], bool]) -> None:
        """Claim it, unless it is held: `lease.start_claim`, then `lease.hold`. What it waits for meanwhile it waits for until it is `stopped`, and while
        it runs. Raises what is in the way."""

    def start(self, owned: Any, stopped: Callable[[], bool]) -> None:
        """Start it, which is held now, up to the end of its source, or as far as it got when `stopped`. Raises what is in the way."""

    def follow(self) -> Callable[[], None] | None:
        """Returns what is due now for one that is up, which may take a while; None if nothing is. Returns at once; raises what ended it."""

    def replacement(self) -> tuple[Self, BaseException] | None:
        """Another work to go on in this one's place, and the fault to report, if this one hangs. What is done for it now is left to itself. None:
        it does not. Returns at once, and may be asked while something is done for it."""

    def end(self) -> bool:
        """Let what is running end. Whether all that was begun is known to have ended well. Raises what ended it otherwise."""

    def give_up(self, owned: Any, state: State, why: Why) -> None:
        """Record why it does not run, and give up what its lease lost: something may be in flight whose fate is not known."""


W = TypeVar("W", bound=Work)

Failed = Sequence[tuple[W, BaseException]]
"""Works that something could not be done for, and why."""


@dataclass(frozen=True, slots=True)
class Found(Generic[W]):
    """Works of a group now."""

    fresh: Sequence[tuple[Hashable, W]] = ()
    """Works that are not known yet, by their key."""
    left_out: Mapping[Hashable, Why] = field(default_factory=dict)
    """Known works that are not wanted now, and why."""
    again: Sequence[Hashable] = ()
    """Known works that are to be ended and started again, at once whatever they wait for."""
    wanted: Sequence[Hashable] = ()
    """Paused works that are wanted again."""
    resolved: Sequence[Hashable] = ()
    """Failed works that may go on, as a rule because a person has acted."""
    done: Sequence[tuple[Hashable, W]] = ()
    """Works that are not known yet, and of which nothing is left to do in a run that ends: nobody has to own them."""


@dataclass(frozen=True, slots=True)
class WorkReport:
    """Report of a work, or of a group. `count`: how many messages it has published or replicated, cursors or markers it has written. `fields`: the
    same for programs.
    """

    name: str
    count: int
    fields: Mapping[str, object]
    behind: int | None = None
    """Commits of its source that it has not replicated, at least. None: that is not known, or it has no such source."""


def lag_words(behind: Iterable[int | None]) -> str:
    """Words of a status line for how far works are behind, by the report of each; empty if none is."""
    late = [count for count in behind if count]
    return f"; {counted(len(late), 'topic')} behind, by {counted(sum(late), 'commit')} at least" if late else ""


class Group(Protocol[W]):
    """Works that share a source."""

    def __str__(self) -> str: ...

    def discover(self, known: Mapping[Hashable, tuple[W, State]]) -> Found[W]:
        """Lists what there is now, beside the works that are known. Raises what is in the way of knowing."""

    def claim(self, works: Sequence[W]) -> Failed[W]:
        """Own works that are taken up. One that is not held afterwards is claimed by itself when it is started."""

    def record_states(self, works: Sequence[tuple[W, State]], code: Reason | None = None) -> Failed[W]:
        """Record the states of works that moved; of PAUSED ones `code` says why. Returns those that cannot go on. Raises LockedError, with nothing recorded, where
        nobody is to be waited for (`without_waiting`)."""

    def release(self, works: Sequence[W]) -> Failed[W]:
        """Own works no longer that ended well and are recorded. Returns those that turned out not to have."""
