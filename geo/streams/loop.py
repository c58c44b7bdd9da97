"""A loop over batches in a thread of this process, for sources that need no streaming query. It is stopped and asked like one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from geo.faults import as_raised


class BatchLoop:
    """Calls `step` every `every_s` seconds, or as soon as it is done if that takes longer. With `every_s` None it calls `step`
    without a pause until it returns False: nothing was there. Calls `close` when it ends. Its construction starts it."""

    def __init__(self, name: str, step: Callable[[], bool], close: Callable[[], None], *, every_s: float | None) -> None:
        self._step, self._close, self._every_s = step, close, every_s
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.in_batch = False
        """A batch is under way, or failed: what became of it only the next start finds out."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._go_round()
        except BaseException as error:
            self._failure = error
        try:
            self._close()
        except BaseException as error:
            self._failure = self._failure or error

    def _go_round(self) -> None:
        while not self._stop.is_set():
            due = time.monotonic() + (self._every_s or 0.0)
            self.in_batch = True
            more = self._step()
            self.in_batch = False
            if self._every_s is None and not more:
                return
            self._stop.wait(max(0.0, due - time.monotonic()))

    @property
    def is_active(self) -> bool:
        return self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """Error that ended it, as it was raised in the batch or in a task. None while it runs, and if it ended well."""
        return None if self._failure is None or self.is_active else as_raised(self._failure)

    @property
    def ended_well(self) -> bool:
        """True if nothing is left open: it does not run, and nothing failed."""
        return not self.is_active and self._failure is None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it ends or the time is over; True if it ended. Raises nothing: `error` says why."""
        self._thread.join(timeout_s)
        return not self.is_active

    def stop(self) -> None:
        """Let the running batch end, then stop."""
        self._stop.set()
        self._thread.join()
