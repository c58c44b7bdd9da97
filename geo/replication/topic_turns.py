"""The turns of one topic of a link: when the next may begin, how long the one under way lasts, how to be rid of one that
hangs."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from geo.journal.cluster import ClusterTables
from geo.names import Topic
from geo.replication.turns import Most, Turns


class TopicTurns:
    """`shared`: who shares them out among the link's topics. One turn at a time."""

    def __init__(self, shared: Turns, topic: Topic, target: ClusterTables) -> None:
        self.shared, self._topic, self._target = shared, topic, target
        self.began: float | None = None
        """When the turn that is under way began, by `time.monotonic`; it brings `size` bytes at most."""
        self.size = 0
        self._tag = f"geo-link-{secrets.token_hex(8)}"

    @property
    def most(self) -> Most:
        """What a turn is to bring at most."""
        return self.shared.most(self._topic)

    def may_begin(self) -> bool:
        """Whether the rate lets the topic bring more, and it is its turn."""
        return self.shared.wait_s(self._topic) <= 0 and self.shared.offer(self._topic)

    @contextmanager
    def turn(self, stopped: Callable[[], bool]) -> Iterator[bool]:
        """As `Turns.turn`; whoever asks how long it takes sees when it began."""
        with self.shared.turn(self._topic, stopped) as has_turn:
            self.size, self.began = 0, time.monotonic() if has_turn else None
            try:
                yield has_turn
            finally:
                self.began = None

    def took(self, messages: int, size: int) -> None:
        """A turn brought so many messages, and bytes."""
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
        self._target.spark.interruptTag(self._tag)
