"""A few daemon threads that do what they are handed.

Unlike those of an executor they are not waited for when the process ends: one that hangs keeps nothing alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

MOST_WAITING = 64
"""So many calls of some workers may wait beside those that do something."""

_here = threading.local()
"""The workers of the thread that asks, if it is one of theirs."""


@contextmanager
def waiting() -> Iterator[None]:
    """Within a call that was handed to some workers: it only waits meanwhile, and another may be done in its place."""
    workers: Workers | None = getattr(_here, "workers", None)
    counted = workers is not None and workers._wait(1)
    try:
        yield
    finally:
        if workers is not None and counted:
            workers._wait(-1)


class Workers:
    """At most `count` threads, begun as they are needed. Its methods are called by one thread."""

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._begun = self._waiting = 0
        self._mutex = threading.Lock()
        self.busy = 0
        """Calls that were handed over and not yet taken back by `result`."""

    @property
    def has_room(self) -> bool:
        """True if what is submitted now is done now."""
        return self.busy < self._count + self._waiting

    def _wait(self, more: int) -> bool:
        with self._mutex:
            if not 0 <= self._waiting + more <= MOST_WAITING:
                return False
            self._waiting += more
            return True

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Do it, now or as soon as another call is done. What came of it is to be taken with `result`."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

        self.busy += 1
        if self._begun < min(self.busy, self._count + self._waiting):
            self._begun += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._begun}", daemon=True).start()
        self._todo.put(run)
        return done

    def result(self, done: Future[T]) -> T:
        """Waits for the result of a call. Raises what it raised."""
        try:
            return done.result()
        finally:
            self.busy -= 1

    def lose(self) -> None:
        """A call hangs, and nobody waits for what comes of it any more: another thread may be begun in its place."""
        self._count += 1

    def close(self) -> None:
        """Let the threads end once they have done what was submitted."""
        for _ in range(self._begun):
            self._todo.put(None)

    def _work(self) -> None:
        _here.workers = self
        while (call := self._todo.get()) is not None:
            call()
