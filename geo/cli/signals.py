"""Does what `ending.py` decides of SIGTERM and SIGINT."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from geo.cli.ending import AskedBy, Does, on_signal

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

END_S = 2.0
"""After Ctrl-C the process ends by then: nothing that it leaves is worse than what a kill leaves."""

_SAY_S = 0.2
"""Seconds within which a run may end without a word that it is stopping."""

_HEARD_S = 0.2
"""Seconds after which the main thread is stopped behind its back. It is in a call that does not come back, such as one to a store.
"""

_CANCEL_S = 0.25
"""Between two times that Spark's jobs are cancelled: what runs begins others meanwhile."""

INTERRUPTED = 130
"""Exit code of what Ctrl-C ended, as shells have it."""

_launches = False
"""The main thread starts Spark."""


class Signals:
    """Handling of signals by this process, as a context."""

    def __init__(self, on_end: Callable[[int], None], end: Callable[[int], object]) -> None:
        """`end` ends the process, with an exit code; `on_end` is called before that is done in the middle of something."""
        self._on_end, self._end = on_end, end
        self._stop: Callable[[], None] | None = None
        self._interrupts = 0
        self._before: dict[str, Any] = {}
        """Handlers of before, by signal, that are replaced now."""
        self._came = self._heard = self._heard_late = 0
        """Counts of Ctrl-C: how often it came, was handled, and was handled by another thread of which the main thread learns
        later.
        """
        self._wakes: socket.socket | None = None
        self._woke_before = -1

    def __enter__(self) -> Self:
        self._at("SIGINT", AskedBy.PERSON)
        if threading.current_thread() is threading.main_thread():
            reads, self._wakes = socket.socketpair()
            self._wakes.setblocking(False)
            self._woke_before = signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=self._listen, args=(reads,), name="geo-signals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._interrupts:  # else what still runs may be waited for, and a second Ctrl-C ends it
            for name, before in self._before.items():
                signal.signal(getattr(signal, name), before)
            if self._wakes is not None:
                signal.set_wakeup_fd(self._woke_before)
                self._wakes.close()

    def _listen(self, reads: socket.socket) -> None:
        """Python calls what is to be done at a signal in the main thread, once that comes back from what it calls."""
        with reads:
            while numbers := reads.recv(64):
                for _ in range(numbers.count(signal.SIGINT)):
                    self._came += 1
                    time.sleep(_HEARD_S)
                    if self._heard < self._came:
                        self._heard_late += 1
                        with suppress(KeyboardInterrupt):
                            self._asked(AskedBy.PERSON)

    def _at(self, name: str, asked: AskedBy) -> None:
        before = signal.getsignal(getattr(signal, name))
        if at_signal(name, lambda: self._hear(asked)):
            self._before.setdefault(name, before)

    def _hear(self, asked: AskedBy) -> None:
        if asked is AskedBy.MANAGER or not self._heard_late:
            self._asked(asked)
            return
        self._heard_late -= 1
        if self._stop is None:
            raise KeyboardInterrupt

    def stop_by(self, stop: Callable[[], None]) -> None:
        """From now on signals call `stop`, which lets running batches end first."""
        self._stop = stop
        self._at("SIGTERM", AskedBy.MANAGER)

    def interrupted(self) -> int:
        """Somebody else's handler raised KeyboardInterrupt, as pyspark's does while its session is made. Returns the exit code."""
        if not self._interrupts:
            with suppress(KeyboardInterrupt):
                self._asked(AskedBy.PERSON)
        return INTERRUPTED

    def _asked(self, asked: AskedBy) -> None:
        follows = on_signal(asked, self._interrupts, can_stop=self._stop is not None, launches=_launches)
        self._interrupts += asked is AskedBy.PERSON
        self._heard += asked is AskedBy.PERSON
        if Does.END_NOW in follows:
            self._end(INTERRUPTED)
        if not {Does.END_SOON, Does.END_UNTIDILY}.isdisjoint(follows):
            # A handler may have interrupted what writes, so another thread does that.
            threading.Thread(target=self._go_out, args=(follows,), name="geo-end", daemon=True).start()
        if Does.STOP in follows and self._stop is not None:
            self._stop()
        if Does.RAISE in follows:
            raise KeyboardInterrupt

    def _go_out(self, follows: Collection[Does]) -> None:
        deadline = time.monotonic() + (END_S if Does.END_SOON in follows else 0.0)
        if Does.CANCEL in follows:
            threading.Thread(target=_cancel_jobs, args=(deadline,), name="geo-cancel", daemon=True).start()
        if Does.END_SOON in follows:
            time.sleep(_SAY_S)
            with suppress(Exception):
                log.warning("stopping; Ctrl-C again ends it at once", extra={"event": "stopping"})
        while (left_s := deadline - time.monotonic()) > 0:
            time.sleep(left_s)
        with suppress(Exception):
            self._on_end(INTERRUPTED)
        self._end(INTERRUPTED)


def _cancel_jobs(deadline: float) -> None:
    """Cancel what Spark computes until then. Spark may not answer."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    while context is not None and time.monotonic() < deadline:
        with suppress(Exception):
            if (active := context._active_spark_context) is not None:
                active.cancelAllJobs()
        time.sleep(_CANCEL_S)


def at_signal(name: str, call: Callable[[], None]) -> bool:
    """Call `call` at a signal, where the system has it. Python gives signals to its main thread alone, so a verb that a job's runtime
    calls in another one ends when the process does. Returns whether it will be called."""
    is_given = hasattr(signal, name) and threading.current_thread() is threading.main_thread()
    if is_given:
        signal.signal(getattr(signal, name), lambda *_: call())
    return is_given


@contextmanager
def launching() -> Iterator[None]:
    """While Spark is started. What Ctrl-C does afterwards is what it did before: pyspark has a handler of its own."""
    global _launches
    before, _launches = signal.getsignal(signal.SIGINT), threading.current_thread() is threading.main_thread()
    try:
        yield
    finally:
        _launches = False
        if signal.getsignal(signal.SIGINT) is not before:  # so this is the main thread
            signal.signal(signal.SIGINT, before)
