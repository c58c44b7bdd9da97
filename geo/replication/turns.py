"""What a link asks of whoever shares out the batches of its source. Who shares them, and how, is the fleet's business."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from geo.delta.commits import Commit
from geo.names import Topic

TURN_BYTES = 1024**3
"""What a turn brings at most, in whole commits, one at least: some seconds' work. A kill loses no more of a catch-up."""


@dataclass(frozen=True, slots=True)
class Most:
    """What a turn is to bring at most, in whole commits, one at least. `messages` None: any number."""

    messages: int | None = None
    size: int = TURN_BYTES


def within(commits: Sequence[Commit], most: Most, brings: Callable[[Commit], bool]) -> list[Commit]:
    """The first of the commits, one at least, of which those that bring something are within `most`. What others wrote into a
    source and goes back nowhere counts for nothing."""
    messages = size = 0
    for at, commit in enumerate(commits):
        if brings(commit):
            messages, size = messages + (commit.rows or 0), size + commit.bytes  # what nobody counted is held to its bytes
        if at and (size > most.size or (most.messages is not None and messages > most.messages)):
            return list(commits[:at])
    return list(commits)


class Turns(Protocol):
    """Shares out the batches of a link among its topics."""

    def wait_s(self, topic: Topic) -> float:
        """Seconds until the topic may bring more, by its rate; 0: now."""

    def most(self, topic: Topic) -> Most:
        """What a turn of the topic is to bring at most."""

    def offer(self, topic: Topic) -> bool:
        """The topic has news: whether it is its turn now, which it then has some seconds to begin. Otherwise it waits in line.
        Returns at once."""

    def turn(self, topic: Topic, stopped: Callable[[], bool]) -> AbstractContextManager[bool]:
        """Wait for the topic's turn, which lasts as long as the context. False: it is `stopped`, and nothing is to be brought."""

    def took(self, topic: Topic, messages: int, size: int) -> None:
        """A batch brought so many messages, and bytes."""

    def leave(self, topic: Topic) -> None:
        """Whoever has the topic's turn, or waits for it, is not waited for any more."""


class Unshared:
    """The turns of whoever is alone, as a repair: each may begin at once."""

    def wait_s(self, topic: Topic) -> float:
        return 0.0

    def most(self, topic: Topic) -> Most:
        return Most()

    def offer(self, topic: Topic) -> bool:
        return True

    @contextmanager
    def turn(self, topic: Topic, stopped: Callable[[], bool]) -> Iterator[bool]:
        yield not stopped()

    def took(self, topic: Topic, messages: int, size: int) -> None: ...

    def leave(self, topic: Topic) -> None: ...
