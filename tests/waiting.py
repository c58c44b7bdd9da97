"""Waiting for what somebody else does, on the same cores; and who does that in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

LEAST_S, MOST_S = 0.05, 0.5
"""Between two looks."""


def holds(condition: Callable[[], bool], every_s: float | None = None) -> bool:
    """Whether it holds by now; if not, after a pause: `every_s`, else twice as long as the look took, so that who looks leaves most of a
    core to what is waited for."""
    began = time.monotonic()
    if condition():
        return True
    time.sleep(min(max(LEAST_S, 2 * (time.monotonic() - began)), MOST_S) if every_s is None else every_s)
    return False


def until(
    condition: Callable[[], bool],
    told: Callable[[], object] = lambda: "did not happen",
    *,
    limit_s: float = 120.0,
    every_s: float | None = None,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Wait until it holds, looking as `holds` does. Fails with what is `told` then, after the limit, or once what it waits for does not go on."""
    deadline = time.monotonic() + limit_s
    while not holds(condition, every_s):
        assert goes_on(), f"ended early: {told()}"
        assert time.monotonic() < deadline, told()


R = TypeVar("R")


class InThread(Generic[R]):
    """Something that runs until it is stopped, in a thread of the test. `told`: what there is to know of one that hangs."""

    every_s: float | None = None
    """As of `holds`."""
    limit_s = 180.0
    beside: Sequence[InThread[Any]] = ()
    """Others that go on while this one is waited for."""

    def __init__(self, run: Callable[[], R], stop: Callable[[], object], told: Callable[[], object] = str) -> None:
        self._run, self.stop, self._told = run, stop, told
        self._outcome, self._is_asked = Future[R](), False
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def _main(self) -> None:
        try:
            self._outcome.set_result(self._run())
        except BaseException as error:
            self._outcome.set_exception(error)

    @property
    def ended(self) -> R:
        """What it returned. Raises what ended it; if nobody asks, that is raised once it has been stopped."""
        self._is_asked = True
        return self._outcome.result(0.0)

    @property
    def is_done(self) -> bool:
        return self._outcome.done()

    def until(self, condition: Callable[[], bool]) -> None:
        every = (self, *self.beside)
        told, goes_on = (lambda: [(one._outcome, one._told()) for one in every], lambda: not any(one.is_done for one in every))
        until(condition, told, limit_s=self.limit_s, every_s=self.every_s, goes_on=goes_on)

    def join(self) -> None:
        self._thread.join(self.limit_s)
        assert not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop()
        self.join()
        if kind is None and not self._is_asked:
            self._outcome.result()
