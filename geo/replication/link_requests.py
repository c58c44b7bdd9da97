"""Requests of people to links, and what follows from them. Pure: no Spark, clock or I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from geo.names import Topic, is_glob, topic_glob_matches
from geo.streams.life import State


class Action(str, Enum):
    """Request that can be made."""

    PAUSE = "pause"
    RESUME = "resume"
    RESTART = "restart"

    @property
    def kind(self) -> str:
        """Kind of request that a newer one replaces: an older one of the same link, glob and kind."""
        return "restart" if self is Action.RESTART else "pause"


@dataclass(frozen=True, slots=True)
class Request:
    """Asked of the link from `source`, for all topics that the glob `topics` matches, also those that come later. A higher
    `number` was asked later."""

    source: str
    topics: str
    action: Action
    number: int
    asked_us: int | None = None
    """The time when, by the clock of who asked; None: nobody says."""


class Requests:
    """The requests of a cluster, to be asked for many topics: those for one topic are found by its name."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._named: dict[tuple[str, str], list[Request]] = {}
        self._globs: list[Request] = []
        for one in requests:
            if is_glob(one.topics):
                self._globs.append(one)
            else:
                self._named.setdefault((one.source, one.topics), []).append(one)

    def is_paused(self, source: str, topic: Topic) -> bool:
        """Tells whether the last of the requests to pause or resume that match says so; of two at the same moment the pause."""
        return self._pause(source, topic) is not None

    def paused_us(self, source: str, topic: Topic) -> int | None:
        """Tells when it was asked to pause; None: it is not to, or nobody says when."""
        pause = self._pause(source, topic)
        return None if pause is None else pause.asked_us

    def _pause(self, source: str, topic: Topic) -> Request | None:
        found = self._of(source, topic, "pause")
        last = max(found, key=lambda one: (one.number, one.action is Action.PAUSE), default=None)
        return last if last is not None and last.action is Action.PAUSE else None

    def last_restart(self, source: str, topic: Topic) -> int:
        """The number of the last request to restart it; 0: there is none."""
        return max((one.number for one in self._of(source, topic, "restart")), default=0)

    def _of(self, source: str, topic: Topic, kind: str) -> Iterator[Request]:
        for one in (*self._named.get((source, str(topic)), ()), *self._globs):
            if (one.source, one.action.kind) == (source, kind) and topic_glob_matches(one.topics, topic):
                yield one


class Next(Enum):
    """Next step for a topic of a link that is known."""

    NOTHING = auto()
    LEFT_OUT = auto()
    WANTED = auto()
    RESOLVED = auto()
    AGAIN = auto()


def what_next(state: State, *, is_wanted: bool, restarts: bool, is_replaced: bool, recorded: State | None) -> Next:
    """`is_wanted`: the link carries the topic, and nobody asked it to rest. `restarts`: somebody asked for that since it was
    begun. `is_replaced`: another runner took it over; it does not come back. `recorded`: what its newest row says, by whoever
    wrote it."""
    if not is_wanted:
        return Next.NOTHING if state is State.PAUSED else Next.LEFT_OUT
    if state is State.PAUSED:
        return Next.WANTED
    if is_replaced:
        return Next.NOTHING
    if restarts:
        return Next.AGAIN
    resolved = state is State.FAILED and recorded not in (None, State.FAILED)
    return Next.RESOLVED if resolved else Next.NOTHING
