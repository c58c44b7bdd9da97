"""Turns of a link's topics at the batches of its source, as a link asks for them. Who gives turns, and to whom, is the fleet's
business.

`TopicTurns` tells when the next turn of a topic may begin and how long the one under way lasts, and drops one that hangs.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from geo.delta.commits import Commit
from geo.journal.cluster import ClusterTables
from geo.names import Topic

TURN_BYTES = 1024**3
"""Bytes that a turn replicates at most, in whole commits, one at least: some seconds' work. A kill loses no more of a catch-up."""


@dataclass(frozen=True, slots=True)
class Most:
    """Limit of a turn, in whole commits, one at least. `messages` None: any number."""

    messages: int | None = None
    size: int = TURN_BYTES


def within(commits: Sequence[Commit], most: Most, brings: Callable[[Commit], bool]) -> list[Commit]:
    """The first of the commits, one at least, of which those that hold something are within `most`. What others wrote into a source and goes back
    nowhere counts for nothing.
    """
    messages = size = 0
    for at, commit in enumerate(commits):
        if brings(commit):
            messages, size = messages + (commit.rows or 0), size + commit.bytes  # what nobody counted is held to its bytes
        if at and (size > most.size or (most.messages is not None and messages > most.messages)):
            return list(commits[:at])
    return list(commits)


class Turns(Protocol):
    """Shares out the batches of a link among its topics. What a method does here is what it does for whoever is alone."""

    def wait_s(self, topic: Topic) -> float:
        """Seconds until the topic may replicate more, by its rate; 0: now."""
        return 0.0

    def most(self, topic: Topic) -> Most:
        """Limit of a turn of the topic."""
        return Most()

    def offer(self, topic: Topic) -> bool:
        """The topic has news: whether it is its turn now, which it then has some seconds to begin. Otherwise it waits in line.
        Returns at once."""
        return True

    def turn(self, topic: Topic, stopped: Callable[[], bool]) -> AbstractContextManager[bool]:
        """Wait for the topic's turn, which lasts as long as the context. False: it is `stopped`, and nothing is to be replicated."""
        return nullcontext(not stopped())

    def took(self, topic: Topic, messages: int, size: int) -> None:
        """Counts a batch of so many messages, and bytes."""

    def leave(self, topic: Topic) -> None:
        """Whoever has the topic's turn, or waits for it, is not waited for any more."""


class Unshared(Turns):
    """The turns of whoever is alone, as a repair: each may begin at once."""

    def took(self, topic: Topic, messages: int, size: int) -> None: ...

    def leave(self, topic: Topic) -> None: ...


class TopicTurns:
    """`shared`: who shares them out among the link's topics. One turn at a time."""

    def __init__(self, shared: Turns, topic: Topic, target: ClusterTables) -> None:
        self.shared, self._topic, self._target = shared, topic, target
        self.began: float | None = None
        """Begin of the turn that is under way, by `time.monotonic`; it replicates `size` bytes at most."""
        self.size = 0
        self._tag = f"geo-link-{secrets.token_hex(8)}"

    @property
    def most(self) -> Most:
        """Limit of a turn."""
        return self.shared.most(self._topic)

    def may_begin(self) -> bool:
        """Tells whether the rate lets the topic replicate more, and it is its turn."""
        return self.shared.wait_s(self._topic) <= 0 and self.shared.offer(self._topic)

    @contextmanager
    def turn(self, stopped: Callable[[], bool]) -> Iterator[bool]:
        """Waits as `Turns.turn`; whoever asks how long the turn takes sees when it began."""
        with self.shared.turn(self._topic, stopped) as has_turn:
            self.size, self.began = 0, time.monotonic() if has_turn else None
            try:
                yield has_turn
            finally:
                self.began = None

    def took(self, messages: int, size: int) -> None:
        """Counts a turn of so many messages, and bytes."""
        self.shared.took(self._topic, messages, size)

    @contextmanager
    def tagged(self) -> Iterator[None]:
        """Jobs of Spark's meanwhile can be told from all others, and cancelled."""
        self._target.spark.addTag(self._tag)
        try:
            yield
        finally:
            self._target.spark.removeTag(self._tag)

    def leave(self) -> None:
        """Nobody waits for the turn under way. Jobs of Spark's that it waits for are cancelled: one that writes holds the table's
        lock."""
        self.shared.leave(self._topic)
        threading.Thread(target=self._interrupt, name=f"geo-leave-{self._topic}", daemon=True).start()

    def _interrupt(self) -> None:
        if self._target.has_spark:
            self._target.spark.interruptTag(self._tag)
